//! The mock worker: real kernel, real log, pretended work. Steps succeed unless a rule says they fail;
//! people approve and events come unless a rule says they do not. The mock knows the runs only from their
//! logs, and answers as a worker, a person or a sender of events would: by commands.

mod rules;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value as Json, json};
use stepwell_kernel::codes;
use stepwell_kernel::command::{Actor, Claim, Command, LeaseEnd, ManualOutcome, Reply, Role};
use stepwell_kernel::decide::open_token;
use stepwell_kernel::effect::{RunOutcome, Target};
use stepwell_kernel::event::{Body, Patch, Rollback, StepError, WaitKind};
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::{ErrorClass, StepRef};
use stepwell_kernel::state::Status;
use stepwell_kernel::time::Time;

use crate::coordinator::{Assignment, Config, MissingChildren, Notice, PRETENDS, Serves};
use crate::error::Error;
use crate::port::Clock;
use crate::read::LoggedRun;
use crate::service::{Reporter, Worker};
use crate::store::{RunNo, Store, StoreError};
pub use rules::{BadRule, FailRule, Failing};

/// How many executions are pretended at a time.
const CAPACITY: usize = 64;
/// How long the lease of pretended work is, in milliseconds.
const LEASE_MS: u64 = 30_000;

/// Work that is being pretended.
#[derive(Clone, Debug)]
struct Pretended {
    due: Time,
    assignment: Assignment,
    end: PretendedEnd,
}

/// How pretended work ends.
#[derive(Clone, Copy, Debug)]
enum PretendedEnd {
    Succeeds,
    Fails(Failing),
    /// The engine asked the work to stop.
    Stopped,
}

/// A wait of a step that one person or event ends, or brings closer to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Wait {
    run: RunNo,
    step: StepRef,
    execution: u32,
    logical: u32,
    /// How many people have approved before.
    approvals: usize,
}

/// Facts about pretended work that the log does not show, for people.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn add(&self, note: String) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(note);
    }

    /// All notes so far, oldest first; they are not given a second time.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *notes)
    }
}

/// A worker that pretends.
#[derive(Debug)]
pub struct Mock {
    /// How steps are made to fail.
    pub rules: Vec<FailRule>,
    /// How long a pretended execution takes, in milliseconds.
    pub work_ms: u64,
    /// How long a person or an event takes to come, in milliseconds.
    pub answer_ms: u64,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    key: TokenKey,
    /// The runs as far as their logs were read.
    runs: HashMap<RunNo, MockRun>,
    in_flight: Vec<Pretended>,
    /// People and events that come, by their time and number.
    answers: BTreeMap<(Time, u64), Wait>,
    /// Waits that an answer was planned for, come or not: none gets a second one.
    planned: HashMap<(RunNo, StepRef), Wait>,
    answer_no: u64,
    notes: Notes,
}

