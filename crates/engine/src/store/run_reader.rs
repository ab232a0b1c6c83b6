//! Reading runs back: one run with everything that is needed to go on, parts of its log, and lists.
//! Nothing here changes a row.

use std::collections::BTreeMap;

use stepwell_kernel::time::Time;

use super::{CommitId, Head, PlanNo, Result, RunNo, StateSnapshot, StoredMessage, TaskRow};

/// Reads single runs and lists of runs.
pub trait RunReader {
    /// The number of a run.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the same, once the run exists.
    fn find(&self, run_id: &str) -> Result<Option<RunNo>>;

    /// A run with everything that is needed to go on: its head, its snapshot, the chunks after the
    /// snapshot, its tasks and its messages, all of one moment. This is where recovery begins: a server
    /// that takes over a run knows nothing but what this returns.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the run as it is then.
    fn load(&self, run: RunNo) -> Result<Option<StoredRun>>;

    /// Several runs, each as `load` reads it; runs that are not there are left out. For a server that has
    /// something to do for many runs: one question instead of many.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the runs as they are then.
    fn load_all(&self, runs: &[RunNo]) -> Result<Vec<StoredRun>> {
        let loaded = runs.iter().map(|run| self.load(*run));
        loaded.filter_map(Result::transpose).collect()
    }

    /// Chunks of a run that hold events after `after`, in order, at most `limit`.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: at least the same chunks,
    /// because a chunk is never changed, and deleted only with its whole run (`Retention`).
    fn chunks(&self, run: RunNo, after: u64, limit: usize) -> Result<Vec<StoredChunk>>;

    /// Runs, newest first, and where the search ended if it did not look at all runs (`look_at` of the filter).
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the runs as they are then.
    fn search(&self, filter: &RunFilter) -> Result<FoundRuns>;

    /// Runs, newest first.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the runs as they are then.
    fn list(&self, filter: &RunFilter) -> Result<Vec<RunSummary>> {
        Ok(self.search(filter)?.runs)
    }

    /// One run as a list shows it.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the run as it is then.
    fn summary(&self, run: RunNo) -> Result<Option<RunSummary>> {
        // The newest run before the next number is the run itself.
        let found = self.list(&RunFilter {
            before: Some(RunNo(run.0.saturating_add(1))),
            limit: 1,
            ..RunFilter::default()
        })?;
        Ok(found.into_iter().find(|it| it.run == run))
    }

    /// Several runs, each as a list shows it, newest first; runs that are not there are left out.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the runs as they are then.
    fn summaries(&self, runs: &[RunNo]) -> Result<Vec<RunSummary>> {
        let mut found = Vec::with_capacity(runs.len());
        for run in runs {
            found.extend(self.summary(*run)?);
        }
        found.sort_by_key(|it| std::cmp::Reverse(it.run));
        Ok(found)
    }

    /// How many runs a list would have for each status. `before` and `limit` of the filter do not count.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the runs as they are then.
    fn count_runs(&self, filter: &RunFilter) -> Result<RunCounts>;

    /// Ids of open runs that no session, time, task, wait, message or queue will wake, oldest first:
    /// such a run waits for a person, or nothing will ever move it.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the runs as they are then.
    fn asleep(&self, limit: usize) -> Result<Vec<String>>;
}

/// A run with everything that is needed to go on.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRun {
    /// Number in this store.
    pub run: RunNo,
    pub run_id: String,
    /// The plan it runs.
    pub plan: PlanNo,
    /// What events are matched by.
    pub event_key: String,
    /// What the run is doing and who owns it.
    pub head: Head,
    /// How often the head has changed.
    pub head_version: i64,
    /// The latest state that was written down.
    pub snapshot: Option<StateSnapshot>,
    /// The chunk that the snapshot's last event is in, if there is a snapshot, and all after it.
    pub chunks: Vec<StoredChunk>,
    /// Work for workers outside.
    pub tasks: Vec<TaskRow>,
    /// Unanswered messages, oldest first.
    pub mail: Vec<StoredMessage>,
    /// Steps that wait for an event.
    pub waits: Vec<String>,
}

/// A chunk of a run's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChunk {
    /// The first event's sequence number.
    pub first: u64,
    /// The last event's sequence number.
    pub last: u64,
    /// The commit that wrote it.
    pub commit: CommitId,
    /// How `body` is written.
    pub codec: i16,
    /// The events, as JSON text.
    pub body: String,
    /// For each event its id (16 bytes), idempotency key (32) and hash (32).
    pub digests: Vec<u8>,
}

/// The runs of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundRuns {
    pub runs: Vec<RunSummary>,
    /// The last run that was looked at, if the search ended before it had enough runs: the next search goes on before it.
    pub searched_to: Option<RunNo>,
}

