//! A driver for runs: a plan, a state, a clock, and everything that has happened.
//!
//! Every command goes through `Sim::send`, which checks what must always hold: a rejection changes
//! nothing, the log folds to the state, its numbers have no gaps and its keys no duplicates, time
//! does not run backwards, and nothing follows a last event. Tests speak of steps by id (`a`, `a#2`,
//! `a[3]`) and never build a command themselves unless the command is the point.

#![allow(dead_code, reason = "a driver has more than any one set of tests uses")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};
use stepwell_kernel::command::{
    Actor, Claim, Command, Env, ManualOutcome, Reply, Role, TimerId, WaitFor,
};
use stepwell_kernel::decide::{decide, open_token};
use stepwell_kernel::effect::{Effect, RunOutcome, Target};
use stepwell_kernel::event::{ArtifactRef, Body, Event, Patch, RunContext, StepError, WaitKind};
use stepwell_kernel::evolve::replay;
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::{
    Backoff, BackoffKind, Dialect, Edge, ErrorClass, Net, Plan, RetryPolicy, RunPolicy, SourceRef,
    Step, StepNo, StepRef, Undo, WaitOn, WaitSpec, Work,
};
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::state::{Phase, State, Status, StepRun};
use stepwell_kernel::time::Time;

/// 2026-02-11T10:30:00.000Z
pub(crate) const START: Time = Time(1_770_805_800_000);
pub(crate) const RUN_ID: &str = "run_sim";
pub(crate) const WORKER: &str = "worker-1";
/// How long a claim's lease is.
pub(crate) const LEASE_MS: u64 = 60_000;

pub(crate) type Sent = Result<Reply, Rejection>;

// Nets.

/// A step that a worker does.
pub(crate) fn task(name: &str) -> Step {
    let work = Work::Task {
        queue: "default".into(),
        operation: name.into(),
        config: Json::Null,
    };
    Step::new(name, work)
}

/// A step that a worker does and that is retried: `executions` in all, with no wait between them.
pub(crate) fn retried(name: &str, executions: u32) -> Step {
    Step {
        retry: retry(executions, Backoff::none()),
        ..task(name)
    }
}

/// A step that a worker does and that `undo-<name>` undoes.
pub(crate) fn undoable(name: &str) -> Step {
    let undo = Undo {
        queue: "default".into(),
        operation: format!("undo-{name}"),
        input: Json::Null,
        tasks: Json::Null,
        retry: RetryPolicy::once(),
        timeout_ms: None,
    };
    Step {
        undo: Some(undo),
        ..task(name)
    }
}

/// A step that waits, without a worker.
pub(crate) fn waits(name: &str, on: WaitOn, deadline_ms: Option<u64>) -> Step {
    Step::new(name, Work::Wait(WaitSpec { on, deadline_ms }))
}

/// So many executions for every class of error.
pub(crate) fn retry(max_executions: u32, backoff: Backoff) -> RetryPolicy {
    RetryPolicy {
        max_executions,
        backoff,
        classes: ErrorClass::ALL.to_vec(),
    }
}

/// The same wait before every retry.
pub(crate) fn constant(ms: u64) -> Backoff {
    Backoff {
        kind: BackoffKind::Constant,
        initial_ms: ms,
        multiplier: 1.0,
        max_ms: ms,
    }
}

/// A net with plain edges, named by their steps.
pub(crate) fn net(steps: Vec<Step>, edges: &[(&str, &str)]) -> Net {
    let number = |name: &str| {
        let at = steps.iter().position(|step| step.name == name);
        StepNo(at.unwrap_or_else(|| panic!("no step is named {name}")) as u32)
    };
    let edges = edges
        .iter()
        .map(|(from, to)| Edge::plain(number(from), number(to)))
        .collect();
    Net {
        dialect: Dialect::Plan,
        plan_id: "plan_sim".into(),
        plan_version: "1.2.0".into(),
        schema_version: "v1.2".into(),
        source: SourceRef {
            uri: "file:///plans/sim.json".into(),
            sha256: "ab".repeat(32),
        },
        workload: Json::Null,
        steps,
        edges,
        policy: RunPolicy::default(),
        library: BTreeMap::new(),
        extra: Json::Null,
    }
}

/// Steps one after the other.
pub(crate) fn chain(steps: Vec<Step>) -> Net {
    let names: Vec<String> = steps.iter().map(|step| step.name.clone()).collect();
    let edges: Vec<(&str, &str)> = names
        .windows(2)
        .map(|pair| (pair[0].as_str(), pair[1].as_str()))
        .collect();
    net(steps, &edges)
}

