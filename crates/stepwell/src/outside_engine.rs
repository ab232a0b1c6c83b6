//! An engine outside drives the runs of this command: the service decides and writes, the engine outside says when, and the attempts
//! are done by the tools of this process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use sha2::{Digest as _, Sha256};
use stepwell_engine::coordinator::{Config, Serves};
use stepwell_engine::port::Clock;
use stepwell_engine::remote::RemoteWork;
use stepwell_engine::service::Handle;
use stepwell_engine::store::{RunNo, Store};
use stepwell_engines::host_thread::{HostHealth, HostParts};
use stepwell_engines::{Driver, DriverSetup, EngineAddress};
use stepwell_worker::Crew;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// How often a process that stops looks whether it is to hurry.
const HURRY_LOOK: Duration = Duration::from_millis(50);
/// How long attempts in flight may take once a process that serves an engine is told to stop.
pub(crate) const GRACE: Duration = Duration::from_secs(8);
/// The grace of a command, which itself says when attempts are told to stop.
pub(crate) const GRACE_OF_COMMAND: Duration = Duration::from_secs(365 * 24 * 3600);

/// Where the numbers of changed runs go.
pub(crate) type Changes = UnboundedSender<RunNo>;

/// A channel for the numbers of changed runs.
pub(crate) fn changes() -> (Changes, UnboundedReceiver<RunNo>) {
    mpsc::unbounded_channel()
}

/// The address of an engine; `engine_kind` has checked it.
pub(crate) fn address(text: &str) -> Result<EngineAddress> {
    match EngineAddress::parse(text) {
        Some(address) => Ok(address?),
        None => Err(anyhow!("{text:?} is not the address of an engine")),
    }
}

/// The configuration of a service that an engine outside drives, and what this process is called in leases.
pub(crate) fn configure(
    config: Config,
    engine: &'static str,
    store: &dyn Store,
) -> Result<(Config, String)> {
    let worker = worker_name(engine, &config.name);
    let config = Config {
        engine_type: engine,
        engine_place: place_of(store)?,
        driven: true,
        serves: Serves::Nothing,
        ..config
    };
    Ok((config, worker))
}

/// What belongs to a store at an engine: two stores never share a part of an engine, even if their runs have the same ids.
pub(crate) fn place_of(store: &dyn Store) -> Result<String> {
    let hash = Sha256::digest(store.secret()?);
    let digits = hash.iter().take(4).map(|byte| format!("{byte:02x}"));
    Ok(format!("{}/", digits.collect::<String>()))
}

/// What this process is called in the leases of an engine.
pub(crate) fn worker_name(engine: &str, process: &str) -> String {
    format!("{engine}:{process}:{}", uuid::Uuid::now_v7().simple())
}

/// What an engine outside is started with.
pub(crate) struct OutsideSetup {
    pub(crate) address: EngineAddress,
    pub(crate) handle: Handle,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) crew: Arc<Crew>,
    pub(crate) worker: String,
    pub(crate) place: String,
    pub(crate) changed: UnboundedReceiver<RunNo>,
    pub(crate) parallel: usize,
    pub(crate) write_budget: Duration,
    /// How long attempts in flight may take once the engine is stopped; then they are told to stop.
    pub(crate) grace: Duration,
    /// Whether the engine answers, for those who show it.
    pub(crate) health: HostHealth,
}

/// The part of an engine outside that is in this process.
#[derive(Debug)]
pub(crate) struct OutsideEngine {
    crew: Arc<Crew>,
    remote: RemoteWork,
    worker: String,
    /// Serves the engine as long as the value lives.
    host: Box<dyn fmt::Debug + Send>,
}

impl OutsideEngine {
    pub(crate) fn start(setup: OutsideSetup) -> Result<OutsideEngine> {
        let remote = RemoteWork::new(
            setup.store.clone(),
            setup.handle.clone(),
            setup.clock.clone(),
        );
        let (crew, worker) = (setup.crew.clone(), setup.worker.clone());
        let host = start_host(setup)?;
        Ok(OutsideEngine {
            crew,
            remote,
            worker,
            host,
        })
    }

    /// How many attempts are under way in this process.
    pub(crate) fn busy(&self) -> usize {
        self.crew.busy()
    }

    /// Stops: nothing new is begun, and attempts that run have their grace to end. Leases of what is left end now, so that
    /// another process can take the work over at once.
    pub(crate) fn stop(self) {
        drop(self.host);
        if self.crew.busy() > 0 {
            self.crew.stop_all();
            if let Err(error) = self.remote.give_back(&self.worker) {
                tracing::warn!(%error, "leases could not be given back; they end by themselves");
            }
        }
    }
}

impl OutsideEngine {
    /// Stops as `stop` does; after `patience`, or once `hurry` is set, attempts that run are told to stop at once.
    pub(crate) fn stop_sooner(self, patience: Duration, hurry: &AtomicBool) {
        let (crew, has_stopped) = (self.crew.clone(), AtomicBool::new(false));
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !has_stopped.load(Ordering::SeqCst) {
                    if hurry.load(Ordering::SeqCst) || began.elapsed() > patience {
                        return crew.stop_all();
                    }
                    std::thread::sleep(HURRY_LOOK);
                }
            });
            self.stop();
            has_stopped.store(true, Ordering::SeqCst);
        });
    }
}

/// Starts to serve an engine.
fn start_host(setup: OutsideSetup) -> Result<Box<dyn fmt::Debug + Send>> {
    let driver = Arc::new(Driver::new(DriverSetup {
        handle: setup.handle,
        store: setup.store,
        clock: setup.clock,
        crew: setup.crew,
        engine: setup.address.engine(),
        worker: setup.worker.clone(),
        write_budget: setup.write_budget,
    })?);
    let parts = HostParts {
        driver,
        changes: setup.changed,
        place: setup.place,
        parallel: setup.parallel,
        identity: setup.worker,
        grace: setup.grace,
        health: setup.health,
    };
    match setup.address {
        #[cfg(feature = "temporal")]
        EngineAddress::Temporal(address) => Ok(Box::new(
            stepwell_engines::temporal::TemporalHost::start(address, parts)?,
        )),
        #[cfg(feature = "conductor")]
        EngineAddress::Conductor(address) => Ok(Box::new(
            stepwell_engines::conductor::ConductorHost::start(address, parts)?,
        )),
        #[cfg(not(all(feature = "temporal", feature = "conductor")))]
        address => {
            drop(parts);
            Err(anyhow!(
                "this program was built without the engine `{}`",
                address.engine()
            ))
        }
    }
}
