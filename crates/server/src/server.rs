//! The server: the engine with its worker, the projector, the publishers of sinks, and the HTTP listener around them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use stepwell_bus::Surroundings;
use stepwell_dialects::plan::reference::PlanRef;
use stepwell_dialects::{Problem, Source};
use stepwell_engine::coordinator::{Config, Serves};
use stepwell_engine::port::Catalog;
use stepwell_engine::projector;
use stepwell_engine::service::{NoWorker, Service, Setup, Worker};
use stepwell_engine::store::{PatientStore, Store, StoreError};
use stepwell_engine::{Limits, Scrub, ScrubOptions, Shard};
use stepwell_kernel::plan::Plan;
use stepwell_worker::Crew;
use stepwell_worker::artifacts::Artifacts;
use stepwell_worker::logs::Logs;
use stepwell_worker::secrets::Secrets;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::access::{Gate, LOCAL, TrailWriter};
use crate::app::{App, AppParts, ErrorPage};
use crate::changes::{Changes, TellChanges};
use crate::codes;
use crate::definitions::{
    FoundProblem, NewDefinition, PlanCache, Registry, RegistryCatalog, finding,
};
use crate::deliveries::{Bell, Deliveries, TIMEOUT};
use crate::engines::{EngineNeeds, ServedEngines, UnservedRuns};
use crate::metrics::{Counted, Metrics};
use crate::problem::ApiProblem;
use crate::retention::{Deleter, Deletion};
use crate::schedules::{Runner, Waker};
use crate::settings::ServerSettings;
use crate::sink_secrets::SinkSecrets;
use crate::telemetry::{Sending, Telemetry};
use crate::tls::Tls;
use crate::watermark::Watermarks;
use crate::workers::Workers;
use crate::{api, engines, feed, listener, sources, workers};

/// How long a server may not renew its session before others take over its runs.
const SESSION_MS: u64 = 5_000;

/// A definition that was fetched by its reference.
#[derive(Debug)]
pub struct FetchedPlan {
    pub plan: Plan,
    /// The hash of what was fetched, if the reference has another one: the run fails before it starts.
    pub changed: Option<String>,
}

/// Fetches definitions by reference, as the configuration allows it. May block.
pub trait FetchPlan: Send + Sync + fmt::Debug {
    /// The definition, or what is wrong with the reference or with the definition.
    fn fetch(&self, reference: &PlanRef) -> Result<FetchedPlan, Vec<Problem>>;
}

/// What a server is made of.
pub struct ServerParts {
    /// Where the runs are kept. Opened by the caller, as its owner.
    pub store: Arc<PatientStore>,
    /// The same store, for those who audit it slowly.
    pub scrubbed: Option<Arc<dyn Store>>,
    pub artifacts: Artifacts,
    pub logs: Logs,
    /// The tools of this process; none: all work is left to workers elsewhere.
    pub crew: Option<Crew>,
    /// How much work of this process at a time.
    pub parallel: usize,
    pub limits: Limits,
    /// Finds the definitions of child runs.
    pub catalog: Box<dyn Catalog + Send>,
    pub fetch: Arc<dyn FetchPlan>,
    /// Engines outside that move the runs that `settings.engines` names.
    pub engines: Option<Arc<dyn ServedEngines>>,
    /// The page of an error code.
    pub error_page: ErrorPage,
    pub settings: ServerSettings,
}

impl fmt::Debug for ServerParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerParts")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A server that runs by itself.
pub struct Server {
    app: Arc<App>,
    service: Service,
    projector: projector::Running,
    scrub: Option<Scrub>,
    deliveries: Deliveries,
    deleter: Deleter,
    address: SocketAddr,
    /// Ends when the listener has ended.
    listening: JoinHandle<()>,
    /// Ends when no due time and no trigger is acted on any more.
    acting: JoinHandle<()>,
    grace: Duration,
    /// Writes the audit log.
    trail: TrailWriter,
    /// Makes and sends spans.
    sending: Sending,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// A file whose definition is known by its name now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredFile {
    pub name: String,
    pub revision: u32,
    /// Whether the content is new.
    pub created: bool,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(
        "{}: the server cannot listen on {address}: {source}",
        codes::LISTEN_FAILED
    )]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("{0} can be reached by others, and the server has no access control")]
    Exposed(SocketAddr),
    #[error("the certificate of the server cannot be used: {0}")]
    Tls(io::Error),
    #[error("the OIDC issuer cannot be asked: {0}")]
    Issuer(#[from] reqwest::Error),
}

