//! A run in memory: its state, what is decided and not yet committed, and what of its rows is known.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use stepwell_kernel::chain::GENESIS;
use stepwell_kernel::command::{Claimed, Command, Reply};
use stepwell_kernel::contract::Recorder;
use stepwell_kernel::decide::next_wake;
use stepwell_kernel::effect::{RunOutcome, Target};
use stepwell_kernel::event::Event;
use stepwell_kernel::evolve::evolve;
use stepwell_kernel::keys::hex;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::Rejection;
use stepwell_kernel::state::{FORMAT, Phase, State};
use stepwell_kernel::time::Time;

use super::{Config, Message, Notice, Origin, Request};
use crate::chunk::{self, ChunkWriter};
use crate::error::Error;
use crate::rows::{self, served_by, target_name};
use crate::store::{
    Append, Guard, Head, NewAlert, NewMessage, NewRun, RunNo, SessionNo, SlotChange, StateSnapshot,
    StoredChunk, StoredRun, TaskChange, WaitChange,
};

/// A run whose next wake-up is closer than this stays with its session: giving it away and taking it
/// back would be two writes for nothing.
const HOLD_MS: u64 = 2_000;

/// A run in memory.
#[derive(Debug)]
pub struct HotRun {
    /// Its number.
    pub run: RunNo,
    /// Its id.
    pub run_id: Arc<str>,
    /// Its plan.
    pub plan: Arc<Plan>,
    /// Its state, with what is decided and not yet committed.
    pub state: State,
    pub(crate) recorder: Recorder,
    pub(crate) head: Head,
    pub(crate) head_version: i64,
    pub(crate) event_key: String,
    /// The last sequence number that is in the store.
    pub(crate) committed: u64,
    pub(crate) draft: Option<Draft>,
    pub(crate) flight: Option<Draft>,
    /// Requests that wait for the commit in flight.
    pub(crate) waiting: VecDeque<Request>,
    /// Work for this process that is not claimed yet.
    pub(crate) ready: BTreeSet<(Time, u32, Target)>,
    /// It stands in the line for capacity.
    pub(crate) awaiting_capacity: bool,
    /// Full queues in whose lines it stands.
    pub(crate) lines: BTreeSet<String>,
    /// It was read and nobody has looked yet what is to be done for it.
    pub(crate) fresh: bool,
    /// Its parent could not be told yet how it ended.
    pub(crate) untold: Option<RunOutcome>,
    /// A decision was cut short and goes on.
    pub(crate) proceed: bool,
    /// Work of this process, by execution.
    pub(crate) jobs: HashMap<Target, u32>,
    /// Its task rows; true if a worker outside has a lease.
    pub(crate) tasks: HashMap<String, bool>,
    /// Steps with a row in `waits`.
    pub(crate) waits: HashSet<String>,
    /// The entry in the coordinator's timers.
    pub(crate) timer: Option<Time>,
    pub(crate) used: u64,
    log_bytes: usize,
    frozen_bytes: usize,
}

/// What is decided for a run and goes into one commit.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) after: u64,
    pub(crate) create: Option<Box<NewRun>>,
    pub(crate) events: Vec<Event>,
    pub(crate) decided: Vec<(Request, Result<Reply, Rejection>)>,
    pub(crate) guards: Vec<Guard>,
    pub(crate) starts: Vec<Claimed>,
    pub(crate) tasks: Vec<TaskChange>,
    pub(crate) waits: Vec<WaitChange>,
    pub(crate) mail: Vec<NewMessage>,
    pub(crate) taken: Vec<crate::store::MessageNo>,
    pub(crate) slots: Vec<SlotChange>,
    pub(crate) alerts: Vec<NewAlert>,
    /// Said once it is committed.
    pub(crate) then: Vec<Notice>,
    /// The head as this commit writes it.
    pub(crate) head: Option<Head>,
    /// The head's version goes up with it.
    counts: bool,
    /// What the head's slots become.
    pub(crate) holds: Option<Vec<String>>,
    /// When it was sent first.
    pub(crate) sent: Option<Time>,
    /// The last sequence number once it is committed.
    pub(crate) last: u64,
    bytes: usize,
    frozen: Option<usize>,
}

