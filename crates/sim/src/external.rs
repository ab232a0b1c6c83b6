//! Everyone outside: who starts runs and sends signals, people, workers of other processes, events and
//! the sinks that events go to.

use serde_json::{Value as Json, json};
use stepwell_engine::rows::parse_target;
use stepwell_engine::service::{ExternalEvent, NoAnswer};
use stepwell_engine::store::{Guard, Outbox as _, RunNo, Tasks as _};
use stepwell_engine::{Error, StartRequest};
use stepwell_kernel::command::{Actor, Claim, Claimed, Command, ManualOutcome, Reply, Role};
use stepwell_kernel::decide::open_token;
use stepwell_kernel::event::{RunContext, WaitKind};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::state::Status;

use crate::actions::{result, word};
use crate::oracle::{KeptEvent, ObservedRun};
use crate::server::{PendingRequest, RequestNo, Told};
use crate::simulation::{START, Simulation, say};

/// How long a worker outside has a task, in milliseconds.
pub(crate) const LEASE_MS: u64 = 20_000;
/// How long a task is reserved for it, in milliseconds.
const RESERVE_MS: u64 = 5_000;

/// A worker in a process of its own.
#[derive(Debug)]
pub(crate) struct RemoteWorker {
    pub(crate) name: String,
    pub(crate) tasks: Vec<RemoteTask>,
}

/// A task that a remote worker has claimed.
#[derive(Clone, Debug)]
pub(crate) struct RemoteTask {
    pub(crate) run: RunNo,
    pub(crate) run_id: String,
    pub(crate) name: String,
    pub(crate) claimed: Claimed,
}

impl RemoteWorker {
    pub(crate) fn new(name: &str) -> RemoteWorker {
        RemoteWorker {
            name: name.to_owned(),
            tasks: Vec::new(),
        }
    }
}

fn actor(id: &str) -> Actor {
    Actor {
        id: id.to_owned(),
        role: Role::Admin,
        tenant: None,
        may_answer: true,
    }
}

impl Simulation {
    /// Someone starts a run, perhaps one that was asked for before.
    pub(crate) fn start_run(&mut self, no: usize) -> Result<(), String> {
        if !self.servers[no].is_up() {
            return Ok(());
        }
        let again = self.requests > 0 && self.rng.one_in(4);
        if !again && self.requests >= self.max_runs as u64 {
            return Ok(());
        }
        let request = match again {
            true => 1 + self.rng.below(self.requests),
            false => {
                self.requests += 1;
                self.requests
            }
        };
        // What is asked for follows from the request's number, so that a repetition asks for the same.
        let mut rng = crate::rng::Rng::new(self.seed ^ (request << 20));
        let Some((name, plan)) = rng.pick(&self.workload.plans).cloned() else {
            return Ok(());
        };
        let params = self.workload.params(name, &mut rng);
        let start = StartRequest {
            run_id: format!("run_{request}_{}", self.tickets),
            request_id: Some(format!("request-{request}")),
            params,
            context: RunContext {
                tenant_id: format!("t{}", rng.below(2)),
                project_id: "project".into(),
                environment_id: "test".into(),
                ..RunContext::default()
            },
            // Some are to begin tomorrow.
            start_after: rng
                .one_in(10)
                .then(|| START.plus(rng.between(1, 96) * 3_600_000)),
            ..StartRequest::default()
        };
        let ticket = self.ticket();
        let server = &mut self.servers[no];
        let Some(engine) = &server.engine else {
            return Ok(());
        };
        let started = engine.handle().start_later(&plan, start);
        let started = started.map_err(|error| format!("s{no} takes no start: {error}"))?;
        server
            .asked
            .insert(ticket, PendingRequest::Start(request, started));
        say!(self, "s{no} is asked to start {name} (request {request})");
        self.listen(no)
    }

