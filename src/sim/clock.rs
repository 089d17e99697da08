//! The clock: waits until the scheduler has something due and passes on what it makes.
//!
//! The edge between the pure scheduler and tokio's time, real or paused.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, watch};

use super::scheduler::{Chunk, Gauges, Job, Scheduler};
use crate::clock::{Clock, Stamp};

/// Where the chunks of a request go.
pub(crate) type Reply = mpsc::UnboundedSender<Chunk>;

/// What the API asks of the scheduler.
#[derive(Debug)]
pub(crate) enum Order {
    /// A request has arrived.
    Submit(Box<Job<Reply>>),
    /// Its client has gone away.
    Abort(u64),
}

/// The scheduler's figures, for `/metrics`.
pub(crate) type SharedGauges = Arc<Mutex<Gauges>>;

/// Runs the scheduler until a scripted crash or until nobody can send an order any more.
pub(crate) async fn drive(
    mut scheduler: Scheduler<Reply>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    clock: Clock,
    gauges: SharedGauges,
    dead: watch::Sender<bool>,
) {
    loop {
        let due = scheduler.due();
        let order = tokio::select! {
            // Orders first: what arrives at this instant belongs to this instant's admission.
            biased;
            order = orders.recv() => match order {
                Some(order) => Some(order),
                None => return,
            },
            () = wait(clock, due) => None,
        };
        if let Some(order) = order {
            obey(&mut scheduler, order, clock.now());
            while let Ok(order) = orders.try_recv() {
                obey(&mut scheduler, order, clock.now());
            }
        }
        scheduler.advance(clock.now(), &mut |reply, chunk| {
            // The client may be gone: its abort is on the way.
            let _ = reply.send(chunk);
        });
        *gauges.lock().unwrap_or_else(PoisonError::into_inner) = scheduler.gauges();
        if scheduler.dead() {
            dead.send_replace(true);
            return;
        }
    }
}

async fn wait(clock: Clock, due: Option<Stamp>) {
    match due {
        Some(due) => clock.sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn obey(scheduler: &mut Scheduler<Reply>, order: Order, now: Stamp) {
    match order {
        Order::Submit(job) => scheduler.submit(*job),
        Order::Abort(ordinal) => scheduler.abort(ordinal, now),
    }
}
