//! How long, and how, a caller waits for a store that does not answer: tries again with growing pauses, says so
//! when the wait begins, at growing intervals and when it is over, and gives up after a limit.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Result, StoreError, StoreErrorKind};
use crate::error::Error;

/// The pause before a call is tried again, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// A wait that is shorter is not worth a word: a broken connection is replaced faster.
const UNSAID: Duration = Duration::from_millis(250);
/// When a wait is spoken of again, at first and at most.
const INTERVAL: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// Whose calls fail. A store may serve one of them and not the other, such as a read-only server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Calls that wait until the store answers.
    Caller,
    /// Reads of an engine, which tries again by itself.
    EngineReads,
    /// Writes of an engine, which tries again by itself.
    EngineWrites,
}

impl Asks {
    fn bit(self) -> u8 {
        match self {
            Asks::Caller => 1,
            Asks::EngineReads => 2,
            Asks::EngineWrites => 4,
        }
    }

    /// Whose wait is over when a call of this one was answered. An engine that could not read does not always read again
    /// soon, so its wait must not last until then; a store that takes writes serves everyone.
    fn proves(self) -> u8 {
        match self {
            Asks::EngineReads => Asks::EngineReads.bit(),
            Asks::Caller => Asks::Caller.bit() | Asks::EngineReads.bit(),
            Asks::EngineWrites => u8::MAX,
        }
    }
}

/// Is told of a wait.
pub trait WaitListener: Send + Sync + fmt::Debug {
    /// The store does not answer, and is waited for.
    fn begins(&self, error: &StoreError, limit: Option<Duration>);
    /// The store still does not answer.
    fn lasts(&self, error: &StoreError, since: Duration);
    /// The store answers again.
    fn over(&self, after: Duration);
}

/// Writes the waits of a program that embeds the engine into its log.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogWaits;

impl WaitListener for LogWaits {
    fn begins(&self, error: &StoreError, _: Option<Duration>) {
        tracing::warn!(%error, "the store does not answer; waiting for it");
    }

    fn lasts(&self, error: &StoreError, since: Duration) {
        let seconds = since.as_secs();
        tracing::warn!(%error, seconds, "the store still does not answer");
    }

    fn over(&self, after: Duration) {
        let milliseconds = after.as_millis() as u64;
        tracing::warn!(milliseconds, "the store answers again");
    }
}

/// How long a store is waited for, and who is told.
#[derive(Debug)]
pub struct Patience {
    /// None has no limit.
    limit: Option<Duration>,
    listener: Box<dyn WaitListener>,
    /// Who waits: bits of `Asks`. Read on every call that succeeds, so it is no part of `wait`.
    failing: AtomicU8,
    wait: Mutex<Option<Wait>>,
}

/// A wait that is going on.
#[derive(Debug)]
struct Wait {
    since: Instant,
    error: StoreError,
    said: bool,
    say_at: Instant,
    interval: Duration,
}

impl Patience {
    /// Patience with a limit for each wait, or without one.
    pub fn new(limit: Option<Duration>, listener: impl WaitListener + 'static) -> Patience {
        Patience {
            limit,
            listener: Box::new(listener),
            failing: AtomicU8::new(0),
            wait: Mutex::new(None),
        }
    }

