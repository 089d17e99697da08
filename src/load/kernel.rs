//! The kernel's receive stamps: when the bytes of a read came in, however late they are read.
//!
//! A socket is asked for them once; each read then comes with the age of its newest bytes. Where the
//! system has no such stamps (another one than Linux, an old kernel) there is no age, and a read is
//! as old as its return. What a stamp is good for is decided in `socket`.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use hyper::rt::ReadBufCursor;

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    /// Bytes; 0 is the end of the stream.
    pub(super) bytes: usize,
    /// How long ago the last of them came in, where the kernel says so.
    pub(super) age: Option<Duration>,
}

/// No bytes wait for so long; a greater age says that somebody has set the clock.
const OLDEST: Duration = Duration::from_secs(60);

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod system {
    use std::mem::MaybeUninit;
    use std::os::fd::AsRawFd;

    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    /// Room for a control message with one time.
    #[repr(align(8))]
    struct Control([MaybeUninit<u8>; 64]);

    #[allow(unsafe_code)]
    pub(in crate::load) fn ask(socket: BorrowedFd<'_>) -> bool {
        let on: libc::c_int = 1;
        // SAFETY: the pointer is to a live integer of the length that is given; the call keeps neither.
        let asked = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_TIMESTAMPNS,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        asked == 0
    }

    #[allow(unsafe_code)]
    pub(in crate::load) fn read(
        socket: BorrowedFd<'_>,
        into: &mut ReadBufCursor<'_>,
    ) -> io::Result<Read> {
        // SAFETY: nothing is written to it but by the kernel, which leaves no byte uninitialised that
        // was initialised.
        let free = unsafe { into.as_mut() };
        let mut piece = libc::iovec { iov_base: free.as_mut_ptr().cast(), iov_len: free.len() };
        let mut control = Control([MaybeUninit::uninit(); 64]);
        // SAFETY: all zeroes are a valid msghdr.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut piece;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control.0);
        // SAFETY: the header points to one piece and to control bytes, both live and writable for the
        // lengths that it gives.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
        let Ok(bytes) = usize::try_from(got) else { return Err(io::Error::last_os_error()) };
        // SAFETY: the kernel has written so many bytes at the beginning of the unfilled part.
        unsafe { into.advance(bytes) };
        Ok(Read { bytes, age: stamp(&header).and_then(age) })
    }

    #[allow(unsafe_code)]
    fn stamp(header: &libc::msghdr) -> Option<Duration> {
        // SAFETY: recvmsg has filled the header in; the macros stay within the control bytes that it
        // says were written, and a message of this kind carries a timespec, perhaps unaligned.
        let time: libc::timespec = unsafe {
            let mut message = libc::CMSG_FIRSTHDR(header);
            loop {
                let one = message.as_ref()?;
                if one.cmsg_level == libc::SOL_SOCKET && one.cmsg_type == libc::SCM_TIMESTAMPNS {
                    break libc::CMSG_DATA(message).cast::<libc::timespec>().read_unaligned();
                }
                message = libc::CMSG_NXTHDR(header, message);
            }
        };
        Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
    }

    /// How long ago a time of the wall clock was. The stamps are of that clock alone, which may be
    /// set at any moment, so that no difference to the run's clock could be kept.
    fn age(stamp: Duration) -> Option<Duration> {
        let now = clock_gettime(ClockId::Realtime);
        let now = Duration::new(u64::try_from(now.tv_sec).ok()?, u32::try_from(now.tv_nsec).ok()?);
        now.checked_sub(stamp).filter(|age| *age < OLDEST)
    }
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
mod system {
    use super::*;

    pub(in crate::load) fn ask(_: BorrowedFd<'_>) -> bool {
        false
    }

    pub(in crate::load) fn read(
        socket: BorrowedFd<'_>,
        into: &mut ReadBufCursor<'_>,
    ) -> io::Result<Read> {
        let mut bytes = [0; 8 * 1024];
        let free = into.remaining().min(bytes.len());
        let got = rustix::io::read(socket, &mut bytes[..free])?;
        into.put_slice(&bytes[..got]);
        Ok(Read { bytes: got, age: None })
    }
}

/// Asks for the stamps of a socket; whether there will be any.
pub(super) use system::ask;
/// Reads from a socket that does not block.
///
/// # Errors
/// The system's; `WouldBlock` where nothing has come.
pub(super) use system::read;
