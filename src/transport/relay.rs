//! A relay: a port of this machine behind which an engine answers, each answer held back.
//!
//! It lives on a thread of its own, so that what it does is not done by the thread that measures. It is
//! there as long as somebody holds it; connections then end with it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::alarm::Alarm;
use super::delay::{Delay, Early, PIECE, pass};

/// Connections that may wait to be taken.
const BACKLOG: u32 = 4096;
/// File descriptors in this process for each stream on a relayed way: the client's socket, two of the
/// relay, and its alarm.
const DESCRIPTORS: u64 = 4;

/// A port behind which an engine answers later.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    /// Its end is the relay's.
    _alive: oneshot::Sender<()>,
}

impl Relay {
    /// Takes a port of the loopback interface and passes on what comes there to `host` and `port`.
    ///
    /// # Errors
    /// The system's, where there is no port, no thread or no descriptor to have.
    pub fn open(host: &str, port: u16, delay: Delay) -> io::Result<Relay> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            let socket = TcpSocket::new_v4()?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            socket.listen(BACKLOG)?
        };
        let address = listener.local_addr()?;
        let engine: Arc<(String, u16)> = Arc::new((host.to_owned(), port));
        let (alive, gone) = oneshot::channel::<()>();
        std::thread::Builder::new().name("relay".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = gone => {}
                    () = accept(listener, engine, delay) => {}
                }
            });
            // A name that is being looked up holds nobody up.
            runtime.shutdown_background();
        })?;
        Ok(Relay { address, _alive: alive })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many file descriptors of this process so many streams need.
    pub fn descriptors(streams: u64) -> u64 {
        streams.saturating_mul(DESCRIPTORS)
    }
}

async fn accept(listener: TcpListener, engine: Arc<(String, u16)>, delay: Delay) {
    loop {
        match listener.accept().await {
            Ok((near, _)) => {
                tokio::spawn(connection(near, Arc::clone(&engine), delay));
            }
            // Out of descriptors, most likely: the next attempt may find one.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves one connection. Where the engine takes none, the client's ends, as one to a dead engine does.
async fn connection(mut near: TcpStream, engine: Arc<(String, u16)>, delay: Delay) {
    let mut early: Early = None;
    let far = {
        let mut connecting = pin!(TcpStream::connect((engine.0.as_str(), engine.1)));
        let mut piece = vec![0; PIECE];
        loop {
            tokio::select! {
                far = &mut connecting => break far,
                // A request that comes meanwhile counts from now on.
                read = near.read(&mut piece), if early.is_none() => match read {
                    Ok(count @ 1..) => early = Some((Instant::now(), piece[..count].to_vec())),
                    Ok(0) | Err(_) => return,
                }
            }
        }
    };
    let Ok(far) = far else { return };
    // Without it a token waits for the peer's acknowledgement of the one before.
    if near.set_nodelay(true).is_err() || far.set_nodelay(true).is_err() {
        return;
    }
    pass(near, far, delay, Alarm::fine(), early).await;
}

#[cfg(test)]
mod tests {
    use std::time::Instant as Real;

    use tokio::io::AsyncWriteExt;

    use super::*;

    const TWICE: f64 = 1.0;

    fn relay(port: u16) -> Relay {
        Relay::open("127.0.0.1", port, Delay::new(TWICE).unwrap()).unwrap()
    }

    /// Takes one connection, answers each byte after `pause`, and says how long each answer took it.
    async fn engine(listener: TcpListener, pause: Duration) -> Vec<Duration> {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut took = Vec::new();
        while let Ok(byte) = stream.read_u8().await {
            let asked = Real::now();
            tokio::time::sleep(pause).await;
            took.push(asked.elapsed());
            stream.write_u8(byte + 1).await.unwrap();
        }
        took
    }

    #[tokio::test]
    async fn answers_over_tcp_take_at_least_twice_as_long() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = relay(listener.local_addr().unwrap().port());
        let answering = tokio::spawn(engine(listener, Duration::from_millis(20)));
        let mut client = TcpStream::connect(relay.address()).await.unwrap();
        let mut waited = Vec::new();
        for byte in 0..5 {
            let asked = Real::now();
            client.write_u8(byte).await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), byte + 1);
            waited.push(asked.elapsed());
        }
        drop(client);
        let took = answering.await.unwrap();
        assert_eq!(took.len(), 5, "the engine heard that the client was gone");
        for (waited, took) in waited.iter().zip(&took) {
            assert!(*waited >= *took * 2, "{waited:?} where the engine took {took:?}");
        }
    }

    #[tokio::test]
    async fn where_no_engine_is_a_connection_ends() {
        let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let relay = relay(unused);
        let mut client = TcpStream::connect(relay.address()).await.unwrap();
        let _ = client.write_all(b"hello").await;
        let mut all = Vec::new();
        let read = client.read_to_end(&mut all).await;
        assert!(read.is_err() || all.is_empty());
    }

    #[tokio::test]
    async fn connections_end_with_the_relay() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = relay(listener.local_addr().unwrap().port());
        let address = relay.address();
        let mut client = TcpStream::connect(address).await.unwrap();
        let (mut engine, _) = listener.accept().await.unwrap();
        drop(relay);
        let mut all = Vec::new();
        let ended =
            tokio::time::timeout(Duration::from_secs(30), client.read_to_end(&mut all)).await;
        assert!(ended.expect("it goes on").is_err() || all.is_empty());
        assert!(engine.read_to_end(&mut all).await.is_err() || all.is_empty());
    }
}
