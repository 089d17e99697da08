//! Ports: a free one, who listens on one, and whether that is our engine.
//!
//! Who listens is read from `/proc` where it tells; elsewhere, and for processes of others, nothing
//! is claimed. It refuses nothing: `launch` does.

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::time::Duration;

use super::tree::{Process, descendants, process, processes};

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
fn bare(host: &str) -> &str {
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
    /// A descendant of the process that was asked about.
    Ours,
    /// Something that forwards ports for containers.
    Forwarder,
    /// Somebody else.
    Other(Process),
}

/// Who listens on `port`, seen from the tree of `root`.
pub(crate) fn listener(port: u16, root: i32) -> Listener {
    let inodes = listening_inodes(port);
    if inodes.is_empty() {
        return Listener::Unknown;
    }
    let all = processes();
    let ours = descendants(&[root], &all);
    if ours.iter().chain(process(root).iter()).any(|process| holds(process.pid, &inodes)) {
        return Listener::Ours;
    }
    match all.into_iter().find(|process| holds(process.pid, &inodes)) {
        None => Listener::Unknown,
        Some(owner) if forwards(&owner.name) => Listener::Forwarder,
        Some(owner) => Listener::Other(owner),
    }
}

/// Who listens on `port`, where it can be told.
pub(crate) fn owner(port: u16) -> Option<Process> {
    let inodes = listening_inodes(port);
    if inodes.is_empty() {
        return None;
    }
    processes().into_iter().find(|process| holds(process.pid, &inodes))
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

/// Inodes of the sockets that listen on `port` in this network namespace.
fn listening_inodes(port: u16) -> HashSet<u64> {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .flat_map(|table| read_table(&table, port))
        .collect()
}

/// Inodes of the lines of `/proc/net/tcp` that listen on `port`.
fn read_table(table: &str, port: u16) -> Vec<u64> {
    const LISTEN: &str = "0A";
    table
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (_, local) = fields.get(1)?.rsplit_once(':')?;
            let same = u16::from_str_radix(local, 16).ok()? == port && *fields.get(3)? == LISTEN;
            if same { fields.get(9)?.parse().ok() } else { None }
        })
        .collect()
}

/// Whether a process has one of these sockets open; false where that can't be read.
fn holds(pid: i32, inodes: &HashSet<u64>) -> bool {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    entries.flatten().any(|entry| {
        let Ok(target) = std::fs::read_link(entry.path()) else { return false };
        target
            .to_str()
            .and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
            .is_some_and(|inode: u64| inodes.contains(&inode))
    })
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
        assert_eq!(read_table(table, 8000), [4711]);
        assert!(read_table("garbage\n: : :\n", 8000).is_empty());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn our_own_listener_is_ours() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let me = std::process::id() as i32;
        assert_eq!(listener(port, me), Listener::Ours);
        assert_eq!(owner(port).map(|process| process.pid), Some(me));
        assert!(taken("127.0.0.1", port).await);
        drop(socket);
        assert_eq!(listener(port, me), Listener::Unknown);
        assert!(!taken("127.0.0.1", port).await);
    }
}
