//! Ports: a free one, who listens on one, and whether that is our engine.
//!
//! Who listens is read from `/proc` where it tells; elsewhere, and for processes of others, nothing
//! is claimed. It refuses nothing: `launch` does.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::time::Duration;

use super::tree::{Process, family, processes};

/// A port on `host` that is free now. Somebody may take it before the engine does, so it lies
/// outside of the range from which the system gives ports to connections, where there is room:
/// neither another program's connection nor our own asking for health can then take it.
///
/// # Errors
/// The host is not an address of this machine, or there is no free port.
pub fn free_port(host: &str) -> io::Result<u16> {
    const LOWEST: u16 = 20_000;
    const TRIES: usize = 32;
    let host = bare(host);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
    let given = range.and_then(|text| text.split_whitespace().next()?.parse().ok());
    if let Some(first_given) = given.filter(|first| *first > LOWEST + 1000) {
        for _ in 0..TRIES {
            let port = rand::random_range(LOWEST..first_given);
            if TcpListener::bind((host, port)).is_ok() {
                return Ok(port);
            }
        }
    }
    TcpListener::bind((host, 0))?.local_addr().map(|address| address.port())
}

/// The host without the brackets of an IPv6 url.
pub(crate) fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

/// Whether somebody answers on host and port.
pub(crate) async fn taken(host: &str, port: u16) -> bool {
    let host = bare(host).to_owned();
    let addresses = tokio::task::spawn_blocking(move || {
        (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>)
    });
    let Ok(Ok(addresses)) = addresses.await else { return false };
    for address in addresses {
        let attempt = tokio::net::TcpStream::connect(address);
        if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(1), attempt).await {
            return true;
        }
    }
    false
}

/// Who listens on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listener {
    /// Nobody, or it can't be told who.
    Unknown,
    /// A descendant of the process that was asked about, and nobody else.
    Ours,
    /// Something that forwards ports for containers.
    Forwarder,
    /// Somebody else, alone or beside ours.
    Other(Process),
    /// A process of another user, whose id this is, alone or beside ours.
    User(u32),
}

/// Who listens on `port` where connections to `hosts` arrive, seen from the tree of `root`.
pub(crate) fn listener(port: u16, hosts: &[IpAddr], root: i32) -> Listener {
    let mut sockets = listening(port);
    sockets.retain(|socket| socket.hears(hosts));
    if sockets.is_empty() {
        return Listener::Unknown;
    }
    let all = processes();
    let ours = family(root, &all);
    let held: Vec<Option<HashSet<u64>>> =
        ours.iter().map(|process| sockets_of(process.pid)).collect();
    let own: HashSet<u64> = held.iter().flatten().flatten().copied().collect();
    let strange: HashSet<u64> =
        sockets.iter().map(|socket| socket.inode).filter(|inode| !own.contains(inode)).collect();
    if strange.is_empty() {
        return Listener::Ours;
    }
    // What a container's server listens on is held by no descendant of the client that started it.
    if ours.iter().any(|process| hands_over(&process.name)) {
        return Listener::Unknown;
    }
    let own_ids: HashSet<i32> = ours.iter().map(|process| process.pid).collect();
    let others = || all.iter().filter(|process| !own_ids.contains(&process.pid));
    if let Some(owner) = others().find(|process| holds(process.pid, &strange)) {
        return if forwards(&owner.name) {
            Listener::Forwarder
        } else {
            Listener::Other(owner.clone())
        };
    }
    let may_be_ours = held.iter().any(Option::is_none);
    let forwarded = others().any(|process| forwards(&process.name));
    if may_be_ours || forwarded {
        return Listener::Unknown;
    }
    sockets.retain(|socket| strange.contains(&socket.inode));
    unseen(&sockets, rustix::process::geteuid().as_raw())
}

/// Whose `sockets` are that no process holds which `user` may look at: a stranger's where they belong
/// to another user. One of our own user's may be held where we can't see, in another container.
fn unseen(sockets: &[Socket], user: u32) -> Listener {
    match sockets.iter().find(|socket| socket.user != user) {
        Some(socket) => Listener::User(socket.user),
        None => Listener::Unknown,
    }
}

