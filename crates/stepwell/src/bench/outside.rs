//! The workloads on an engine outside: the service decides, the engine moves the runs, and the attempts do nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value as Json;
use stepwell_engine::coordinator::{Config, Notice};
use stepwell_engine::service::{Observer, Service, Setup};
use stepwell_engine::store::Store;
use stepwell_engines::host_thread::HostHealth;
use stepwell_worker::artifacts::Artifacts;
use stepwell_worker::logs::Logs;
use stepwell_worker::secrets::Secrets;
use stepwell_worker::{Crew, Handlers, Job, Reply, WorkerResources};

use super::load_generator::{LoadGenerator, NoopWorker};
use super::workload::{OPERATION, QUEUE};
use crate::outside_engine::{self, Changes, OutsideEngine, OutsideSetup};

/// Attempts at a time.
const PARALLEL: usize = 200;

/// Tells the engine outside which runs have changed.
struct Changed(Changes);

impl Observer for Changed {
    fn notice(&mut self, notice: &Notice) {
        if let Notice::Changed { run, .. } = notice {
            // An engine that is gone needs no news.
            let _ = self.0.send(*run);
        }
    }
}

/// A service that an engine outside moves, and that engine.
pub(super) fn start(
    address: &str,
    config: Config,
    store: &Arc<dyn Store>,
    load: &Arc<LoadGenerator>,
) -> Result<(Service, OutsideEngine)> {
    let address = outside_engine::address(address)?;
    let (config, worker) = outside_engine::configure(config, address.engine(), &**store)?;
    let place = config.engine_place.clone();
    let (changes, changed) = outside_engine::changes();
    let service = Service::start(Setup {
        config,
        observer: Box::new(Changed(changes)),
        ..Setup::new(store.clone(), NoopWorker { load: load.clone() })
    })?;
    let counted = load.clone();
    let handlers = Handlers::new().on(QUEUE, OPERATION, move |_: Job, _: Json| {
        counted.steps.fetch_add(1, Ordering::Relaxed);
        async { Reply::done(Json::Null) }
    });
    let logs = std::env::temp_dir().join(format!("stepwell-bench-{}", std::process::id()));
    let resources = WorkerResources::new(
        Secrets::from_env()?,
        Artifacts::open("memory:")?,
        Logs::open(&logs),
    );
    let outside = OutsideEngine::start(OutsideSetup {
        address,
        handle: service.handle(),
        store: store.clone(),
        clock: service.clock().clone(),
        crew: Arc::new(Crew::new(resources, handlers)?),
        worker,
        place,
        changed,
        parallel: PARALLEL,
        write_budget: Duration::from_secs(3),
        grace: outside_engine::GRACE,
        health: HostHealth::default(),
    })?;
    Ok((service, outside))
}
