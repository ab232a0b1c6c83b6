//! The engine for programs: open a store, register handlers, start runs, wait for them.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use stepwell_engine::coordinator::{Config, Notice};
use stepwell_engine::read::LoggedRun;
use stepwell_engine::service::{Handle, Observer, Service, Setup};
use stepwell_engine::store::{LogWaits, Patience, PatientStore, Store, StoreError, StoreErrorKind};
use stepwell_engine::{
    AskedDefinition, Error as EngineError, Limits, Scrub, ScrubOptions, Shard, StartRequest,
    check_repeated, run_id_for,
};
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{RunContext, StepError};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::run_output;
use stepwell_kernel::state::Phase;
use stepwell_stores::{Address, OpenMode};
use stepwell_worker::artifacts::{ArtifactError, Artifacts, refers};
use stepwell_worker::handler::IntoReply;
use stepwell_worker::secrets::{SecretError, Secrets};
use stepwell_worker::{Crew, Handlers, Job, WorkerResources, large_params};

use crate::data::Data;
use crate::files::{Definition, DefinitionError, FetchedDefinition, Files, PlanRef};
use crate::settings::{Settings, SettingsError};

/// How long work in flight may take to end when the engine stops.
const GRACE: Duration = Duration::from_secs(10);
/// How long calls wait for a store that does not answer, if nobody says.
const STORE_PATIENCE: Duration = Duration::from_secs(60);
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
    /// The configuration file cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Secrets cannot be had.
    #[error(transparent)]
    Secrets(#[from] SecretError),
    /// Artifacts cannot be kept.
    #[error(transparent)]
    Artifacts(#[from] ArtifactError),
    /// A thread or a file could not be created.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// The run that was waited for failed or was cancelled.
    #[error(transparent)]
    Run(#[from] RunFailure),
}

/// A run that failed or was cancelled, and why.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("run {run_id} {}", self.how())]
pub struct RunFailure {
    pub run_id: String,
    /// How the run ended, with the error that made it fail.
    pub ended: Box<Ended>,
}

impl RunFailure {
    fn how(&self) -> String {
        let what = match self.ended.outcome {
            RunOutcome::Cancelled(_) => "was cancelled",
            RunOutcome::Failed(_) | RunOutcome::Partial | RunOutcome::Succeeded => "failed",
        };
        match &self.ended.error {
            Some(why) => format!(
                "{what}: {} ({}): {}",
                why.code,
                why.class.name(),
                why.message
            ),
            None => what.to_owned(),
        }
    }
}

/// How an engine is opened.
#[derive(Debug)]
pub struct Builder {
    store: String,
    app: Option<String>,
    artifacts: Option<String>,
    config: Option<PathBuf>,
    actor: Option<String>,
    tenant: Option<String>,
    handlers: Handlers,
    at_a_time: usize,
    shards: usize,
    patience: Duration,
    store_patience: Option<Duration>,
    scrub: ScrubOptions,
    limits: Option<Limits>,
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

    /// How many threads decide, each for its own runs, at most 16. If nobody says, one on machines with one or two
    /// cores, else half as many as cores.
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Builder {
        self.shards = shards;
        self
    }

    /// Where large results and logs are kept: a directory, `s3://`, `gs://` or `az://`. If nobody says,
    /// where the variable `STEPWELL_ARTIFACTS` says, else beside the store.
    #[must_use]
    pub fn artifacts(mut self, url: &str) -> Builder {
        self.artifacts = Some(url.to_owned());
        self
    }

    /// The configuration file. If nobody says, the file that the variable `STEPWELL_CONFIG` names, else
    /// `stepwell.toml` in the current directory if it exists.
    #[must_use]
    pub fn config(mut self, file: impl Into<PathBuf>) -> Builder {
        self.config = Some(file.into());
        self
    }

    /// The name of this program, for people who look at the store: the worker of a step is `app:host:pid:8hex`. If nobody
    /// says, the name of its file.
    #[must_use]
    pub fn app(mut self, name: &str) -> Builder {
        self.app = Some(name.to_owned());
        self
    }

    /// Who starts the runs of this program: their maker, whom `MakerChecker` refuses as a checker. If nobody says,
    /// `[actor] name` of the configuration file, else no one.
    #[must_use]
    pub fn actor(mut self, name: &str) -> Builder {
        self.actor = Some(name.to_owned());
        self
    }

    /// The tenant that the runs of this program belong to. If nobody says, `[actor] tenant` of the configuration
    /// file, else `local`.
    #[must_use]
    pub fn tenant(mut self, tenant: &str) -> Builder {
        self.tenant = Some(tenant.to_owned());
        self
    }

    /// How long work in flight may take to end when the engine stops.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Builder {
        self.patience = patience;
        self
    }

    /// How long to wait for a store that does not answer, or that another process owns: when the engine is opened,
    /// and in each call that starts, asks or reads; `None` is no limit. A minute if nobody says. The engine itself
    /// never gives up: work in flight goes on, and its results are written when the store is back.
    #[must_use]
    pub fn store_patience(mut self, patience: Option<Duration>) -> Builder {
        self.store_patience = patience;
        self
    }

    /// How fast the scrub reads the logs again to find damage, and how long it rests between two rounds. A
    /// damaged run is put into quarantine, with an alert. If nobody says, 256 KiB in a second; zero bytes turn
    /// the scrub off.
    #[must_use]
    pub fn scrub(mut self, options: ScrubOptions) -> Builder {
        self.scrub = options;
        self
    }

    /// How many runs may run at a time, and what happens to a run above the limit. If nobody says, `[limits]` of the
    /// configuration file counts, else there is no limit. All programs of a store should have the same.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = Some(limits);
        self
    }

    /// Opens the store and begins to work: also on what an earlier process has left there.
    pub fn open(self) -> Result<Stepwell, Error> {
        let address = Address::parse(&self.store)?;
        let store_patience = Arc::new(Patience::new(self.store_patience, LogWaits));
        // A file that may not be written stays so; a server may be read-only until a failover is over.
        let is_server = matches!(address, Address::Postgres { .. });
        let passes = |kind: StoreErrorKind| {
            let stays = kind == StoreErrorKind::ReadOnly && !is_server;
            !stays && (kind == StoreErrorKind::Held || kind.may_pass())
        };
        let store = store_patience.keep_store(passes, || address.open(OpenMode::Own))?;
        let Data { artifacts, logs } = Data::open(&address, self.artifacts.as_deref())?;
        let settings = Settings::open(self.config.as_deref())?;
        let triggered_by = self.actor.or(settings.actor.name.clone());
        let tenant = self.tenant.or(settings.actor.tenant.clone());
        let resources = WorkerResources::new(Secrets::from_env()?, artifacts.clone(), logs)
            .with_security(settings.security.clone())
            .with_all_tools();
        let crew = Crew::new(resources, self.handlers)?;
        let config = Config {
            name: Config::process_name(&self.app.unwrap_or_else(program)),
            serves: crew.serves(),
            capacity: self.at_a_time,
            queues: crew.limits(),
            limits: self.limits.unwrap_or(settings.limits.0.clone()),
            // The engine waits for its store: a result is not given up meanwhile.
            write_budget_ms: u64::MAX / 4,
            ..Config::default()
        };
        let first = PatientStore::new(Arc::clone(&store), Arc::clone(&store_patience));
        let first = Arc::new(first);
        let ended = Arc::new(EndedRuns::default());
        let service = Service::start(Setup {
            catalog: Box::new(Files::default()),
            config,
            observer: Box::new(CountEnded(Arc::clone(&ended))),
            shards: self.shards,
            ..Setup::new(Arc::clone(&first) as Arc<dyn Store>, crew)
        })?;
        // The engine tries again by itself from now on.
        first.only_notes();
        let scrub = match store.capabilities().durable && self.scrub.bytes_per_second > 0 {
            true => Some(Scrub::start(Arc::clone(&store), self.scrub)?),
            false => None,
        };
        Ok(Stepwell {
            scrub,
            handle: service.handle(),
            service,
            store: Arc::new(PatientStore::new(store, Arc::clone(&store_patience))),
            artifacts,
            ended,
            patience: self.patience,
            store_patience,
            context: RunContext {
                tenant_id: tenant.unwrap_or_else(|| "local".into()),
                project_id: "local".into(),
                environment_id: "local".into(),
                triggered_by,
                ..RunContext::default()
            },
            settings,
        })
    }
}

