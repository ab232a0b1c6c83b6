//! Invariants that must hold after every step. The oracle uses only the store and the observations of the
//! simulation (started work, deliveries, answers); it never asks a coordinator.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use stepwell_engine::chunk::{self, DIGESTS};
use stepwell_engine::run_id_for;
use stepwell_engine::store::{
    Plans as _, RunFilter, RunNo, RunReader as _, RunSummary, StoredChunk,
};
use stepwell_kernel::contract::Recorder;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{Body, Event, WaitKind};
use stepwell_kernel::evolve::evolve;
use stepwell_kernel::keys::hex;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::{Phase, State};

use crate::sim_store::SimStore;

/// A run as its log says.
#[derive(Debug)]
pub(crate) struct ObservedRun {
    pub(crate) run: RunNo,
    pub(crate) run_id: String,
    pub(crate) plan: Arc<Plan>,
    pub(crate) state: State,
    recorder: Recorder,
    keys: HashSet<Vec<u8>>,
    /// Who has claimed which execution.
    pub(crate) claims: BTreeMap<(Target, u32), String>,
    /// The first sequence number of each chunk.
    pub(crate) chunks: Vec<u64>,
    /// The children that it has asked for.
    children: BTreeSet<String>,
    /// Its log has an event under each of these ids: signals, and events from outside.
    pub(crate) marks: BTreeSet<String>,
}

/// What the simulation saw.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) runs: BTreeMap<RunNo, ObservedRun>,
    /// Side effects that began, by run, target and execution.
    pub(crate) effects: BTreeMap<(RunNo, Target, u32), u32>,
    /// The chunks that each sink has got, by run: how many, in order.
    pub(crate) delivered: BTreeMap<(String, RunNo), usize>,
    pub(crate) events: u64,
}

type CheckResult = Result<(), String>;

impl Oracle {
    /// Reads what is new in every log, and checks it.
    pub(crate) fn read(&mut self, sim_store: &SimStore) -> Result<Vec<RunSummary>, String> {
        let everything = RunFilter {
            limit: usize::MAX,
            ..RunFilter::default()
        };
        let said = |error: stepwell_engine::store::StoreError| error.to_string();
        let list = sim_store.memory.list(&everything).map_err(said)?;
        for row in &list {
            let observed = match self.runs.entry(row.run) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(ObservedRun::new(sim_store, row)?),
            };
            if row.last_seq < observed.state.seq() {
                return Err(format!(
                    "{}: event {} is gone from the log",
                    row.run_id,
                    observed.state.seq()
                ));
            }
            if row.last_seq == observed.state.seq() {
                continue;
            }
            let after = observed.state.seq();
            let chunks = sim_store.memory.chunks(row.run, after, usize::MAX);
            for chunk in chunks.map_err(said)? {
                self.events += observed.take(&chunk)?;
            }
        }
        if list.len() < self.runs.len() {
            return Err("a run is gone".into());
        }
        Ok(list)
    }

    /// Reads every log from its beginning once more: nothing that was read has changed since.
    pub(crate) fn read_again(&self, sim_store: &SimStore) -> CheckResult {
        let mut again = Oracle::default();
        again.read(sim_store)?;
        for (run, observed) in &self.runs {
            let other = again.runs.get(run);
            let head = other.map(|it| it.recorder.head());
            if head != Some(observed.recorder.head()) {
                return Err(format!("{}: the log was rewritten", observed.run_id));
            }
        }
        Ok(())
    }

    /// Work begins: its claim is in the log, and nobody has begun it before.
    pub(crate) fn begins(
        &mut self,
        run: RunNo,
        target: Target,
        no: u32,
        worker: &str,
    ) -> CheckResult {
        let observed = self.runs.get(&run);
        let claim = observed.and_then(|it| it.claims.get(&(target, no)));
        if claim.map(String::as_str) != Some(worker) {
            return Err(format!(
                "{worker} began execution {no} of {target:?} of run {}, whose claim in the log is {claim:?}",
                run.0
            ));
        }
        let count = self.effects.entry((run, target, no)).or_default();
        *count += 1;
        if *count > 1 {
            return Err(format!(
                "execution {no} of {target:?} of run {} began twice",
                run.0
            ));
        }
        Ok(())
    }

    /// A sink gets a chunk: the next one of its run, or one that it has.
    pub(crate) fn delivers(&mut self, sink: &str, run: RunNo, first: u64) -> CheckResult {
        let index = self.runs.get(&run).and_then(|observed| {
            let mut chunks = observed.chunks.iter();
            chunks.position(|it| *it == first)
        });
        let got = self.delivered.entry((sink.to_owned(), run)).or_default();
        match index {
            Some(index) if index < *got => Ok(()),
            Some(index) if index == *got => {
                *got += 1;
                Ok(())
            }
            _ => Err(format!(
                "{sink} got the chunk at {first} of run {} as its delivery {}: out of order",
                run.0, *got
            )),
        }
    }

    /// Every child was asked for by its parent.
    pub(crate) fn children(&self) -> CheckResult {
        let by_id: BTreeMap<&str, &ObservedRun> = { self.runs.values() }
            .map(|it| (it.run_id.as_str(), it))
            .collect();
        for child in self.runs.values() {
            let Some(parent) = child.state.parent() else {
                continue;
            };
            let asked = by_id
                .get(parent.run_id.as_str())
                .is_some_and(|it| it.children.contains(&child.run_id));
            if !asked {
                return Err(format!(
                    "{}: nobody asked for this child of {}",
                    child.run_id, parent.run_id
                ));
            }
        }
        Ok(())
    }

    /// The run of that id.
    pub(crate) fn by_id(&self, run_id: &str) -> Option<&ObservedRun> {
        self.runs.values().find(|it| it.run_id == run_id)
    }

    /// Runs that have not ended.
    pub(crate) fn open(&self) -> impl Iterator<Item = &ObservedRun> {
        self.runs.values().filter(|it| !it.state.phase().is_ended())
    }
}

