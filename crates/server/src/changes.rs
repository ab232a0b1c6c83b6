//! Which runs have changed or ended: the engine tells, streams and requests that wait listen. A listener of one run is woken
//! by that run only, however much happens in others. All of them miss what other servers commit: they read the store,
//! and ask again now and then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stepwell_engine::coordinator::Notice;
use stepwell_engine::projector;
use stepwell_engine::service::Observer;
use stepwell_engine::store::{RunNo, StoreError};
use tokio::sync::watch;

use crate::deliveries::Bell;
use crate::engines::{ServedEngines, UnservedRuns};
use crate::metrics::Metrics;
use crate::telemetry::Telemetry;

/// Where changes are told and heard.
#[derive(Clone, Debug)]
pub(crate) struct Changes(Arc<ChangesShared>);

#[derive(Debug)]
struct ChangesShared {
    /// Told whenever any run has changed.
    all: watch::Sender<()>,
    /// The runs that someone listens to, with their last events.
    runs: Mutex<HashMap<RunNo, watch::Sender<u64>>>,
    /// The runs whose ends someone waits for, by id, and whether they have ended.
    ends: Mutex<HashMap<String, watch::Sender<bool>>>,
}

impl Changes {
    pub(crate) fn new() -> Changes {
        Changes(Arc::new(ChangesShared {
            all: watch::channel(()).0,
            runs: Mutex::default(),
            ends: Mutex::default(),
        }))
    }

    /// The number of listeners: open streams, and tasks that follow runs.
    pub(crate) fn listeners(&self) -> usize {
        let of_runs = self
            .runs()
            .values()
            .map(watch::Sender::receiver_count)
            .sum::<usize>();
        let of_ends = self
            .ends()
            .values()
            .map(watch::Sender::receiver_count)
            .sum::<usize>();
        self.0.all.receiver_count() + of_runs + of_ends
    }

    /// A run has new events, up to this one.
    pub(crate) fn tell(&self, run: RunNo, seq: u64) {
        if let Some(listened) = self.runs().get(&run) {
            listened.send_replace(seq);
        }
        self.0.all.send_replace(());
    }

    /// A run has ended.
    pub(crate) fn tell_end(&self, run_id: &str) {
        if let Some(waited_for) = self.ends().get(run_id) {
            waited_for.send_replace(true);
        }
    }

