//! Follows the runs that this server commits to, and makes their spans. A server makes the spans that end with events of
//! its own commits, so no two servers make the same one; where a span began is read from the log, also if another server wrote it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stepwell_engine::read::LoggedRun;
use stepwell_engine::store::{RunNo, Store};

use super::otlp::Span;
use super::run_spans::RunSpans;

/// How many runs may have changed and wait to be read; of more the spans are dropped.
const MAX_CHANGED: usize = 20_000;
/// How many open runs are kept in memory; the others are read again from their beginning.
const MAX_FOLLOWED: usize = 2_000;
/// How many runs are remembered of which nothing is recorded.
const MAX_IGNORED: usize = 100_000;

/// Ranges of events that this server has committed, by run.
type Ranges = HashMap<RunNo, Vec<(u64, u64)>>;

/// What has changed and was not looked at yet.
#[derive(Debug, Default)]
pub(super) struct Changed(Mutex<Ranges>);

impl Changed {
    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This server has committed these events. False if there is no room to note it.
    pub(super) fn note(&self, run: RunNo, first: u64, last: u64) -> bool {
        let mut ranges = self.ranges();
        if ranges.len() >= MAX_CHANGED && !ranges.contains_key(&run) {
            return false;
        }
        let of_run = ranges.entry(run).or_default();
        match of_run.last_mut() {
            Some((_, end)) if *end + 1 == first => *end = last,
            Some(_) | None => of_run.push((first, last)),
        }
        true
    }

    fn take(&self) -> Ranges {
        std::mem::take(&mut self.ranges())
    }

    /// What could not be read is tried again.
    fn put_back(&self, run: RunNo, earlier: Vec<(u64, u64)>) {
        let mut ranges = self.ranges();
        let later = ranges.remove(&run).unwrap_or_default();
        ranges.insert(run, earlier.into_iter().chain(later).collect());
    }
}

/// The runs that are followed.
pub(super) struct Follower {
    store: Arc<dyn Store>,
    followed: HashMap<RunNo, Followed>,
    ignored: HashSet<RunNo>,
}

struct Followed {
    logged: LoggedRun,
    spans: RunSpans,
}

impl Follower {
    pub(super) fn new(store: Arc<dyn Store>) -> Follower {
        Follower {
            store,
            followed: HashMap::new(),
            ignored: HashSet::new(),
        }
    }

    /// The spans that have ended with events of this server since the last call.
    pub(super) fn spans(&mut self, changed: &Changed) -> Vec<Span> {
        let mut spans = Vec::new();
        for (run, ranges) in changed.take() {
            if self.ignored.contains(&run) {
                continue;
            }
            match self.of_run(run, &ranges) {
                Ok(ended) => spans.extend(ended),
                Err(error) if error.is_damage() => {
                    tracing::debug!(%error, run = run.0, "the spans of a damaged run are not made");
                }
                Err(error) => {
                    tracing::debug!(%error, run = run.0, "a run could not be read for its trace yet");
                    self.followed.remove(&run);
                    changed.put_back(run, ranges);
                }
            }
        }
        spans
    }

    fn of_run(
        &mut self,
        run: RunNo,
        ranges: &[(u64, u64)],
    ) -> Result<Vec<Span>, stepwell_engine::Error> {
        let mut followed = match self.followed.remove(&run) {
            Some(followed) => followed,
            None => match LoggedRun::numbered(&*self.store, run) {
                Ok(logged) => Followed {
                    spans: RunSpans::new(logged.state.run_id(), &logged.plan),
                    logged,
                },
                // Deleted meanwhile.
                Err(stepwell_engine::Error::UnknownRun(_)) => return Ok(Vec::new()),
                Err(error) => return Err(error),
            },
        };
        let events = followed.logged.unread(&*self.store)?;
        let mut ended = Vec::new();
        let mut is_over = false;
        for event in &events {
            let spans = followed.spans.take(event);
            if ranges
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&event.seq))
            {
                ended.extend(spans);
            }
            is_over |= event.body.is_terminal();
        }
        if !followed.spans.is_recorded() {
            self.ignore(run);
        } else if !is_over {
            self.keep(run, followed);
        }
        Ok(ended)
    }

    fn keep(&mut self, run: RunNo, followed: Followed) {
        if self.followed.len() >= MAX_FOLLOWED {
            // They are read again when they change.
            self.followed.clear();
        }
        self.followed.insert(run, followed);
    }

    fn ignore(&mut self, run: RunNo) {
        if self.ignored.len() >= MAX_IGNORED {
            self.ignored.clear();
        }
        self.ignored.insert(run);
    }
}
