//! The engine for programs: open a store, register handlers, start runs, wait for them.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use stepwell_engine::coordinator::{Config, Notice};
use stepwell_engine::read::LoggedRun;
use stepwell_engine::service::{Handle, Observer, Service, Setup};
use stepwell_engine::store::{Store, StoreError};
use stepwell_engine::{StartRequest, run_id_for};
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{RunContext, StepError};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::run_output;
use stepwell_kernel::state::Phase;
use stepwell_stores::{Address, OpenMode};
use stepwell_worker::artifacts::{ArtifactError, Artifacts, refers};
use stepwell_worker::handler::IntoReply;
use stepwell_worker::secrets::{SecretError, Secrets};
use stepwell_worker::{Crew, Handlers, Job, WorkerResources};

use crate::data::Data;
use crate::files::{Definition, DefinitionError, Files};

/// How long work in flight may take to end when the engine stops.
const GRACE: Duration = Duration::from_secs(10);
/// How often a run that others may end is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The definition has errors; the text says which and where.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The engine rejected the request.
    #[error(transparent)]
    Engine(#[from] stepwell_engine::Error),
    /// Secrets cannot be had.
    #[error(transparent)]
    Secrets(#[from] SecretError),
    /// Artifacts cannot be kept.
    #[error(transparent)]
    Artifacts(#[from] ArtifactError),
    /// A thread or a file could not be created.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// How an engine is opened.
#[derive(Debug)]
pub struct Builder {
    store: String,
    artifacts: Option<String>,
    handlers: Handlers,
    at_a_time: usize,
    patience: Duration,
}

impl Builder {
    /// With an async function for a queue and an operation. Its input is what the step is given.
    #[must_use]
    pub fn on<I, F, Fut, A>(mut self, queue: &str, operation: &str, handler: F) -> Builder
    where
        I: DeserializeOwned + Send + 'static,
        F: Fn(Job, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = A> + Send + 'static,
        A: IntoReply,
    {
        self.handlers = self.handlers.on(queue, operation, handler);
        self
    }

    /// At most so many steps of a queue at a time. What is above the limit is not claimed yet: its
    /// timeout does not run, and others may go first.
    #[must_use]
    pub fn limit(mut self, queue: &str, jobs: usize) -> Builder {
        self.handlers = self.handlers.limit(queue, jobs);
        self
    }

    /// At most so many steps at a time; 256 if nobody says.
    #[must_use]
    pub fn at_a_time(mut self, jobs: usize) -> Builder {
        self.at_a_time = jobs.max(1);
        self
    }

    /// Where large results and logs are kept: a directory, `s3://`, `gs://` or `az://`. If nobody says,
    /// where the variable `STEPWELL_ARTIFACTS` says, else beside the store.
    #[must_use]
    pub fn artifacts(mut self, url: &str) -> Builder {
        self.artifacts = Some(url.to_owned());
        self
    }

    /// How long work in flight may take to end when the engine stops.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Builder {
        self.patience = patience;
        self
    }

    /// Opens the store and begins to work: also on what an earlier process has left there.
    pub fn open(self) -> Result<Stepwell, Error> {
        let address = Address::parse(&self.store)?;
        let store = address.open(OpenMode::Own)?;
        let Data { artifacts, logs } = Data::open(&address, self.artifacts.as_deref())?;
        let resources =
            WorkerResources::new(Secrets::from_env()?, artifacts.clone(), logs).with_all_tools();
        let crew = Crew::new(resources, self.handlers)?;
        let config = Config {
            serves: crew.serves(),
            capacity: self.at_a_time,
            queues: crew.limits(),
            ..Config::default()
        };
        let ended = Arc::new(EndedRuns::default());
        let service = Service::start(Setup {
            catalog: Box::new(Files::default()),
            config,
            observer: Box::new(CountEnded(Arc::clone(&ended))),
            ..Setup::new(Arc::clone(&store), crew)
        })?;
        Ok(Stepwell {
            handle: service.handle(),
            service,
            store,
            artifacts,
            ended,
            patience: self.patience,
        })
    }
}

/// An engine that runs in this process. Dropped without `stop`, it stops without patience: work in
/// flight is told to stop and given back.
pub struct Stepwell {
    service: Service,
    handle: Handle,
    store: Arc<dyn Store>,
    artifacts: Artifacts,
    ended: Arc<EndedRuns>,
    patience: Duration,
}

impl fmt::Debug for Stepwell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepwell").finish_non_exhaustive()
    }
}

impl Stepwell {
    /// An engine on a store: `sqlite:PATH`, `postgresql://…` or `memory:`.
    #[must_use]
    pub fn at(store: &str) -> Builder {
        Builder {
            store: store.to_owned(),
            artifacts: None,
            handlers: Handlers::new(),
            at_a_time: 256,
            patience: GRACE,
        }
    }

    /// Starts a run of the definition in a file.
    pub fn start(&self, file: impl AsRef<Path>, params: Json) -> Result<Run<'_>, Error> {
        let plan = Definition::open(&file.as_ref().to_string_lossy()).into_plan()?;
        self.start_plan(&Arc::new(plan), None, params)
    }

    /// Starts a run with a key of the caller: a second start with the same key, also after
    /// a crash, gets the same run.
    pub fn start_once(
        &self,
        key: &str,
        file: impl AsRef<Path>,
        params: Json,
    ) -> Result<Run<'_>, Error> {
        let plan = Definition::open(&file.as_ref().to_string_lossy()).into_plan()?;
        self.start_plan(&Arc::new(plan), Some(key), params)
    }

    /// Starts a run of a plan.
    pub fn start_plan(
        &self,
        plan: &Arc<Plan>,
        key: Option<&str>,
        params: Json,
    ) -> Result<Run<'_>, Error> {
        let fresh = || format!("run_{}", uuid::Uuid::now_v7());
        let request = StartRequest {
            run_id: key.map_or_else(fresh, run_id_for),
            request_id: key.map(str::to_owned),
            params,
            context: RunContext {
                tenant_id: "local".into(),
                project_id: "local".into(),
                environment_id: "local".into(),
                ..RunContext::default()
            },
            ..StartRequest::default()
        };
        let id = self.handle.start(plan, request)?;
        Ok(Run { id, stepwell: self })
    }

    /// A run that was started before.
    #[must_use]
    pub fn run(&self, id: &str) -> Run<'_> {
        Run {
            id: id.to_owned(),
            stepwell: self,
        }
    }

    /// Sends an event to a run: a step that waits for its type goes on. Sent twice, it counts once.
    pub fn deliver(
        &self,
        run_id: &str,
        event_id: &str,
        event_type: &str,
        payload: Json,
    ) -> Result<(), Error> {
        let event = Command::DeliverEvent {
            event_id: event_id.to_owned(),
            event_type: event_type.to_owned(),
            payload,
        };
        self.handle.submit(run_id, event)?;
        Ok(())
    }

    /// The engine itself, for everything else.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops: work in flight may end, what is left is told to stop, then everything is given back.
    pub fn stop(self) -> Result<(), Error> {
        Ok(self.service.stop(self.patience)?)
    }
}