/// Plain tasks one after the other.
pub(crate) fn tasks(names: &[&str]) -> Net {
    chain(names.iter().map(|name| task(name)).collect())
}

// People.

pub(crate) fn actor(id: &str, role: Role) -> Actor {
    Actor {
        id: id.into(),
        role,
        tenant: None,
        may_answer: true,
    }
}

pub(crate) fn admin() -> Actor {
    actor("admin", Role::Admin)
}

/// The code of a refusal; anything else is a failure of the test.
#[track_caller]
pub(crate) fn code(sent: Sent) -> Code {
    match sent {
        Err(rejection) => rejection.code,
        Ok(reply) => panic!("expected a rejection, got {reply:?}"),
    }
}

/// A run and everything that happened to it.
pub(crate) struct Sim {
    pub(crate) plan: Plan,
    pub(crate) state: State,
    pub(crate) env: Env,
    pub(crate) context: RunContext,
    pub(crate) params: Json,
    /// Off for long runs: the checks after a command look at the whole log.
    pub(crate) checked: bool,
    events: Vec<Event>,
    effects: Vec<Effect>,
    claims: BTreeMap<Target, Claim>,
    signals: u32,
}

impl Sim {
    /// A run that does not exist yet.
    pub(crate) fn new(net: Net) -> Sim {
        let plan = Plan::new(net).expect("the test's net is a plan");
        Sim {
            state: State::new(RUN_ID, &plan),
            plan,
            env: Env {
                now: START,
                key: TokenKey([7; 32]),
            },
            context: RunContext {
                tenant_id: "tenant".into(),
                project_id: "project".into(),
                environment_id: "test".into(),
                triggered_by: Some("maker".into()),
                trigger_source: Some("manual".into()),
                priority: 0,
                labels: std::collections::BTreeMap::new(),
                trace: None,
            },
            params: Json::Null,
            checked: true,
            events: Vec::new(),
            effects: Vec::new(),
            claims: BTreeMap::new(),
            signals: 0,
        }
    }

    /// A run that has started.
    pub(crate) fn started(net: Net) -> Sim {
        let mut sim = Sim::new(net);
        sim.start().expect("the run starts");
        sim
    }

    // Commands.

    /// Sends a command and checks what must hold after any.
    #[track_caller]
    pub(crate) fn send(&mut self, command: Command) -> Sent {
        let before = self.checked.then(|| self.state.clone());
        match decide(&self.plan, &mut self.state, command.clone(), &self.env) {
            Ok(decision) => {
                self.events.extend(decision.events);
                self.effects.extend(decision.effects);
                if self.checked {
                    self.check(&command);
                }
                Ok(decision.reply)
            }
            Err(rejection) => {
                if let Some(before) = before {
                    assert_eq!(
                        self.state, before,
                        "{command:?} was refused with {rejection}"
                    );
                }
                Err(rejection)
            }
        }
    }

    #[track_caller]
    fn check(&self, command: &Command) {
        let folded = replay(&self.plan, self.state.run_id(), None, &self.events).unwrap();
        assert_eq!(
            folded, self.state,
            "the log does not fold to the state after {command:?}"
        );
        let mut keys = BTreeSet::new();
        let mut last_at = Time(i64::MIN);
        for (place, event) in self.events.iter().enumerate() {
            assert_eq!(event.seq, place as u64 + 1, "a gap after {command:?}");
            assert!(event.at >= last_at, "time runs backwards at {event:?}");
            last_at = event.at;
            let key = event.key(&self.plan);
            assert!(
                keys.insert(key),
                "{event:?} has the key of an earlier event"
            );
            let last = place + 1 == self.events.len();
            assert!(
                last || !event.body.is_terminal(),
                "something follows {event:?}"
            );
        }
    }

    pub(crate) fn create(&mut self) -> Sent {
        let command = Command::CreateRun {
            run_id: self.state.run_id().to_owned(),
            params: self.params.clone(),
            context: self.context.clone(),
            parent: None,
            original_run_id: None,
            start_after: None,
        };
        self.send(command)
    }

    pub(crate) fn enqueue(&mut self) -> Sent {
        self.send(Command::EnqueueRun)
    }

    pub(crate) fn approve(&mut self, by: &str) -> Sent {
        let actor = actor(by, Role::Operator);
        self.send(Command::ApproveRun {
            actor,
            reason: None,
        })
    }

    pub(crate) fn start_run(&mut self) -> Sent {
        self.send(Command::StartRun {
            engine: "native".into(),
            engine_run_ref: format!("stepwell://{}", self.state.run_id()),
            fetched_sha256: None,
        })
    }

