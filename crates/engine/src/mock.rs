//! The mock engine: real kernel, real log, pretended work. Steps succeed unless a rule says they fail;
//! people approve and events come unless a rule says they do not.

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;

use serde_json::{Value as Json, json};
use stepwell_kernel::command::{Actor, Claim, Command, ManualOutcome, Role};
use stepwell_kernel::decide::open_token;
use stepwell_kernel::effect::{RunOutcome, Target};
use stepwell_kernel::event::{Patch, StepError, WaitKind};
use stepwell_kernel::plan::{ErrorClass, StepRef};
use stepwell_kernel::state::{Status, StepRun};
use stepwell_kernel::time::Time;

use crate::coordinator::Assignment;
use crate::engine::{Ask, Engine, Error};
use crate::port::Clock;

/// How many executions are pretended at a time.
const WORKERS: usize = 64;
/// How long a mock worker's lease is, in milliseconds.
const LEASE_MS: u64 = 30_000;

/// How a step is made to fail: `STEP[=CLASS][@ATTEMPT]`, with `~undo` after the step for its undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailRule {
    /// The step's id, or its name for every visit and item.
    pub step: String,
    /// Its undo fails, not the step.
    pub undo: bool,
    /// How.
    pub how: Failing,
    /// Only this execution; absent means all.
    pub attempt: Option<u32>,
}

/// How a step is made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// It reports this.
    Class(ErrorClass),
    /// Its worker dies, so that its lease runs out.
    Crash,
}

/// A rule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not STEP[=CLASS][@ATTEMPT]: {why}")]
pub struct BadRule {
    text: String,
    why: String,
}

impl FromStr for FailRule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<FailRule, BadRule> {
        let bad = |why: String| BadRule {
            text: text.to_owned(),
            why,
        };
        let (rest, attempt) = match text.rsplit_once('@') {
            Some((rest, attempt)) => {
                let number = attempt.parse().ok().filter(|n| *n >= 1);
                (
                    rest,
                    Some(number.ok_or_else(|| {
                        bad(format!("{attempt:?} is no attempt; the first is 1"))
                    })?),
                )
            }
            None => (text, None),
        };
        let (step, how) = match rest.split_once('=') {
            Some((step, "crash")) => (step, Failing::Crash),
            Some((step, class)) => {
                let known = || ErrorClass::ALL.map(ErrorClass::name).join(", ");
                let class = ErrorClass::from_name(class).ok_or_else(|| {
                    bad(format!(
                        "there is no class {class:?}; there are {} and crash",
                        known()
                    ))
                })?;
                (step, Failing::Class(class))
            }
            None => (rest, Failing::Class(ErrorClass::Unknown)),
        };
        let (step, undo) = match step.strip_suffix("~undo") {
            Some(step) => (step, true),
            None => (step, false),
        };
        if step.is_empty() {
            return Err(bad("the step is missing".into()));
        }
        Ok(FailRule {
            step: step.to_owned(),
            undo,
            how,
            attempt,
        })
    }
}

/// Work that is being pretended.
#[derive(Clone, Debug)]
struct Pretended {
    due: Time,
    job: Assignment,
    fails: Option<Failing>,
}

/// What the mock did that the log does not show.
pub type Note = String;

/// Drives an engine with pretended work.
#[derive(Debug)]
pub struct Mock<C> {
    /// The engine.
    pub engine: Engine<C>,
    /// How steps are made to fail.
    pub rules: Vec<FailRule>,
    /// How long a pretended execution takes, in milliseconds.
    pub work_ms: u64,
    /// How long a person or an event takes to come, in milliseconds.
    pub answer_ms: u64,
    in_flight: Vec<Pretended>,
    answers: BTreeMap<(Time, u64), (String, StepRef)>,
    answer_no: u64,
    /// What the log does not show.
    pub notes: VecDeque<Note>,
}

impl<C: Clock> Mock<C> {
    /// A mock over an engine.
    pub fn new(mut engine: Engine<C>) -> Result<Mock<C>, Error> {
        engine.config().engine_type = "mock";
        // Time may jump, and nobody else is asked.
        engine.config().poll_ms = 0;
        engine.serve_everything(WORKERS)?;
        Ok(Mock {
            engine,
            rules: Vec::new(),
            work_ms: 0,
            answer_ms: 1_000,
            in_flight: Vec::new(),
            answers: BTreeMap::new(),
            answer_no: 0,
            notes: VecDeque::new(),
        })
    }

    /// Goes on until nothing can happen any more, telling `watch` after every change which run moved.
    pub fn run(&mut self, watch: &mut dyn FnMut(&Engine<C>)) -> Result<(), Error> {
        while self.step()? {
            watch(&self.engine);
        }
        Ok(())
    }

