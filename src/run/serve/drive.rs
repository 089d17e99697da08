//! Driving a load: streams of a closed loop, bursts, and the due times of an open loop.
//!
//! Each is a task of its own that sends what the ledger's stock holds; when the window opens and
//! closes follows from the arrival. Nobody judges anything here.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::clock::Stamp;
use crate::load::arrival::Schedule;
use crate::load::{Client, Endpoint};
use crate::record::run_record::CellState;
use crate::suite::model::Amount;

use super::super::cell::{broken_words, make_room};
use super::ledger::{Due, Ledger};

/// The first due time is so far ahead that it can be kept.
const LEAD: Duration = Duration::from_millis(20);

/// Connections that an open loop has before its clock starts: as many as this time brings requests,
/// within these bounds. More are opened as they are needed.
const CONNECTIONS: (f64, usize, usize) = (2.0, 4, 256);

/// Connections by which the limit of open files is raised at once.
const ROOM: u64 = 256;

/// One stream of a closed loop: its warm-ups, then measured requests until there is none.
pub(super) async fn stream(ledger: Rc<Ledger>, stream: u32, mut client: Client, warm_ups: u32) {
    for _ in 0..warm_ups {
        let Some(request) = (!ledger.is_over()).then(|| ledger.take(false)).flatten() else {
            return;
        };
        if !ledger.send(&mut client, stream, request, false, None).await {
            ledger.rest().await;
        }
    }
    ledger.warmed_up();
    while goes_on(&ledger) {
        let Some(request) = ledger.take(true) else { return };
        if !ledger.send(&mut client, stream, request, true, None).await {
            ledger.rest().await;
        }
    }
}

/// Whether a stream sends another request. The first one that finds none closes the window.
fn goes_on(ledger: &Ledger) -> bool {
    if ledger.is_over() {
        return false;
    }
    let now = ledger.clock.now();
    match (ledger.amount, ledger.see(|seen| seen.opened)) {
        (Amount::Duration(length), Some(opened)) if now >= opened + length => {
            ledger.close(opened + length);
            false
        }
        (Amount::Duration(_), _) => true,
        (Amount::Requests(_) | Amount::PerStream(_), _) => {
            let left = ledger.count().is_some_and(|count| ledger.taken() < count);
            if !left {
                ledger.close(now);
            }
            left
        }
    }
}

/// Bursts: rehearsals of the whole, then the one that is measured.
pub(super) async fn bursts(ledger: Rc<Ledger>, mut clients: Vec<Client>, rehearsals: u32) {
    for turn in 0..=rehearsals {
        let measured = turn == rehearsals;
        if ledger.is_over() {
            return;
        }
        // All are made before the first one goes out.
        let requests: Option<Vec<_>> = clients.iter().map(|_| ledger.take(measured)).collect();
        let Some(requests) = requests else { return };
        for client in &mut clients {
            // One that is still closed is opened by its request, as it would be for a user.
            let _ = client.open().await;
        }
        if measured {
            ledger.open(ledger.clock.now());
        }
        let mut tasks = JoinSet::new();
        for ((stream, mut client), request) in (0u32..).zip(clients.drain(..)).zip(requests) {
            let ledger = Rc::clone(&ledger);
            tasks.spawn_local(async move {
                ledger.send(&mut client, stream, request, measured, None).await;
                client
            });
        }
        clients.extend(tasks.join_all().await);
    }
    ledger.close(ledger.clock.now());
}

/// An open loop: a request at each due time, whether or not those before have ended.
pub(super) struct Open {
    pub(super) ledger: Rc<Ledger>,
    pub(super) schedule: Schedule,
    /// Warm-ups that must have ended before the window opens.
    pub(super) warm_ups: u64,
    pub(super) pool: Rc<Pool>,
}