/// Who listens on `port`, where it can be told.
pub(crate) fn owner(port: u16) -> Option<Process> {
    let inodes: HashSet<u64> = listening(port).iter().map(|socket| socket.inode).collect();
    if inodes.is_empty() {
        return None;
    }
    processes().into_iter().find(|process| holds(process.pid, &inodes))
}

/// Whether a program hands the engine to somebody else, so that its listener is no descendant: a word
/// of a command, or the name of a process.
pub(crate) fn hands_over(word: &str) -> bool {
    const HANDS: [&str; 10] = [
        "docker",
        "podman",
        "nerdctl",
        "srun",
        "sbatch",
        "ssh",
        "kubectl",
        "systemd-run",
        "machinectl",
        "enroot",
    ];
    word.split(|c: char| c.is_whitespace() || matches!(c, ';' | '&' | '|'))
        .any(|word| HANDS.contains(&word.rsplit('/').next().unwrap_or(word)))
}

/// Programs that hold a port in the name of a container.
fn forwards(name: &str) -> bool {
    const NAMES: [&str; 9] = [
        "docker-proxy",
        "dockerd",
        "containerd-shim",
        "rootlessport",
        "rootlesskit",
        "slirp4netns",
        "pasta",
        "conmon",
        "kubectl",
    ];
    NAMES.iter().any(|known| name.starts_with(known))
}

/// A socket that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Socket {
    /// Where it listens; unspecified for everywhere.
    address: IpAddr,
    inode: u64,
    /// Id of the user who made it.
    user: u32,
}

impl Socket {
    /// Whether connections to one of these addresses come to it.
    fn hears(&self, hosts: &[IpAddr]) -> bool {
        hosts.is_empty()
            || hosts.iter().any(|host| {
                let same_family = host.is_ipv4() == self.address.is_ipv4();
                host.is_unspecified()
                    || host.to_canonical() == self.address.to_canonical()
                    // A socket for all of IPv6 may hear IPv4 as well.
                    || (self.address.is_unspecified() && (same_family || self.address.is_ipv6()))
            })
    }
}

/// The sockets that listen on `port` in this network namespace.
fn listening(port: u16) -> Vec<Socket> {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .flat_map(|table| read_table(&table, port))
        .collect()
}

/// The lines of `/proc/net/tcp` that listen on `port`.
fn read_table(table: &str, port: u16) -> Vec<Socket> {
    const LISTEN: &str = "0A";
    table
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (address, local) = fields.get(1)?.rsplit_once(':')?;
            let same = u16::from_str_radix(local, 16).ok()? == port && *fields.get(3)? == LISTEN;
            if !same {
                return None;
            }
            Some(Socket {
                address: read_address(address)?,
                user: fields.get(7)?.parse().ok()?,
                inode: fields.get(9)?.parse().ok()?,
            })
        })
        .collect()
}

/// An address as the kernel prints it: words of 32 bits in hexadecimal, each in the machine's order.
fn read_address(text: &str) -> Option<IpAddr> {
    let mut bytes = Vec::with_capacity(16);
    for at in (0..text.len()).step_by(8) {
        let word = u32::from_str_radix(text.get(at..at + 8)?, 16).ok()?;
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|four| Ipv4Addr::from(four).into()),
        16 => <[u8; 16]>::try_from(bytes).ok().map(|all| Ipv6Addr::from(all).into()),
        _ => None,
    }
}

/// Inodes of the sockets that a process has open; `None` where that can't be read.
fn sockets_of(pid: i32) -> Option<HashSet<u64>> {
    let entries = match std::fs::read_dir(format!("/proc/{pid}/fd")) {
        Ok(entries) => entries,
        // One that has ended holds nothing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(HashSet::new()),
        Err(_) => return None,
    };
    let inode = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    Some(entries.flatten().filter_map(inode).collect())
}