    /// Creates the run, queues and approves it where the plan asks for that, and starts it.
    pub(crate) fn start(&mut self) -> Sent {
        self.create()?;
        if self.plan.policy().must_queue {
            self.enqueue()?;
        }
        if self.plan.policy().needs_approval {
            self.approve("approver")?;
        }
        self.start_run()
    }

    pub(crate) fn claim(&mut self, step: &str) -> Sent {
        self.claim_as(Target::Step(self.at(step)), WORKER)
    }

    pub(crate) fn claim_undo(&mut self, step: &str) -> Sent {
        self.claim_as(Target::Undo(self.at(step)), WORKER)
    }

    pub(crate) fn claim_as(&mut self, target: Target, worker: &str) -> Sent {
        let reply = self.send(Command::ClaimStep {
            target,
            worker: worker.into(),
            lease_until: self.env.now.plus(LEASE_MS),
        })?;
        if let Reply::Claimed(claimed) = &reply {
            self.claims.insert(target, claimed.claim.clone());
        }
        Ok(reply)
    }

    /// The last claim on a step.
    #[track_caller]
    pub(crate) fn claim_on(&self, step: &str) -> Claim {
        self.claim_for(Target::Step(self.at(step)))
    }

    /// The last claim on a step or an undo.
    #[track_caller]
    pub(crate) fn claim_for(&self, target: Target) -> Claim {
        let claim = self.claims.get(&target).cloned();
        claim.unwrap_or_else(|| panic!("{target:?} was never claimed"))
    }

    pub(crate) fn complete(&mut self, step: &str) -> Sent {
        self.complete_with(step, Json::Null)
    }

    pub(crate) fn complete_with(&mut self, step: &str, output: Json) -> Sent {
        self.complete_all(self.claim_on(step), output, json!({}), Vec::new())
    }

    /// `ctx` is an object.
    pub(crate) fn complete_all(
        &mut self,
        claim: Claim,
        output: Json,
        ctx: Json,
        artifacts: Vec<ArtifactRef>,
    ) -> Sent {
        self.send(Command::CompleteStep {
            claim,
            output,
            ctx: patch(ctx),
            artifacts,
        })
    }

    pub(crate) fn complete_undo(&mut self, step: &str) -> Sent {
        let claim = self.claim_for(Target::Undo(self.at(step)));
        self.complete_all(claim, Json::Null, json!({}), Vec::new())
    }

    pub(crate) fn fail(&mut self, step: &str, class: ErrorClass) -> Sent {
        self.fail_claim(self.claim_on(step), class)
    }

    pub(crate) fn fail_undo(&mut self, step: &str, class: ErrorClass) -> Sent {
        self.fail_claim(self.claim_for(Target::Undo(self.at(step))), class)
    }

    pub(crate) fn fail_claim(&mut self, claim: Claim, class: ErrorClass) -> Sent {
        self.send(Command::FailStep {
            claim,
            error: StepError::new(class, class.name().to_uppercase(), "it broke"),
            retryable: None,
            delay_ms: None,
            ctx: Default::default(),
        })
    }

    /// Claims the step and completes it without an output.
    pub(crate) fn run(&mut self, step: &str) -> Sent {
        self.run_with(step, Json::Null)
    }

    pub(crate) fn run_with(&mut self, step: &str, output: Json) -> Sent {
        self.claim(step)?;
        self.complete_with(step, output)
    }

    pub(crate) fn run_undo(&mut self, step: &str) -> Sent {
        self.claim_undo(step)?;
        self.complete_undo(step)
    }

    /// Claims the step and reports a failure of this class.
    pub(crate) fn run_failing(&mut self, step: &str, class: ErrorClass) -> Sent {
        self.claim(step)?;
        self.fail(step, class)
    }

    /// Claims and completes whatever can be claimed, undos included, until nothing can.
    pub(crate) fn run_everything(&mut self) {
        while let Some(target) = self.claimable().first().copied() {
            self.claim_as(target, WORKER).expect("it is claimable");
            let claim = self.claim_for(target);
            self.complete_all(claim, Json::Null, json!({}), Vec::new())
                .expect("it is claimed");
        }
    }

    pub(crate) fn wait(&mut self, step: &str, wait: WaitFor, timeout_ms: Option<u64>) -> Sent {
        let claim = self.claim_on(step);
        self.send(Command::WaitStep {
            claim,
            wait,
            timeout_ms,
            outbound: Vec::new(),
            memo: None,
        })
    }