impl Draft {
    pub(crate) fn new(after: u64) -> Draft {
        Draft {
            after,
            last: after,
            ..Draft::default()
        }
    }
}

impl HotRun {
    /// A run that does not exist yet.
    pub(crate) fn new(run: RunNo, run_id: &str, plan: Arc<Plan>) -> HotRun {
        HotRun {
            run,
            run_id: run_id.into(),
            state: State::new(run_id, &plan),
            plan,
            recorder: Recorder::new(run_id),
            head: Head::default(),
            head_version: 0,
            event_key: run_id.to_owned(),
            committed: 0,
            draft: None,
            flight: None,
            waiting: VecDeque::new(),
            ready: BTreeSet::new(),
            awaiting_capacity: false,
            lines: BTreeSet::new(),
            fresh: false,
            untold: None,
            proceed: false,
            jobs: HashMap::new(),
            tasks: HashMap::new(),
            waits: HashSet::new(),
            timer: None,
            used: 0,
            log_bytes: 0,
            frozen_bytes: 0,
        }
    }

    /// A run as it was stored. `all` reads the whole log, for a snapshot that cannot be used.
    pub(crate) fn read(
        stored: StoredRun,
        plan: Arc<Plan>,
        all: impl FnOnce() -> Result<Vec<StoredChunk>, Error>,
    ) -> Result<HotRun, Error> {
        let mut hot = HotRun::new(stored.run, &stored.run_id, plan);
        hot.fresh = true;
        let thawed = stored.snapshot.as_ref().and_then(|frozen| {
            let state = State::thaw(frozen.version, &frozen.body, &hot.plan)?;
            (state.seq == frozen.seq && state.run_id == stored.run_id).then_some(state)
        });
        let chunks = match (&stored.snapshot, thawed) {
            (None, _) => stored.chunks,
            (Some(frozen), Some(state)) => {
                hot.state = state;
                hot.frozen_bytes = frozen.body.len();
                stored.chunks
            }
            (Some(_), None) => all()?,
        };
        let mut tail = GENESIS.to_owned();
        for chunk in &chunks {
            let fault = |source| Error::Unreadable {
                run_id: stored.run_id.clone(),
                source,
            };
            let events = chunk::decode(chunk.first, chunk.codec, &chunk.body).map_err(fault)?;
            let known = hot.state.seq;
            for event in events.iter().filter(|event| event.seq > known) {
                evolve(&hot.plan, &mut hot.state, event, &mut Vec::new());
            }
            hot.log_bytes += chunk.body.len();
            if let Some(hash) = chunk.digests.last_chunk::<32>() {
                tail = hex(hash);
            }
        }
        hot.recorder = Recorder::resume(&hot.plan, &hot.state, tail);
        hot.committed = hot.state.seq;
        hot.head = stored.head;
        hot.head_version = stored.head_version;
        hot.event_key = stored.event_key;
        hot.tasks = stored
            .tasks
            .into_iter()
            .map(|task| (task.target, task.leased))
            .collect();
        hot.waits = stored.waits.into_iter().collect();
        Ok(hot)
    }

    /// The last sequence number that is in the store.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Its head as it is in the store.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Whether the result of some work waits for the commit in flight.
    pub(crate) fn has_result(&self, target: Target) -> bool {
        let mut claims = self.waiting.iter().filter_map(|it| it.command.claim());
        claims.any(|claim| claim.target == target)
    }

    /// Whether nothing is to be done for it here.
    pub(crate) fn is_idle(&self, session: SessionNo) -> bool {
        self.head.session != Some(session)
            && self.draft.is_none()
            && self.flight.is_none()
            && self.waiting.is_empty()
            && self.jobs.is_empty()
            && !self.awaiting_capacity
            && self.lines.is_empty()
    }

    /// Another server that has it and that this draft does not bury: what it has stays its own.
    pub(crate) fn owner(&self, draft: Option<&Draft>, session: SessionNo) -> Option<SessionNo> {
        let owner = self.head.session.filter(|it| *it != session)?;
        let dead = draft.is_some_and(|it| it.guards.contains(&Guard::Dead(owner)));
        (!dead).then_some(owner)
    }