impl Server {
    /// Binds the address, opens a session in the store and begins to serve.
    pub fn start(parts: ServerParts) -> Result<Server, ServerError> {
        let runtime = Builder::new_multi_thread()
            .thread_name("stepwell-http")
            .enable_all()
            .build()?;
        let secrets = match parts.settings.confined {
            // Who may register a webhook must not find out what other variables are.
            true => Secrets::confined_from_env(),
            false => Secrets::from_env(),
        };
        let secrets = secrets.map_err(io::Error::other)?;
        let address = parts.settings.listen;
        if parts.settings.is_exposed() {
            return Err(ServerError::Exposed(address));
        }
        let tls = parts.settings.tls.clone().map(Tls::open);
        let tls = tls.transpose().map_err(ServerError::Tls)?;
        // First: a port that is taken is found before any work begins.
        let bound = runtime.block_on(TcpListener::bind(address));
        let bound = bound.map_err(|source| ServerError::Listen { address, source })?;
        let address = bound.local_addr()?;
        let store: Arc<dyn Store> = parts.store.clone();
        let secret = store.secret()?;
        let projector = projector::spawn(store.clone(), projects())?;
        let watermarks = Watermarks::new(&secret).map_err(io::Error::other)?;
        let changes = Changes::new();
        let bell = Bell::default();
        let metrics = Arc::new(Metrics::new(parts.settings.metric_plans));
        let (telemetry, sending) =
            Telemetry::start(parts.settings.telemetry.clone(), store.clone())?;
        let unserved = Arc::new(UnservedRuns::default());
        let observer = TellChanges {
            changes: changes.clone(),
            projector: projector.handle(),
            bell: bell.clone(),
            metrics: metrics.clone(),
            telemetry: telemetry.clone(),
            engines: parts.engines.clone(),
            unserved: unserved.clone(),
        };
        let serves = parts.crew.as_ref().map_or(Serves::Nothing, Crew::serves);
        let config = Config {
            name: Config::process_name("stepwell"),
            serves: serves.clone(),
            capacity: parts.parallel,
            limits: parts.limits.clone(),
            session_ms: SESSION_MS,
            // The engine waits for its store: a result is not given up meanwhile.
            write_budget_ms: u64::MAX / 4,
            routes: parts
                .engines
                .is_some()
                .then(|| Arc::clone(&parts.settings.engines)),
            ..Config::default()
        };
        let process = config.name.clone();
        let worker: Box<dyn Worker> = match parts.crew {
            Some(crew) => Box::new(crew),
            None => Box::new(NoWorker),
        };
        let plans = PlanCache::default();
        let catalog = RegistryCatalog {
            store: store.clone(),
            plans: plans.clone(),
            files: parts.catalog,
        };
        let service = Service::start(Setup {
            catalog: Box::new(catalog),
            config,
            observer: Box::new(observer),
            shards: Shard::suited(),
            ..Setup::new(store.clone(), worker)
        })?;
        let source_states = sources::SourceStates::default();
        metrics.watch(Counted {
            sources: source_states.clone(),
            stats: service.stats().clone(),
            projector: projector.handle(),
            telemetry: telemetry.clone(),
        });
        // The engine tries again by itself from now on, and requests do not wait long for a store that is away.
        parts.store.only_notes();
        let scrub = parts.scrubbed.clone();
        let scrub = scrub.map(|store| Scrub::start(store, ScrubOptions::default()));
        let delivered = store.clone();
        let deletion = Deletion {
            store: store.clone(),
            artifacts: parts.artifacts.clone(),
            logs: parts.logs.clone(),
            clock: service.clock().clone(),
            retention: parts.settings.retention.clone(),
            metrics: metrics.clone(),
        };
        let (grace, settings) = (parts.settings.grace, parts.settings.clone());
        let around = Surroundings {
            timeout: TIMEOUT,
            hosts: Arc::clone(&settings.webhook_hosts),
            secrets: Arc::new(SinkSecrets(secrets.clone())),
        };
        let trail = TrailWriter::start(store.clone())?;
        let gate = Gate::new(
            &parts.settings.access,
            parts.settings.rate,
            &secret,
            trail.trail(),
        )?;
        let (due, woken) = Waker::new();
        let data = (parts.artifacts.clone(), parts.logs.clone());
        let (engine, clock) = (service.handle(), service.clock().clone());
        let workers = Workers::new(&store, engine, clock, data, serves)?;
        let app = Arc::new(App::new(AppParts {
            store,
            engine: service.handle(),
            clock: service.clock().clone(),
            artifacts: parts.artifacts,
            logs: parts.logs,
            changes,
            watermarks,
            projector: projector.handle(),
            settings: parts.settings,
            fetch: parts.fetch,
            plans,
            secrets,
            around: around.clone(),
            sources: source_states,
            due,
            error_page: parts.error_page,
            limits: parts.limits,
            metrics,
            telemetry,
            gate,
            workers,
            unserved,
            engines: parts.engines.clone(),
        }));
        if let Some(engines) = &parts.engines {
            engines.start(EngineNeeds {
                handle: service.handle(),
                store: Arc::clone(&app.store),
                clock: service.clock().clone(),
                process,
            })?;
        }
        runtime.spawn(engines::follow(Arc::clone(&app)));
        runtime.spawn(feed::follow(Arc::clone(&app)));
        runtime.spawn(workers::announce(Arc::clone(&app)));
        runtime.spawn(sources::follow(Arc::clone(&app)));
        let told = Arc::clone(&app);
        Ok(Server {
            listening: listen(runtime, bound, Arc::clone(&app), settings, tls)?,
            acting: Runner::start(Arc::clone(&app), woken)?,
            app,
            service,
            projector,
            scrub: scrub.transpose()?,
            deliveries: Deliveries::start((delivered, told), bell, around)?,
            deleter: Deleter::start(deletion)?,
            address,
            grace,
            trail,
            sending,
        })
    }