    pub(crate) fn wait_for_event(&mut self, step: &str, event_type: &str) -> Sent {
        let event_type = event_type.into();
        self.wait(step, WaitFor::Event { event_type }, None)
    }

    pub(crate) fn confirm_kill(&mut self, step: &str) -> Sent {
        let claim = self.claim_on(step);
        self.send(Command::ConfirmKill { claim })
    }

    /// Moves the clock just past the lease of a step's last claim and reports it lost.
    pub(crate) fn expire_lease(&mut self, step: &str) -> Sent {
        let claim = self.claim_on(step);
        let until = claim.lease_until.unwrap_or(self.env.now);
        self.env.now = self.env.now.max(until.plus(1));
        self.send(Command::ExpireLease {
            target: claim.target,
            execution: claim.execution,
            lease_until: None,
            cause: Default::default(),
        })
    }

    pub(crate) fn deliver(&mut self, event_id: &str, event_type: &str, payload: Json) -> Sent {
        self.send(Command::DeliverEvent {
            event_id: event_id.into(),
            event_type: event_type.into(),
            payload,
        })
    }

    /// The token of a step that waits for a person.
    #[track_caller]
    pub(crate) fn token(&self, step: &str) -> String {
        open_token(&self.plan, &self.state, self.at(step), &self.env.key)
            .unwrap_or_else(|| panic!("{step} does not wait for a person"))
    }

    /// A person ends a wait with the right token.
    #[track_caller]
    pub(crate) fn answer(&mut self, step: &str, outcome: ManualOutcome, by: &str) -> Sent {
        let token = self.token(step);
        self.answer_with(step, &token, outcome, by)
    }

    pub(crate) fn answer_with(
        &mut self,
        step: &str,
        token: &str,
        outcome: ManualOutcome,
        by: &str,
    ) -> Sent {
        let step = self.at(step);
        self.send(Command::CompleteManually {
            details: Default::default(),
            step,
            token: token.into(),
            outcome,
            actor: actor(by, Role::Operator),
            output: Json::Null,
        })
    }

    /// The child that a step waits for has ended.
    pub(crate) fn child_ended(&mut self, step: &str, outcome: RunOutcome, output: Json) -> Sent {
        let wait = self.step(step).wait().map(|wait| wait.kind());
        let Some(WaitKind::Child { request_key, .. }) = wait else {
            panic!("{step} does not wait for a child");
        };
        let request_key = request_key.clone();
        let step = self.at(step);
        self.send(Command::ChildEnded {
            step,
            request_key,
            outcome,
            output,
            error: None,
        })
    }

    /// A signal from an admin, with a reason and an id of its own.
    pub(crate) fn signal(&mut self, signal: &str, payload: Json) -> Sent {
        self.signals += 1;
        let id = format!("signal-{}", self.signals);
        self.signal_as(&id, signal, payload, Some("because"), admin())
    }

    pub(crate) fn signal_as(
        &mut self,
        id: &str,
        signal: &str,
        payload: Json,
        reason: Option<&str>,
        actor: Actor,
    ) -> Sent {
        self.send(Command::Signal {
            signal_id: id.into(),
            signal: signal.into(),
            payload,
            reason: reason.map(str::to_owned),
            actor,
        })
    }

    pub(crate) fn pause(&mut self) -> Sent {
        self.signal("PAUSE", json!({}))
    }

    pub(crate) fn resume(&mut self) -> Sent {
        self.signal("RESUME", json!({}))
    }

    pub(crate) fn cancel(&mut self) -> Sent {
        self.cancel_with(false)
    }

    pub(crate) fn cancel_with(&mut self, compensate: bool) -> Sent {
        self.send(Command::CancelRun {
            actor: admin(),
            reason: Some("because".into()),
            compensate,
            keep_undo: false,
        })
    }

    /// `ctx` is an object.
    pub(crate) fn patch_ctx(&mut self, ctx: Json) -> Sent {
        self.send(Command::PatchCtx {
            actor: admin(),
            ctx: patch(ctx),
        })
    }

    pub(crate) fn proceed(&mut self) -> Sent {
        self.send(Command::Proceed)
    }

    // Time.

    /// Moves the clock; fires nothing.
    pub(crate) fn advance(&mut self, millis: u64) -> &mut Sim {
        self.env.now = self.env.now.plus(millis);
        self
    }

    /// Moves the clock to the earliest timer and fires it.
    #[track_caller]
    pub(crate) fn advance_to_next_timer(&mut self) -> Sent {
        let (due, id) = self.next_timer().expect("a timer is armed");
        self.env.now = self.env.now.max(due);
        self.send(Command::FireTimer(id))
    }