    /// Folds a decision in: its events into the draft, with what they mean for the other rows.
    pub(crate) fn absorb(&mut self, events: Vec<Event>) -> &mut Draft {
        let mut draft = self
            .draft
            .take()
            .unwrap_or_else(|| Draft::new(self.committed));
        for event in &events {
            rows::of_event(self, &mut draft, event);
        }
        if draft.events.is_empty() {
            draft.events = events;
        } else {
            draft.events.extend(events);
        }
        self.draft.insert(draft)
    }

    /// When something must happen by itself.
    pub(crate) fn due(&self) -> Option<Time> {
        let work = self.ready.first().map(|(visible_at, _, _)| *visible_at);
        next_wake(&self.state).into_iter().chain(work).min()
    }

    /// Work for this process that does not stand in line for its queue, the first to be done first.
    pub(crate) fn next_ready(&self) -> Option<(Time, u32, Target)> {
        let free = |target| !self.lines.contains(served_by(&self.plan, target).0);
        let mut ready = self.ready.iter().copied();
        ready.find(|(_, _, target)| self.lines.is_empty() || free(*target))
    }

    /// Whether it has work of a queue that can be claimed now.
    pub(crate) fn has_ready(&self, queue: &str, now: Time) -> bool {
        let mut due = self.ready.iter().take_while(|(at, _, _)| *at <= now);
        due.any(|(_, _, target)| served_by(&self.plan, *target).0 == queue)
    }

    /// When it must be looked at here. What stands in line is looked at when there is room, and time
    /// makes none.
    pub(crate) fn alarm(&self) -> Option<Time> {
        let work = self.next_ready().filter(|_| !self.awaiting_capacity);
        let work = work.map(|(visible_at, _, _)| visible_at);
        next_wake(&self.state).into_iter().chain(work).min()
    }

    /// The head as it should be now.
    fn head_now(&self, draft: &Draft, session: SessionNo, now: Time) -> Head {
        let (status, substatus) = rows::words(&self.state);
        let mut head = Head {
            status: status.to_owned(),
            substatus: substatus.map(str::to_owned),
            slots: draft
                .holds
                .clone()
                .unwrap_or_else(|| self.head.slots.clone()),
            ..Head::default()
        };
        if self.state.phase.is_ended() {
            head.ended_at = self.state.ended_at;
            return head;
        }
        let due = self.due();
        let claimable = self.ready.first().is_some_and(|(at, _, _)| *at <= now);
        let busy = !self.jobs.is_empty() || self.proceed || claimable;
        let mine = self.head.session == Some(session);
        if busy || (mine && due.is_some_and(|due| due <= now.plus(HOLD_MS))) {
            head.session = Some(session);
            return head;
        }
        let waits = matches!(self.state.phase, Phase::Created | Phase::Queued);
        head.queued = self.state.phase == Phase::Queued
            && (self.state.approved || !self.plan.policy().needs_approval);
        // A run whose start time has passed waits for a slot or an approval, not for time.
        head.wake_at = due.filter(|due| !waits || *due > now);
        head
    }

