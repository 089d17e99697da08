//! Engines by script, in virtual time: when what they say reaches a client.

use proptest::prelude::*;
use tokio::io::DuplexStream;

use super::*;

const MS: Duration = Duration::from_millis(1);
/// What takes longer than this in virtual time never happens.
const PATIENCE: Duration = Duration::from_secs(3600);

fn tenth() -> Delay {
    Delay::new(0.1).unwrap()
}

/// An engine that answers each line with these words, each at its time in ms after the line. After the
/// last one it waits for the next line, unless it `dies` at that time.
fn engine(script: &'static [(u32, &str)], dies: Option<u32>) -> Connect {
    Arc::new(move || {
        let (near, mut far) = tokio::io::duplex(1024);
        tokio::spawn(async move {
            while line(&mut far).await {
                let asked = Instant::now();
                for (at, words) in script {
                    tokio::time::sleep_until(asked + *at * MS).await;
                    if far.write_all(words.as_bytes()).await.is_err() {
                        return;
                    }
                }
                if let Some(at) = dies {
                    tokio::time::sleep_until(asked + at * MS).await;
                    return;
                }
            }
        });
        near
    })
}

async fn line(from: &mut DuplexStream) -> bool {
    loop {
        match from.read_u8().await {
            Ok(b'\n') => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

/// The next words, and how many ms after `asked` they came; no words at the end.
async fn next(client: &mut DuplexStream, asked: Instant) -> (u128, String) {
    let mut piece = [0; 256];
    let read = tokio::time::timeout(PATIENCE, client.read(&mut piece)).await;
    let count = read.expect("nothing comes").unwrap();
    (asked.elapsed().as_millis(), String::from_utf8_lossy(&piece[..count]).into_owned())
}

async fn ask(client: &mut DuplexStream) -> Instant {
    client.write_all(b"hello\n").await.unwrap();
    Instant::now()
}

#[tokio::test(start_paused = true)]
async fn first_token_gaps_and_end_take_a_tenth_longer() {
    let script = &[(100, "first"), (200, "second"), (250, "third"), (60_000, "last")];
    let mut client = delayed(engine(script, None), tenth())();
    let asked = ask(&mut client).await;
    for (at, words) in [(110, "first"), (220, "second"), (275, "third"), (66_000, "last")] {
        assert_eq!(next(&mut client, asked).await, (at, words.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn each_request_of_a_connection_counts_from_its_own_beginning() {
    let script = &[(100, "first"), (1000, "last")];
    let mut client = delayed(engine(script, None), tenth())();
    for pause in 0..50 {
        tokio::time::sleep(pause * 7 * MS).await;
        let asked = ask(&mut client).await;
        assert_eq!(next(&mut client, asked).await, (110, "first".to_owned()));
        assert_eq!(next(&mut client, asked).await, (1100, "last".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_in_parts_counts_from_its_first() {
    let mut client = delayed(engine(&[(100, "first")], None), tenth())();
    let asked = Instant::now();
    client.write_all(b"hel").await.unwrap();
    tokio::time::sleep(300 * MS).await;
    client.write_all(b"lo\n").await.unwrap();
    // The engine began to answer 300 ms after the first part, and took 100.
    assert_eq!(next(&mut client, asked).await, (440, "first".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn connections_do_not_feel_each_other() {
    let script = &[(100, "first"), (1000, "last")];
    let connect = delayed(engine(script, None), Delay::new(1.0).unwrap());
    let (mut one, mut other) = (connect(), connect());
    let first = ask(&mut one).await;
    tokio::time::sleep(150 * MS).await;
    let second = ask(&mut other).await;
    assert_eq!(next(&mut one, first).await, (200, "first".to_owned()));
    assert_eq!(next(&mut other, second).await, (200, "first".to_owned()));
    assert_eq!(next(&mut one, first).await, (2000, "last".to_owned()));
    assert_eq!(next(&mut other, second).await, (2000, "last".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_nothing_more_is_still_answered() {
    let script = &[(100, "first"), (1000, "last")];
    let mut client = delayed(engine(script, None), tenth())();
    let asked = ask(&mut client).await;
    client.shutdown().await.unwrap();
    assert_eq!(next(&mut client, asked).await, (110, "first".to_owned()));
    assert_eq!(next(&mut client, asked).await, (1100, "last".to_owned()));
    assert_eq!(next(&mut client, asked).await.1, "", "the engine has ended, and so has the way");
}

#[tokio::test(start_paused = true)]
async fn what_an_engine_said_before_it_died_arrives_and_then_the_end() {
    for (dies, end) in [(205, 220), (1000, 1000)] {
        let mut client = delayed(
            match dies {
                205 => engine(&[(100, "first"), (200, "second")], Some(205)),
                _ => engine(&[(100, "first"), (200, "second")], Some(1000)),
            },
            tenth(),
        )();
        let asked = ask(&mut client).await;
        assert_eq!(next(&mut client, asked).await, (110, "first".to_owned()));
        assert_eq!(next(&mut client, asked).await, (220, "second".to_owned()));
        assert_eq!(next(&mut client, asked).await, (end, String::new()));
        assert!(client.write_all(b"hello\n").await.is_err(), "nobody is there any more");
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_hears_at_once_that_its_client_is_gone() {
    let (heard, hears) = tokio::sync::oneshot::channel();
    let heard = Mutex::new(Some(heard));
    let connect: Connect = Arc::new(move || {
        let (near, mut far) = tokio::io::duplex(1024);
        let heard = heard.lock().unwrap().take().unwrap();
        tokio::spawn(async move {
            line(&mut far).await;
            far.write_all(b"first").await.unwrap();
            // Held back for a long time when the client goes.
            tokio::time::sleep(10_000 * MS).await;
            far.write_all(b"second").await.unwrap();
            assert!(!line(&mut far).await);
            heard.send(Instant::now()).unwrap();
        });
        near
    });
    let mut client = delayed(connect, Delay::new(10.0).unwrap())();
    let asked = ask(&mut client).await;
    tokio::time::sleep(20_000 * MS).await;
    drop(client);
    let heard = tokio::time::timeout(PATIENCE, hears).await.expect("it never hears").unwrap();
    assert_eq!((heard - asked).as_millis(), 20_000);
}

#[tokio::test(start_paused = true)]
async fn an_engine_is_not_held_up_by_a_client_that_is_behind_and_nothing_is_lost() {
    const PIECES: usize = 2000;
    let (told, done) = tokio::sync::oneshot::channel();
    let told = Mutex::new(Some(told));
    let connect: Connect = Arc::new(move || {
        // Far less than what is said, so that an engine that is not read would wait.
        let (near, mut far) = tokio::io::duplex(64);
        let told = told.lock().unwrap().take().unwrap();
        tokio::spawn(async move {
            line(&mut far).await;
            let asked = Instant::now();
            for piece in 0..PIECES {
                tokio::time::sleep_until(asked + 10 * piece as u32 * MS).await;
                far.write_all(&[(piece % 251) as u8; 1024]).await.unwrap();
            }
            told.send(asked.elapsed()).unwrap();
        });
        near
    });
    let mut client = delayed(connect, Delay::new(1.0).unwrap())();
    let asked = ask(&mut client).await;
    let took = tokio::time::timeout(PATIENCE, done).await.expect("it is held up").unwrap();
    assert_eq!(took, 10 * (PIECES as u32 - 1) * MS);
    // Two megabytes: more than all pipes hold, while nobody reads.
    tokio::time::sleep(60_000 * MS).await;
    let mut all = Vec::new();
    client.read_to_end(&mut all).await.unwrap();
    let expected: Vec<u8> = (0..PIECES).flat_map(|piece| [(piece % 251) as u8; 1024]).collect();
    assert!(all == expected, "{} of {} bytes", all.len(), expected.len());
    assert!(asked.elapsed() >= 60_000 * MS);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_before_the_engine_was_reached_waits_no_longer_for_it() {
    let script: &[(u32, &str)] = &[(100, "first")];
    let (mut client, near) = tokio::io::duplex(1024);
    let asked = ask(&mut client).await;
    let mut near = near;
    let mut sent = [0; 6];
    near.read_exact(&mut sent).await.unwrap();
    let came = Instant::now();
    // The connection takes 7 ms, which are no time of the engine's.
    tokio::time::sleep(7 * MS).await;
    let far = engine(script, None)();
    tokio::spawn(pass(near, far, tenth(), Alarm::coarse(), Some((came, sent.to_vec()))));
    assert_eq!(next(&mut client, asked).await, (110, "first".to_owned()));
}

#[test]
fn a_delay_is_above_nothing_and_at_most_tenfold() {
    for share in [0.0, -0.1, 10.1, f64::NAN, f64::INFINITY] {
        assert_eq!(Delay::new(share), None, "{share}");
    }
    assert_eq!(Delay::new(0.005).map(Delay::share), Some(0.005));
}

proptest! {
    /// Whatever a connection carries, each piece is due at its own time times the factor, and none before
    /// the one that it follows: not where a client asks before it has been told everything, either.
    #[test]
    fn every_piece_is_due_when_the_share_says(
        share in 0.001..10.0_f64,
        requests in prop::collection::vec(
            (any::<bool>(), 0_u64..5_000_000, prop::collection::vec(0_u64..3_000_000, 1..20)),
            1..10,
        ),
    ) {
        let mut schedule = Schedule::new(Delay::new(share).unwrap());
        let mut now = Instant::now();
        let mut last = now;
        for (patient, pause, gaps) in requests {
            let asked = if patient { now.max(last) } else { now } + Duration::from_micros(pause);
            schedule.ask(asked, asked);
            now = asked;
            for gap in gaps {
                now += Duration::from_micros(gap);
                let due = schedule.answer(now);
                let exact = (now - asked).as_secs_f64() * (1.0 + share);
                let exact = exact.max((last.saturating_duration_since(asked)).as_secs_f64());
                prop_assert!(((due - asked).as_secs_f64() - exact).abs() < 1e-6);
                prop_assert!(due >= last && due >= now);
                last = due;
            }
        }
    }
}
