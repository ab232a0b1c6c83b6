//! How runs come to be: on a start request, as a child, as a repetition, and once more when the first
//! commit was lost.

use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::command::{Command, Env};
use stepwell_kernel::decide::decide;
use stepwell_kernel::keys;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::State;
use stepwell_kernel::time::Time;

use super::hot_run::cancel_child;
use super::request::Origin;
use super::{Coordinator, HotRun, Message, Request, Slots, Ticket};
use crate::error::Error;
use crate::start::{StartRequest, run_id_for};
use crate::store::{MessageNo, NewRun, PlanNo, RunNo};

impl Coordinator {
    /// Creates a run and, if `enqueue`, puts it into the queue; it starts when a slot is free. Two
    /// requests with the same request id create one run, whose id both get.
    pub fn start(
        &mut self,
        plan: &Arc<Plan>,
        request: StartRequest,
        enqueue: bool,
        ticket: Ticket,
        now: Time,
    ) {
        let origin = Origin::Sender(ticket);
        if let Err(error) = self.create(plan, request, origin, enqueue, now) {
            self.notices.answer(ticket, Err(error));
        }
    }

    /// Starts a child or a repetition; the message `mail` of the run asked for it. A parent that stops
    /// wants the child cancelled at once.
    pub(super) fn start_for(
        &mut self,
        plan: &Arc<Plan>,
        request: StartRequest,
        (run, mail): (RunNo, MessageNo),
        cancelled: bool,
        now: Time,
    ) {
        let child = request.run_id.clone();
        let origin = Origin::Parent { run, mail };
        match self.create(plan, request, origin, true, now) {
            Ok(run) if cancelled => match self.runs.get_mut(run) {
                Some(hot) => hot.draft().send(Message::from(cancel_child()).to(&child)),
                None => self
                    .invariants
                    .broken(run, "a run is not in memory just after its creation"),
            },
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, run = child, "a child could not be started");
                self.inbox.end(mail);
            }
        }
    }

    fn create(
        &mut self,
        plan: &Arc<Plan>,
        mut request: StartRequest,
        origin: Origin,
        enqueue: bool,
        now: Time,
    ) -> Result<RunNo, Error> {
        if self.stopping {
            return Err(Error::Stopping);
        }
        let start = enqueue && self.may_start(plan, &mut request, now)?;
        let plan_no = self.runs.plan_number(plan)?;
        let run = self.batches.next_run(&*self.store)?;
        let new = new_run(plan, plan_no, &request, now);
        let ours = match (&request.parent, origin) {
            (Some(parent), _) => self.works_on(&parent.run_id),
            (None, origin) => origin != Origin::Coordinator,
        };
        if let Some(only) = self.config.only.as_mut().filter(|_| ours) {
            only.insert(request.run_id.clone());
        }
        let create = Request::new(request.into_command(), origin);
        self.create_as(run, plan, Box::new(new), create, now)?;
        if enqueue {
            self.decide(run, Request::own(Command::EnqueueRun), now);
        }
        if start {
            self.start_run(run, now);
        } else if enqueue {
            self.slots.look();
        }
        Ok(run)
    }

    /// Decides the first command of a run.
    fn create_as(
        &mut self,
        run: RunNo,
        plan: &Arc<Plan>,
        new: Box<NewRun>,
        create: Request,
        now: Time,
    ) -> Result<(), Error> {
        let hot = HotRun::create(run, new, plan.clone());
        self.runs.insert(hot, self.room());
        self.decide(run, create, now);
        if let Some(hot) = self.runs.get_mut(run).filter(|hot| hot.exists()) {
            let key = plan.event_key(&hot.state().current_params());
            hot.set_event_key(key);
            return Ok(());
        }
        // The kernel refused it: there is nothing to write, and nothing to confirm.
        self.schedule.unmark(run);
        let draft = self.drop_run(run).and_then(|left| left.draft);
        let decided = draft.into_iter().flat_map(|draft| draft.decided);
        match decided.filter_map(|it| it.answer.err()).next() {
            Some(rejection) => Err(rejection.into()),
            None => {
                self.invariants
                    .broken(run, "a run was neither created nor refused");
                Err(Error::UnknownRun(format!("number {}", run.0)))
            }
        }
    }

    /// A run that found no slot after all is created once more, to wait in the queue.
    pub(super) fn create_queued(
        &mut self,
        run: RunNo,
        plan: &Arc<Plan>,
        new: Box<NewRun>,
        create: Request,
        now: Time,
    ) {
        let asked = create.clone();
        match self.create_as(run, plan, new, create, now) {
            Ok(()) => self.decide(run, Request::own(Command::EnqueueRun), now),
            Err(error) => self.refuse(&asked, error),
        }
    }

    /// A run whose first commit was lost is created once more, as it was asked for.
    pub(super) fn create_again(
        &mut self,
        run: RunNo,
        plan: &Arc<Plan>,
        new: Box<NewRun>,
        requests: Vec<Request>,
        now: Time,
    ) {
        let mut requests = requests.into_iter();
        let Some(create) = requests.next() else {
            // Its creation was given up: all who asked for it are answered.
            return;
        };
        let asked = create.clone();
        if let Err(error) = self.create_as(run, plan, new, create, now) {
            return self.refuse(&asked, error);
        }
        for request in requests {
            self.decide(run, request, now);
        }
    }

    /// Whether a new run may start at once. One too many is refused, delayed or left in the queue.
    fn may_start(
        &mut self,
        plan: &Arc<Plan>,
        request: &mut StartRequest,
        now: Time,
    ) -> Result<bool, Error> {
        let limits = &self.config.limits;
        if limits.are_none() || request.parent.is_some() {
            return Ok(true);
        }
        let mut state = State::new(request.run_id.clone(), plan);
        let env = Env {
            now,
            key: self.key.clone(),
        };
        let mut create = request.clone().into_command();
        decide(plan, &mut state, create.clone(), &env)?;
        let Some(key) = Slots::full(limits, &*self.store, plan, &state)? else {
            // First come, first served.
            return Ok(self.store.queued(now, 1)?.is_empty());
        };
        Slots::when_full(limits, key, &mut create, now)?;
        if let Command::CreateRun { start_after, .. } = create {
            request.start_after = start_after;
        }
        Ok(false)
    }

    /// Decides that a run starts.
    pub(super) fn start_run(&mut self, run: RunNo, now: Time) {
        let Some(hot) = self.runs.get(run) else {
            let what = "a run that is to start is not in memory";
            return self.invariants.broken(run, what);
        };
        let engine = self.config.engine_type.to_owned();
        let start = Command::StartRun {
            engine_run_ref: format!("{engine}://{}", hot.run_id()),
            engine,
            fetched_sha256: None,
        };
        self.take(run, Request::own(start), now);
    }

    /// Starts the run that RETRY_RUN asked for: what was asked for then, once more.
    pub(super) fn repeat(&mut self, hot: &RepeatOf, mail: MessageNo, now: Time) {
        self.start_for(&hot.plan, hot.request.clone(), (hot.run, mail), false, now);
    }
}

