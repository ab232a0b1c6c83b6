//! The server: the engine with its worker, the projector, the publishers of sinks, and the HTTP listener around them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use stepwell_dialects::Problem;
use stepwell_dialects::plan::reference::PlanRef;
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
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use crate::app::{App, AppParts, ErrorPage};
use crate::changes::{Changes, TellChanges};
use crate::settings::ServerSettings;
use crate::workers::Workers;
use crate::{api, listener};

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
    address: SocketAddr,
    /// Ends when the listener has ended.
    listening: JoinHandle<()>,
    grace: Duration,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("the server cannot listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Server {
    /// Binds the address, opens a session in the store and begins to serve.
    pub fn start(parts: ServerParts) -> Result<Server, ServerError> {
        let runtime = Builder::new_multi_thread()
            .thread_name("stepwell-http")
            .enable_all()
            .build()?;
        let address = parts.settings.listen;
        // First: a port that is taken is found before any work begins.
        let bound = runtime.block_on(TcpListener::bind(address));
        let bound = bound.map_err(|source| ServerError::Listen { address, source })?;
        let address = bound.local_addr()?;
        let store: Arc<dyn Store> = parts.store.clone();
        let projector = projector::spawn(store.clone(), projector::Config::default())?;
        let changes = Changes::new();
        let offers = Arc::<Notify>::default();
        let observer = TellChanges {
            changes: changes.clone(),
            projector: projector.handle(),
            offers: Arc::clone(&offers),
        };
        let config = Config {
            name: Config::process_name("stepwell"),
            serves: parts.crew.as_ref().map_or(Serves::Nothing, Crew::serves),
            capacity: parts.parallel,
            limits: parts.limits,
            session_ms: SESSION_MS,
            // The engine waits for its store: a result is not given up meanwhile.
            write_budget_ms: u64::MAX / 4,
            ..Config::default()
        };
        let worker: Box<dyn Worker> = match parts.crew {
            Some(crew) => Box::new(crew),
            None => Box::new(NoWorker),
        };
        let service = Service::start(Setup {
            catalog: parts.catalog,
            config,
            observer: Box::new(observer),
            shards: Shard::suited(),
            ..Setup::new(store.clone(), worker)
        })?;
        // The engine tries again by itself from now on, and requests do not wait long for a store that is away.
        parts.store.only_notes();
        let scrub = parts.scrubbed.clone();
        let scrub = scrub.map(|store| Scrub::start(store, ScrubOptions::default()));
        let (grace, settings) = (parts.settings.grace, parts.settings.clone());
        let data = (parts.artifacts.clone(), parts.logs.clone());
        let (engine, clock) = (service.handle(), service.clock().clone());
        let workers = Workers::new(&store, engine, clock, data, offers)?;
        let app = Arc::new(App::new(AppParts {
            store,
            engine: service.handle(),
            clock: service.clock().clone(),
            artifacts: parts.artifacts,
            logs: parts.logs,
            changes,
            projector: projector.handle(),
            settings: parts.settings,
            fetch: parts.fetch,
            error_page: parts.error_page,
            workers,
        }));
        Ok(Server {
            listening: listen(runtime, bound, Arc::clone(&app), settings)?,
            app,
            service,
            projector,
            scrub: scrub.transpose()?,
            address,
            grace,
        })
    }

    /// The address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops: no new connection, requests and work in flight have the grace to end, the rest is given back.
    pub fn stop(self) -> Result<(), StoreError> {
        self.app.stopping.cancel();
        let _ = self.listening.join();
        if let Some(scrub) = self.scrub {
            scrub.stop();
        }
        let stopped = self.service.stop(self.grace);
        self.projector.stop();
        stopped
    }
}

/// Serves on threads of its own until the server stops.
fn listen(
    runtime: Runtime,
    bound: TcpListener,
    app: Arc<App>,
    settings: ServerSettings,
) -> io::Result<JoinHandle<()>> {
    let stopping = app.stopping.clone();
    let router = api::router(app);
    std::thread::Builder::new()
        .name("stepwell-listen".into())
        .spawn(move || {
            runtime.block_on(listener::serve(bound, router, &settings, stopping));
            // What is left are streams whose readers are gone.
            runtime.shutdown_timeout(Duration::from_secs(1));
        })
}