/// Whether a process has one of these sockets open; false where that can't be read.
fn holds(pid: i32, inodes: &HashSet<u64>) -> bool {
    sockets_of(pid).is_some_and(|held| !held.is_disjoint(inodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_had() {
        for host in ["127.0.0.1", "localhost"] {
            let port = free_port(host).unwrap();
            assert!(TcpListener::bind((host, port)).is_ok());
        }
        assert!(free_port("203.0.113.7").is_err());
    }

    #[test]
    fn listeners_are_told_from_connections() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000 100 0 0 10 0\n   \
            1: 0100007F:1F40 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000 20 4 30 10 -1\n   \
            2: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000 100 0 0 10 0\n";
        let found = read_table(table, 8000);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].inode, found[0].user), (4711, 0));
        assert_eq!(found[0].address, IpAddr::from([127, 0, 0, 1]));
        assert!(read_table("garbage\n: : :\n", 8000).is_empty());
    }

    #[test]
    fn a_socket_hears_what_comes_to_its_address() {
        let at = |text: &str| Socket { address: text.parse().unwrap(), inode: 1, user: 0 };
        let host = |text: &str| [text.parse::<IpAddr>().unwrap()];
        assert!(
            at("127.0.0.1").hears(&host("127.0.0.1")) && at("0.0.0.0").hears(&host("127.0.0.1"))
        );
        assert!(
            at("::").hears(&host("127.0.0.1")) && at("::ffff:10.0.0.1").hears(&host("10.0.0.1"))
        );
        assert!(at("10.0.0.1").hears(&host("0.0.0.0")));
        assert!(!at("10.0.0.1").hears(&host("127.0.0.1")) && !at("0.0.0.0").hears(&host("::1")));
        assert_eq!(
            read_address("00000000000000000000000001000000"),
            Some(Ipv6Addr::LOCALHOST.into())
        );
        assert_eq!(read_address("0100007"), None);
    }

    #[test]
    fn a_socket_of_another_user_is_a_strangers() {
        let of = |user| Socket { address: [127, 0, 0, 1].into(), inode: 1, user };
        assert_eq!(unseen(&[of(1000), of(0)], 1000), Listener::User(0));
        assert_eq!(unseen(&[of(1000)], 1000), Listener::Unknown);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_stranger_is_found_alone_and_beside_ours() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType};
        use rustix::net::{bind, listen, socket_with, sockopt};
        let own = |port: u16| {
            let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
            let made = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
            sockopt::set_socket_reuseport(&made, true).unwrap();
            bind(&made, &SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
            listen(&made, 1).unwrap();
            made
        };
        let theirs = TcpListener::from(own(0));
        let port = theirs.local_addr().unwrap().port();
        // An engine that holds one as its standard input, which serves as well.
        let mut engine =
            std::process::Command::new("sleep").arg("1000").stdin(own(port)).spawn().unwrap();
        let hosts = [IpAddr::from([127, 0, 0, 1])];
        let seen = |root: u32| listener(port, &hosts, root as i32);
        let stranger =
            |seen| matches!(seen, Listener::Other(it) if it.pid == std::process::id() as i32);
        let mut idle = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (beside, alone) = (seen(engine.id()), seen(idle.id()));
        drop(theirs);
        let ours = seen(engine.id());
        for child in [&mut engine, &mut idle] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(stranger(beside));
        assert!(!matches!(alone, Listener::Ours | Listener::Unknown));
        assert_eq!(ours, Listener::Ours);
    }

    #[test]
    fn who_hands_an_engine_over_is_known() {
        for word in ["docker", "/usr/bin/srun", "cd x; exec docker run y"] {
            assert!(hands_over(word), "{word}");
        }
        assert!(!hands_over("docker-model") && !hands_over("vllm"));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn our_own_listener_is_ours() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let me = std::process::id() as i32;
        assert_eq!(listener(port, &[[127, 0, 0, 1].into()], me), Listener::Ours);
        assert_eq!(owner(port).map(|process| process.pid), Some(me));
        assert!(taken("127.0.0.1", port).await);
        drop(socket);
        assert_eq!(listener(port, &[[127, 0, 0, 1].into()], me), Listener::Unknown);
        assert!(!taken("127.0.0.1", port).await);
    }
}
