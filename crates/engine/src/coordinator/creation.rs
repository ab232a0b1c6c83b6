//! How runs come to be: creation, the queue, slots, and repetitions.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::command::{Command, Env};
use stepwell_kernel::decide::decide;
use stepwell_kernel::expr::Template;
use stepwell_kernel::keys;
use stepwell_kernel::plan::{Dialect, Plan};
use stepwell_kernel::state::{Phase, State};
use stepwell_kernel::time::Time;

use super::{Coordinator, Draft, HotRun, Message, Origin, Request, Ticket};
use crate::error::Error;
use crate::limits::WhenFull;
use crate::start::{StartRequest, run_id_for};
use crate::store::{MessageNo, NewRun, RunNo, SlotChange};

/// How many numbers for runs are reserved at a time.
const NUMBERS: u32 = 256;
/// How many queued runs are looked at when slots may be free.
const QUEUE_PAGE: usize = 128;

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
        let from = Origin::Sender(ticket);
        if let Err(error) = self.create(plan, request, from, enqueue, now) {
            let create = Request {
                from,
                ..Request::own(Command::EnqueueRun)
            };
            self.refuse(&create, error);
        }
    }

    /// Starts a child; `mail` asked for it. A parent that stops wants it cancelled at once.
    pub(super) fn start_for(
        &mut self,
        plan: &Arc<Plan>,
        request: StartRequest,
        mail: (RunNo, MessageNo),
        cancelled: bool,
        now: Time,
    ) {
        let child = request.run_id.clone();
        let from = Origin::Parent {
            run: mail.0,
            mail: mail.1,
        };
        match self.create(plan, request, from, true, now) {
            Ok(run) if cancelled => {
                if let Some(draft) = self.runs.get_mut(&run).and_then(|hot| hot.draft.as_mut()) {
                    let cancel = Command::CancelRun {
                        actor: super::effects::engine_actor(),
                        reason: Some("the parent stops".into()),
                        compensate: false,
                    };
                    draft.mail.push(Message::from(cancel).to(&child));
                }
            }
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, run = child, "a child could not be started");
                self.reading.remove(&mail.1);
            }
        }
    }

    fn create(
        &mut self,
        plan: &Arc<Plan>,
        mut request: StartRequest,
        from: Origin,
        enqueue: bool,
        now: Time,
    ) -> Result<RunNo, Error> {
        if self.stopping {
            return Err(Error::Stopping);
        }
        let start = enqueue && self.may_start(plan, &mut request, now)?;
        let plan_no = self.plan_number(plan)?;
        let run = self.next_number()?;
        let context = &request.context;
        let net = plan.net();
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
        let new = NewRun {
            run_id: request.run_id.clone(),
            request_key,
            plan: Some(plan_no),
            tenant: context.tenant_id.clone(),
            project: context.project_id.clone(),
            environment: context.environment_id.clone(),
            parent: request.parent.as_ref().map(|parent| parent.run_id.clone()),
            event_key: String::new(),
            created_at: now,
        };
        let ours = match (&request.parent, from) {
            (Some(parent), _) => self.works_on(&parent.run_id),
            (None, from) => from != Origin::Coordinator,
        };
        if let Some(only) = self.config.only.as_mut().filter(|_| ours) {
            only.insert(request.run_id.clone());
        }
        let create = Request {
            from,
            ..Request::own(request.into_command())
        };
        self.create_as(run, plan, Box::new(new), create, now)?;
        if enqueue {
            self.decide(run, Request::own(Command::EnqueueRun), now);
        }
        if start {
            self.decide(run, self.start_command(run), now);
        }
        self.polls.queue |= enqueue && !start;
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
        let mut hot = HotRun::new(run, &new.run_id, plan.clone());
        let mut draft = Draft::new(0);
        draft.create = Some(new);
        hot.draft = Some(draft);
        self.runs.insert(run, hot);
        self.evict(run);
        self.decide(run, create, now);
        if !self.exists(run) {
            // The kernel refused it: there is nothing to write, and nothing to confirm.
            let hot = self.drop_run(run);
            self.dirty.remove(&run);
            let decided = hot.and_then(|hot| hot.draft).map(|draft| draft.decided);
            return match decided.into_iter().flatten().next() {
                Some((_, Err(rejection))) => Err(rejection.into()),
                _ => Err(Error::UnknownRun(format!("number {}", run.0))),
            };
        }
        self.set_event_key(run);
        Ok(())
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
        let from = create.clone();
        match self.create_as(run, plan, new, create, now) {
            Ok(()) => self.decide(run, Request::own(Command::EnqueueRun), now),
            Err(error) => self.refuse(&from, error),
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
            return;
        };
        let from = create.clone();
        if let Err(error) = self.create_as(run, plan, new, create, now) {
            return self.refuse(&from, error);
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
        if self.config.limits.are_none() || request.parent.is_some() {
            return Ok(true);
        }
        let mut state = State::new(request.run_id.clone(), plan);
        let env = Env {
            now,
            key: self.key.clone(),
        };
        decide(plan, &mut state, request.clone().into_command(), &env)?;
        match (self.full_slot(plan, &state)?, self.config.limits.when_full) {
            // Whoever came first goes first.
            (None, _) => Ok(self.store.queued(now, 1)?.is_empty()),
            (Some(key), WhenFull::Reject { retry_after_ms }) => Err(Error::Busy {
                key,
                retry_after_ms,
            }),
            (Some(_), WhenFull::Delay { by_ms }) => {
                let later = now.plus(by_ms);
                request.start_after = Some(request.start_after.unwrap_or(later).max(later));
                Ok(false)
            }
            (Some(_), WhenFull::Queue) => Ok(false),
        }
    }

    /// What happens to a run that another one was faster than: as if the slot had been seen taken.
    pub(super) fn too_many(
        &self,
        create: &mut Request,
        key: String,
        now: Time,
    ) -> Result<(), Error> {
        match (self.config.limits.when_full, &mut create.command) {
            (WhenFull::Reject { retry_after_ms }, _) => Err(Error::Busy {
                key,
                retry_after_ms,
            }),
            (WhenFull::Delay { by_ms }, Command::CreateRun { start_after, .. }) => {
                let later = now.plus(by_ms);
                *start_after = Some(start_after.unwrap_or(later).max(later));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A slot that a run needs and that seems to be taken; the commit has the last word.
    fn full_slot(&self, plan: &Plan, state: &State) -> Result<Option<String>, Error> {
        for (key, limit) in self.config.limits.slots(plan, state) {
            if self.store.slots_taken(&key)? >= limit {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// What events are matched by: the business key of a linear run, else the run's own id.
    fn set_event_key(&mut self, run: RunNo) {
        let Some(hot) = self.runs.get_mut(&run) else {
            return;
        };
        if let Some(key) = biz_key(&hot.plan, &hot.state.current_params()) {
            hot.event_key = key;
        }
        let key = hot.event_key.clone();
        if let Some(create) = hot.draft.as_mut().and_then(|draft| draft.create.as_mut()) {
            create.event_key = key;
        }
    }

    /// Takes the slots that a run needs, in the commit that starts it.
    pub(super) fn take_slots(&mut self, run: RunNo) {
        let Some(hot) = self.runs.get_mut(&run) else {
            return;
        };
        let slots = self.config.limits.slots(&hot.plan, &hot.state);
        let started = !matches!(hot.state.phase, Phase::Created | Phase::Queued);
        if slots.is_empty() || !started || hot.state.phase.is_ended() {
            return;
        }
        let draft = hot.draft.get_or_insert_with(|| Draft::new(hot.committed));
        draft.holds = Some(slots.iter().map(|(key, _)| key.clone()).collect());
        draft
            .slots
            .extend(slots.into_iter().map(|(key, limit)| SlotChange {
                key,
                change: 1,
                limit: Some(limit),
            }));
    }

    fn exists(&self, run: RunNo) -> bool {
        let hot = self.runs.get(&run);
        hot.is_some_and(|hot| hot.state.phase != Phase::Void)
    }

    pub(super) fn start_command(&self, run: RunNo) -> Request {
        let engine = self.config.engine_type.to_owned();
        let run_id = self.runs.get(&run).map_or("", |hot| &hot.run_id);
        Request::own(Command::StartRun {
            engine_run_ref: format!("{engine}://{run_id}"),
            engine,
            fetched_sha256: None,
        })
    }

    /// Starts queued runs while slots are free, first come first served. Two servers that do this at
    /// once start each run once: starting is an append like any other.
    pub fn dequeue(&mut self, now: Time) -> Result<(), Error> {
        for run in self.queued(now)? {
            match self.ensure(run) {
                Ok(()) => {}
                Err(Error::Store(error)) => return Err(error.into()),
                // One that cannot be read must not hold up those behind it.
                Err(error) => {
                    tracing::error!(%error, "a queued run cannot be started");
                    continue;
                }
            }
            let hot = self.runs.get(&run);
            let free = hot.is_some_and(|hot| hot.flight.is_none() && hot.draft.is_none());
            if !free || hot.is_some_and(|hot| hot.state.phase != Phase::Queued) {
                continue;
            }
            let full = match self.runs.get(&run) {
                Some(hot) => self.full_slot(&hot.plan, &hot.state)?,
                None => continue,
            };
            if full.is_none() {
                let start = self.start_command(run);
                self.take(run, start, now);
                // One at a time: the next may need the slot that this one takes.
                if !self.config.limits.are_none() {
                    self.polls.queue = true;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Queued runs that this coordinator may start.
    fn queued(&mut self, now: Time) -> Result<Vec<RunNo>, Error> {
        let Some(only) = self.config.only.clone() else {
            return Ok(self.store.queued(now, QUEUE_PAGE)?);
        };
        let mut ours = HashSet::new();
        for run_id in &only {
            // A child that is yet to be created has no number.
            match self.number_of(run_id) {
                Ok(run) => drop(ours.insert(run)),
                Err(Error::UnknownRun(_)) => {}
                Err(error) => return Err(error),
            }
        }
        if ours.is_empty() {
            return Ok(Vec::new());
        }
        // However many of others' are before ours.
        let mut queued = self.store.queued(now, usize::MAX)?;
        queued.retain(|run| ours.contains(run));
        Ok(queued)
    }

    /// Starts the run that RETRY_RUN asked for: what was asked for then, once more.
    pub(super) fn repeat(&mut self, run: RunNo, request_key: &str, mail: MessageNo, now: Time) {
        let Some(hot) = self.runs.get(&run) else {
            return;
        };
        let state = &hot.state;
        let first = state.original_run_id.as_deref().unwrap_or(&hot.run_id);
        let params = state.params.first();
        let request = StartRequest {
            run_id: run_id_for(request_key),
            params: params.map(|it| Json::clone(it)).unwrap_or_default(),
            context: state.context.clone(),
            original_run_id: Some(first.to_owned()),
            ..StartRequest::default()
        };
        let plan = hot.plan.clone();
        self.start_for(&plan, request, (run, mail), false, now);
    }

    fn next_number(&mut self) -> Result<RunNo, Error> {
        if self.numbers.is_empty() {
            self.numbers = self.store.reserve_numbers(NUMBERS)?;
        }
        let number = self.numbers.start;
        self.numbers.start += 1;
        Ok(RunNo(number))
    }
}

/// The business key of a linear run: its template, filled with the run's parameters.
fn biz_key(plan: &Plan, params: &Arc<Json>) -> Option<String> {
    if plan.net().dialect != Dialect::Linear {
        return None;
    }
    let template = Template::parse(plan.net().extra.get("bizKey")?.as_str()?).ok()?;
    let scope = |name: &str| match name {
        "workload" | "params" => Some(params.clone()),
        other => params.get(other).map(|it| Arc::new(it.clone())),
    };
    match template.evaluate(&scope).ok()? {
        Json::Null => None,
        Json::String(text) => Some(text).filter(|text| !text.is_empty()),
        other => Some(other.to_string()),
    }
}
