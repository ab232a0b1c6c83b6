//! What every endpoint works with: the store, the engine, artifacts and logs, and how they are asked without blocking.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use stepwell_bus::Surroundings;
use stepwell_engine::port::Clock;
use stepwell_engine::projector;
use stepwell_engine::service::Handle;
use stepwell_engine::store::{AlertRow, NewAlert, RunNo, RunSummary, Store};
use stepwell_engine::{Error, Limits, StartRequest};
use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::effect::Priority;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;
use stepwell_views::RunView;
use stepwell_worker::artifacts::Artifacts;
use stepwell_worker::logs::Logs;
use stepwell_worker::secrets::Secrets;
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use crate::access::{Caller, Gate};
use crate::api::{HeldSteps, PersonTasks};
use crate::changes::Changes;
use crate::definitions::PlanCache;
use crate::deliveries::SinkFaults;
use crate::engines::{ServedEngines, UnservedRuns};
use crate::feed::Feed;
use crate::folder::Folder;
use crate::metrics::Metrics;
use crate::problem::{ApiProblem, unanswered};
use crate::schedules::Waker;
use crate::server::FetchPlan;
use crate::settings::ServerSettings;
use crate::sources::SourceStates;
use crate::telemetry::Telemetry;
use crate::watermark::Watermarks;
use crate::workers::Workers;

/// How many of the newest alerts are looked at before one is raised again.
const LATELY: usize = 200;

/// How many calls of a store on another machine there may be at a time.
const READERS: usize = 32;
/// How long a command may take to be decided and committed.
pub(crate) const ANSWER: Duration = Duration::from_secs(30);

/// The page of an error code, if there is one.
pub(crate) type ErrorPage = fn(&str) -> Option<&'static str>;

/// What every endpoint works with: the parts that the server gives, and what belongs to requests alone.
pub(crate) struct App {
    parts: AppParts,
    /// The changes of all runs.
    pub(crate) feed: Feed,
    /// The failed steps that wait for an operator, as far as they were asked for.
    pub(crate) held_steps: HeldSteps,
    /// Why this server delivers nothing to a sink.
    pub(crate) sink_faults: SinkFaults,
    /// The numbers of tasks that wait for people, as far as they were asked for.
    pub(crate) person_tasks: PersonTasks,
    /// The files that `stepwell dev` loads.
    pub(crate) folder: Folder,
    /// Cancelled when the server begins to stop: streams and long polls end.
    pub(crate) stopping: CancellationToken,
    /// The server serves on and is about to stop.
    pub(crate) will_stop: AtomicBool,
    readers: Arc<Semaphore>,
}

impl Deref for App {
    type Target = AppParts;

    fn deref(&self) -> &AppParts {
        &self.parts
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

/// The parts that only the server can give.
pub(crate) struct AppParts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: Handle,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) artifacts: Artifacts,
    pub(crate) logs: Logs,
    pub(crate) changes: Changes,
    /// Watermarks of the list of runs.
    pub(crate) watermarks: Watermarks,
    pub(crate) projector: projector::Handle,
    pub(crate) settings: ServerSettings,
    pub(crate) fetch: Arc<dyn FetchPlan>,
    /// Compiled revisions of registered definitions.
    pub(crate) plans: PlanCache,
    /// Resolves the secrets of webhooks.
    pub(crate) secrets: Secrets,
    /// What sinks and sources need from this process.
    pub(crate) around: Surroundings,
    /// What this server knows of its sources.
    pub(crate) sources: SourceStates,
    /// Wakes who acts on due times and triggers.
    pub(crate) due: Waker,
    pub(crate) error_page: ErrorPage,
    pub(crate) limits: Limits,
    pub(crate) metrics: Arc<Metrics>,
    /// Traces of requests and runs.
    pub(crate) telemetry: Telemetry,
    /// Finds out who calls.
    pub(crate) gate: Gate,
    pub(crate) workers: Workers,
    /// Engines outside that move runs; none if there are none.
    pub(crate) engines: Option<Arc<dyn ServedEngines>>,
    pub(crate) unserved: Arc<UnservedRuns>,
}

/// How many calls of the store there may be at a time. In this process more than the cores can do only wait for each
/// other, and each of them has a thread and a connection with its memory.
fn readers(store: &dyn Store) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match store.is_shared() {
        true => READERS,
        false => (3 * cores).clamp(4, READERS),
    }
}

