//! Invariants that must hold after every step. The oracle uses only the store and the observations of the
//! simulation (started work, deliveries, answers); it never asks a coordinator.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use stepwell_engine::chunk::{self, DIGESTS};
use stepwell_engine::run_id_for;
use stepwell_engine::store::{RunFilter, RunNo, RunSummary, StoredChunk};
use stepwell_kernel::chain;
use stepwell_kernel::command::Claimed;
use stepwell_kernel::contract::Recorder;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{Body, Event, WaitKind};
use stepwell_kernel::evolve::evolve;
use stepwell_kernel::keys::hex;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::state::{Phase, State};

use crate::definitions::Definition;
use crate::model::Model;
use crate::pipelines;
use crate::report::Coverage;
use crate::sim_store::SimStore;
use crate::workload;

/// A run as its log says.
#[derive(Debug)]
pub(crate) struct ObservedRun {
    pub(crate) run: RunNo,
    pub(crate) run_id: String,
    pub(crate) plan: Arc<Plan>,
    pub(crate) state: State,
    recorder: Recorder,
    /// The hash of the last event.
    head: String,
    /// The run as the specifications describe it, if its definition was drawn.
    pub(crate) model: Option<Model>,
    /// The last kind of event of each step-run, and of the run itself.
    last_kinds: BTreeMap<Option<StepRef>, &'static str>,
    keys: HashSet<Vec<u8>>,
    /// The worker that claimed each execution.
    pub(crate) claims: BTreeMap<(Target, u32), String>,
    /// The first sequence number of each chunk.
    pub(crate) chunks: Vec<u64>,
    /// A hash of each chunk as it was read first.
    contents: Vec<u64>,
    /// The executions of each step-run that have ended with a wait after which the worker goes on where it was.
    waited: BTreeMap<StepRef, Vec<u32>>,
    /// The children that the run has asked for.
    children: BTreeSet<String>,
    /// Ids of signals and external events; the log of the run has an event for each.
    pub(crate) marks: BTreeSet<String>,
}

/// What one execution tells the outside.
#[derive(Debug)]
pub(crate) struct ToldOutside {
    fence: u64,
    logical: u32,
    key: String,
}

/// An event from outside that the store has said to keep.
#[derive(Clone, Debug)]
pub(crate) struct KeptEvent {
    pub(crate) id: String,
    pub(crate) event_type: String,
    pub(crate) tenant: String,
    pub(crate) key: String,
}

