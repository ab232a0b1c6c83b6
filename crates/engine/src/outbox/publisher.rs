//! One sink's deliveries. A tick makes at most one, or those that the sink takes together, so that its driver's time is
//! never stale.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use stepwell_kernel::codes;
use stepwell_kernel::effect::Priority;
use stepwell_kernel::time::Time;

use super::retry_delay::RetryDelay;
use super::telemetry::RunsTelemetry;
use super::{Config, Delivery, Sink, SinkError};
use crate::chain_check::ChainCheck;
use crate::chunk;
use crate::store::{Marker, NewAlert, RunFilter, RunNo, Store, StoreError};
use crate::ticker::Ticks;

/// How many runs' plan versions are remembered.
const REMEMBERED: usize = 10_000;
/// A sink may ask for a pause, but not without a limit.
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// Delivers the events of all runs to one sink.
pub struct Publisher {
    store: Arc<dyn Store>,
    sink: Box<dyn Sink>,
    config: Config,
    backoff: RetryDelay,
    /// Taken and not tried yet; at most one for each run.
    taken: VecDeque<Marker>,
    /// The end of the lease of what was taken.
    until: Time,
    /// The results of deliveries that are not written yet.
    verdicts: VecDeque<(Marker, Time, Verdict)>,
    /// When to look into the outbox again.
    look_at: Time,
    /// While the sink is down: how many failures in a row say so, and when it is tried again.
    down: Option<(u32, Time)>,
    closing: bool,
    versions: HashMap<RunNo, Arc<str>>,
    telemetry: RunsTelemetry,
}

/// The result of a delivery.
enum Verdict {
    Sent,
    Failed { at: Time, why: String },
    GivenUp { why: String, alert: NewAlert },
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("sink", &self.sink)
            .field("taken", &self.taken.len())
            .field("down", &self.down)
            .finish_non_exhaustive()
    }
}