    /// How long a wait may take; none is no limit.
    #[must_use]
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Whether the store is waited for now.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.failing.load(Ordering::SeqCst) != 0
    }

    /// Asks an engine until it can use its store, or the patience is over.
    pub fn keep_engine<T>(
        &self,
        call: impl FnMut() -> std::result::Result<T, Error>,
    ) -> std::result::Result<T, Error> {
        let passes = |error: &Error| {
            let Error::Store(error) = error else {
                return None;
            };
            error.kind.may_pass().then(|| error.clone())
        };
        self.keep(passes, call, Error::Store)
    }

    /// Calls until the store answers, or the patience is over. `passes` says which errors may pass.
    fn keep<T, E>(
        &self,
        passes: impl Fn(&E) -> Option<StoreError>,
        mut call: impl FnMut() -> std::result::Result<T, E>,
        given_up: impl FnOnce(StoreError) -> E,
    ) -> std::result::Result<T, E> {
        let mut pause = BACKOFF.0;
        loop {
            let answer = call();
            let Some(error) = answer.as_ref().err().and_then(&passes) else {
                // Any answer is an answer, also one that is no success.
                self.answered(Asks::Caller);
                return answer;
            };
            self.failed(Asks::Caller, &error);
            if let Some(error) = self.given_up(Duration::ZERO) {
                self.forget(Asks::Caller.bit());
                return Err(given_up(error));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    /// Calls a store until it answers, or the patience is over.
    pub fn keep_store<T>(
        &self,
        passes: impl Fn(StoreErrorKind) -> bool,
        call: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let passes = |error: &StoreError| passes(error.kind).then(|| error.clone());
        self.keep(passes, call, |error| error)
    }

    /// A call has failed and is made again.
    pub fn failed(&self, asks: Asks, error: &StoreError) {
        let mut wait = self.lock();
        self.failing.fetch_or(asks.bit(), Ordering::SeqCst);
        let now = Instant::now();
        let wait = wait.get_or_insert_with(|| Wait {
            since: now,
            error: error.clone(),
            said: false,
            say_at: now + UNSAID,
            interval: INTERVAL.0,
        });
        wait.error = error.clone();
        if now < wait.say_at || self.limit == Some(Duration::ZERO) {
            return;
        }
        match std::mem::replace(&mut wait.said, true) {
            false => self.listener.begins(error, self.limit),
            true => {
                self.listener.lasts(error, now - wait.since);
                wait.interval = (wait.interval * 2).min(INTERVAL.1);
            }
        }
        wait.say_at = now + wait.interval;
    }

    /// A call was answered.
    pub fn answered(&self, asks: Asks) {
        if self.failing.load(Ordering::Relaxed) & asks.proves() == 0 {
            return;
        }
        let wait = self.forget(asks.proves());
        if let Some(wait) = wait.filter(|wait| wait.said) {
            self.listener.over(wait.since.elapsed());
        }
    }

    /// The error to give up with, once the wait has taken longer than the limit and `at_least` so long.
    #[must_use]
    pub fn given_up(&self, at_least: Duration) -> Option<StoreError> {
        let wait = self.lock();
        let (wait, limit) = (wait.as_ref()?, self.limit?.max(at_least));
        let waited = wait.since.elapsed();
        if waited < limit {
            return None;
        }
        let mut error = wait.error.clone();
        if error.kind == StoreErrorKind::AnswerLost {
            // The process that continues finds out; for now the store is not there.
            error.kind = StoreErrorKind::Unavailable;
        }
        if !limit.is_zero() {
            error.message = format!(
                "{} (given up after {} s of waiting)",
                error.message,
                waited.as_secs()
            );
        }
        Some(error)
    }

    /// These of those who wait do not wait any longer. Gives back the wait if nobody waits now.
    fn forget(&self, bits: u8) -> Option<Wait> {
        let mut wait = self.lock();
        let before = self.failing.fetch_and(!bits, Ordering::SeqCst);
        match before & !bits {
            0 => wait.take(),
            _ => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Wait>> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Debug, Default)]
    struct Said(Arc<Mutex<Vec<&'static str>>>);

    impl WaitListener for Said {
        fn begins(&self, _: &StoreError, _: Option<Duration>) {
            self.0.lock().unwrap().push("begins");
        }

        fn lasts(&self, _: &StoreError, _: Duration) {
            self.0.lock().unwrap().push("lasts");
        }

        fn over(&self, _: Duration) {
            self.0.lock().unwrap().push("over");
        }
    }

    fn away() -> StoreError {
        StoreError::new(StoreErrorKind::Unavailable, "nobody is there")
    }

    #[test]
    fn a_call_is_made_until_it_is_answered_and_the_wait_is_told() {
        let said = Said::default();
        let patience = Patience::new(None, said.clone());
        let since = Instant::now();
        let answer = patience.keep_store(StoreErrorKind::may_pass, || {
            match since.elapsed() < Duration::from_millis(600) {
                true => Err(away()),
                false => Ok(7),
            }
        });
        assert_eq!(answer, Ok(7));
        assert_eq!(*said.0.lock().unwrap(), ["begins", "over"]);
        assert!(!patience.is_waiting());
    }

    #[test]
    fn a_short_trouble_is_not_worth_a_word() {
        let said = Said::default();
        let patience = Patience::new(None, said.clone());
        let mut calls = 0;
        let answer = patience.keep_store(StoreErrorKind::may_pass, || {
            calls += 1;
            if calls == 1 { Err(away()) } else { Ok(()) }
        });
        assert_eq!((answer, calls), (Ok(()), 2));
        assert!(said.0.lock().unwrap().is_empty());
    }

    #[test]
    fn patience_ends_and_none_is_no_wait() {
        let patience = Patience::new(Some(Duration::from_millis(100)), Said::default());
        let error = patience
            .keep_store(StoreErrorKind::may_pass, || Err::<(), _>(away()))
            .unwrap_err();
        assert!(error.message.contains("given up after 0 s"), "{error}");
        assert!(!patience.is_waiting());
        let none = Patience::new(Some(Duration::ZERO), Said::default());
        let mut calls = 0;
        let error = none.keep_store(StoreErrorKind::may_pass, || {
            calls += 1;
            Err::<(), _>(away())
        });
        assert_eq!((error, calls), (Err(away()), 1));
    }

    #[test]
    fn what_does_not_pass_is_not_waited_for() {
        let patience = Patience::new(None, Said::default());
        let held = StoreError::new(StoreErrorKind::Held, "it is mine");
        let answer = patience.keep_store(StoreErrorKind::may_pass, || Err::<(), _>(held.clone()));
        assert_eq!(answer, Err(held));
    }

    #[test]
    fn it_is_over_when_the_last_one_is_answered() {
        let patience = Patience::new(None, Said::default());
        patience.failed(Asks::EngineWrites, &away());
        patience.failed(Asks::EngineReads, &away());
        // A server that only reads answers one of them.
        patience.answered(Asks::EngineReads);
        patience.answered(Asks::Caller);
        assert!(patience.is_waiting());
        patience.answered(Asks::EngineWrites);
        assert!(!patience.is_waiting());
    }

    #[test]
    fn a_read_that_is_not_made_again_is_not_waited_for() {
        let patience = Patience::new(Some(Duration::from_millis(20)), Said::default());
        for answered in [Asks::EngineReads, Asks::Caller, Asks::EngineWrites] {
            patience.failed(Asks::EngineReads, &away());
            patience.answered(answered);
            thread::sleep(Duration::from_millis(30));
            // Long after it: a new wait, not the end of the old one.
            patience.failed(Asks::Caller, &away());
            assert_eq!(patience.given_up(Duration::ZERO), None, "{answered:?}");
            patience.answered(Asks::Caller);
        }
    }
}