    /// Does one thing, or lets time pass until there is one. Says whether there was one.
    pub fn step(&mut self) -> Result<bool, Error> {
        // Read before anything is done: what falls due meanwhile is then later than this, and is
        // waited for instead of being taken for something that nobody can do.
        let now = self.engine.now();
        if self.act()? {
            return Ok(true);
        }
        match self.due().filter(|due| *due > now) {
            Some(due) => {
                self.engine.clock().wait_until(due);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Does one thing that is due now, without letting time pass. Says whether there was one.
    pub fn act(&mut self) -> Result<bool, Error> {
        Ok(self.answer_ask()?
            || self.finish_work()?
            || self.start_work()
            || self.answer_one()?
            || self.engine.fire_due()?)
    }

    /// When there is something to do next.
    pub fn due(&self) -> Option<Time> {
        let work = self.in_flight.iter().map(|work| work.due).min();
        let answer = self.answers.keys().next().map(|(at, _)| *at);
        let free = self.in_flight.len() < WORKERS;
        let wake = self
            .engine
            .next_wake()
            .filter(|wake| free || *wake > self.engine.now());
        work.into_iter().chain(answer).chain(wake).min()
    }

    /// Whether nothing is being pretended: neither work nor people nor events.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let asked = !self.engine.asks.is_empty() || !self.engine.jobs.is_empty();
        self.in_flight.is_empty() && self.answers.is_empty() && !asked
    }

    fn answer_ask(&mut self) -> Result<bool, Error> {
        let Some((run_id, ask)) = self.engine.asks.pop_front() else {
            return Ok(self.plan_events());
        };
        let ours = self.engine.coordinator().works_on(&run_id);
        match ask {
            // Nobody asked for that run to be pretended.
            Ask::Person(_) | Ask::MissingChild { .. } if !ours => {}
            Ask::Person(step) => self.plan_answer(run_id, step),
            Ask::Stop { target, execution } => {
                let ours = |work: &Pretended| {
                    let claim = &work.job.claimed.claim;
                    *work.job.run_id == *run_id
                        && claim.target == target
                        && claim.execution == execution
                };
                if let Some(index) = self.in_flight.iter().position(ours) {
                    let work = self.in_flight.swap_remove(index);
                    // Refused if the execution is no longer current, which is as good.
                    let claim = Claim {
                        lease_until: Some(self.engine.now()),
                        ..work.job.claimed.claim.clone()
                    };
                    self.engine
                        .finish(&work.job, Command::ConfirmKill { claim })?;
                }
            }
            Ask::MissingChild {
                step,
                request_key,
                path,
                mail,
            } => {
                self.notes.push_back(format!(
                    "no definition found for {path}: the child run is pretended"
                ));
                let fails = self.rule(&run_id, step, false, 1);
                let outcome = match fails {
                    Some(_) => RunOutcome::Failed(stepwell_kernel::event::Rollback::None),
                    None => RunOutcome::Succeeded,
                };
                let end = Command::ChildEnded {
                    step,
                    request_key,
                    outcome,
                    output: json!({}),
                    error: None,
                };
                self.engine.pretend_child(&run_id, mail, end)?;
            }
        }
        Ok(true)
    }

    /// Plans events that steps wait for and that nobody was asked for yet.
    fn plan_events(&mut self) -> bool {
        let mut found = Vec::new();
        for (run_id, live) in self.engine.runs() {
            let ours = self.engine.coordinator().works_on(run_id);
            if !ours || live.state.tally.waits_outside == 0 || live.state.pause.is_some() {
                continue;
            }
            for at in &live.state.open {
                let run = live.state.run(*at);
                let waits = |run: &&StepRun| run.status == Status::Waiting;
                let listens = run
                    .filter(waits)
                    .is_some_and(|it| it.listens_for().is_some());
                let planned = |(id, step): &(String, StepRef)| id == run_id && step == at;
                if listens && !self.answers.values().any(planned) {
                    found.push((run_id.to_owned(), *at));
                }
            }
        }
        let mut planned = false;
        for (run_id, at) in found {
            let execution = self
                .engine
                .run(&run_id)
                .and_then(|live| live.state.run(at))
                .map_or(0, |run| run.execution);
            if self.rule(&run_id, at, false, execution).is_none() {
                self.plan_answer(run_id, at);
                planned = true;
            }
        }
        planned
    }

    fn plan_answer(&mut self, run_id: String, step: StepRef) {
        self.answer_no += 1;
        let at = self.engine.now().plus(self.answer_ms);
        self.answers.insert((at, self.answer_no), (run_id, step));
    }

    fn answer_one(&mut self) -> Result<bool, Error> {
        let now = self.engine.now();
        let Some(entry) = self
            .answers
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
        else {
            return Ok(false);
        };
        let ((_, number), (run_id, step)) = entry.remove_entry();
        let Some(live) = self.engine.run(&run_id) else {
            return Ok(true);
        };
        let Some(run) = live
            .state
            .run(step)
            .filter(|run| run.status == Status::Waiting)
        else {
            return Ok(true);
        };
        let Some(wait) = run.wait.as_deref() else {
            return Ok(true);
        };
        let rule = self.rule(&run_id, step, false, run.execution.max(1));
        if let WaitKind::Event { event_type, .. } = &wait.kind {
            let event_type = event_type.clone();
            let event_id = format!("mock-{number}");
            let payload = json!({ "event": event_type });
            let _ = self.engine.submit(
                &run_id,
                Command::DeliverEvent {
                    event_id,
                    event_type,
                    payload,
                },
            );
            return Ok(true);
        }
        let outcome = match rule {
            Some(Failing::Class(ErrorClass::Timeout) | Failing::Crash)
                if wait.deadline.is_some() =>
            {
                return Ok(true);
            }
            Some(Failing::Class(ErrorClass::Cancelled)) => ManualOutcome::Cancelled,
            Some(_) => ManualOutcome::Failed,
            None => ManualOutcome::Succeeded,
        };
        let Some(token) = open_token(&live.plan, &live.state, step, self.engine.key()) else {
            return Ok(true);
        };
        let actor = Actor {
            // Somebody else each time: plans may ask that for approvals and for incompatible duties.
            id: format!("mock-person-{number}"),
            role: Role::Operator,
            tenant: None,
        };
        let command = Command::CompleteManually {
            step,
            token,
            outcome,
            actor,
            output: Json::Null,
        };
        match self.engine.submit(&run_id, command) {
            Ok(_) => {
                // More than one person may be needed.
                let waits = self
                    .engine
                    .run(&run_id)
                    .and_then(|live| live.state.run(step));
                if waits.is_some_and(|run| run.status == Status::Waiting) {
                    self.plan_answer(run_id, step);
                }
            }
            Err(Error::Rejected(rejection)) => self
                .notes
                .push_back(format!("the mock person was refused: {rejection}")),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Takes up the work whose claims are committed.
    fn start_work(&mut self) -> bool {
        let jobs: Vec<Assignment> = self.engine.jobs.drain(..).collect();
        let any = !jobs.is_empty();
        for job in jobs {
            self.pretend(job);
        }
        any
    }

    fn pretend(&mut self, job: Assignment) {
        let target = job.claimed.claim.target;
        let undo = matches!(target, Target::Undo(_));
        let execution = job.claimed.claim.execution;
        let fails = self.rule(&job.run_id, target.step_ref(), undo, execution);
        let now = self.engine.now();
        let timeout = job.plan.step(target.step_ref().step).timeout_ms;
        let due = match (fails, timeout) {
            // It never reports: its own timeout ends it.
            (Some(Failing::Class(ErrorClass::Timeout)), Some(timeout)) if !undo => {
                now.plus(timeout).plus(LEASE_MS)
            }
            (Some(Failing::Crash), _) => now.plus(LEASE_MS + 1),
            _ => now.plus(self.work_ms),
        };
        self.in_flight.push(Pretended { due, job, fails });
    }

    fn finish_work(&mut self) -> Result<bool, Error> {
        let now = self.engine.now();
        let first = (0..self.in_flight.len()).min_by_key(|index| self.in_flight[*index].due);
        let Some(index) = first.filter(|index| self.in_flight[*index].due <= now) else {
            return Ok(false);
        };
        let work = self.in_flight.remove(index);
        // The session's lease: it is renewed as long as this process lives.
        let claim = Claim {
            lease_until: Some(now),
            ..work.job.claimed.claim.clone()
        };
        let command = match work.fails {
            None => Command::CompleteStep {
                claim,
                output: Json::Null,
                ctx: Patch::new(),
                artifacts: Vec::new(),
            },
            Some(Failing::Class(class)) => Command::FailStep {
                claim,
                error: StepError::new(
                    class,
                    class.name().to_uppercase(),
                    format!("pretended failure ({})", class.name()),
                ),
                retryable: None,
                delay_ms: None,
                ctx: Default::default(),
            },
            Some(Failing::Crash) => Command::ExpireLease {
                target: claim.target,
                execution: claim.execution,
                lease_until: Some(Time(now.0 - 1)),
            },
        };
        self.engine.finish(&work.job, command)?;
        Ok(true)
    }

    fn rule(&self, run_id: &str, step: StepRef, undo: bool, execution: u32) -> Option<Failing> {
        let live = self.engine.run(run_id)?;
        let id = live.plan.step_id(step);
        let name = &live.plan.step(step.step).name;
        let matches = |rule: &&FailRule| {
            (rule.step == id || rule.step == *name)
                && rule.undo == undo
                && rule.attempt.is_none_or(|attempt| attempt == execution)
        };
        self.rules.iter().find(matches).map(|rule| rule.how)
    }
}