    /// Hears whenever any run has changed.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.0.all.subscribe()
    }

    /// The end of a run, from now on. The run need not be there yet.
    pub(crate) fn end_of(&self, run_id: &str) -> RunEnd {
        let mut ends = self.ends();
        let sender = ends.entry(run_id.to_owned());
        let sender = sender.or_insert_with(|| watch::channel(false).0);
        RunEnd {
            seen: sender.subscribe(),
            run_id: run_id.to_owned(),
            changes: self.clone(),
        }
    }

    /// The changes of one run, from now on.
    pub(crate) fn of_run(&self, run: RunNo) -> RunChanges {
        let mut runs = self.runs();
        let sender = runs.entry(run).or_insert_with(|| watch::channel(0).0);
        RunChanges {
            seen: sender.subscribe(),
            run,
            changes: self.clone(),
        }
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunNo, watch::Sender<u64>>> {
        self.0.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<bool>>> {
        self.0.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears of the end of one run.
#[derive(Debug)]
pub(crate) struct RunEnd {
    changes: Changes,
    run_id: String,
    seen: watch::Receiver<bool>,
}

impl RunEnd {
    pub(crate) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Waits until the run has ended.
    pub(crate) async fn ended(&mut self) {
        if self.seen.wait_for(|is_ended| *is_ended).await.is_err() {
            // Whoever tells is gone: nothing ends any more.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for RunEnd {
    fn drop(&mut self) {
        let mut ends = self.changes.ends();
        let last = |it: &watch::Sender<bool>| it.receiver_count() <= 1;
        if ends.get(&self.run_id).is_some_and(last) {
            ends.remove(&self.run_id);
        }
    }
}

/// Hears of the changes of one run.
#[derive(Debug)]
pub(crate) struct RunChanges {
    changes: Changes,
    run: RunNo,
    seen: watch::Receiver<u64>,
}

impl RunChanges {
    /// What has changed up to now is no news.
    pub(crate) fn heard(&mut self) {
        self.seen.mark_unchanged();
    }

    /// Waits until the run has changed since this was asked last.
    pub(crate) async fn changed(&mut self) {
        if self.seen.changed().await.is_err() {
            // Whoever tells is gone: nothing changes any more.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for RunChanges {
    fn drop(&mut self) {
        let mut runs = self.changes.runs();
        let last = |it: &watch::Sender<u64>| it.receiver_count() <= 1;
        if runs.get(&self.run).is_some_and(last) {
            runs.remove(&self.run);
        }
    }
}

/// How long a listener believes that nothing has changed: soon where other servers may have changed something, and longer
/// the longer nothing has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextLook {
    is_shared: bool,
    pause: Duration,
}

impl NextLook {
    /// The pauses where other servers share the store, at first and at most.
    const SHARED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));
    /// The pause where nobody else can change a run.
    const ALONE: Duration = Duration::from_secs(60);

    pub(crate) fn new(is_shared: bool) -> NextLook {
        let pause = NextLook::SHARED.0;
        NextLook { is_shared, pause }
    }

    /// The run has changed.
    pub(crate) fn reset(&mut self) {
        self.pause = NextLook::SHARED.0;
    }

    /// How long to wait before the store is asked the next time.
    pub(crate) fn pause(&mut self) -> Duration {
        if !self.is_shared {
            return NextLook::ALONE;
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(NextLook::SHARED.1);
        pause
    }
}

/// Tells changes to listeners, to the projector and to the publishers of sinks.
pub(crate) struct TellChanges {
    pub(crate) changes: Changes,
    pub(crate) projector: projector::Handle,
    pub(crate) bell: Bell,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) telemetry: Telemetry,
    pub(crate) engines: Option<Arc<dyn ServedEngines>>,
    pub(crate) unserved: Arc<UnservedRuns>,
}

impl Observer for TellChanges {
    fn notice(&mut self, notice: &Notice) {
        if let (Notice::Driven(run), Some(engines)) = (notice, &self.engines) {
            engines.changed(*run);
        }
        if let Notice::Unserved {
            run,
            run_id,
            engine,
            seq,
        } = notice
        {
            self.unserved.due(*run, run_id, engine, *seq);
        }
        if let Notice::Changed { run, first, seq } = notice {
            let (run, first, seq) = (*run, *first, *seq);
            self.telemetry.changed(run, first, seq);
            self.projector.committed(run, seq);
            self.bell.ring();
            self.changes.tell(run, seq);
        }
        if let Notice::Retried { lost, .. } = notice {
            self.metrics.retried(*lost);
        }
        if let Notice::Ended {
            run_id,
            plan,
            outcome,
            ..
        } = notice
        {
            self.metrics.ended(&plan.net().plan_id, outcome);
            self.changes.tell_end(run_id);
        }
    }

    fn store_failed(&mut self, error: &StoreError) {
        self.metrics.store_failed(error.kind.code());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_of_a_run_hears_of_that_run_only() {
        let changes = Changes::new();
        let (mut first, mut second) = (changes.of_run(RunNo(1)), changes.of_run(RunNo(2)));
        changes.tell(RunNo(1), 4);
        changes.tell(RunNo(1), 5);
        first.changed().await;
        let quiet = Duration::from_millis(20);
        assert!(tokio::time::timeout(quiet, second.changed()).await.is_err());
        assert!(tokio::time::timeout(quiet, first.changed()).await.is_err());
        let other = changes.of_run(RunNo(1));
        drop(first);
        assert_eq!(changes.runs().len(), 2, "someone else listens yet");
        drop((other, second));
        assert!(changes.runs().is_empty());
    }

    #[tokio::test]
    async fn who_waits_for_an_end_hears_of_that_end_only_also_if_it_came_before() {
        let changes = Changes::new();
        let (mut end, mut other) = (changes.end_of("a"), changes.end_of("b"));
        changes.tell(RunNo(1), 4);
        changes.tell_end("a");
        end.ended().await;
        let quiet = Duration::from_millis(20);
        assert!(tokio::time::timeout(quiet, other.ended()).await.is_err());
        let mut later = changes.end_of("a");
        later.ended().await;
        assert_eq!(changes.listeners(), 3);
        drop((end, later, other));
        assert!(changes.ends().is_empty());
    }

    #[test]
    fn looks_become_rarer_where_others_may_change_something() {
        let mut look = NextLook::new(true);
        let seconds: Vec<u64> = (0..5).map(|_| look.pause().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 8]);
        look.reset();
        assert_eq!(look.pause().as_secs(), 1);
        assert_eq!(NextLook::new(false).pause(), NextLook::ALONE);
    }
}