    /// A run that has not ended.
    fn some_open(&mut self) -> Option<RunNo> {
        let open: Vec<RunNo> = self.oracle.open().map(|it| it.run).collect();
        self.rng.pick(&open).copied()
    }

    /// Someone sends a command.
    pub(crate) fn command(&mut self, no: usize) -> Result<(), String> {
        let Some(run) = self.some_open() else {
            return Ok(());
        };
        let kind = self.rng.below(24);
        let id = format!("signal-{}", self.tickets + 1 - self.rng.below(2));
        let Some(observed) = self.oracle.runs.get(&run) else {
            return Ok(());
        };
        let open = observed.state.open().iter();
        let held = open.clone().find(|at| {
            let it = observed.state.run(**at);
            it.is_some_and(|it| it.status() == Status::Held)
        });
        let at = held.or_else(|| open.clone().next());
        let step = at.map(|at| observed.plan.step_id(*at)).unwrap_or_default();
        // What is rarely allowed is tried where it is.
        let kind = match held.is_some() && self.rng.one_in(2) {
            true => 10 + kind % 4,
            false => kind,
        };
        let (signal, payload) = match kind {
            0..4 => ("PAUSE", Json::Null),
            4..9 => ("RESUME", Json::Null),
            9 => ("CANCEL", Json::Null),
            10..12 => ("RETRY_STEP", json!({ "stepId": step })),
            12..14 => ("SKIP_STEP", json!({ "stepId": step })),
            14 => ("UPDATE_PARAMS", json!({ "params": { "n": 9 } })),
            15 => (
                "INJECT_OVERRIDE",
                json!({ "stepId": step, "override": { "n": 7 } }),
            ),
            16 => (
                "UPDATE_TARGET",
                json!({ "stepId": step, "newTarget": { "host": "b" } }),
            ),
            17 if self.rng.one_in(4) => ("EMERGENCY_STOP", json!({ "reason": "simulated" })),
            _ => return self.person(no, run),
        };
        self.signal(no, run, id, signal, payload)
    }

    pub(crate) fn signal(
        &mut self,
        no: usize,
        run: RunNo,
        id: String,
        signal: &str,
        payload: Json,
    ) -> Result<(), String> {
        let command = Command::Signal {
            signal_id: id.clone(),
            signal: signal.to_owned(),
            payload,
            reason: Some("simulated".into()),
            actor: actor("operator"),
        };
        let asked = |run_id: String| PendingRequest::Signal { run_id, id };
        self.submit(no, run, command, asked, signal)
    }

    fn submit(
        &mut self,
        no: usize,
        run: RunNo,
        command: Command,
        asked: impl FnOnce(String) -> PendingRequest,
        what: &str,
    ) -> Result<(), String> {
        let Some(run_id) = self.oracle.runs.get(&run).map(|it| it.run_id.clone()) else {
            return Ok(());
        };
        let ticket = self.ticket();
        let server = &mut self.servers[no];
        let Some(engine) = &server.engine else {
            return Ok(());
        };
        let ear = server.ear.clone();
        let on_answer = move |answer| ear.tell(Told::Answer(ticket, answer));
        let sent = engine.handle().submit_with(&run_id, command, on_answer);
        sent.map_err(|error| format!("s{no} takes no command: {error}"))?;
        server.asked.insert(ticket, asked(run_id));
        say!(self, "s{no} is sent {what} for {}", run.0);
        self.listen(no)
    }

    /// A person answers, if the run waits for one.
    pub(crate) fn person(&mut self, no: usize, run: RunNo) -> Result<(), String> {
        let fails = !self.quiet && self.rng.one_in(4);
        let id = format!("person-{}", self.tickets);
        let secret = self.sim_store.store().secret();
        let key = TokenKey(secret.map_err(|error| error.to_string())?);
        let observed = self.oracle.runs.get(&run);
        let Some(command) = observed.and_then(|it| answer(it, fails, &id, &key)) else {
            return Ok(());
        };
        self.submit(
            no,
            run,
            command,
            |_| PendingRequest::Other,
            "a person's answer",
        )
    }