    /// Turns a draft into what the store is to write; nothing if there is nothing to write or ask.
    pub(crate) fn seal(
        &mut self,
        draft: &mut Draft,
        chunks: &mut ChunkWriter,
        session: SessionNo,
        config: &Config,
        now: Time,
    ) -> Result<Option<Append>, Error> {
        // What another server has is left to it: its work is in flight there, and its session is the
        // lease. It is told below, and sees to the head.
        let foreign = self.owner(Some(draft), session).is_some() && !self.state.phase.is_ended();
        let head = match foreign {
            true => self.head.clone(),
            false => self.head_now(draft, session, now),
        };
        let changed = head != self.head;
        let mine = self.head.session == Some(session);
        let owned = mine || head.session == Some(session);
        let mut append = Append::new(self.run, draft.after);
        for (request, answer) in &draft.decided {
            if let Origin::Message { no, reply } = request.from
                && (answer.is_ok() || !reply)
            {
                append.taken.push(no);
            }
        }
        append.taken.append(&mut draft.taken.clone());
        if draft.events.is_empty() {
            let asks = |(request, _): &(Request, _)| request.from != Origin::Coordinator;
            let rows = !draft.tasks.is_empty() || !draft.mail.is_empty();
            if !changed && !rows && append.taken.is_empty() && !draft.decided.iter().any(asks) {
                return Ok(None);
            }
            append.head_version = Some(self.head_version);
            append.head = changed.then_some(head);
        } else {
            self.write_chunk(draft, chunks, &mut append)?;
            if changed || !(mine || foreign) || draft.create.is_some() {
                append.head = Some(head);
            }
            append.linear = rows::linear(&self.plan, &self.state, &self.event_key, draft);
            append.sinks.clone_from(&config.sinks);
            append.snapshot = self.frozen(draft, config.snapshot_bytes);
        }
        append.create.clone_from(&draft.create);
        append.guards.clone_from(&draft.guards);
        if owned && !append.guards.contains(&Guard::Session) {
            append.guards.push(Guard::Session);
        }
        append.tasks.clone_from(&draft.tasks);
        if !mine && draft.create.is_none() && append.chunk.is_some() {
            append.tasks.extend(self.withdrawn(draft, owned));
        }
        append.waits.clone_from(&draft.waits);
        append.mail.clone_from(&draft.mail);
        if foreign && append.chunk.is_some() {
            // Whoever has the run by now is told that it has moved: there may be work for it.
            append
                .mail
                .push(Message::from(Command::Proceed).to(&self.run_id));
        }
        append.slots.clone_from(&draft.slots);
        append.alerts.clone_from(&draft.alerts);
        draft.head.clone_from(&append.head);
        draft.counts = append.head.is_some() || append.chunk.is_none();
        draft.last = self.state.seq;
        draft.sent.get_or_insert(now);
        Ok(Some(append))
    }

    /// What this append ends, or what this process is going to do itself, is offered to nobody any more.
    /// Another server may have offered it since the run was read: that writes no event, so an append of
    /// someone who does not own the run does not notice.
    fn withdrawn(&self, draft: &Draft, owned: bool) -> Vec<TaskChange> {
        let mut targets: BTreeSet<Target> = BTreeSet::new();
        for step in draft.events.iter().filter_map(|event| event.body.step()) {
            targets.extend([Target::Step(step), Target::Undo(step)]);
        }
        if owned {
            targets.extend(self.ready.iter().map(|(_, _, target)| *target));
        }
        let changed = |name: &String| draft.tasks.iter().any(|it| it.target() == name);
        let names = targets.into_iter().map(|at| target_name(&self.plan, at));
        names
            .filter(|name| !self.tasks.contains_key(name) && !changed(name))
            .map(|target| TaskChange::Delete { target })
            .collect()
    }

    fn write_chunk(
        &mut self,
        draft: &mut Draft,
        chunks: &mut ChunkWriter,
        append: &mut Append,
    ) -> Result<(), Error> {
        let written = chunks.write(&mut self.recorder, &self.plan, &draft.events);
        let chunk = written.map_err(|source| Error::Schema {
            run_id: self.run_id.to_string(),
            source,
        })?;
        if let Some(depth) = chunk::too_deep(&chunk.body) {
            return Err(Error::Refused {
                run_id: self.run_id.to_string(),
                why: format!(
                    "it is nested {depth} deep in the log, which takes {}",
                    chunk::MAX_DEPTH
                ),
            });
        }
        draft.bytes = chunk.body.len();
        append.chunk = Some(chunk);
        Ok(())
    }

    /// The state, when the log since the last time is longer than it was.
    fn frozen(&self, draft: &mut Draft, at_least: usize) -> Option<StateSnapshot> {
        let log = self.log_bytes + draft.bytes;
        if log < at_least
            || log < self.frozen_bytes.saturating_mul(4)
            || self.state.phase.is_ended()
        {
            return None;
        }
        let body = self.state.freeze();
        draft.frozen = Some(body.len());
        Some(StateSnapshot {
            seq: self.state.seq,
            version: FORMAT,
            body,
        })
    }

    /// A draft is committed.
    pub(crate) fn settle(&mut self, draft: &Draft) {
        self.committed = draft.last;
        if let Some(head) = &draft.head {
            self.head = head.clone();
        }
        self.head_version += i64::from(draft.counts);
        self.log_bytes += draft.bytes;
        if let Some(bytes) = draft.frozen {
            self.log_bytes = 0;
            self.frozen_bytes = bytes;
        }
    }
}