    /// The address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Registers the definition of a file for the tenant of an open server, as `PUT /api/v1/definitions` does.
    pub fn register(&self, file: &str, text: &str) -> Result<RegisteredFile, ApiProblem> {
        let new = NewDefinition {
            tenant: LOCAL.to_owned(),
            project: None,
            file: Some(file.to_owned()),
            text: text.to_owned(),
            by: "stepwell dev".to_owned(),
        };
        let registry = Registry::new(&*self.app.store);
        let registered = registry.register(new, &self.app.settings, self.app.now());
        let registered = registered.inspect_err(|problem| {
            let problems = match problem.problems.is_empty() {
                true => vec![FoundProblem::of_file(&problem.code, &problem.detail)],
                false => problem.problems.clone(),
            };
            self.app.folder.refused(file, problems);
        })?;
        self.app.due.changed();
        let (name, revision) = (&registered.revision.name, registered.revision.revision);
        self.app.folder.loaded(file, name, revision);
        Ok(RegisteredFile {
            name: registered.revision.name,
            revision: registered.revision.revision,
            created: registered.created,
        })
    }

    /// Tells of a file that is not loaded, because of these errors in its text.
    pub fn refuse_file(&self, file: &str, source: &Source, errors: &[&Problem]) {
        let problems = errors.iter().map(|it| finding(it, Some(source)));
        self.app.folder.refused(file, problems.collect());
    }

    /// Tells that a file is gone. Its definition stays registered.
    pub fn forget_file(&self, file: &str) {
        self.app.folder.gone(file);
    }

    /// Says that the server is about to stop: it serves on, and is not ready any more. For what watches `/readyz` and sends
    /// requests elsewhere.
    pub fn will_stop(&self) {
        self.app.will_stop.store(true, Ordering::SeqCst);
    }

    /// Stops: no new connection, requests and work in flight have the grace to end, the rest is given back.
    pub fn stop(self) -> Result<(), StoreError> {
        self.app.stopping.cancel();
        let _ = self.listening.join();
        // The rows of all requests that were answered.
        self.trail.stop();
        let _ = self.acting.join();
        if let Some(scrub) = self.scrub {
            scrub.stop();
        }
        self.deleter.stop();
        // Before the engine: attempts in flight write their results.
        if let Some(engines) = &self.app.engines {
            engines.stop();
        }
        let stopped = self.service.stop(self.grace);
        // After the engine: what it committed last is delivered yet, if the sink is quick.
        self.deliveries.stop();
        self.projector.stop();
        self.sending.stop();
        stopped
    }
}

/// The projector of a server: many commits of a busy run are one change of its snapshot.
fn projects() -> projector::Config {
    projector::Config {
        batch: 128,
        // Most runs of quick steps end meanwhile, and are read and kept once.
        collect: Duration::from_millis(500),
        ..projector::Config::default()
    }
}

/// Serves on threads of its own until the server stops.
fn listen(
    runtime: Runtime,
    bound: TcpListener,
    app: Arc<App>,
    settings: ServerSettings,
    tls: Option<Tls>,
) -> io::Result<JoinHandle<()>> {
    let stopping = app.stopping.clone();
    let router = api::router(app);
    std::thread::Builder::new()
        .name("stepwell-listen".into())
        .spawn(move || {
            runtime.block_on(listener::serve(bound, router, &settings, tls, stopping));
            // What is left are streams whose readers are gone.
            runtime.shutdown_timeout(Duration::from_secs(1));
        })
}