/// What a run is started with that repeats another one.
pub(super) struct RepeatOf {
    run: RunNo,
    plan: Arc<Plan>,
    request: StartRequest,
}

impl RepeatOf {
    pub(super) fn new(hot: &HotRun, request_key: &str) -> RepeatOf {
        let state = hot.state();
        let first = state.original_run_id().unwrap_or(hot.run_id());
        // A run without parameters of its own was started without.
        let params = state.params().first().map(|it| Json::clone(it));
        RepeatOf {
            run: hot.run(),
            plan: hot.plan().clone(),
            request: StartRequest {
                run_id: run_id_for(request_key),
                params: params.unwrap_or_default(),
                context: state.context().clone(),
                original_run_id: Some(first.to_owned()),
                ..StartRequest::default()
            },
        }
    }
}

fn new_run(plan: &Plan, plan_no: PlanNo, request: &StartRequest, now: Time) -> NewRun {
    let (net, context) = (plan.net(), &request.context);
    let request_key = request.request_id.as_ref().map(|id| {
        keys::request_key(
            &context.tenant_id,
            &context.project_id,
            &context.environment_id,
            &net.plan_id,
            &net.plan_version,
            id,
        )
    });
    NewRun {
        run_id: request.run_id.clone(),
        request_key,
        plan: Some(plan_no),
        tenant: context.tenant_id.clone(),
        project: context.project_id.clone(),
        environment: context.environment_id.clone(),
        parent: request.parent.as_ref().map(|parent| parent.run_id.clone()),
        event_key: String::new(),
        created_at: now,
    }
}