    /// An event that is not addressed to a run, or an event for one run.
    pub(crate) fn outside_event(&mut self, no: usize) -> Result<(), String> {
        // Some come twice. An id is of one event: the same id with another content would be a fault of its sender.
        let number = self.tickets - self.rng.below(self.tickets.min(3) + 1);
        let id = format!("event-{number}");
        let mut content = crate::rng::Rng::new(self.seed ^ (number << 24));
        let event_type = match content.below(2) {
            0 => "bank.confirmed",
            _ => "bank.receipt",
        };
        if self.rng.one_in(3) {
            let Some(run) = self.some_open() else {
                return Ok(());
            };
            let command = deliver(&id, event_type);
            return self.submit(no, run, command, |_| PendingRequest::Other, event_type);
        }
        let key = format!("p{}", content.below(4));
        let tenant = format!("t{}", content.below(2));
        self.deliver(no, &id, event_type, &tenant, key)
    }

    pub(crate) fn deliver(
        &mut self,
        no: usize,
        id: &str,
        event_type: &str,
        tenant: &str,
        key: String,
    ) -> Result<(), String> {
        let ticket = self.ticket();
        let event = ExternalEvent {
            tenant: tenant.to_owned(),
            id: id.to_owned(),
            event_type: event_type.to_owned(),
            key: key.clone(),
            payload: json!({ "from": "outside" }),
        };
        let server = &mut self.servers[no];
        let Some(engine) = &server.engine else {
            return Ok(());
        };
        let ear = server.ear.clone();
        let on_delivered = move |came| ear.tell(Told::Delivered(ticket, came));
        let sent = engine.handle().deliver_with(event, on_delivered);
        sent.map_err(|error| format!("s{no} takes no event: {error}"))?;
        let event = KeptEvent {
            id: id.to_owned(),
            event_type: event_type.to_owned(),
            tenant: tenant.to_owned(),
            key: key.clone(),
        };
        server.asked.insert(ticket, PendingRequest::Event(event));
        say!(self, "s{no} gets {event_type} for {key}: {id}");
        Ok(())
    }