impl App {
    pub(crate) fn new(parts: AppParts) -> App {
        let readers = readers(&*parts.store);
        App {
            parts,
            feed: Feed::new(),
            held_steps: HeldSteps::default(),
            sink_faults: SinkFaults::default(),
            person_tasks: PersonTasks::default(),
            folder: Folder::default(),
            stopping: CancellationToken::new(),
            will_stop: AtomicBool::new(false),
            readers: Arc::new(Semaphore::new(readers)),
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Asks the store on a thread that may block.
    pub(crate) async fn ask<T, E>(
        &self,
        question: impl FnOnce(&dyn Store) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiProblem>
    where
        T: Send + 'static,
        E: Into<ApiProblem> + Send + 'static,
    {
        let store = Arc::clone(&self.store);
        self.block(move || question(&*store)).await
    }

    /// Does something that blocks on a thread of its own.
    pub(crate) async fn block<T, E>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiProblem>
    where
        T: Send + 'static,
        E: Into<ApiProblem> + Send + 'static,
    {
        // Closed never: the semaphore lives as long as the server.
        let permit = Arc::clone(&self.readers).acquire_owned().await;
        let span = tracing::Span::current();
        let answered = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            span.in_scope(work)
        });
        match answered.await {
            Ok(answer) => answer.map_err(Into::into),
            Err(panic) => Err(ApiProblem::internal(&panic)),
        }
    }

    /// Reads a run for a caller. A run of another tenant is not there for this caller.
    pub(crate) async fn run_view(&self, caller: &Caller, run: &str) -> Result<RunView, ApiProblem> {
        let (caller, run) = (caller.clone(), run.to_owned());
        self.ask(move |store| caller.view(store, &run)).await
    }

    /// A run that the caller may see, as a list shows it. Its log is not read.
    pub(crate) async fn row(&self, caller: &Caller, run: &str) -> Result<RunSummary, ApiProblem> {
        let (caller, run) = (caller.clone(), run.to_owned());
        self.ask(move |store| caller.row(store, &run)).await
    }

    /// The number of a run that the caller may see. Its log is not read.
    pub(crate) async fn find(&self, caller: &Caller, run: &str) -> Result<RunNo, ApiProblem> {
        let (caller, run) = (caller.clone(), run.to_owned());
        self.ask(move |store| caller.find(store, &run)).await
    }

    /// Whether the engine outside that moves a run is known not to: it does not answer, or nobody serves it.
    pub(crate) fn lacks_engine(&self, view: &RunView) -> bool {
        let Some(engine) = view.state.engine() else {
            return false;
        };
        let standings = self.engines.iter().flat_map(|it| it.standings());
        let mut own = standings.filter(|it| it.engine == engine);
        own.any(|it| !it.ready) || self.unserved.has(view.state.run_id())
    }

    /// Raises an alert that is about no run, unless it was raised lately: every server finds the same, also after a restart.
    /// May block.
    pub(crate) fn alert(&self, code: &str, message: String) {
        self.alert_of(None, code, message);
    }

    /// The same, of one run.
    pub(crate) fn alert_of(&self, run: Option<RunNo>, code: &str, message: String) {
        tracing::warn!(code, "{message}");
        let is_known = |it: &AlertRow| it.code == code && it.message == message;
        let raised = self.store.alerts(LATELY).and_then(|lately| {
            if lately.iter().any(is_known) {
                return Ok(());
            }
            let alert = NewAlert {
                code: code.to_owned(),
                priority: Priority::P2,
                message: message.clone(),
            };
            self.store.alert(run, &alert, self.now())
        });
        if let Err(error) = raised {
            tracing::warn!(%error, code, "an alert could not be raised");
        }
    }

    /// Sends a command to a run and waits for the answer, which comes after the commit.
    pub(crate) async fn submit(&self, run: &str, command: Command) -> Result<Reply, ApiProblem> {
        let (answer, answered) = oneshot::channel();
        self.engine.submit_with(run, command, move |reply| {
            // The caller may be gone.
            let _ = answer.send(reply);
        })?;
        self.answer(run, answered).await
    }

    /// Creates a run and waits until that is committed.
    pub(crate) async fn start(
        &self,
        plan: &Arc<Plan>,
        request: StartRequest,
    ) -> Result<String, ApiProblem> {
        let run = request.run_id.clone();
        let answered = self.engine.start_later(plan, request)?;
        match tokio::time::timeout(ANSWER, answered).await {
            Ok(Ok(started)) => Ok(started?),
            Ok(Err(_)) => Err(Error::Stopping.into()),
            Err(_) => Err(unanswered(&run)),
        }
    }

    /// Waits for the answer to a command.
    pub(crate) async fn answer(
        &self,
        run: &str,
        answered: oneshot::Receiver<Result<Reply, Error>>,
    ) -> Result<Reply, ApiProblem> {
        match tokio::time::timeout(ANSWER, answered).await {
            Ok(Ok(reply)) => replied(reply),
            Ok(Err(_)) => Err(Error::Stopping.into()),
            Err(_) => Err(unanswered(run)),
        }
    }
}

/// What an answer of the engine says.
pub(crate) fn replied(reply: Result<Reply, Error>) -> Result<Reply, ApiProblem> {
    match reply? {
        Reply::Refused(rejection) => Err(rejection.into()),
        reply @ (Reply::Done
        | Reply::Created { .. }
        | Reply::Claimed(_)
        | Reply::Duplicate(_)
        | Reply::RetryRun { .. }) => Ok(reply),
    }
}