/// A run of this engine.
#[derive(Debug)]
pub struct Run<'a> {
    id: String,
    stepwell: &'a Stepwell,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// How.
    pub outcome: RunOutcome,
    /// With what: the output of the last step to succeed with one.
    pub output: Json,
    /// Why it failed.
    pub error: Option<StepError>,
}

impl Run<'_> {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Waits until it has ended, however long that takes.
    pub fn wait(&self) -> Result<Ended, Error> {
        loop {
            if let Some(ended) = self.wait_for(Duration::from_secs(3600))? {
                return Ok(ended);
            }
        }
    }

    /// Waits until it has ended, or so long.
    pub fn wait_for(&self, patience: Duration) -> Result<Option<Ended>, Error> {
        let until = Instant::now() + patience;
        loop {
            // Asked before the store is: an end in between is not missed.
            let seen = self.stepwell.ended.count();
            if let Some(ended) = self.ended()? {
                return Ok(Some(ended));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stepwell.ended.wait(seen, left.min(LOOK));
        }
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Result<Option<Ended>, Error> {
        let store = &*self.stepwell.store;
        let mut run = LoggedRun::open(store, &self.id)?;
        if run.head.ended_at.is_none() {
            return Ok(None);
        }
        run.catch_up(store)?;
        let (plan, state) = (&run.plan, &run.state);
        let Phase::Ended(outcome) = state.phase() else {
            return Ok(None);
        };
        let output = run_output(plan, state, None);
        // A large output is kept elsewhere; who asks for it gets it whole.
        let output = match refers(&output) {
            true => whole(&self.stepwell.artifacts, &output)?,
            false => output,
        };
        Ok(Some(Ended {
            outcome,
            output,
            error: state.error().cloned(),
        }))
    }
}

/// A value with its artifacts in their places. On a thread of its own: the caller's may belong to a
/// runtime, which must not be blocked with another.
fn whole(artifacts: &Artifacts, value: &Json) -> Result<Json, Error> {
    let fetch = || -> Result<Json, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(runtime.block_on(artifacts.expand(value))?)
    };
    std::thread::scope(|scope| {
        let fetching = std::thread::Builder::new().spawn_scoped(scope, fetch)?;
        let panicked = |_| std::io::Error::other("the artifacts could not be read: a bug");
        fetching.join().map_err(panicked)?
    })
}

/// Counts runs that have ended, so that those who wait need not ask the store all the time.
#[derive(Debug, Default)]
struct EndedRuns {
    count: Mutex<u64>,
    more: Condvar,
}

impl EndedRuns {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> u64 {
        *self.lock()
    }

    fn add(&self) {
        *self.lock() += 1;
        self.more.notify_all();
    }

    /// Waits until more runs have ended than `seen`, or so long.
    fn wait(&self, seen: u64, patience: Duration) {
        let unchanged = |count: &mut u64| *count == seen;
        let _ = self
            .more
            .wait_timeout_while(self.lock(), patience, unchanged);
    }
}

struct CountEnded(Arc<EndedRuns>);

impl Observer for CountEnded {
    fn notice(&mut self, notice: &Notice) {
        if let Notice::Ended(..) = notice {
            self.0.add();
        }
    }
}