/// How a run is started.
#[derive(Clone, Debug, Default)]
pub struct StartOptions {
    /// A key of the caller: a second start of the same workflow with the same key gets the same run.
    pub key: Option<String>,
    /// The run does not start before this time has passed.
    pub start_in: Option<Duration>,
    /// Of the runs that wait for a slot ([`Builder::limits`]), the one with the greatest number starts first.
    pub priority: i32,
    /// What lists of runs are searched by: at most 32, with names and values of at most 200 characters.
    pub labels: BTreeMap<String, String>,
}

/// An engine that runs in this process. Dropped without `stop`, it stops without patience: work in
/// flight is told to stop and given back.
pub struct Stepwell {
    /// Before the service: it uses the same store.
    scrub: Option<Scrub>,
    service: Service,
    handle: Handle,
    store: Arc<dyn Store>,
    artifacts: Artifacts,
    ended: Arc<EndedRuns>,
    patience: Duration,
    store_patience: Arc<Patience>,
    /// Of the runs that this program starts.
    context: RunContext,
    /// For definitions by reference.
    settings: Settings,
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
            app: None,
            artifacts: None,
            config: None,
            actor: None,
            tenant: None,
            handlers: Handlers::new(),
            at_a_time: 256,
            shards: Shard::suited(),
            patience: GRACE,
            store_patience: Some(STORE_PATIENCE),
            scrub: ScrubOptions::default(),
            limits: None,
        }
    }

    /// Starts a run of the definition in a file.
    pub fn start(&self, file: impl AsRef<Path>, params: Json) -> Result<Run<'_>, Error> {
        let plan = Definition::open(&file.as_ref().to_string_lossy()).into_plan()?;
        self.start_plan(&Arc::new(plan), None, params)
    }

    /// Starts a run with a key of the caller: a second start of the same workflow with the same key, also after
    /// a crash, gets the same run, whether it has ended or not.
    pub fn start_once(
        &self,
        key: &str,
        file: impl AsRef<Path>,
        params: Json,
    ) -> Result<Run<'_>, Error> {
        let plan = Definition::open(&file.as_ref().to_string_lossy()).into_plan()?;
        self.start_plan(&Arc::new(plan), Some(key), params)
    }

    /// Starts a run of a definition by reference. The reference must be allowed by `[plans]` of the configuration file. If
    /// something else is at its address than the reference says, the run fails with `PLAN_INTEGRITY_VALIDATION_FAILED`
    /// before any step starts.
    pub fn start_by_reference(
        &self,
        reference: &PlanRef,
        options: &StartOptions,
        params: Json,
    ) -> Result<Run<'_>, Error> {
        let fetched = FetchedDefinition::fetch(reference, &self.settings);
        let plan = Arc::new(fetched.definition.into_plan()?);
        self.start_fetched(&plan, fetched.changed, options, params)
    }

    /// Starts a run of a plan.
    pub fn start_plan(
        &self,
        plan: &Arc<Plan>,
        key: Option<&str>,
        params: Json,
    ) -> Result<Run<'_>, Error> {
        let options = StartOptions {
            key: key.map(str::to_owned),
            ..StartOptions::default()
        };
        self.start_with(plan, &options, params)
    }

    /// Starts a run of a plan at some time, with a priority.
    pub fn start_with(
        &self,
        plan: &Arc<Plan>,
        options: &StartOptions,
        params: Json,
    ) -> Result<Run<'_>, Error> {
        self.start_fetched(plan, None, options, params)
    }

    fn start_fetched(
        &self,
        plan: &Arc<Plan>,
        changed: Option<String>,
        options: &StartOptions,
        params: Json,
    ) -> Result<Run<'_>, Error> {
        DefinitionError::check_engine(plan, "native")?;
        let key = options.key.as_deref();
        let later = options.start_in.map(|wait| {
            let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            self.service.clock().now().plus(millis)
        });
        let run_id = match key {
            None => format!("run_{}", uuid::Uuid::now_v7()),
            // Two workflows, or two tenants, may use the same key.
            Some(key) => {
                let (tenant, plan_id) = (&self.context.tenant_id, &plan.net().plan_id);
                run_id_for(&serde_json::json!([tenant, plan_id, key]).to_string())
            }
        };
        let mut request = StartRequest {
            run_id,
            request_id: key.map(str::to_owned),
            params,
            context: RunContext {
                priority: options.priority,
                labels: options.labels.clone(),
                ..self.context.clone()
            },
            // A run that fails before it starts does so now.
            start_after: later.filter(|_| changed.is_none()),
            fetched_sha256: changed,
            ..StartRequest::default()
        };
        // A known key finds its run also where a new run would be refused.
        if key.is_some() && self.store.find(&request.run_id)?.is_some() {
            self.must_be_same(plan, &request.run_id, &request)?;
            return Ok(self.run(&request.run_id));
        }
        if large_params::may_be_large(plan, &request.params) {
            let params = std::mem::take(&mut request.params);
            let small = large_params::shrink(&self.artifacts, &request.run_id, plan, params);
            request.params = with_artifacts(small)?;
        }
        let (mut asked, mut existed) = (0, false);
        let id = self.store_patience.keep_engine(|| {
            asked += 1;
            match self.handle.start(plan, request.clone()) {
                // The id follows from the key: it is the run that was asked for before. Without a key nobody else knows
                // the id: the store took the first request and its answer was lost.
                Err(EngineError::Rejected(why))
                    if why.code == Code::RunExists && (key.is_some() || asked > 1) =>
                {
                    existed = true;
                    Ok(request.run_id.clone())
                }
                answer => answer,
            }
        })?;
        if key.is_some() && (existed || id != request.run_id) {
            self.must_be_same(plan, &id, &request)?;
        }
        Ok(Run { id, stepwell: self })
    }

    /// Refuses a start whose key was used for another run. A program that was changed since finds the runs of its earlier
    /// versions.
    fn must_be_same(&self, plan: &Plan, run: &str, request: &StartRequest) -> Result<(), Error> {
        let first = LoggedRun::open(&*self.store, run)?;
        let version = |plan: &Plan| plan.net().plan_version.clone();
        let definition = match version(&first.plan) == version(plan) {
            true => AskedDefinition::Fixed,
            false => AskedDefinition::Current,
        };
        check_repeated(&*self.store, run, plan, definition, request)?;
        Ok(())
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
        self.store_patience
            .keep_engine(|| self.handle.submit(run_id, event.clone()))?;
        Ok(())
    }

    /// The engine itself, for everything else.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops: work in flight may end, what is left is told to stop, then everything is given back.
    pub fn stop(self) -> Result<(), Error> {
        if let Some(scrub) = self.scrub {
            scrub.stop();
        }
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
    /// Completed, failed or cancelled.
    pub outcome: RunOutcome,
    /// The output of the last step that succeeded with an output.
    pub output: Json,
    /// The error that made the run fail; absent if there is none.
    pub error: Option<StepError>,
}

