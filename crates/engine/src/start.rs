//! How runs come to be: requests, the queue, slots, and repetitions.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::command::Command;
use stepwell_kernel::decide::decide;
use stepwell_kernel::event::{Parent, RunContext};
use stepwell_kernel::keys;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::state::{Phase, State};
use stepwell_kernel::time::Time;

use crate::engine::{Engine, Error, Live};
use crate::port::{Catalog, Clock, Store};

/// What a run is started with.
#[derive(Clone, Debug, Default)]
pub struct StartRequest {
    /// The new run's id.
    pub run_id: String,
    /// The requester's own id for this start: two starts with the same one are one run.
    pub request_id: Option<String>,
    /// Merged over the plan's workload.
    pub params: Json,
    /// Who it belongs to.
    pub context: RunContext,
    /// The run and step that wait for it.
    pub parent: Option<Parent>,
    /// The run that it repeats.
    pub original_run_id: Option<String>,
    /// Not to be started before.
    pub start_after: Option<Time>,
}

impl<S: Store, C: Clock, F: Catalog> Engine<S, C, F> {
    /// Creates a run and puts it into the queue; it starts when a slot is free. Two requests with the
    /// same request id create one run, whose id both get.
    pub fn trigger(&mut self, plan: &Arc<Plan>, request: StartRequest) -> Result<String, Error> {
        let run_id = self.create(plan, request)?;
        if self
            .run(&run_id)
            .is_some_and(|live| live.state.phase == Phase::Created)
        {
            self.submit(&run_id, Command::EnqueueRun)?;
            self.queue.push_back(run_id.clone());
            self.dequeue_and_start();
        }
        Ok(run_id)
    }

    /// Creates a run; it stays as it is.
    pub fn create(&mut self, plan: &Arc<Plan>, request: StartRequest) -> Result<String, Error> {
        let net = plan.net();
        let run_id = request.run_id.clone();
        let create = Command::CreateRun {
            run_id: run_id.clone(),
            params: request.params,
            context: request.context.clone(),
            parent: request.parent,
            original_run_id: request.original_run_id,
            start_after: request.start_after,
        };
        // What the kernel refuses must not use up the request's key.
        let mut state = State::new(run_id.clone(), plan);
        decide(plan, &mut state, create.clone(), &self.env())?;
        if let Some(id) = &request.request_id {
            let context = &request.context;
            let key = keys::request_key(
                &context.tenant_id,
                &context.project_id,
                &context.environment_id,
                &net.plan_id,
                &net.plan_version,
                id,
            );
            if let Some(existing) = self.store.claim_request(&key, &run_id) {
                return Ok(existing);
            }
        }
        if self.runs.contains_key(&run_id) {
            let message = format!("there is a run {run_id} already");
            return Err(Rejection::new(Code::RunExists, message).into());
        }
        let live = Live::replayed(plan, &run_id, &[])?;
        self.runs.insert(run_id.clone(), live);
        if let Err(error) = self.submit(&run_id, create) {
            self.runs.remove(&run_id);
            return Err(error);
        }
        Ok(run_id)
    }

    /// Starts queued runs while slots are free, first come first served.
    pub fn dequeue_and_start(&mut self) -> Vec<String> {
        let mut started = Vec::new();
        let mut waiting = VecDeque::new();
        while let Some(run_id) = self.queue.pop_front() {
            // A child runs in its parent's slot, or the two could wait for each other.
            let child = self
                .run(&run_id)
                .is_some_and(|it| it.state.parent.is_some());
            let free = self.slots.is_none_or(|slots| self.running.len() < slots);
            if !child && !free {
                waiting.push_back(run_id);
                continue;
            }
            match self.start(&run_id) {
                Ok(()) => started.push(run_id),
                // Not yet approved, or not to be started yet: it keeps its place.
                Err(_)
                    if self
                        .run(&run_id)
                        .is_some_and(|live| live.state.phase == Phase::Queued) =>
                {
                    waiting.push_back(run_id);
                }
                Err(_) => {}
            }
        }
        self.queue = waiting;
        started
    }

    pub(crate) fn start(&mut self, run_id: &str) -> Result<(), Error> {
        let engine = self.engine_type.to_owned();
        let engine_run_ref = format!("{engine}://{run_id}");
        self.submit(
            run_id,
            Command::StartRun {
                engine,
                engine_run_ref,
                fetched_sha256: None,
            },
        )?;
        let live = self.runs.get(run_id);
        if live.is_some_and(|live| live.state.parent.is_none() && !live.state.phase.is_ended()) {
            self.running.insert(run_id.to_owned());
        }
        Ok(())
    }

    /// Starts the run that RETRY_RUN asked for: what was asked for then, once more.
    pub(crate) fn repeat(&mut self, run_id: &str, request_key: &str) -> Result<(), Error> {
        let repeated = run_id_for(request_key);
        let Some(live) = self.runs.get(run_id) else {
            return Err(Error::UnknownRun(run_id.to_owned()));
        };
        if self.runs.contains_key(&repeated) {
            return Ok(());
        }
        let plan = live.plan.clone();
        let first = live.state.original_run_id.as_deref().unwrap_or(run_id);
        let request = StartRequest {
            run_id: repeated,
            params: live
                .state
                .params
                .first()
                .map(|it| Json::clone(it))
                .unwrap_or_default(),
            context: live.state.context.clone(),
            original_run_id: Some(first.to_owned()),
            ..StartRequest::default()
        };
        self.trigger(&plan, request)?;
        Ok(())
    }
}

/// The id of a run that is asked for under a key: a child, or the repetition of a run. It follows from
/// the key, so that a crash between the request and the run cannot make two.
#[must_use]
pub fn run_id_for(request_key: &str) -> String {
    format!("run_{}", &keys::sha256_hex(request_key)[..32])
}