impl Mock {
    /// A mock for an engine on this store, with this clock.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Mock, StoreError> {
        let key = TokenKey(store.secret()?);
        Ok(Mock {
            rules: Vec::new(),
            work_ms: 0,
            answer_ms: 1_000,
            store,
            clock,
            key,
            runs: HashMap::new(),
            in_flight: Vec::new(),
            answers: BTreeMap::new(),
            planned: HashMap::new(),
            answer_no: 0,
            notes: Notes::default(),
        })
    }

    /// The configuration of an engine whose work is pretended.
    #[must_use]
    pub fn configure(config: Config) -> Config {
        Config {
            engine_type: PRETENDS,
            missing_children: MissingChildren::AskDriver,
            serves: Serves::Everything,
            capacity: CAPACITY,
            ..config
        }
    }

    /// The notes of this mock, to be read while the mock works.
    #[must_use]
    pub fn notes(&self) -> Notes {
        self.notes.clone()
    }

    /// Reads what has happened in a run.
    fn catch_up(&mut self, run: RunNo) -> Result<&mut MockRun, Error> {
        let known = match self.runs.entry(run) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(MockRun::new(&*self.store, run)?),
        };
        known.catch_up(&*self.store)?;
        Ok(known)
    }

    /// Plans answers for the steps of a run that wait for a person or an event.
    fn plan_answers(&mut self, run: RunNo) -> Result<(), Error> {
        let changed = std::mem::take(&mut self.catch_up(run)?.changed);
        let Some(MockRun { logged, .. }) = self.runs.get(&run) else {
            return Ok(());
        };
        if logged.state.pause().is_some() {
            self.planned.retain(|(of, _), _| *of != run);
            return Ok(());
        }
        for step in changed {
            let Some(wait) = wait_of(logged, step, &self.rules) else {
                self.planned.remove(&(run, step));
                continue;
            };
            if self.planned.insert((run, step), wait) != Some(wait) {
                self.answer_no += 1;
                let at = self.clock.now().plus(self.answer_ms);
                self.answers.insert((at, self.answer_no), wait);
            }
        }
        Ok(())
    }

    /// A person or an event comes.
    fn answer(&mut self, number: u64, wait: Wait, reporter: &Reporter) -> Result<(), Error> {
        self.catch_up(wait.run)?;
        let Some(MockRun { logged, .. }) = self.runs.get(&wait.run) else {
            return Ok(());
        };
        if wait_of(logged, wait.step, &self.rules) != Some(wait) {
            return Ok(());
        }
        let Some(command) = self.command(logged, wait, number) else {
            return Ok(());
        };
        let notes = self.notes.clone();
        let is_person = matches!(command, Command::CompleteManually { .. });
        let on_answer = move |answer: Result<Reply, Error>| match answer {
            Err(Error::Rejected(rejection)) if is_person => {
                notes.add(format!("the mock person was refused: {rejection}"));
            }
            _ => {}
        };
        let run_id = logged.state.run_id();
        reporter.handle().submit_with(run_id, command, on_answer)
    }

    /// The command of the person or the event that ends a wait, if one comes.
    fn command(&self, logged: &LoggedRun, wait: Wait, number: u64) -> Option<Command> {
        let (plan, state, step) = (&logged.plan, &logged.state, wait.step);
        let waiting = state.run(step)?.wait()?;
        if let WaitKind::Event { event_type, .. } = waiting.kind() {
            return Some(Command::DeliverEvent {
                event_id: format!("mock-{number}"),
                event_type: event_type.clone(),
                payload: json!({ "event": event_type }),
            });
        }
        let rule = rules::failing(&self.rules, plan, step, false, wait.execution.max(1));
        let outcome = match rule {
            Some(Failing::Class(ErrorClass::Timeout) | Failing::Crash)
                if waiting.deadline().is_some() =>
            {
                return None;
            }
            Some(Failing::Class(ErrorClass::Cancelled)) => ManualOutcome::Cancelled,
            Some(_) => ManualOutcome::Failed,
            None => ManualOutcome::Succeeded,
        };
        let actor = Actor {
            // Another person each time: plans may require this for approvals and for incompatible duties.
            id: format!("mock-person-{number}"),
            role: Role::Operator,
            tenant: None,
            may_answer: true,
        };
        Some(Command::CompleteManually {
            details: Default::default(),
            step,
            token: open_token(plan, state, step, &self.key)?,
            outcome,
            actor,
            output: Json::Null,
        })
    }

    /// The end of a child run whose definition was not found.
    fn end_missing_child(
        &mut self,
        run: RunNo,
        step: StepRef,
        request_key: &str,
        path: &str,
    ) -> Result<Command, Error> {
        self.notes.add(format!(
            "no definition found for {path}: the child run is pretended"
        ));
        let plan = self.catch_up(run)?.logged.plan.clone();
        let fails = rules::failing(&self.rules, &plan, step, false, 1);
        Ok(Command::ChildEnded {
            step,
            request_key: request_key.to_owned(),
            outcome: match fails {
                Some(_) => RunOutcome::Failed(Rollback::None),
                None => RunOutcome::Succeeded,
            },
            output: json!({}),
            error: None,
        })
    }

    fn follow(&mut self, notice: &Notice, reporter: &Reporter) -> Result<(), Error> {
        match notice {
            Notice::Changed { run, .. } => self.plan_answers(*run),
            Notice::MissingChild {
                run,
                step,
                request_key,
                path,
                mail,
            } => {
                let end = self.end_missing_child(*run, *step, request_key, path)?;
                reporter.end_missing_child(*run, *mail, end);
                Ok(())
            }
            Notice::Ended { run, .. } => {
                self.runs.remove(run);
                self.planned.retain(|(of, _), _| of != run);
                Ok(())
            }
            Notice::Answer(..)
            | Notice::Start(_)
            | Notice::Stop { .. }
            | Notice::SessionLost
            | Notice::Offer { .. }
            | Notice::Person { .. }
            | Notice::Published(..)
            | Notice::Alert(..)
            | Notice::Driven(_)
            | Notice::Unserved { .. }
            | Notice::Retried { .. }
            | Notice::Elsewhere(_) => Ok(()),
        }
    }

    fn next_work(&self) -> Option<usize> {
        (0..self.in_flight.len()).min_by_key(|index| self.in_flight[*index].due)
    }
}

impl Worker for Mock {
    fn start(&mut self, assignment: Assignment, _: &Reporter) {
        let claim = &assignment.claimed.claim;
        let (target, execution) = (claim.target, claim.execution);
        let undo = matches!(target, Target::Undo(_));
        let step = target.step_ref();
        let fails = rules::failing(&self.rules, &assignment.plan, step, undo, execution);
        let now = self.clock.now();
        let due = match (fails, assignment.plan.step(step.step).timeout_ms) {
            // It never reports: its own timeout ends it.
            (Some(Failing::Class(ErrorClass::Timeout)), Some(timeout)) if !undo => {
                now.plus(timeout).plus(LEASE_MS)
            }
            (Some(Failing::Crash), _) => now.plus(LEASE_MS + 1),
            _ => now.plus(self.work_ms),
        };
        self.in_flight.push(Pretended {
            due,
            assignment,
            end: fails.map_or(PretendedEnd::Succeeds, PretendedEnd::Fails),
        });
    }

