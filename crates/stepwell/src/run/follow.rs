//! Follows a run and its children through their logs, event by event. What is shown of a run comes from
//! here and from nowhere else: the engine's memory is not looked at.
//!
//! A commit may hold several events; folding them one at a time shows the state after each, so that a line
//! about an event speaks of that moment and not of a later one.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use anyhow::Result;
use stepwell_dialects::{Telemetry, TelemetryState, document};
use stepwell_engine::Error;
use stepwell_engine::read::{LogRecords, LoggedRun, RunSource};
use stepwell_engine::store::RunNo;
use stepwell_kernel::contract::Record;
use stepwell_kernel::event::Event;

use super::tree::Live;
use stepwell_views::child_id;

/// How many commits are read at a time: a run that is shown more slowly than it goes on is not read ahead.
const READ_AHEAD: usize = 16;

/// A run as far as it was followed.
#[derive(Debug)]
pub(super) struct Followed {
    logged: LoggedRun,
    /// Events that are read and not told yet.
    pending: VecDeque<Event>,
    store: Arc<dyn RunSource>,
    /// The run's log as it is stored, from the first record that was asked for on.
    log: Option<LogRecords>,
    /// Records that are read and were not asked for yet.
    records: VecDeque<Record>,
    /// What was last told of the states of the run, where its language has telemetry.
    telemetry: Option<TelemetryState>,
    /// The steps that lead to a child: `pay/`; empty for the run itself.
    pub(super) prefix: String,
}

impl Deref for Followed {
    type Target = LoggedRun;

    fn deref(&self) -> &LoggedRun {
        &self.logged
    }
}

impl Followed {
    pub(super) fn live(&self) -> Live<'_> {
        Live {
            plan: &self.plan,
            state: &self.state,
        }
    }

    /// What the event that was folded last has changed. Asked for once for each event.
    pub(super) fn telemetry(&mut self, event: &Event) -> Vec<Telemetry> {
        let (plan, state) = (&self.logged.plan, &self.logged.state);
        let seen = self.telemetry.as_mut();
        seen.map_or_else(Vec::new, |seen| seen.look(plan, state, event))
    }

    /// The next record of the run's log: each call gives the one after.
    pub(super) fn next_record(&mut self) -> Result<Record> {
        let logged = &self.logged;
        let log = self.log.get_or_insert_with(|| LogRecords::of(logged));
        if self.records.is_empty() {
            self.records.extend(log.unread(&*self.store, READ_AHEAD)?);
        }
        let next = self.records.pop_front();
        next.ok_or_else(|| anyhow::anyhow!("the log of {} has ended", self.state.run_id()))
    }
}

/// Is told each event before it is folded, and after, with the run as it is then.
pub(super) trait EventSink {
    fn before(&mut self, run: &Followed, event: &Event) -> Result<()>;
    fn after(&mut self, run: &mut Followed, event: &Event) -> Result<()>;
}

/// The runs that are followed: one and those below it.
pub(super) struct Follower {
    store: Arc<dyn RunSource>,
    root: String,
    runs: BTreeMap<String, Followed>,
    ids: HashMap<RunNo, String>,
    /// Runs that are neither the root nor below it.
    others: HashSet<RunNo>,
    /// Children that a step waits for and that are not followed yet, with their prefixes.
    expected: BTreeMap<String, String>,
}

impl Follower {
    /// Follows a run that is in the store; none of its events is told yet.
    pub(super) fn new(store: Arc<dyn RunSource>, root: &str) -> Result<Follower> {
        let logged = LoggedRun::open(&*store, root)?;
        let mut follower = Follower {
            store,
            root: root.to_owned(),
            runs: BTreeMap::new(),
            ids: HashMap::new(),
            others: HashSet::new(),
            expected: BTreeMap::new(),
        };
        follower.add(logged, String::new());
        Ok(follower)
    }

    /// The run that the command was asked to follow. Fails if the run is unknown.
    pub(super) fn root(&self) -> Result<&Followed> {
        let root = self.runs.get(&self.root);
        root.ok_or_else(|| Error::UnknownRun(self.root.clone()).into())
    }

    /// The root and all runs below it, by id.
    pub(super) fn all(&self) -> impl Iterator<Item = &Followed> {
        self.runs.values()
    }

    /// The root or a run below it, by its id.
    pub(super) fn get(&self, run_id: &str) -> Option<&Followed> {
        self.runs.get(run_id)
    }

