//! How runs come to be: on a start request, as a child, as a repetition, and once more when the first
//! commit was lost.

use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::command::{Command, Env};
use stepwell_kernel::decide::decide;
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::Rejection;
use stepwell_kernel::state::State;
use stepwell_kernel::time::Time;

use super::config::PRETENDS;
use super::hot_run::cancel_child;
use super::request::Origin;
use super::{Coordinator, HotRun, Message, Request, Slots, Ticket};
use crate::engine_routes::{is_outside, must_suit};
use crate::error::Error;
use crate::start::{StartRequest, request_key, run_id_for};
use crate::store::{MessageNo, NewRun, PlanNo, RunFilter, RunNo};

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
        let created = match request.check() {
            Ok(()) => self.create(plan, request, origin, enqueue, now).map(drop),
            Err(rejection) => Err(rejection.into()),
        };
        if let Err(error) = created {
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
        let parent = request.parent.clone();
        let origin = Origin::Parent { run, mail };
        match self.create(plan, request, origin, true, now) {
            Ok(run) if cancelled => match self.runs.get_mut(run) {
                Some(hot) => hot.draft().send(Message::from(cancel_child()).to(&child)),
                None => self
                    .invariants
                    .broken(run, "a run is not in memory just after its creation"),
            },
            Ok(_) => {}
            Err(Error::Rejected(why)) => {
                self.child_refused((run, mail), (&child, parent.as_ref()), &why, now);
            }
            Err(error) => {
                tracing::error!(%error, run = child, "a run that was asked for could not be started yet; it is tried again");
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
        self.must_suit_engine(plan, &request)?;
        let fetched = request.fetched_sha256.take();
        let changed = fetched.filter(|found| *found != plan.net().source.sha256);
        // A run that fails before it starts waits for no slot and no approval.
        let enqueue = enqueue && changed.is_none();
        let start = enqueue
            && match self.may_start(plan, &mut request, now) {
                // Who asked for it was told that it is done: it waits in the queue.
                Err(Error::Busy { .. }) if matches!(origin, Origin::Parent { .. }) => false,
                may_start => may_start?,
            };
        let plan_no = self.runs.plan_number(plan)?;
        let run = self.shared.numbers.next(self.shard, &*self.store, now)?;
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
        if start || changed.is_some() {
            self.start_run(run, changed, now);
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
        mut new: Box<NewRun>,
        create: Request,
        now: Time,
    ) -> Result<(), Error> {
        // As the first event will say, also when the first commit was lost.
        new.created_at = now;
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

    /// Decides that a run starts, or that it fails because something else was fetched than its plan's reference says.
    pub(super) fn start_run(&mut self, run: RunNo, fetched_sha256: Option<String>, now: Time) {
        let original = self.engine_of_original(run);
        let Some(hot) = self.runs.get(run) else {
            let what = "a run that is to start is not in memory";
            return self.invariants.broken(run, what);
        };
        let (engine, place) = self.engine_of_new(hot.plan(), hot.state().context(), original);
        let start = Command::StartRun {
            engine_run_ref: format!("{engine}://{place}{}", hot.run_id()),
            engine,
            fetched_sha256,
        };
        self.take(run, Request::own(start), now);
    }

    /// The engine of a new run, and what the run's id begins with there.
    fn engine_of_new(
        &self,
        plan: &Plan,
        context: &RunContext,
        original: Option<String>,
    ) -> (String, &str) {
        let own = (self.config.engine_type, self.config.engine_place.as_str());
        let Some(routes) = self.config.routes.as_deref() else {
            let engine = original.unwrap_or_else(|| own.0.to_owned());
            // Only engines outside have places.
            let place = match is_outside(&engine) {
                true => own.1,
                false => "",
            };
            return (engine, place);
        };
        if let Some(rehearsal) = original.filter(|it| it == PRETENDS) {
            return (rehearsal, own.1);
        }
        let project = Some(context.project_id.as_str());
        match routes.engine_of(&plan.net().plan_id, &context.tenant_id, project) {
            Some(engine) => (engine.to_owned(), &routes.place),
            None => (own.0.to_owned(), own.1),
        }
    }

    /// Refuses a run whose plan needs what its engine does not have. Where all runs are of one engine, who asks for them has
    /// looked.
    fn must_suit_engine(&self, plan: &Plan, request: &StartRequest) -> Result<(), Error> {
        if self.config.routes.is_none() {
            return Ok(());
        }
        let (engine, _) = self.engine_of_new(plan, &request.context, None);
        Ok(must_suit(plan, &engine)?)
    }

    /// The engine of the run that this one repeats: a rehearsal is repeated as a rehearsal.
    fn engine_of_original(&mut self, run: RunNo) -> Option<String> {
        let original = self.runs.get(run)?.state().original_run_id()?.to_owned();
        let original = self.runs.number_of(&original).ok()?;
        let room = self.room();
        let original = self.runs.load(original, room).ok()?;
        original.state().engine().map(str::to_owned)
    }

    /// What keeps the run that RETRY_RUN asks for from being created, as a start would be told.
    pub(super) fn check_repeat(&mut self, repeat: &RepeatOf, now: Time) -> Result<(), Error> {
        let (plan, mut request) = (Arc::clone(&repeat.plan), repeat.request.clone());
        if self.store.find(&request.run_id)?.is_some() {
            // The signal was sent before.
            return Ok(());
        }
        self.must_suit_engine(&plan, &request)?;
        self.may_start(&plan, &mut request, now)?;
        let (run_id, tenant) = (request.run_id.clone(), request.context.tenant_id.clone());
        let mut state = State::new(run_id.clone(), &plan);
        let env = Env {
            now,
            key: self.key.clone(),
        };
        decide(&plan, &mut state, request.into_command(), &env)?;
        let key = plan.event_key(&state.current_params());
        let unique = key.and_then(|key| plan.unique_key(&tenant, &run_id, &key));
        let Some(unique) = unique else {
            return Ok(());
        };
        let holders = self.store.list(&RunFilter {
            tenant: Some(unique.tenant),
            unique_key: Some(unique.key.clone()),
            open: true,
            limit: 1,
            ..RunFilter::default()
        })?;
        match holders.first() {
            Some(holder) => Err(Rejection::key_taken(&unique.key, &holder.run_id).into()),
            None => Ok(()),
        }
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
    /// `by` starts the new run, and is its maker.
    pub(super) fn new(hot: &HotRun, request_key: &str, by: Option<String>) -> RepeatOf {
        let state = hot.state();
        let mut context = state.context().clone();
        context.triggered_by = by.or(context.triggered_by);
        let first = state.original_run_id().unwrap_or(hot.run_id());
        // A run without parameters of its own was started without.
        let params = state.params().first().map(|it| Json::clone(it));
        RepeatOf {
            run: hot.run(),
            plan: hot.plan().clone(),
            request: StartRequest {
                run_id: run_id_for(request_key),
                params: params.unwrap_or_default(),
                context,
                original_run_id: Some(first.to_owned()),
                ..StartRequest::default()
            },
        }
    }
}

fn new_run(plan: &Plan, plan_no: PlanNo, request: &StartRequest, now: Time) -> NewRun {
    let context = &request.context;
    let request_id = request.request_id.as_deref();
    let request_key = request_id.map(|id| request_key(plan, context, id));
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
        priority: context.priority,
        labels: context.labels.clone(),
    }
}
