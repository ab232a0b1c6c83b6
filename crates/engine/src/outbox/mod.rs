//! The outbox: takes what was committed to sinks outside, at least once, in order for each run.
//!
//! Each commit leaves a marker for each sink beside the events, in the same transaction, so nothing is
//! lost whatever happens to the bus or to this process, and a bus that is down holds up nobody but
//! itself. A publisher takes the oldest marker of each run, delivers the chunk, and only then is the
//! run's next one to be had: that is the order, through retries as well. What fails too often becomes a
//! dead letter with an alert, and the run's next marker may go.
//!
//! - `sink`: the port of the buses.
//! - `publisher`: one sink's deliveries; no thread, no clock.
//! - `retry_delay`: how long to wait after a failure.

mod publisher;
mod retry_delay;
mod sink;
mod telemetry;

use std::sync::Arc;
use std::time::Duration;

use crate::store::{Store, StoreError, StoreErrorKind};
use crate::ticker::{Ticker, Waker};

pub use publisher::Publisher;
pub use sink::{Delivery, Outbound, Sink, SinkError};

/// How a publisher works.
#[derive(Clone, Debug)]
pub struct Config {
    /// What this server is called; no two servers of a store may have the same name.
    pub name: String,
    /// After how many failures a delivery is given up.
    pub max_attempts: u32,
    /// The longest wait after the first failure; it doubles with each.
    pub backoff: Duration,
    /// The longest wait after any failure.
    pub max_backoff: Duration,
    /// Time between two reads of the outbox if no notification arrives.
    pub poll: Duration,
    /// How long a taken marker belongs to this publisher. Longer than `Sink::patience`.
    pub lease: Duration,
    /// How many runs' markers are taken at a time.
    pub batch: usize,
    /// Seed of the random part of the waits. Equal seeds and names give equal waits.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            name: "stepwell".into(),
            max_attempts: 10,
            backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(300),
            poll: Duration::from_millis(500),
            lease: Duration::from_secs(90),
            batch: 32,
            seed: 0,
        }
    }
}

/// Publishers with a thread for each sink, so that a slow one does not hold up the others.
#[derive(Debug)]
pub struct Publishers {
    threads: Vec<Ticker>,
}

/// Tells publishers that there is something in the outbox.
#[derive(Clone, Debug)]
pub struct Notify {
    wakers: Vec<Waker>,
}

impl Notify {
    /// Wakes the publishers of all of these.
    #[must_use]
    pub fn all(them: impl Iterator<Item = Notify>) -> Notify {
        Notify {
            wakers: them.flat_map(|it| it.wakers).collect(),
        }
    }

    /// Wakes the publishers: the outbox has new markers. Cheap enough to call after every commit.
    pub fn notify(&self) {
        for waker in &self.wakers {
            waker.wake();
        }
    }
}

/// Starts one thread for each sink. Fails if the system cannot start a thread.
pub fn spawn(
    store: &Arc<dyn Store>,
    sinks: Vec<Box<dyn Sink>>,
    config: &Config,
) -> Result<Publishers, StoreError> {
    let start = |sink: Box<dyn Sink>| {
        let publisher = Publisher::new(store.clone(), sink, config.clone());
        Ticker::spawn("stepwell-outbox", publisher)
    };
    let threads = sinks.into_iter().map(start).collect::<Result<_, _>>();
    let threads = threads.map_err(|error| StoreError::new(StoreErrorKind::Unusable, error))?;
    Ok(Publishers { threads })
}

impl Publishers {
    /// A way to tell them that there is something in the outbox.
    #[must_use]
    pub fn notify(&self) -> Notify {
        let wakers = self.threads.iter().map(Ticker::waker).collect();
        Notify { wakers }
    }

    /// Stops: nothing more is taken, and what was taken has `grace` to be delivered. What is not goes
    /// out once its lease has ended, from here or elsewhere.
    pub fn stop(mut self, grace: Duration) {
        for thread in &self.threads {
            thread.ask_to_stop(grace);
        }
        for thread in &mut self.threads {
            thread.join();
        }
    }
}