    fn stop(&mut self, run: RunNo, target: Target, execution: u32) {
        let stopped = |work: &&mut Pretended| {
            let claim = &work.assignment.claimed.claim;
            work.assignment.run == run && claim.target == target && claim.execution == execution
        };
        if let Some(work) = self.in_flight.iter_mut().find(stopped) {
            // At once, before everything else.
            work.due = Time(0);
            work.end = PretendedEnd::Stopped;
        }
    }

    fn stop_all(&mut self) -> Duration {
        self.in_flight.clear();
        Duration::ZERO
    }

    fn notice(&mut self, notice: &Notice, reporter: &Reporter) {
        if let Err(error) = self.follow(notice, reporter) {
            tracing::warn!(%error, "the mock cannot read a run");
        }
    }

    fn next_due(&self) -> Option<Time> {
        let work = self.in_flight.iter().map(|work| work.due).min();
        let answer = self.answers.keys().next().map(|(at, _)| *at);
        work.into_iter().chain(answer).min()
    }

    /// One thing at a time, work first: what follows from it is committed before the next.
    fn tick(&mut self, now: Time, reporter: &Reporter) {
        if let Some(index) = self.next_work().filter(|it| self.in_flight[*it].due <= now) {
            let work = self.in_flight.remove(index);
            return reporter.report(&work.assignment, result(&work, now));
        }
        let first = self.answers.first_entry();
        if let Some(entry) = first.filter(|entry| entry.key().0 <= now) {
            let ((_, number), wait) = entry.remove_entry();
            if let Err(error) = self.answer(number, wait, reporter) {
                tracing::warn!(%error, "the mock cannot answer");
            }
        }
    }
}

/// The result of pretended work.
fn result(work: &Pretended, now: Time) -> Command {
    // The session's lease: it is renewed as long as this process lives.
    let claim = Claim {
        lease_until: Some(now),
        ..work.assignment.claimed.claim.clone()
    };
    match work.end {
        PretendedEnd::Succeeds => Command::CompleteStep {
            claim,
            output: Json::Null,
            ctx: Patch::new(),
            artifacts: Vec::new(),
        },
        PretendedEnd::Fails(Failing::Class(class)) => Command::FailStep {
            claim,
            error: StepError::new(class, codes::SIMULATED_FAILURE, "simulated, as --fail asks"),
            retryable: None,
            delay_ms: None,
            ctx: Default::default(),
        },
        PretendedEnd::Fails(Failing::Crash) => Command::ExpireLease {
            target: claim.target,
            execution: claim.execution,
            lease_until: Some(Time(now.0 - 1)),
            cause: LeaseEnd::SessionDead,
        },
        PretendedEnd::Stopped => Command::ConfirmKill { claim },
    }
}

/// A run as far as its log was read.
#[derive(Debug)]
struct MockRun {
    logged: LoggedRun,
    /// The step-runs whose waits may be other than when answers were last planned: looking at all open step-runs after
    /// every commit would take the square of their number.
    changed: BTreeSet<StepRef>,
}

impl MockRun {
    fn new(store: &dyn Store, run: RunNo) -> Result<MockRun, Error> {
        Ok(MockRun {
            logged: LoggedRun::numbered(store, run)?,
            changed: BTreeSet::new(),
        })
    }

    fn catch_up(&mut self, store: &dyn Store) -> Result<(), Error> {
        let events = self.logged.catch_up(store)?;
        for event in &events {
            self.changed.extend(event.body.step());
            if matches!(event.body, Body::RunResumed { .. }) {
                self.changed.extend(self.logged.state.open());
            }
        }
        Ok(())
    }
}

/// The wait of a step-run that waits for a person, or for an event that comes.
fn wait_of(logged: &LoggedRun, step: StepRef, rules: &[FailRule]) -> Option<Wait> {
    let (plan, state) = (&logged.plan, &logged.state);
    if state.pause().is_some() {
        return None;
    }
    let run = state
        .run(step)
        .filter(|it| it.status() == Status::Waiting)?;
    let waiting = run.wait()?;
    let comes = match waiting.kind() {
        WaitKind::Gate | WaitKind::Approval | WaitKind::Manual => true,
        WaitKind::Event { .. } => {
            rules::failing(rules, plan, step, false, run.execution()).is_none()
        }
        WaitKind::Child { .. } | WaitKind::Timer { .. } => false,
    };
    comes.then(|| Wait {
        run: logged.run,
        step,
        execution: run.execution(),
        logical: run.logical(),
        approvals: waiting.approvals().len(),
    })
}