impl Open {
    pub(super) async fn run(mut self) {
        let ledger = Rc::clone(&self.ledger);
        let start = ledger.clock.now() + LEAD;
        let mut tasks = JoinSet::new();
        let mut last = start;
        while let Some(due) = self.schedule.next().map(|due| start + due) {
            let mut over = ledger.canceller.handle();
            tokio::select! {
                () = over.cancelled() => {}
                () = ledger.clock.sleep_until(due) => {}
            }
            if ledger.is_over() {
                break;
            }
            if ledger.warmed() >= self.warm_ups {
                ledger.open(due);
            }
            let opened = ledger.see(|seen| seen.opened);
            let end = match (ledger.amount, opened) {
                (Amount::Duration(length), Some(opened)) => {
                    (due >= opened + length).then_some(opened + length)
                }
                (Amount::Requests(_) | Amount::PerStream(_), Some(_)) => {
                    let left = ledger.count().is_some_and(|count| ledger.taken() < count);
                    (!left).then_some(last)
                }
                (_, None) => None,
            };
            if let Some(end) = end {
                ledger.close(end);
                break;
            }
            last = due;
            let measured = opened.is_some();
            let Some(request) = ledger.take(measured) else { break };
            let (ledger, pool) = (Rc::clone(&ledger), Rc::clone(&self.pool));
            tasks.spawn_local(async move {
                let (number, mut client) = match pool.take() {
                    Ok(taken) => taken,
                    Err(state) => return ledger.give_up(state),
                };
                let begun = ledger.clock.now();
                let opened = client.open().await;
                let due = Due { at: due, connecting: ledger.clock.now().since(begun) };
                match opened {
                    Ok(()) => {
                        ledger.send(&mut client, number, request, measured, Some(due)).await;
                    }
                    Err(failure) => ledger.unsent(number, &request, measured, due, failure),
                }
                pool.put(number, client);
            });
            // What has ended is forgotten.
            while tasks.try_join_next().is_some() {}
        }
        tasks.join_all().await;
        ledger.close(last);
    }
}

/// The connections of an open loop: as many as requests have been in flight at once.
pub(super) struct Pool {
    idle: RefCell<Vec<(u32, Client)>>,
    made: RefCell<u32>,
    endpoint: Endpoint,
    clock: crate::clock::Clock,
}

impl Pool {
    /// A pool with connections for a rate of requests.
    ///
    /// # Errors
    /// No connection, or no room for so many.
    pub(super) async fn open(
        endpoint: &Endpoint,
        clock: crate::clock::Clock,
        rate: f64,
    ) -> Result<Pool, CellState> {
        let pool = Pool {
            idle: RefCell::new(Vec::new()),
            made: RefCell::new(0),
            endpoint: endpoint.clone(),
            clock,
        };
        let (seconds, least, most) = CONNECTIONS;
        let count = ((rate * seconds).ceil() as usize).clamp(least, most);
        let mut open = Vec::with_capacity(count);
        for _ in 0..count {
            let (number, mut client) = pool.take()?;
            client.open().await.map_err(super::super::cell::broken)?;
            open.push((number, client));
        }
        open.reverse();
        pool.idle.replace(open);
        Ok(pool)
    }

    /// Whether the kernel stamps what its connections read.
    pub(super) fn is_stamped(&self) -> bool {
        self.idle.borrow().iter().all(|(_, client)| client.is_stamped())
    }

    /// The connection that was used last, else a new one, which is not open yet.
    fn take(&self) -> Result<(u32, Client), CellState> {
        if let Some(idle) = self.idle.borrow_mut().pop() {
            return Ok(idle);
        }
        let number = *self.made.borrow();
        if u64::from(number).is_multiple_of(ROOM) {
            make_room(&self.endpoint, u64::from(number) + ROOM)?;
        }
        let client = Client::new(&self.endpoint, self.clock)
            .map_err(|error| broken_words("client", &error.to_string()))?;
        *self.made.borrow_mut() += 1;
        Ok((number, client))
    }

    fn put(&self, number: u32, client: Client) {
        self.idle.borrow_mut().push((number, client));
    }
}

/// When an open window of this length ends; never where it has none.
pub(super) fn end(amount: Amount, opened: Option<Stamp>) -> Option<Stamp> {
    match (amount, opened) {
        (Amount::Duration(length), Some(opened)) => Some(opened + length),
        (Amount::Duration(_), None) | (Amount::Requests(_) | Amount::PerStream(_), _) => None,
    }
}
