//! A run in memory: its state, what is decided and not yet committed, what waits for the commit in
//! flight, and what of its rows is known. Its fields change only here:
//!
//! - `read`: the run as the store has it;
//! - `draft`: what is decided for the next commit, and what is kept of it while the commit is in flight;
//! - `known_rows`: what events mean for the run's tasks and waits;
//! - `effects`: what follows from a decision, in the draft what is a row, in memory what is not;
//! - `seal`: turns the draft into what the store is to write.
//!
//! A run knows nothing of other runs, of the store or of the driver.

mod draft;
mod effects;
mod known_rows;
mod read;
mod restamp;
mod seal;
mod sealed_state;

use std::collections::VecDeque;
use std::sync::Arc;

use stepwell_kernel::command::{Claimed, Command, Env, Reply};
use stepwell_kernel::contract::Recorder;
use stepwell_kernel::decide::{decide, next_wake};
use stepwell_kernel::effect::{Effect, RunOutcome, Target};
use stepwell_kernel::event::{Body, Event, WaitKind};
use stepwell_kernel::evolve::{IllegalEvent, evolve};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::state::{Phase, State};
use stepwell_kernel::time::Time;

use super::capacity::RunWork;
use super::notices::{Assignment, Notice};
use super::request::{Decided, Request};
use super::schedule::TimerEntry;
use crate::number_map::NumberMap;
use crate::store::{Append, Guard, Head, NewRun, RunNo, SessionNo};

use draft::Draft;
pub(super) use draft::{Flight, Offer, Uncommitted};
pub use effects::engine_actor;
pub(super) use effects::{can_be_claimed, cancel_child};
use known_rows::KnownRows;
pub(super) use seal::Sealed;
pub(crate) use sealed_state::is_whole;

/// A run in memory.
#[derive(Debug)]
pub struct HotRun {
    run: RunNo,
    run_id: Arc<str>,
    plan: Arc<Plan>,
    /// With what is decided and not yet committed.
    state: State,
    recorder: Recorder,
    /// The head as it is in the store, and its version.
    head: Head,
    head_version: i64,
    /// What events from outside are matched by.
    event_key: String,
    /// The last sequence number that is in the store.
    committed: u64,
    /// In a box, as a run that only waits has none.
    draft: Option<Box<Draft>>,
    flight: Option<Flight>,
    /// Requests that wait for the commit in flight.
    waiting: VecDeque<Request>,
    work: RunWork,
    rows: KnownRows,
    /// The run was read, and nobody has looked yet what is to be done for it.
    fresh: bool,
    /// The parent could not be told yet how the run ended.
    untold: Option<RunOutcome>,
    /// A decision was cut short and goes on.
    proceed: bool,
    /// The state does not fit its own rules and may have half a decision folded in: nothing more is decided
    /// on it, and nothing of it is written.
    fault: Option<Rejection>,
    timer: TimerEntry,
    /// Bytes of log since the last snapshot, and bytes of that snapshot.
    log_bytes: usize,
    snapshot_bytes: usize,
}