impl ObservedRun {
    fn new(sim_store: &SimStore, row: &RunSummary) -> Result<ObservedRun, String> {
        let stored = sim_store.memory.load(row.run).ok().flatten();
        let no = stored.map(|it| it.plan).ok_or("a listed run is gone")?;
        let plan = sim_store.memory.plan(no).ok().flatten();
        let net = plan.ok_or("a run's plan is gone")?.net;
        let net = serde_json::from_str(&net).map_err(|error| error.to_string())?;
        let plan = Arc::new(Plan::new(net).map_err(|error| error.to_string())?);
        Ok(ObservedRun {
            run: row.run,
            run_id: row.run_id.clone(),
            state: State::new(row.run_id.clone(), &plan),
            recorder: Recorder::new(row.run_id.clone()),
            plan,
            keys: HashSet::new(),
            claims: BTreeMap::new(),
            chunks: Vec::new(),
            children: BTreeSet::new(),
            marks: BTreeSet::new(),
        })
    }

    /// Folds a chunk in; says how many events it had.
    fn take(&mut self, stored: &StoredChunk) -> Result<u64, String> {
        let id = self.run_id.clone();
        let wrong = |what: String| format!("{id}: {what}");
        if stored.first != self.state.seq() + 1 {
            let what = format!("chunk {} after event {}", stored.first, self.state.seq());
            return Err(wrong(what));
        }
        let events = chunk::decode(stored.first, stored.codec, &stored.body);
        let events = events.map_err(|error| wrong(error.to_string()))?;
        if stored.digests.len() != events.len() * DIGESTS {
            return Err(wrong("digests are missing".into()));
        }
        for (event, digests) in events.iter().zip(stored.digests.chunks(DIGESTS)) {
            let hash = digests.get(48..80).map(hex).unwrap_or_default();
            self.fold(event, &hash).map_err(wrong)?;
        }
        if self.state.seq() != stored.last {
            return Err(wrong(format!("chunk {} is too short", stored.first)));
        }
        self.chunks.push(stored.first);
        Ok(events.len() as u64)
    }

    fn fold(&mut self, event: &Event, hash: &str) -> CheckResult {
        let (seq, kind) = (event.seq, event.body.kind());
        if self.state.phase().is_ended() {
            return Err(format!("event {seq} ({kind}) after the end"));
        }
        if event.at < self.state.last_at() {
            return Err(format!("event {seq} ({kind}) is earlier than the last"));
        }
        if !self.keys.insert(event.key(&self.plan).to_bytes()) {
            return Err(format!(
                "event {seq} ({kind}) has a key that is there already"
            ));
        }
        // The recorder links each event to the one before it, so this is the whole chain.
        let record = self.recorder.record(&self.plan, event);
        let record = record.map_err(|error| format!("event {seq} ({kind}): {error}"))?;
        if record.hash != hash {
            return Err(format!("event {seq} ({kind}): the hash chain is broken"));
        }
        self.lawful(event)?;
        let folded = evolve(&self.plan, &mut self.state, event, &mut Vec::new());
        folded.map_err(|illegal| illegal.to_string())
    }

    /// What may not follow from the state before it.
    fn lawful(&mut self, event: &Event) -> CheckResult {
        let seq = event.seq;
        let claimed = match &event.body {
            Body::StepStarted {
                step,
                execution,
                lease: Some(lease),
                ..
            }
            | Body::StepExecutionStarted {
                step,
                execution,
                lease,
                ..
            } => Some((Target::Step(*step), *execution, lease)),
            Body::UndoStarted {
                step,
                execution,
                lease,
            } => Some((Target::Undo(*step), *execution, lease)),
            _ => None,
        };
        if let Some((target, execution, lease)) = claimed {
            let before = self.state.target(target);
            if before.is_some_and(|it| it.lease().is_some()) {
                return Err(format!(
                    "event {seq}: {target:?} was claimed while someone had it"
                ));
            }
            if self.state.pause().is_some() {
                return Err(format!(
                    "event {seq}: {target:?} was claimed during a pause"
                ));
            }
            let known = self
                .claims
                .insert((target, execution), lease.worker.clone());
            if known.is_some() {
                return Err(format!(
                    "event {seq}: execution {execution} of {target:?} was claimed twice"
                ));
            }
        }
        match &event.body {
            Body::StepWaiting {
                wait: WaitKind::Child { request_key, .. },
                ..
            } => {
                self.children.insert(run_id_for(request_key));
            }
            Body::SignalAccepted { signal_id, .. } | Body::SignalRejected { signal_id, .. } => {
                self.marks.insert(signal_id.clone());
            }
            Body::EventReceived { event_id, .. } => {
                self.marks.insert(event_id.clone());
            }
            Body::StepCompleted {
                step, execution, ..
            } if self
                .state
                .run(*step)
                .is_some_and(|it| it.execution() != *execution) =>
            {
                return Err(format!("event {seq}: the result of an old execution"));
            }
            _ => {}
        }
        if seq == 1 && self.state.phase() != Phase::Void {
            return Err("a log begins twice".into());
        }
        Ok(())
    }
}
