//! The scrub: reads all logs again, slowly, to find damage before the log is needed. One run after the
//! other, from the newest to the oldest and then again; how far it came is kept in the store. A damaged run
//! is put into quarantine, and an alert names it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use stepwell_kernel::effect::Priority;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::time::Time;

use crate::audit::audit;
use crate::store::{NewAlert, RunFilter, RunNo, Store, StoreError, StoreErrorKind};
use crate::ticker::{Ticker, Ticks};

/// How fast the scrub reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Bytes of logs that are read in a second, on average. Zero turns the scrub off.
    pub bytes_per_second: u64,
    /// How long the scrub waits before its first run and after each round.
    pub rest: Duration,
}

impl Default for ScrubOptions {
    fn default() -> ScrubOptions {
        ScrubOptions {
            bytes_per_second: 256 << 10,
            rest: Duration::from_secs(60),
        }
    }
}

/// A run is never free, however short its log is: at most a hundred are verified in a second.
const SHORTEST_PAUSE: u64 = 10;

/// The position is written after this many runs, and at the end of a round.
const REMEMBER: u32 = 64;

/// A scrub under way, on a thread of its own. Dropping it stops the thread.
#[derive(Debug)]
pub struct Scrub {
    ticker: Ticker,
}

impl Scrub {
    /// Starts to read the logs of a store.
    pub fn start(store: Arc<dyn Store>, options: ScrubOptions) -> io::Result<Scrub> {
        let round = Round {
            store,
            options,
            position: Position::Unknown,
            unwritten: 0,
        };
        Ok(Scrub {
            ticker: Ticker::spawn("scrub", round)?,
        })
    }

    /// Stops the thread and waits for it.
    pub fn stop(mut self) {
        self.ticker.ask_to_stop(Duration::ZERO);
        self.ticker.join();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// The store was not asked yet.
    Unknown,
    /// The run that was verified last; none before the first of a round.
    After(Option<RunNo>),
}

/// The scrub without its thread.
#[derive(Debug)]
struct Round {
    store: Arc<dyn Store>,
    options: ScrubOptions,
    position: Position,
    /// How many runs were verified since the position was written.
    unwritten: u32,
}

impl Ticks for Round {
    fn tick(&mut self, now: Time) -> Result<Time, StoreError> {
        let rest = u64::try_from(self.options.rest.as_millis()).unwrap_or(u64::MAX);
        if self.options.bytes_per_second == 0 {
            return Ok(now.plus(3_600_000));
        }
        let Position::After(last) = self.position else {
            self.position = Position::After(self.store.scrubbed()?);
            return Ok(now.plus(rest));
        };
        let filter = RunFilter {
            before: last,
            limit: 1,
            ..RunFilter::default()
        };
        let Some(next) = self.store.list(&filter)?.into_iter().next() else {
            self.position = Position::After(None);
            self.remember(None)?;
            return Ok(now.plus(rest));
        };
        let bytes = self.verify(next.run, now)?;
        self.position = Position::After(Some(next.run));
        self.unwritten += 1;
        if self.unwritten >= REMEMBER {
            self.remember(Some(next.run))?;
        }
        let pause = bytes.saturating_mul(1000) / self.options.bytes_per_second;
        Ok(now.plus(pause.max(SHORTEST_PAUSE)))
    }
}

impl Round {
    /// Verifies a run; says how many bytes were read.
    fn verify(&self, run: RunNo, now: Time) -> Result<u64, StoreError> {
        let (why, bytes) = match audit(&*self.store, run, now) {
            Ok(audited) => (
                audited.log_damage().map(|it| it.what.clone()),
                audited.bytes,
            ),
            // A page of the run that cannot be read any more.
            Err(error) if error.kind == StoreErrorKind::Corrupt => (Some(error.message), 0),
            Err(error) => return Err(error),
        };
        let known = || {
            self.store
                .quarantined()
                .map(|them| them.iter().any(|it| it.0 == run))
        };
        if let Some(why) = why
            && !known()?
        {
            tracing::error!(run = run.0, code = Code::LogInvalid.name(), "{why}");
            self.store.quarantine(run, &why, now)?;
            let alert = NewAlert {
                code: Code::LogInvalid.name().to_owned(),
                priority: Priority::P1,
                message: format!("the scrub found damage: {why}"),
            };
            self.store.alert(Some(run), &alert, now)?;
        }
        Ok(bytes)
    }

    fn remember(&mut self, run: Option<RunNo>) -> Result<(), StoreError> {
        self.unwritten = 0;
        self.store.set_scrubbed(run)
    }
}