/// What is left of a run that was forgotten.
#[derive(Debug)]
pub(super) struct Leftover {
    pub(super) run_id: Arc<str>,
    pub(super) plan: Arc<Plan>,
    pub(super) event_key: String,
    /// What was decided and never sent.
    pub(super) draft: Option<Uncommitted>,
    pub(super) waiting: VecDeque<Request>,
    /// Work of this process that goes on.
    pub(super) jobs: NumberMap<Target, u32>,
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
            work: RunWork::default(),
            rows: KnownRows::default(),
            fresh: false,
            untold: None,
            proceed: false,
            fault: None,
            timer: TimerEntry::default(),
            log_bytes: 0,
            snapshot_bytes: 0,
        }
    }

    /// A run that its first commit creates.
    pub(super) fn create(run: RunNo, new: Box<NewRun>, plan: Arc<Plan>) -> Box<HotRun> {
        let mut hot = Box::new(HotRun::new(run, &new.run_id, plan));
        hot.draft().create(new);
        hot
    }

    /// The run's number in the store.
    #[must_use]
    pub fn run(&self) -> RunNo {
        self.run
    }

    #[must_use]
    pub fn run_id(&self) -> &Arc<str> {
        &self.run_id
    }

    /// The plan that the run follows.
    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The state, with what is decided and not yet committed.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The last sequence number that is in the store.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// The head as it is in the store.
    #[must_use]
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The hash of the last event, in the form of the log; with what is decided and being written.
    #[must_use]
    pub fn chain_head(&self) -> &str {
        self.recorder.head()
    }

    /// The work of a claim, as a worker gets it.
    #[must_use]
    pub fn assignment(&self, claimed: Claimed) -> Assignment {
        Assignment::of(self, claimed)
    }

    /// What a worker would get if its claim were committed, while the store does not answer: as it was decided already, or as
    /// it would be decided now. Changes nothing.
    pub fn expected_claim(&self, command: &Command, env: &Env) -> Result<Claimed, Rejection> {
        let Command::ClaimStep { target, worker, .. } = command else {
            return Err(Rejection::new(
                Code::StepNotEligible,
                "only work can be claimed",
            ));
        };
        let draft = self.draft.iter().flat_map(|draft| &draft.decided);
        let flight = self.flight.iter().flat_map(Flight::decided);
        let decided = draft.chain(flight).find_map(|it| match &it.answer {
            Ok(Reply::Claimed(claimed)) if claimed.claim.target == *target => {
                (claimed.claim.worker == *worker).then(|| Claimed::clone(claimed))
            }
            Ok(_) | Err(_) => None,
        });
        if let Some(claimed) = decided {
            return Ok(claimed);
        }
        let mut state = self.state.clone();
        match decide(&self.plan, &mut state, command.clone(), env)?.reply {
            Reply::Claimed(claimed) => Ok(*claimed),
            Reply::Done
            | Reply::Created { .. }
            | Reply::Duplicate(_)
            | Reply::Refused(_)
            | Reply::RetryRun { .. } => Err(Rejection::new(
                Code::StepNotEligible,
                "the step ends without work",
            )),
        }
    }

    /// Whether the run's creation was decided.
    pub(super) fn exists(&self) -> bool {
        self.state.phase() != Phase::Void
    }

    /// Whether a commit is on its way. Until it is answered nothing else is decided.
    pub(super) fn is_in_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// Whether something is decided or on its way.
    pub(super) fn is_changing(&self) -> bool {
        self.flight.is_some() || self.draft.is_some()
    }

    pub(super) fn has_draft(&self) -> bool {
        self.draft.is_some()
    }

    /// Whether nothing is to be done for the run here.
    pub(super) fn is_idle(&self, session: SessionNo) -> bool {
        self.head.session != Some(session)
            && !self.is_changing()
            && self.waiting.is_empty()
            && self.work.is_idle()
    }

    /// Whether another server has the run.
    pub(super) fn is_owned_by_other(&self, session: SessionNo) -> bool {
        self.head.session.is_some_and(|owner| owner != session)
    }

    /// Another server that has the run and that the draft does not bury: what it has stays its own.
    pub(super) fn other_owner(&self, session: SessionNo) -> Option<SessionNo> {
        let owner = self.head.session.filter(|it| *it != session)?;
        let draft = self.draft.as_ref();
        let dead = draft.is_some_and(|it| it.has_guard(&Guard::Dead(owner)));
        (!dead).then_some(owner)
    }

    /// Whether the result of some work waits for the commit in flight.
    pub(super) fn has_result(&self, target: Target) -> bool {
        let mut claims = self.waiting.iter().filter_map(|it| it.command.claim());
        claims.any(|claim| claim.target == target)
    }

    /// Whether a task's row is known to offer it to others.
    pub(super) fn has_task(&self, target: Target) -> bool {
        self.rows.has_task(&self.plan, target)
    }

    /// Decides a command. What it comes to is in the draft; what follows from it is returned.
    pub(super) fn decide(
        &mut self,
        command: Command,
        env: &Env,
    ) -> Result<(Vec<Effect>, Reply), Rejection> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let decided = decide(&self.plan, &mut self.state, command, env);
        let decision = decided.inspect_err(|rejection| {
            if rejection.code == Code::LogInvalid {
                self.fault = Some(rejection.clone());
            }
        })?;
        self.absorb(decision.events);
        Ok((decision.effects, decision.reply))
    }

    /// The run's log was found damaged: nothing more is decided or written for it.
    pub(super) fn condemn(&mut self, why: &str) {
        if self.fault.is_none() {
            self.fault = Some(Rejection::new(Code::LogInvalid, why));
        }
    }

    /// An event was known already. The store may have given it to a step that waits for another event of its type; the
    /// step is offered to events again.
    pub(super) fn await_again(&mut self, event_type: &str) {
        for source in wake_sources(&self.plan, &self.state) {
            if let WakeSource::Outside { step, wait } = source
                && matches!(wait, WaitKind::Event { event_type: of, .. } if of == event_type)
            {
                let (plan, rows, draft) = self.rows_and_draft();
                rows.wait_again(plan, step, event_type, draft.append());
            }
        }
    }

    /// As after a decision that the kernel could not carry through.
    #[cfg(test)]
    pub(super) fn set_fault(&mut self) {
        let _ = self.draft();
        self.fault = Some(Rejection::new(Code::LogInvalid, "step a has no claim"));
    }

    /// Puts events into the draft, with what they mean for the other rows.
    pub(crate) fn absorb(&mut self, events: Vec<Event>) {
        let run = self.run;
        let (plan, rows, draft) = self.rows_and_draft();
        let mut paused = false;
        for event in &events {
            paused |= rows.apply(plan, event, draft.append());
            if let Body::StepExecutionFailed { loss, .. } | Body::UndoExecutionFailed { loss, .. } =
                &event.body
            {
                let lost = loss.is_some();
                draft.tell(Notice::Retried { run, lost });
            }
        }
        draft.add_events(events);
        if paused {
            self.work.clear_ready();
        }
    }

    fn rows_and_draft(&mut self) -> (&Plan, &mut KnownRows, &mut Draft) {
        let (run, committed) = (self.run, self.committed);
        let draft = self
            .draft
            .get_or_insert_with(|| Box::new(Draft::new(run, committed)));
        (&self.plan, &mut self.rows, draft)
    }

    /// Folds an event that was decided elsewhere, if it can follow.
    pub(crate) fn record(&mut self, event: Event) -> Result<(), IllegalEvent> {
        evolve(&self.plan, &mut self.state, &event, &mut Vec::new())?;
        self.absorb(vec![event]);
        Ok(())
    }

    /// The draft for the next commit; a new one if nothing is decided yet.
    pub(super) fn draft(&mut self) -> &mut Draft {
        self.rows_and_draft().2
    }

    /// What the draft offers to workers in other processes; asked for once.
    pub(super) fn take_offers(&mut self) -> Vec<Offer> {
        let offers = self.draft.as_mut().map(|draft| &mut draft.offers);
        offers.map(std::mem::take).unwrap_or_default()
    }

    /// Nobody waits for this part of what the draft offers.
    pub(super) fn leave_offered(&mut self, offers: Vec<Offer>) {
        if let Some(draft) = &mut self.draft {
            draft.offers = offers;
        }
    }

    /// A request was decided.
    pub(super) fn decided(&mut self, request: Request, answer: Result<Reply, Rejection>) {
        self.draft().decided(Decided { request, answer });
    }

    /// A request waits for the commit in flight.
    pub(super) fn wait(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    pub(super) fn take_waiting(&mut self) -> VecDeque<Request> {
        std::mem::take(&mut self.waiting)
    }

    pub(super) fn work(&self) -> &RunWork {
        &self.work
    }

    pub(super) fn work_mut(&mut self) -> (&Plan, &mut RunWork) {
        (&self.plan, &mut self.work)
    }

    /// Offers the work that finds no room here to other servers too. The work keeps its place in line: the server that claims it
    /// first does it, and until then no server has the run.
    pub(super) fn share(&mut self) {
        // Work that another server has claimed since leaves the line.
        let state = &self.state;
        self.work
            .retain_ready(|target| can_be_claimed(state, target));
        let ready: Vec<(Time, Target)> = self.work.ready_at().collect();
        let (plan, rows, draft) = self.rows_and_draft();
        for (visible_at, target) in ready {
            if !rows.has_task(plan, target) {
                rows.offer(plan, target, visible_at, draft.append());
            }
        }
        self.work.set_shared(true);
    }

    /// This process claims some of the work that was offered: the run is its own again, with all of that work. What
    /// is offered because only others can do it stays.
    pub(super) fn unshare(&mut self) {
        if self.work.is_shared() {
            let ready: Vec<Target> = self.work.ready().collect();
            let (plan, rows, draft) = self.rows_and_draft();
            for target in ready {
                rows.withdraw(plan, target, draft.append());
            }
            self.work.set_shared(false);
        }
    }

    /// The entry in the schedule's timers.
    pub(super) fn timer(&mut self) -> &mut TimerEntry {
        &mut self.timer
    }

    /// Whether nobody has looked yet what is to be done for the run since it was read.
    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    pub(super) fn set_attended(&mut self) {
        self.fresh = false;
    }

    /// The parent could not be told yet how the run ended.
    pub(super) fn keep_untold(&mut self, outcome: RunOutcome) {
        self.untold = Some(outcome);
    }

    pub(super) fn take_untold(&mut self) -> Option<RunOutcome> {
        self.untold.take()
    }

    pub(super) fn is_untold(&self) -> bool {
        self.untold.is_some()
    }

    /// Whether a decision was cut short; asked for once.
    pub(super) fn take_proceed(&mut self) -> bool {
        std::mem::take(&mut self.proceed)
    }

    /// What events from outside are matched by, for a run that is being created.
    pub(super) fn set_event_key(&mut self, key: Option<String>) {
        if let Some(key) = key {
            self.event_key = key;
        }
        let key = self.event_key.clone();
        self.draft().set_event_key(key);
    }

    /// What events from outside are matched by.
    pub(super) fn event_key(&self) -> &str {
        &self.event_key
    }

    /// When something must happen by itself.
    pub(super) fn due(&self) -> Option<Time> {
        let wake = next_wake(&self.state).into_iter();
        // What is offered to others is in their rows, with its time.
        let ready = self.work.first_ready().filter(|_| !self.work.is_shared());
        wake.chain(ready).min()
    }

    /// When the run must be looked at here. What stands in line is looked at when there is room, and
    /// time makes none.
    pub(super) fn alarm(&self) -> Option<Time> {
        let next = match self.work.awaits_capacity() {
            true => None,
            false => self.work.next_at(&self.plan),
        };
        let alarm = next_wake(&self.state).into_iter().chain(next).min()?;
        // What is due by the time of the log is due, though the clock may have been set back since.
        Some(match alarm <= self.state.last_at() {
            true => Time(0),
            false => alarm,
        })
    }

    /// When the commit in flight was sent.
    pub(super) fn sent_at(&self) -> Option<Time> {
        self.flight.as_ref().map(Flight::sent_at)
    }

    /// The commit in flight is answered.
    pub(super) fn land(&mut self) -> Option<Flight> {
        self.flight.take()
    }

    /// A commit is in the store.
    pub(super) fn settle(&mut self, append: &Append) {
        match &append.chunk {
            Some(chunk) => {
                self.committed = chunk.last;
                self.log_bytes += chunk.body.len();
            }
            None => self.head_version += i64::from(append.head.is_none()),
        }
        if let Some(head) = &append.head {
            self.head.clone_from(head);
            self.head_version += 1;
        }
        if let Some(snapshot) = &append.snapshot {
            self.log_bytes = 0;
            self.snapshot_bytes = snapshot.body.len();
        }
    }

    /// What is left of the run once it is forgotten; `jobs` is its work in flight.
    pub(super) fn into_leftover(self: Box<Self>, jobs: NumberMap<Target, u32>) -> Leftover {
        Leftover {
            run_id: self.run_id,
            plan: self.plan,
            event_key: self.event_key,
            draft: self.draft.map(|draft| draft.into_uncommitted()),
            waiting: self.waiting,
            jobs,
        }
    }
}