impl Run<'_> {
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Waits until the run has ended, without a limit. A run that failed or was cancelled is an error with its cause
    /// ([`Error::Run`]); [`Run::ended`] only looks.
    pub fn wait(&self) -> Result<Ended, Error> {
        loop {
            if let Some(ended) = self.wait_for(Duration::from_secs(3600))? {
                return Ok(ended);
            }
        }
    }

    /// Waits until the run has ended, at most for `patience`. None if the run has not ended in this time. A run that
    /// failed or was cancelled is an error with its cause, as for [`Run::wait`].
    pub fn wait_for(&self, patience: Duration) -> Result<Option<Ended>, Error> {
        let until = Instant::now() + patience;
        loop {
            // Asked before the store is: an end in between is not missed.
            let seen = self.stepwell.ended.count();
            if let Some(ended) = self.ended()? {
                return Ok(Some(self.succeeded(ended)?));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stepwell.ended.wait(seen, left.min(LOOK));
        }
    }

    fn succeeded(&self, ended: Ended) -> Result<Ended, RunFailure> {
        match ended.outcome {
            RunOutcome::Succeeded | RunOutcome::Partial => Ok(ended),
            RunOutcome::Failed(_) | RunOutcome::Cancelled(_) => Err(RunFailure {
                run_id: self.id.clone(),
                ended: Box::new(ended),
            }),
        }
    }

    /// How the run ended, whether well or not; none if it has not ended.
    pub fn ended(&self) -> Result<Option<Ended>, Error> {
        let store = &*self.stepwell.store;
        let mut run = LoggedRun::open(store, &self.id)?;
        if run.head.ended_at.is_none() {
            return Ok(None);
        }
        run.catch_up(store)?;
        // A result that nobody finds again is no result.
        store.still_there()?;
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

/// The name of the file of this program.
fn program() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(Path::file_stem);
    name.map_or_else(|| "stepwell".into(), |it| it.to_string_lossy().into_owned())
}

/// A value with its artifacts in their places. On a thread of its own: the caller's may belong to a
/// runtime, which must not be blocked with another.
fn whole(artifacts: &Artifacts, value: &Json) -> Result<Json, Error> {
    with_artifacts(artifacts.expand(value))
}

fn with_artifacts(
    work: impl Future<Output = Result<Json, ArtifactError>> + Send,
) -> Result<Json, Error> {
    let fetch = || -> Result<Json, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(runtime.block_on(work)?)
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
        if let Notice::Ended { .. } = notice {
            self.0.add();
        }
    }
}