    /// The root and all runs below it, as they are drawn.
    pub(super) fn live(&self) -> Vec<Live<'_>> {
        self.all().map(Followed::live).collect()
    }

    /// How many events the run and those below it have.
    pub(super) fn events(&self) -> u64 {
        self.all().map(|run| run.state.seq()).sum()
    }

    /// Tells `sink` the events of a run up to `seq`. Called for each commit in the order of the commits,
    /// the events of all runs are told in the order in which they happened.
    pub(super) fn follow(&mut self, run: RunNo, seq: u64, sink: &mut dyn EventSink) -> Result<()> {
        let Some(run_id) = self.id_of(run)? else {
            return Ok(());
        };
        while self.fetch(&run_id, seq, READ_AHEAD)? {
            self.tell(&run_id, seq, false, sink)?;
        }
        self.tell(&run_id, seq, false, sink)
    }

    /// Gives `sink` all new events of all runs, from any process. The events of a run are in order; a
    /// child's between the event that started it and the one that took its end.
    pub(super) fn follow_all(&mut self, sink: &mut dyn EventSink) -> Result<()> {
        let open = |run: &&Followed| !run.state.phase().is_ended();
        let depth = |run: &Followed| {
            (
                run.prefix.matches('/').count(),
                run.state.run_id().to_owned(),
            )
        };
        let mut known: Vec<(usize, String)> = self.all().filter(open).map(depth).collect();
        known.sort_unstable();
        // Read from the top: when the event of a run that took the end of a child is read, the child is
        // read after it, so that its end is not missing.
        for (_, run_id) in &known {
            self.fetch(run_id, u64::MAX, usize::MAX)?;
        }
        let expected: Vec<String> = self.expected.keys().cloned().collect();
        for child in expected {
            self.tell_child(&child, sink)?;
        }
        // Told from the bottom: the end of a child is what moves the run above it.
        for (_, run_id) in known.iter().rev() {
            self.tell(run_id, u64::MAX, true, sink)?;
        }
        Ok(())
    }

    /// Reads the events of a run up to `seq`, so many commits at most. Says whether there were any.
    fn fetch(&mut self, run_id: &str, seq: u64, most: usize) -> Result<bool> {
        let Some(run) = self.runs.get_mut(run_id) else {
            return Ok(false);
        };
        let last = run.pending.back();
        let last = last.map_or(run.state.seq(), |event| event.seq);
        if last >= seq {
            return Ok(false);
        }
        let unread = run.logged.unread_chunks(&*self.store, most)?;
        let any = !unread.is_empty();
        run.pending.extend(unread);
        Ok(any)
    }

    /// Tells and folds the events that were read, up to `seq`; with `nested` those of a child right after
    /// the event that started it.
    fn tell(
        &mut self,
        run_id: &str,
        seq: u64,
        nested: bool,
        sink: &mut dyn EventSink,
    ) -> Result<()> {
        while let Some(run) = self.runs.get_mut(run_id) {
            let due = |event: &mut Event| event.seq <= seq;
            let Some(event) = run.pending.pop_front_if(due) else {
                break;
            };
            sink.before(run, &event)?;
            run.logged.fold(&event)?;
            sink.after(run, &event)?;
            if let Some((child, step)) = child_id(&event).zip(event.body.step()) {
                let prefix = format!("{}{}/", run.prefix, run.plan.step_id(step));
                self.expected.insert(child.clone(), prefix);
                if nested {
                    self.tell_child(&child, sink)?;
                }
            }
        }
        Ok(())
    }

    /// Follows a child that is expected from its first event on, if it is in the store by now.
    fn tell_child(&mut self, child: &str, sink: &mut dyn EventSink) -> Result<()> {
        let Some(run) = self.store.find_run(child)? else {
            return Ok(());
        };
        self.others.remove(&run);
        if !self.ids.contains_key(&run) && self.id_of(run)?.is_some() {
            self.fetch(child, u64::MAX, usize::MAX)?;
            self.tell(child, u64::MAX, true, sink)?;
        }
        Ok(())
    }

    /// The id of a run that is followed, or is to be followed from now on.
    fn id_of(&mut self, run: RunNo) -> Result<Option<String>> {
        if let Some(run_id) = self.ids.get(&run) {
            return Ok(Some(run_id.clone()));
        }
        if self.others.contains(&run) {
            return Ok(None);
        }
        let logged = LoggedRun::numbered(&*self.store, run)?;
        let run_id = logged.state.run_id().to_owned();
        let Some(prefix) = self.expected.remove(&run_id) else {
            self.others.insert(run);
            return Ok(None);
        };
        self.add(logged, prefix);
        Ok(Some(run_id))
    }

    fn add(&mut self, logged: LoggedRun, prefix: String) {
        let run_id = logged.state.run_id().to_owned();
        self.ids.insert(logged.run, run_id.clone());
        let followed = Followed {
            pending: VecDeque::new(),
            store: self.store.clone(),
            log: None,
            records: VecDeque::new(),
            telemetry: document::telemetry(&logged.plan),
            logged,
            prefix,
        };
        self.runs.insert(run_id, followed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use stepwell::files::Definition;
    use stepwell_engine::clock::VirtualClock;
    use stepwell_engine::coordinator::{Config, Notice};
    use stepwell_engine::mock::Mock;
    use stepwell_engine::port::Catalog;
    use stepwell_engine::service::{Observer, Setup};
    use stepwell_engine::store::MemoryStore;
    use stepwell_engine::{Engine, StartRequest};
    use stepwell_kernel::plan::Plan;
    use stepwell_kernel::time::Time;

    use super::*;

    const HEAD: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata:\n  name: ";

    fn plan(text: &str) -> Arc<Plan> {
        let definition = Definition::from_text("t.yaml", &format!("{HEAD}{text}"));
        Arc::new(definition.into_plan().unwrap())
    }

    struct OneDefinition(Arc<Plan>);

    impl Catalog for OneDefinition {
        fn find(&self, _: &Plan, _: &str) -> Option<Arc<Plan>> {
            Some(self.0.clone())
        }
    }

    type Commits = Arc<Mutex<Vec<(RunNo, u64)>>>;

    struct Record(Commits);

    impl Observer for Record {
        fn notice(&mut self, notice: &Notice) {
            if let Notice::Changed { run, seq, .. } = notice {
                self.0.lock().unwrap().push((*run, *seq));
            }
        }
    }

    /// A parent that waits for a child, and another run, all ended; with the commits in their order.
    fn ended() -> (Arc<MemoryStore>, Vec<(RunNo, u64)>) {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(VirtualClock::at(Time(0)));
        let mut mock = Mock::new(store.clone(), clock.clone()).unwrap();
        mock.work_ms = 10;
        let leaf = plan("leaf\nworkflow:\n  - step: one\n    tool:\n      kind: noop\n");
        let parent = plan(
            "parent\nworkflow:\n  - step: call\n    tool:\n      kind: playbook\n      path: leaf\n",
        );
        let commits = Commits::default();
        let config = Config {
            poll_ms: 0,
            session_ms: 1_000_000,
            ..Config::default()
        };
        let mut engine = Engine::new(Setup {
            catalog: Box::new(OneDefinition(leaf.clone())),
            config: Mock::configure(config),
            clock,
            observer: Box::new(Record(commits.clone())),
            ..Setup::new(store.clone(), mock)
        })
        .unwrap();
        for (plan, run_id) in [(parent, "run_parent"), (leaf, "run_other")] {
            let request = StartRequest {
                run_id: run_id.into(),
                ..StartRequest::default()
            };
            engine.trigger(&plan, request).unwrap();
        }
        engine.run_to_end().unwrap();
        let commits = commits.lock().unwrap().clone();
        (store, commits)
    }

    #[derive(Default)]
    struct Told(Vec<String>);

    impl EventSink for Told {
        fn before(&mut self, run: &Followed, event: &Event) -> Result<()> {
            assert_eq!(run.state.seq() + 1, event.seq, "in order, none twice");
            Ok(())
        }

        fn after(&mut self, run: &mut Followed, event: &Event) -> Result<()> {
            self.0.push(format!("{}{}", run.prefix, event.body.kind()));
            Ok(())
        }
    }

    #[test]
    fn a_childs_events_are_told_between_its_start_and_its_end_however_they_are_read() {
        let (store, commits) = ended();
        let mut by_commit = Told::default();
        let mut follower = Follower::new(store.clone(), "run_parent").unwrap();
        for (run, seq) in commits {
            follower.follow(run, seq, &mut by_commit).unwrap();
        }
        assert!(follower.all().all(|run| run.state.phase().is_ended()));
        assert_eq!(follower.all().count(), 2, "the other run is not followed");
        let at = |kind: &str| by_commit.0.iter().position(|told| told == kind).unwrap();
        assert!(
            at("StepWaiting") < at("call/RunCreated"),
            "{by_commit:?}",
            by_commit = by_commit.0
        );
        assert!(at("call/RunCompleted") < at("StepCompleted"));

        let mut at_once = Told::default();
        let mut follower = Follower::new(store, "run_parent").unwrap();
        follower.follow_all(&mut at_once).unwrap();
        assert_eq!(at_once.0, by_commit.0);
        follower.follow_all(&mut at_once).unwrap();
        assert_eq!(at_once.0.len(), by_commit.0.len(), "nothing is new");
    }
}