    pub(crate) fn next_timer(&self) -> Option<(Time, TimerId)> {
        self.state.timers().next()
    }

    /// Fires every timer that is due by now, earliest first.
    pub(crate) fn fire_due_timers(&mut self) {
        while let Some((due, id)) = self.next_timer().filter(|(due, _)| *due <= self.env.now) {
            let sent = self.send(Command::FireTimer(id));
            sent.unwrap_or_else(|refused| panic!("{id:?}, due at {due}: {refused}"));
        }
    }

    /// What a crash leaves: the log. Goes on with the state that it folds to.
    pub(crate) fn crash(&mut self) {
        self.state = replay(&self.plan, self.state.run_id(), None, &self.events).unwrap();
        self.effects.clear();
    }

    // Looking.

    #[track_caller]
    pub(crate) fn at(&self, step: &str) -> StepRef {
        let at = self.plan.parse_step_id(step);
        at.unwrap_or_else(|| panic!("the plan has no step {step}"))
    }

    #[track_caller]
    pub(crate) fn step(&self, step: &str) -> &StepRun {
        let run = self.state.run(self.at(step));
        run.unwrap_or_else(|| panic!("no token has reached {step}"))
    }

    /// A step's condition; absent if no token has reached it.
    pub(crate) fn status(&self, step: &str) -> Option<Status> {
        self.state.run(self.at(step)).map(|run| run.status())
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state.phase()
    }

    /// How the run ended.
    pub(crate) fn outcome(&self) -> Option<RunOutcome> {
        match self.state.phase() {
            Phase::Ended(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// The whole log of the run.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    pub(crate) fn last(&self) -> Option<&Body> {
        self.events.last().map(|event| &event.body)
    }

    /// How many events of a type there are.
    pub(crate) fn count(&self, kind: &str) -> usize {
        let is = |event: &&Event| event.body.kind() == kind;
        self.events.iter().filter(is).count()
    }

    /// The log for people: one line an event, its type and its step.
    pub(crate) fn log(&self) -> String {
        self.log_from(1)
    }

    /// The log from a sequence number on.
    pub(crate) fn log_from(&self, seq: u64) -> String {
        let line = |event: &Event| match event.body.step() {
            Some(at) => format!("{} {}\n", event.body.kind(), self.plan.step_id(at)),
            None => format!("{}\n", event.body.kind()),
        };
        let events = self.events.iter().filter(|event| event.seq >= seq);
        events.map(line).collect()
    }

    /// What the engine was asked to do since the last call.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Codes of the alerts raised since effects were last taken.
    pub(crate) fn alerts(&self) -> Vec<&'static str> {
        let alert = |effect: &Effect| match effect {
            Effect::Alert { code, .. } => Some(*code),
            _ => None,
        };
        self.effects.iter().filter_map(alert).collect()
    }

    /// Ids of the steps that could be claimed now.
    pub(crate) fn ready(&self) -> Vec<String> {
        let id = |target: Target| self.plan.step_id(target.step_ref());
        self.claimable().into_iter().map(id).collect()
    }

    /// Everything that could be claimed now, in the order it became so.
    pub(crate) fn claimable(&self) -> Vec<Target> {
        if self.state.pause().is_some() {
            return Vec::new();
        }
        let now = self.env.now.max(self.state.last_at());
        let open = |run: &StepRun| run.status() == Status::Ready && run.visible_at() <= now;
        let mut found = Vec::new();
        if self.state.phase().is_moving() {
            for (no, step) in self.plan.numbers().zip(self.state.steps()) {
                for (visit, each) in step.visits().iter().enumerate() {
                    let at = StepRef {
                        step: no,
                        visit: visit as u32 + 1,
                        item: None,
                    };
                    found.extend(open(each.run()).then_some(Target::Step(at)));
                    let items = each.each().into_iter().flat_map(|each| each.active());
                    let items = items.filter(|(_, run)| open(run));
                    found.extend(items.map(|(item, _)| Target::Step(at.with_item(*item))));
                }
            }
        }
        let undoing = self.state.undoing();
        if let Some(undoing) = undoing.filter(|it| !it.halted() && open(it.run()))
            && self.state.phase() == Phase::Compensating
        {
            found.extend(undoing.current().map(Target::Undo));
        }
        found
    }
}

fn patch(ctx: Json) -> Patch {
    match ctx {
        Json::Object(fields) => fields.into_iter().collect(),
        other => panic!("a patch of ctx is an object, not {other}"),
    }
}