impl Publisher {
    /// A publisher of a sink.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, sink: Box<dyn Sink>, config: Config) -> Publisher {
        let who = [config.name.as_str(), sink.name()];
        Publisher {
            backoff: RetryDelay::new(config.backoff, config.max_backoff, config.seed, &who),
            store,
            sink,
            config,
            taken: VecDeque::new(),
            until: Time(i64::MIN),
            verdicts: VecDeque::new(),
            look_at: Time(i64::MIN),
            down: None,
            closing: false,
            versions: HashMap::new(),
            telemetry: RunsTelemetry::default(),
        }
    }

    /// There is something in the outbox.
    pub fn notify(&mut self) {
        self.look_at = Time(i64::MIN);
    }

    /// Whether the last thing the sink said was that it takes nothing.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.down.is_some()
    }

    /// Makes the next delivery, if one is due. Says when to tick again: now, if there may be more.
    pub fn tick(&mut self, now: Time) -> Result<Time, StoreError> {
        self.settle(now)?;
        if let Some((_, at)) = self.down
            && now < at
        {
            return Ok(at);
        }
        // A delivery whose lease could end before the sink answers is left to be taken again.
        if now.plus(millis(self.sink.patience())) > self.until {
            self.taken.clear();
        }
        if self.taken.is_empty() {
            if self.closing || now < self.look_at {
                return Ok(self.look_at.max(now));
            }
            self.take(now)?;
        }
        if self.taken.is_empty() {
            self.look_at = now.plus(millis(self.config.poll));
            return Ok(self.look_at);
        }
        let most = self.sink.together().max(1);
        let (mut markers, mut deliveries) = (Vec::new(), Vec::new());
        for marker in self.taken.iter().take(most).cloned().collect::<Vec<_>>() {
            match self.read(&marker)? {
                Ok(delivery) => {
                    markers.push(marker);
                    deliveries.push(delivery);
                }
                // Trying again cannot help, and the run's other events must not wait for it.
                Err(why) => {
                    let verdict = self.given_up(&marker, marker.attempts, why);
                    self.verdicts.push_back((marker, self.until, verdict));
                }
            }
        }
        let results = match &deliveries[..] {
            [] => Vec::new(),
            [one] => vec![self.sink.deliver(one)],
            several => self.sink.deliver_together(several),
        };
        for (marker, result) in markers.into_iter().zip(results) {
            let verdict = match result {
                Ok(()) => {
                    self.down = None;
                    Verdict::Sent
                }
                Err(error) => self.failed(&marker, error, now),
            };
            self.verdicts.push_back((marker, self.until, verdict));
        }
        self.taken.drain(..most.min(self.taken.len()));
        self.settle(now)?;
        Ok(self.down.map_or(now, |(_, at)| at))
    }

    /// Writes the results of the last deliveries; until then no other is made.
    fn settle(&mut self, now: Time) -> Result<(), StoreError> {
        while let Some((marker, until, verdict)) = self.verdicts.front() {
            // That it was sent stays true; what failed may meanwhile be another publisher's to try.
            match verdict {
                Verdict::Sent => self.store.sent(marker)?,
                _ if now > *until => {}
                Verdict::Failed { at, why } => self.store.failed(marker, *at, why)?,
                Verdict::GivenUp { why, alert } => self.store.bury(marker, now, why, alert)?,
            }
            self.verdicts.pop_front();
        }
        Ok(())
    }

    fn take(&mut self, now: Time) -> Result<(), StoreError> {
        // One is enough to see whether the sink is back.
        let limit = match self.down {
            Some(_) => 1,
            None => self.config.batch.max(1),
        };
        let lease = self.config.lease.max(self.sink.patience() * 2);
        let until = now.plus(millis(lease));
        let (sink, name) = (self.sink.name(), &self.config.name);
        self.taken = self.store.take(sink, name, now, until, limit)?.into();
        self.until = until;
        Ok(())
    }

    /// The chunk of a marker, ready to go; or why it never will be.
    fn read(&mut self, marker: &Marker) -> Result<Result<Delivery, String>, StoreError> {
        let Some(version) = self.version(marker.run)? else {
            return Ok(Err("the run is not in the store".into()));
        };
        let chunks = self
            .store
            .chunks(marker.run, marker.first.saturating_sub(1), 1)?;
        let chunk = chunks.first().filter(|it| it.first == marker.first);
        let Some(chunk) = chunk else {
            return Ok(Err("its events are not in the store".into()));
        };
        // What is delivered must be what was written.
        let before = chunk.first.saturating_sub(1);
        let chain = ChainCheck::from_store(&*self.store, marker.run, &marker.run_id, before)?;
        let Some(mut chain) = chain else {
            return Ok(Err(format!("event {before} before it is not in the store")));
        };
        if let Err(damaged) = chain.verify(&version, chunk) {
            return Ok(Err(damaged.to_string()));
        }
        let read = chunk::with_outbound(&marker.run_id, &version, chunk);
        let telemetry = self
            .telemetry
            .of(&*self.store, marker.run, (chunk.first, chunk.last))?;
        let delivery = |(events, outbound)| Delivery {
            run_id: marker.run_id.clone(),
            first_seq: chunk.first,
            last_seq: chunk.last,
            attempt: marker.attempts.saturating_add(1),
            events,
            outbound,
            telemetry,
        };
        Ok(read.map(delivery).map_err(|fault| fault.to_string()))
    }

    /// The version of a run's plan.
    fn version(&mut self, run: RunNo) -> Result<Option<Arc<str>>, StoreError> {
        if let Some(version) = self.versions.get(&run) {
            return Ok(Some(version.clone()));
        }
        let filter = RunFilter {
            before: Some(RunNo(run.0.saturating_add(1))),
            limit: 1,
            ..RunFilter::default()
        };
        let found = self.store.list(&filter)?;
        let Some(summary) = found.into_iter().find(|it| it.run == run) else {
            return Ok(None);
        };
        if self.versions.len() >= REMEMBERED {
            self.versions.clear();
        }
        let version: Arc<str> = summary.plan_version.into();
        self.versions.insert(run, version.clone());
        Ok(Some(version))
    }

    fn failed(&mut self, marker: &Marker, error: SinkError, now: Time) -> Verdict {
        let attempts = marker.attempts.saturating_add(1);
        let asked = error.retry_after.unwrap_or_default().min(LONGEST_PAUSE);
        let mut at = now.plus(self.backoff.after(attempts).max(millis(asked)));
        if error.down {
            let failures = self
                .down
                .map_or(1, |(failures, _)| failures.saturating_add(1));
            let pause = self.backoff.after(failures).max(millis(asked));
            let again = now.plus(pause);
            self.down = Some((failures, again));
            at = at.max(again);
        } else {
            self.down = None;
        }
        tracing::warn!(
            sink = self.sink.name(),
            run = marker.run_id,
            first = marker.first,
            attempts,
            "a delivery failed: {}",
            error.why
        );
        match error.is_final || attempts >= self.config.max_attempts {
            true => self.given_up(marker, attempts, error.why),
            false => Verdict::Failed { at, why: error.why },
        }
    }

    fn given_up(&self, marker: &Marker, attempts: u32, why: String) -> Verdict {
        let alert = NewAlert {
            code: codes::EVENT_BUS_DELIVERY_FAILED.into(),
            priority: Priority::P1,
            message: format!(
                "the commit of run {} that begins with event {} was not delivered to {} in {attempts} {} and is a dead letter \
                 now: {why}",
                marker.run_id,
                marker.first,
                self.sink.name(),
                if attempts == 1 { "attempt" } else { "attempts" },
            ),
        };
        let (code, priority) = (&alert.code, alert.priority);
        tracing::warn!(run = marker.run_id, code, ?priority, "{}", alert.message);
        Verdict::GivenUp { why, alert }
    }
}

impl Ticks for Publisher {
    fn tick(&mut self, now: Time) -> Result<Time, StoreError> {
        Publisher::tick(self, now)
    }

    fn look(&mut self) {
        self.notify();
    }

    fn closing(&mut self) -> bool {
        self.closing = true;
        !self.verdicts.is_empty() || (!self.taken.is_empty() && self.down.is_none())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