/// How many runs there are for each status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// By status; a status that no run has is absent.
    pub by_status: Vec<(String, u64)>,
    /// There may be more runs than were counted, because `look_at` of the filter has ended the count.
    pub is_partial: bool,
}

/// Which runs to list: those for which everything that is asked for holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs with one of these statuses, as the execution contract spells them; with any status if there are none.
    pub statuses: Vec<String>,
    /// Only runs of this plan.
    pub plan_id: Option<String>,
    /// Only runs of this tenant.
    pub tenant: Option<String>,
    pub project: Option<String>,
    pub environment: Option<String>,
    /// Only runs of plans in this language.
    pub language: Option<String>,
    /// Only children of the run with this id.
    pub parent: Option<String>,
    /// Only runs that have or had this key, which only one open run may have.
    pub unique_key: Option<String>,
    /// Only runs with all of these labels: name and value.
    pub labels: Vec<(String, String)>,
    /// Only runs with this text in their id, the id of their plan, their unique key or the value of a label. The case of
    /// the letters A to Z does not matter.
    pub text: Option<String>,
    /// Only runs that were created at this time or later.
    pub created_from: Option<Time>,
    /// Only runs that were created before this time.
    pub created_until: Option<Time>,
    /// Only runs that ended at this time or later.
    pub ended_from: Option<Time>,
    /// Only runs that ended before this time.
    pub ended_until: Option<Time>,
    /// Only runs that have not ended.
    pub open: bool,
    /// Only runs with a smaller number: the next page.
    pub before: Option<RunNo>,
    /// At most this many.
    pub limit: usize,
    /// Look at no more runs than this one by one. Without it all runs are looked at until there are enough. An index
    /// finds the runs for some conditions; for the others, and for their statuses when they are counted, each run that
    /// the index has is looked at. What an index alone can count is counted up to `COUNTED_FASTER` times as many runs
    /// of each status.
    pub look_at: Option<usize>,
}

impl RunFilter {
    /// Whether a run has everything that is asked for; `limit` and `look_at` do not count.
    #[must_use]
    pub fn fits(&self, run: &RunSummary) -> bool {
        let says = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|it| it == is);
        let has_label = |(name, value): &(String, String)| run.labels.get(name) == Some(value);
        let ended = run.head.ended_at;
        (self.statuses.is_empty() || self.statuses.contains(&run.head.status))
            && says(&self.plan_id, &run.plan_id)
            && says(&self.tenant, &run.tenant)
            && says(&self.project, &run.project)
            && says(&self.environment, &run.environment)
            && says(&self.language, &run.language)
            && (self.parent.is_none() || self.parent == run.parent)
            && (self.unique_key.is_none() || self.unique_key == run.unique_key)
            && self.labels.iter().all(has_label)
            && self.created_from.is_none_or(|it| run.created_at >= it)
            && self.created_until.is_none_or(|it| run.created_at < it)
            && self.ended_from.is_none_or(|it| ended >= Some(it))
            && self
                .ended_until
                .is_none_or(|it| ended.is_some_and(|ended| ended < it))
            && (!self.open || ended.is_none())
            && self.before.is_none_or(|it| run.run < it)
            && self.text.as_deref().is_none_or(|it| run.has_text(it))
    }
}

/// How many more runs are counted where none is looked at.
pub const COUNTED_FASTER: usize = 50;

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Number in this store.
    pub run: RunNo,
    pub run_id: String,
    /// The plan's own id.
    pub plan_id: String,
    pub plan_version: String,
    /// The language of the plan; empty if the plan cannot be read.
    pub language: String,
    /// The tenant that the run belongs to.
    pub tenant: String,
    pub project: String,
    pub environment: String,
    /// The parent run, which waits for this run.
    pub parent: Option<String>,
    /// The key that only one open run may have; this run may have ended.
    pub unique_key: Option<String>,
    /// What lists of runs are searched by.
    pub labels: BTreeMap<String, String>,
    /// When it was created.
    pub created_at: Time,
    /// What the run is doing and who owns it.
    pub head: Head,
    /// The last event's sequence number.
    pub last_seq: u64,
}

impl RunSummary {
    /// Whether a text is in the id of the run, the id of its plan, its unique key or the value of a label. The case of
    /// the letters A to Z does not matter.
    #[must_use]
    pub fn has_text(&self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        let own = [self.run_id.as_str(), self.plan_id.as_str()];
        let labels = self.labels.values().map(String::as_str);
        let mut texts = own
            .into_iter()
            .chain(self.unique_key.as_deref())
            .chain(labels);
        texts.any(|it| it.to_ascii_lowercase().contains(&text))
    }
}
