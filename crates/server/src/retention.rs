//! Deletes runs that ended long ago, in small transactions while the server works. Nothing open is ever deleted: the
//! store refuses it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stepwell_engine::port::Clock;
use stepwell_engine::store::{DeleteFilter, Store};
use stepwell_kernel::time::Time;
use stepwell_worker::artifacts::Artifacts;
use stepwell_worker::logs::Logs;

use crate::metrics::Metrics;

/// How often the store is asked for runs that are old enough: four times in the shortest age, within these limits. Long ages
/// need few looks; short ages would else be kept several times as long, and be deleted in waves.
const LOOK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// How many runs one transaction deletes: others wait only as long.
const BATCH: usize = 50;
/// The rest between two transactions.
const PAUSE: Duration = Duration::from_millis(100);

/// How long ended runs are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionTimes {
    /// Age at which runs with each end are deleted; kept forever if absent.
    pub completed: Option<Duration>,
    pub failed: Option<Duration>,
    pub cancelled: Option<Duration>,
    pub audit: Option<Duration>,
}

impl RetentionTimes {
    fn is_nothing(&self) -> bool {
        *self == RetentionTimes::default()
    }

    /// How long to wait between two looks.
    fn look(&self) -> Duration {
        let ages = [self.completed, self.failed, self.cancelled, self.audit];
        let shortest = ages.into_iter().flatten().min();
        shortest.map_or(LOOK.1, |age| (age / 4).clamp(LOOK.0, LOOK.1))
    }

    fn of_runs(&self) -> [(&'static str, Option<Duration>); 3] {
        [
            ("COMPLETED", self.completed),
            ("FAILED", self.failed),
            ("CANCELLED", self.cancelled),
        ]
    }
}

/// What the deletion works with.
pub(crate) struct Deletion {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) artifacts: Artifacts,
    pub(crate) logs: Logs,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) retention: RetentionTimes,
    pub(crate) metrics: Arc<Metrics>,
}

/// The thread that deletes; none if everything is kept.
pub(crate) struct Deleter {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl fmt::Debug for Deleter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deleter").finish_non_exhaustive()
    }
}

impl Deleter {
    pub(crate) fn start(deletion: Deletion) -> io::Result<Deleter> {
        if deletion.retention.is_nothing() {
            return Ok(Deleter { running: None });
        }
        let (stop, stopped) = mpsc::channel();
        let look = deletion.retention.look();
        let thread = thread::Builder::new().name("stepwell-retention".into());
        let thread = thread.spawn(move || {
            loop {
                let more = deletion.delete_some();
                let rest = if more { PAUSE } else { look };
                match stopped.recv_timeout(rest) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        })?;
        Ok(Deleter {
            running: Some((stop, thread)),
        })
    }

    pub(crate) fn stop(self) {
        if let Some((stop, thread)) = self.running {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }
}

impl Deletion {
    /// Deletes a batch of everything that is old enough. Says whether there may be more.
    fn delete_some(&self) -> bool {
        let now = self.clock.now();
        let before = |age: Duration| {
            let millis = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            Time(now.0.saturating_sub_unsigned(millis))
        };
        let mut more = false;
        for (status, age) in self.retention.of_runs() {
            let Some(age) = age else { continue };
            let filter = DeleteFilter {
                ended_before: before(age),
                statuses: vec![status.to_owned()],
                tenant: None,
            };
            match self.store.delete_ended(&filter, BATCH, now) {
                Ok(deleted) => {
                    more |= deleted.len() == BATCH;
                    self.metrics.deleted(deleted.len());
                    for run in deleted {
                        self.delete_files(&run.run_id);
                    }
                }
                // Tried again at the next look.
                Err(error) => tracing::warn!(%error, "old runs could not be deleted yet"),
            }
        }
        if let Some(age) = self.retention.audit {
            match self.store.prune_audit(before(age), BATCH) {
                Ok(deleted) => more |= deleted == BATCH,
                Err(error) => tracing::warn!(%error, "old audit rows could not be deleted yet"),
            }
        }
        more
    }

    /// The artifacts and logs of a run that is gone. What stays behind is found by `stepwell artifacts prune`.
    fn delete_files(&self, run: &str) {
        if let Err(error) = self.logs.remove_run(run) {
            tracing::warn!(%error, run, "the logs of a deleted run could not be deleted");
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let removed = match runtime {
            Ok(runtime) => runtime
                .block_on(self.artifacts.remove_run(run))
                .map(drop)
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = removed {
            tracing::warn!(
                error,
                run,
                "the artifacts of a deleted run could not be deleted"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ages_are_looked_at_often_and_long_ones_every_minute() {
        let look = |seconds: u64| {
            let times = RetentionTimes {
                failed: Some(Duration::from_secs(90 * 86_400)),
                completed: Some(Duration::from_secs(seconds)),
                ..RetentionTimes::default()
            };
            times.look().as_secs()
        };
        assert_eq!([look(1), look(20), look(86_400)], [1, 5, 60]);
    }
}