/// What the simulation saw.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) runs: BTreeMap<RunNo, ObservedRun>,
    /// Side effects that began, by run, target and execution.
    pub(crate) effects: BTreeMap<(RunNo, Target, u32), u32>,
    /// What the outside was told by the executions of each piece of work.
    pub(crate) told: BTreeMap<(RunNo, Target), BTreeMap<u32, ToldOutside>>,
    /// The chunks that each sink has got, by run: how many, in order.
    pub(crate) delivered: BTreeMap<(String, RunNo), usize>,
    pub(crate) events: u64,
    /// Events that are kept until a step waits for them, or were until then.
    pub(crate) kept: Vec<KeptEvent>,
    /// The run of each start request.
    pub(crate) requests: BTreeMap<u64, String>,
    /// What was drawn, by the id of the plan.
    pub(crate) drawn: BTreeMap<String, Definition>,
    /// Plans that were read before, by the text that the store has.
    pub(crate) plans: BTreeMap<String, Arc<Plan>>,
    pub(crate) coverage: Coverage,
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
        let list = sim_store.store().list(&everything).map_err(said)?;
        for row in &list {
            let observed = match self.runs.entry(row.run) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let plan = read_plan(sim_store, row.run, &mut self.plans)?;
                    new.insert(ObservedRun::new(row, plan, &self.drawn))
                }
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
            let chunks = sim_store.store().chunks(row.run, after, usize::MAX);
            for chunk in chunks.map_err(said)? {
                self.events += observed.take(&chunk, &mut self.coverage)?;
            }
        }
        if list.len() < self.runs.len() {
            return Err("a run is gone".into());
        }
        Ok(list)
    }

    /// Reads every log from its beginning once more: nothing that was read has changed since.
    pub(crate) fn read_again(&self, sim_store: &SimStore) -> CheckResult {
        for observed in self.runs.values() {
            let chunks = sim_store.store().chunks(observed.run, 0, usize::MAX);
            let chunks = chunks.map_err(|error| error.to_string())?;
            if !chunks
                .iter()
                .map(content)
                .eq(observed.contents.iter().copied())
            {
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

    /// Work tells the outside who it is: the fence is greater than those of all executions before, however late they
    /// begin, and the key is that of the logical attempt.
    pub(crate) fn tells(&mut self, run: RunNo, claimed: &Claimed) -> CheckResult {
        let (target, no) = (claimed.claim.target, claimed.claim.execution);
        let told = self.told.entry((run, target)).or_default();
        let mine = ToldOutside {
            fence: claimed.fence,
            logical: claimed.logical,
            key: claimed.idempotency_key.clone(),
        };
        let before = told.range(..no).next_back();
        let after = told.range(no + 1..).next();
        let rises = before.is_none_or(|(_, it)| it.fence < mine.fence)
            && after.is_none_or(|(_, it)| mine.fence < it.fence);
        let mut others = told.values();
        let is_undo = matches!(target, Target::Undo(_));
        let keeps =
            others.all(|it| (it.key == mine.key) == (is_undo || it.logical == mine.logical));
        if !rises || !keeps {
            return Err(format!(
                "execution {no} of {target:?} of run {} has a wrong fence or key: {mine:?} beside {told:?}",
                run.0
            ));
        }
        told.insert(no, mine);
        Ok(())
    }

    /// Work gets what its claim carries: the model says the same.
    pub(crate) fn gets(&self, run: RunNo, target: Target, claimed: &Claimed) -> CheckResult {
        let model = self.runs.get(&run).and_then(|it| it.model.as_ref());
        model.map_or(Ok(()), |it| it.begins(target, claimed))
    }

    /// The start of a request was answered with this run: a request is always the same run.
    pub(crate) fn started(&mut self, request: u64, run_id: &str) -> CheckResult {
        if self.by_id(run_id).is_none() {
            return Err(format!("{run_id} was answered and is not in the store"));
        }
        let first = self
            .requests
            .entry(request)
            .or_insert_with(|| run_id.to_owned());
        match first == run_id {
            true => Ok(()),
            false => Err(format!("request {request} is {first} and {run_id}")),
        }
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

/// A hash of a chunk as it is stored.
fn content(chunk: &StoredChunk) -> u64 {
    let mut hasher = DefaultHasher::new();
    (chunk.first, chunk.last, &chunk.body, &chunk.digests).hash(&mut hasher);
    hasher.finish()
}

/// Reads the plan of a run. Plans that were read before are not made again.
fn read_plan(
    sim_store: &SimStore,
    run: RunNo,
    plans: &mut BTreeMap<String, Arc<Plan>>,
) -> Result<Arc<Plan>, String> {
    let no = sim_store.rows(run).ok_or("a listed run is gone")?.plan;
    let plan = sim_store.store().plan(no).ok().flatten();
    let net = plan.ok_or("a run's plan is gone")?.net;
    if let Some(plan) = plans.get(&net).or_else(|| workload::known_plan(&net)) {
        return Ok(plan.clone());
    }
    let parsed = serde_json::from_str(&net).map_err(|error| error.to_string())?;
    let plan = Arc::new(Plan::new(parsed).map_err(|error| error.to_string())?);
    plans.insert(net, plan.clone());
    Ok(plan)
}

impl ObservedRun {
    fn new(row: &RunSummary, plan: Arc<Plan>, drawn: &BTreeMap<String, Definition>) -> ObservedRun {
        ObservedRun {
            run: row.run,
            run_id: row.run_id.clone(),
            state: State::new(row.run_id.clone(), &plan),
            recorder: Recorder::new(row.run_id.clone()),
            head: chain::GENESIS.to_owned(),
            model: drawn.get(&plan.net().plan_id).map(Model::new),
            last_kinds: BTreeMap::new(),
            plan,
            keys: HashSet::new(),
            claims: BTreeMap::new(),
            chunks: Vec::new(),
            contents: Vec::new(),
            waited: BTreeMap::new(),
            children: BTreeSet::new(),
            marks: BTreeSet::new(),
        }
    }

    /// The executions of a step-run whose work is not done again.
    pub(crate) fn waited(&self, step: StepRef) -> &[u32] {
        self.waited.get(&step).map_or(&[], Vec::as_slice)
    }

    /// Folds a chunk in; says how many events it had.
    fn take(&mut self, stored: &StoredChunk, coverage: &mut Coverage) -> Result<u64, String> {
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
        let parts = chunk::hashed_parts(&self.run_id, &self.plan.net().plan_version, stored);
        let parts = parts.map_err(|error| wrong(error.to_string()))?;
        let digests = stored.digests.chunks(DIGESTS);
        for ((event, (contract, ext)), digests) in events.iter().zip(&parts).zip(digests) {
            let hash = digests.get(48..80).map(hex).unwrap_or_default();
            if chain::link(contract, ext, &self.head) != hash {
                return Err(wrong(format!(
                    "event {}: the hash chain is broken",
                    event.seq
                )));
            }
            // An append that had to wait has other times than the recorder would write.
            let waited = contract.get("occurredAt").is_some();
            self.fold(event, &hash, waited).map_err(&wrong)?;
            self.head = hash;
            let step = event.body.step();
            let kind = event.body.kind();
            let before = self.last_kinds.insert(step, kind).unwrap_or("nothing");
            coverage.see(before, kind);
            if let Some(model) = &mut self.model {
                let judged = model.take(event);
                judged.map_err(|what| wrong(format!("event {}: the model: {what}", event.seq)))?;
            }
        }
        if self.state.seq() != stored.last {
            return Err(wrong(format!("chunk {} is too short", stored.first)));
        }
        self.chunks.push(stored.first);
        self.contents.push(content(stored));
        Ok(events.len() as u64)
    }

    fn fold(&mut self, event: &Event, hash: &str, waited: bool) -> CheckResult {
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
        let record = self.recorder.record(&self.plan, event);
        let record = record.map_err(|error| format!("event {seq} ({kind}): {error}"))?;
        if record.hash != hash && !waited {
            return Err(format!(
                "event {seq} ({kind}) is not what the recorder writes"
            ));
        }
        self.lawful(event)?;
        self.follow_pipeline(event)?;
        let folded = evolve(&self.plan, &mut self.state, event, &mut Vec::new());
        folded.map_err(|illegal| illegal.to_string())?;
        if waited {
            self.recorder = Recorder::resume(&self.plan, &self.state, hash);
        }
        Ok(())
    }

    /// How far the worker of a pipeline came, and that it wrote no secret.
    fn follow_pipeline(&mut self, event: &Event) -> CheckResult {
        if self.plan.net().plan_id != pipelines::PLAN_ID {
            return Ok(());
        }
        match &event.body {
            Body::StepWaiting {
                step,
                execution,
                memo: Some(_),
                ..
            } => self.waited.entry(*step).or_default().push(*execution),
            // The next attempt begins with the first task; after a loss the next execution does not.
            Body::StepRetried { step, .. }
            | Body::StepExecutionFailed {
                step, loss: None, ..
            } => drop(self.waited.remove(step)),
            _ => {}
        }
        match format!("{:?}", event.body).contains(pipelines::SECRET) {
            true => Err(format!("event {}: a secret is in the log", event.seq)),
            false => Ok(()),
        }
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
            Body::EventReceived { event_id, .. }
            | Body::StepWoken {
                event_id: Some(event_id),
                ..
            } => {
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