    /// A worker outside asks for work, goes on with it, or dies.
    pub(crate) fn remote(&mut self, no: usize) -> Result<(), String> {
        if !self.servers[no].can_move(self.now) {
            return Ok(());
        }
        let worker = self.rng.index(self.remotes.len());
        let index = self.rng.index(self.remotes[worker].tasks.len());
        let has = !self.remotes[worker].tasks.is_empty();
        match self.rng.below(10) {
            0..4 if self.rng.one_in(2) => {
                self.sit(no, worker);
                Ok(())
            }
            0..4 => self.poll(no, worker),
            4..7 if has => self.report(no, worker, index),
            7 | 8 if has => {
                let work = self.remotes[worker].tasks[index].clone();
                let server = &self.servers[no];
                let now = server.now();
                let name = &self.remotes[worker].name;
                let until = now.plus(LEASE_MS);
                let kept = server
                    .connection
                    .heartbeat(work.run, &work.name, name, now, until);
                if kept == Ok(false) && self.rng.one_in(2) {
                    self.remotes[worker].tasks.remove(index);
                }
                say!(self, "remote-{worker} renews {}: {kept:?}", work.name);
                Ok(())
            }
            9 if has && self.rng.one_in(3) => {
                self.remotes[worker].tasks.clear();
                say!(self, "remote-{worker} dies");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn poll(&mut self, no: usize, worker: usize) -> Result<(), String> {
        let now = self.servers[no].now();
        let name = self.remotes[worker].name.clone();
        let until = now.plus(RESERVE_MS);
        let connection = self.servers[no].connection.clone();
        let Ok(tasks) = connection.reserve(&self.pairs, &name, now, until, 1) else {
            return Ok(());
        };
        for task in tasks {
            let Some(observed) = self.oracle.runs.get(&task.run) else {
                continue;
            };
            let Some(target) = parse_target(&observed.plan, &task.target) else {
                return Err(format!("the task {} is of no step", task.target));
            };
            let run_id = observed.run_id.clone();
            let command = Command::ClaimStep {
                target,
                worker: name.clone(),
                lease_until: now.plus(LEASE_MS),
            };
            let guard = Guard::Lease {
                target: task.target.clone(),
                worker: name.clone(),
            };
            let ticket = self.ticket();
            let asked = PendingRequest::Claim {
                worker,
                run: task.run,
                run_id: run_id.clone(),
                target,
                name: task.target.clone(),
            };
            let server = &mut self.servers[no];
            if let Some(engine) = &mut server.engine {
                server.asked.insert(ticket, asked);
                let ear = server.ear.clone();
                let on_answer = move |answer| ear.tell(Told::Answer(ticket, answer));
                engine.submit_guarded((task.run, &run_id), command, guard, on_answer);
            }
            say!(
                self,
                "remote-{worker} asks s{no} for {} of {}",
                task.target,
                task.run.0
            );
        }
        self.listen(no)
    }

    pub(crate) fn report(&mut self, no: usize, worker: usize, index: usize) -> Result<(), String> {
        let work = self.remotes[worker].tasks.remove(index);
        if !self.quiet && self.rng.one_in(6) {
            // It will say so once more.
            self.remotes[worker].tasks.push(work.clone());
        }
        let Some(plan) = self.oracle.runs.get(&work.run).map(|it| it.plan.clone()) else {
            return Ok(());
        };
        let fails = self.fails_in(work.run);
        let server = &mut self.servers[no];
        let now = server.now();
        // The guard says whether the lease lasts: the row's end is later than the log's after heartbeats.
        let claim = Claim {
            lease_until: Some(now),
            ..work.claimed.claim.clone()
        };
        let command = result(&plan, &work.claimed, claim, fails, &mut self.rng);
        let what = word(&command);
        let guard = Guard::Lease {
            target: work.name.clone(),
            worker: self.remotes[worker].name.clone(),
        };
        self.tickets += 1;
        let ticket = self.tickets;
        if let Some(engine) = &mut server.engine {
            server.asked.insert(ticket, PendingRequest::Other);
            let ear = server.ear.clone();
            let on_answer = move |answer| ear.tell(Told::Answer(ticket, answer));
            engine.submit_guarded((work.run, &work.run_id), command, guard, on_answer);
        }
        say!(
            self,
            "remote-{worker} {what} {} of {} at s{no}",
            work.name,
            work.run.0
        );
        self.listen(no)
    }

    /// Starts that were answered: their runs are there.
    pub(crate) fn answer_starts(&mut self, no: usize) -> Result<(), String> {
        let mut answers = Vec::new();
        for (ticket, asked) in &self.servers[no].asked {
            if let PendingRequest::Start(request, started) = asked {
                match started.try_recv() {
                    Ok(answer) => answers.push((*ticket, *request, answer)),
                    Err(NoAnswer::Empty) => {}
                    Err(NoAnswer::Disconnected) => {
                        return Err(format!(
                            "s{no} dropped the start {ticket} without an answer"
                        ));
                    }
                }
            }
        }
        for (ticket, request, answer) in answers {
            self.servers[no].asked.remove(&ticket);
            say!(self, "s{no} answers {ticket}: {answer:?}");
            if let Ok(run_id) = answer {
                self.oracle.read(&self.sim_store)?;
                self.oracle.started(request, &run_id)?;
            }
        }
        Ok(())
    }

    /// An engine has answered someone.
    pub(crate) fn answered(
        &mut self,
        no: usize,
        ticket: RequestNo,
        answer: Result<Reply, Error>,
    ) -> Result<(), String> {
        let Some(asked) = self.servers[no].asked.remove(&ticket) else {
            return Err(format!("s{no} answered {ticket} twice: {answer:?}"));
        };
        let short = match &answer {
            Ok(Reply::Claimed(_)) => "claimed".to_owned(),
            other => format!("{other:?}").chars().take(160).collect(),
        };
        say!(self, "s{no} answers {ticket}: {short}");
        match (asked, answer) {
            (PendingRequest::Signal { run_id, id }, Ok(_)) => {
                let observed = self.oracle.by_id(&run_id);
                match observed.is_some_and(|it| it.marks.contains(&id)) {
                    true => Ok(()),
                    false => Err(format!("{id} was answered and is not in {run_id}'s log")),
                }
            }
            (
                PendingRequest::Claim {
                    worker,
                    run,
                    run_id,
                    target,
                    name,
                },
                Ok(Reply::Claimed(claimed)),
            ) => {
                // The answer may be lost on its way to the worker.
                if !self.quiet && self.rng.one_in(12) {
                    return Ok(());
                }
                let who = self.remotes[worker].name.clone();
                self.oracle
                    .begins(run, target, claimed.claim.execution, &who)?;
                self.oracle.gets(run, target, &claimed)?;
                self.remotes[worker].tasks.push(RemoteTask {
                    run,
                    run_id,
                    name,
                    claimed: *claimed,
                });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A publisher takes markers, delivers them, or fails to.
    pub(crate) fn publish(&mut self, no: usize) -> Result<(), String> {
        if !self.quiet && self.rng.one_in(8) {
            self.sink_down = !self.sink_down;
            say!(self, "the sinks are down: {}", self.sink_down);
        }
        let Some(sink) = self.rng.pick(&self.sinks).cloned() else {
            return Ok(());
        };
        let now = self.servers[no].now();
        let connection = self.servers[no].connection.clone();
        let until = now.plus(3_000);
        if let Ok(markers) = connection.take(&sink, "publisher", now, until, 4) {
            self.taken.extend(markers);
        }
        let Some(index) = (!self.taken.is_empty()).then(|| self.rng.index(self.taken.len())) else {
            return Ok(());
        };
        let marker = self.taken.remove(index);
        if self.sink_down {
            let _ = connection.failed(&marker, now.plus(1_000), "simulated: the sink is down");
            return Ok(());
        }
        // One whose time was over is delivered once more by someone else, which must do no harm.
        self.oracle.read(&self.sim_store)?;
        self.oracle
            .delivers(&marker.sink, marker.run, marker.first)?;
        say!(
            self,
            "{} gets {}@{}",
            marker.sink,
            marker.run.0,
            marker.first
        );
        if self.quiet || !self.rng.one_in(10) {
            let _ = connection.sent(&marker);
        }
        Ok(())
    }
}

fn deliver(id: &str, event_type: &str) -> Command {
    Command::DeliverEvent {
        event_id: id.to_owned(),
        event_type: event_type.to_owned(),
        payload: json!({ "from": "outside" }),
    }
}

/// What a person says to a step that waits for one.
pub(crate) fn answer(
    observed: &ObservedRun,
    fails: bool,
    id: &str,
    key: &TokenKey,
) -> Option<Command> {
    let sources = wake_sources(&observed.plan, &observed.state);
    let step = sources.into_iter().find_map(|source| match source {
        WakeSource::Outside {
            step,
            wait: WaitKind::Gate | WaitKind::Approval | WaitKind::Manual,
        } => Some(step),
        _ => None,
    })?;
    let token = open_token(&observed.plan, &observed.state, step, key)?;
    Some(Command::CompleteManually {
        details: Default::default(),
        step,
        token,
        outcome: match fails {
            true => ManualOutcome::Failed,
            false => ManualOutcome::Succeeded,
        },
        actor: actor(id),
        output: Json::Null,
    })
}
