//! A thread that ticks something: when its time has come, when it is told to look, until it is stopped.
//! What ticks has no clock and no thread of its own, so it can be driven in line as well.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stepwell_kernel::time::Time;

use crate::clock::SystemClock;
use crate::port::Clock as _;
use crate::store::StoreError;

/// How long a store that fails is left alone, at first and at most.
const REST: (u64, u64) = (50, 5_000);

/// Something that is driven by time.
pub(crate) trait Ticks: Send + 'static {
    /// Does what is due. Returns the time of the next tick: `now` if there is more to do.
    fn tick(&mut self, now: Time) -> Result<Time, StoreError>;

    /// Called when a `Waker` says that there is something to do.
    fn look(&mut self) {}

    /// Starts nothing new. Returns whether work that was started has not ended yet.
    fn closing(&mut self) -> bool {
        false
    }
}

#[derive(Debug, Default)]
struct Told {
    look: bool,
    stop: Option<Time>,
}

#[derive(Debug, Default)]
struct Bell {
    told: Mutex<Told>,
    rung: Condvar,
}

impl Bell {
    fn told(&self) -> MutexGuard<'_, Told> {
        // What is told is two plain values: a panic elsewhere leaves them whole.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that calls `tick` when the time has come or a `Waker` wakes it.
#[derive(Debug)]
pub(crate) struct Ticker {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

/// A way to wake the thread.
#[derive(Clone, Debug)]
pub(crate) struct Waker {
    bell: Arc<Bell>,
}

impl Waker {
    pub(crate) fn wake(&self) {
        self.bell.told().look = true;
        self.bell.rung.notify_one();
    }
}

impl Ticker {
    pub(crate) fn spawn(name: &str, ticks: impl Ticks) -> io::Result<Ticker> {
        let bell = Arc::new(Bell::default());
        let thread = thread::Builder::new().name(name.to_owned()).spawn({
            let bell = bell.clone();
            move || run(&bell, ticks)
        })?;
        Ok(Ticker {
            bell,
            thread: Some(thread),
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker {
            bell: self.bell.clone(),
        }
    }

    /// Asks it to stop: what was begun has `grace` to end.
    pub(crate) fn ask_to_stop(&self, grace: Duration) {
        let grace = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.bell.told().stop = Some(SystemClock.now().plus(grace));
        self.bell.rung.notify_one();
    }

    /// Waits until it has stopped.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Ticker {
    /// A thread without an owner must end.
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.ask_to_stop(Duration::ZERO);
        }
    }
}

fn run(bell: &Bell, mut ticks: impl Ticks) {
    let mut rest = REST.0;
    loop {
        let now = SystemClock.now();
        let mut told = bell.told();
        if std::mem::take(&mut told.look) {
            ticks.look();
        }
        let stop = told.stop;
        drop(told);
        if let Some(until) = stop
            && (!ticks.closing() || now >= until)
        {
            return;
        }
        let next = match ticks.tick(now) {
            Ok(next) => {
                rest = REST.0;
                next
            }
            Err(error) => {
                tracing::warn!(%error, rest, "the store could not be asked");
                let next = now.plus(rest);
                rest = (rest * 2).min(REST.1);
                next
            }
        };
        let nap = Duration::from_millis(next.since(SystemClock.now()));
        let told = bell.told();
        // A stop that has been heard is only waited out; a new word is acted on at once.
        if nap.is_zero() || told.look || (told.stop.is_some() && stop.is_none()) {
            continue;
        }
        drop(bell.rung.wait_timeout(told, nap));
    }
}
