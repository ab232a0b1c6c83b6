//! The engines outside that a server serves: each is connected to on a thread of its own, and again whenever it could not be had.
//! Runs of an engine that does not answer wait, and those who look at the server see why.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use stepwell::engine_settings::{EngineSection, NamedEngine};
use stepwell_engine::EngineRoutes;
use stepwell_engine::store::{RunNo, Store};
use stepwell_engines::codes::ENGINE_UNREACHABLE;
use stepwell_engines::host_thread::{HostError, HostHealth};
use stepwell_server::{EngineNeeds, EngineStanding, RoutedDefinitions, ServedEngines};
use stepwell_worker::Crew;

use crate::outside_engine::{self, Changes, OutsideEngine, OutsideSetup};
use crate::usage;

/// How long an engine that cannot be had is left alone, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// How long a claim may take to be written before its work begins without it.
const WRITE_BUDGET: Duration = Duration::from_secs(3);

/// What the section `[engines]` comes to: which definitions run where, for the server.
pub(crate) fn routes(section: &EngineSection, store: &dyn Store) -> Result<EngineRoutes> {
    Ok(EngineRoutes {
        place: outside_engine::place_of(store)?,
        engines: section
            .engines
            .iter()
            .map(|it| it.address.engine())
            .collect(),
        routes: section.routes.clone(),
    })
}

/// Refuses what this program or this machine does not have.
pub(crate) fn check(section: &EngineSection) -> Result<()> {
    for named in &section.engines {
        let name = &named.name;
        crate::run::must_be_built(named.address.engine())
            .with_context(|| format!("engines.{name} of the configuration"))?;
        if let Err(error) = named.address.verify() {
            return usage(format!("engines.{name}: {error}"));
        }
    }
    Ok(())
}

/// The engines of a server.
#[derive(Debug)]
pub(crate) struct EnginesOfServer {
    all: Vec<Arc<EngineOfServer>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// One engine of a server.
#[derive(Debug)]
struct EngineOfServer {
    named: NamedEngine,
    definitions: Vec<RoutedDefinitions>,
    place: String,
    crew: Arc<Crew>,
    parallel: usize,
    health: HostHealth,
    state: Mutex<EngineState>,
    /// The engine is to stop.
    stop: Condvar,
}

#[derive(Debug, Default)]
struct EngineState {
    /// Where changes go while the engine is served.
    changes: Option<Changes>,
    /// Why the engine could not be had: the code and the reason.
    fault: Option<(String, String)>,
    stopping: bool,
}

impl EnginesOfServer {
    /// The engines of a section; `crew` makes the worker of each.
    pub(crate) fn new(
        section: &EngineSection,
        routes: &EngineRoutes,
        parallel: usize,
        mut crew: impl FnMut() -> Result<Crew>,
    ) -> Result<EnginesOfServer> {
        let mut all = Vec::new();
        for named in &section.engines {
            let own = routes
                .routes
                .iter()
                .filter(|it| it.engine == Some(named.address.engine()));
            let definitions = own.map(|it| RoutedDefinitions {
                name: it.definition.clone(),
                tenant: it.tenant.clone(),
                project: it.project.clone(),
            });
            all.push(Arc::new(EngineOfServer {
                named: named.clone(),
                definitions: definitions.collect(),
                place: routes.place.clone(),
                crew: Arc::new(crew()?),
                parallel,
                health: HostHealth::default(),
                state: Mutex::new(EngineState {
                    fault: Some((
                        ENGINE_UNREACHABLE.to_owned(),
                        "it was not reached yet".to_owned(),
                    )),
                    ..EngineState::default()
                }),
                stop: Condvar::new(),
            }));
        }
        Ok(EnginesOfServer {
            all,
            threads: Mutex::default(),
        })
    }
}

impl ServedEngines for EnginesOfServer {
    fn start(&self, needs: EngineNeeds) -> io::Result<()> {
        for engine in &self.all {
            let (engine, needs) = (Arc::clone(engine), needs.clone());
            let thread = std::thread::Builder::new()
                .name(format!("engine-{}", engine.named.address.engine()))
                .spawn(move || engine.serve(&needs))?;
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            threads.push(thread);
        }
        Ok(())
    }

    fn changed(&self, run: RunNo) {
        for engine in &self.all {
            engine.changed(run);
        }
    }

    fn standings(&self) -> Vec<EngineStanding> {
        self.all.iter().map(|it| it.standing()).collect()
    }

    fn stop(&self) {
        for engine in &self.all {
            engine.state().stopping = true;
            engine.stop.notify_all();
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in std::mem::take(&mut *threads) {
            let _ = thread.join();
        }
    }
}

impl EngineOfServer {
    fn state(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, run: RunNo) {
        // A run that changes while the engine cannot be had is found by the look for late runs.
        if let Some(changes) = &self.state().changes {
            let _ = changes.send(run);
        }
    }

    fn standing(&self) -> EngineStanding {
        let later = || {
            let fault = self.health.fault()?;
            Some((ENGINE_UNREACHABLE.to_owned(), fault))
        };
        let fault = self.state().fault.clone().or_else(later);
        EngineStanding {
            name: self.named.name.clone(),
            engine: self.named.address.engine().to_owned(),
            address: self.named.address.shown(),
            ready: fault.is_none(),
            code: fault.as_ref().map(|it| it.0.clone()),
            reason: fault.map(|it| it.1),
            definitions: self.definitions.clone(),
        }
    }

    /// Serves the engine until it is to stop.
    fn serve(&self, needs: &EngineNeeds) {
        let mut backoff = BACKOFF.0;
        while !self.state().stopping {
            match self.connect(needs) {
                Ok(served) => {
                    tracing::info!(
                        engine = self.named.name,
                        address = self.named.address.shown(),
                        "the engine is served"
                    );
                    self.until_stopped(None);
                    served.stop();
                    return;
                }
                Err(error) => {
                    let host = error.downcast_ref::<HostError>();
                    let code = host.map_or(ENGINE_UNREACHABLE, HostError::code).to_owned();
                    let said = error.to_string();
                    let reason = said.strip_prefix(&format!("{code}: ")).unwrap_or(&said);
                    let fault = Some((code, reason.to_owned()));
                    let is_news = {
                        let mut state = self.state();
                        let is_news = state.fault != fault;
                        state.fault = fault;
                        is_news
                    };
                    if is_news {
                        tracing::warn!(
                            engine = self.named.name,
                            error = said,
                            "the engine cannot be served; its runs wait, and it is asked again"
                        );
                    }
                    self.until_stopped(Some(backoff));
                    backoff = (backoff * 2).min(BACKOFF.1);
                }
            }
        }
    }

    fn connect(&self, needs: &EngineNeeds) -> Result<OutsideEngine> {
        let (changes, changed) = outside_engine::changes();
        let served = OutsideEngine::start(OutsideSetup {
            address: self.named.address.clone(),
            handle: needs.handle.clone(),
            store: Arc::clone(&needs.store),
            clock: Arc::clone(&needs.clock),
            crew: Arc::clone(&self.crew),
            worker: outside_engine::worker_name(self.named.address.engine(), &needs.process),
            place: self.place.clone(),
            changed,
            parallel: self.parallel,
            write_budget: WRITE_BUDGET,
            grace: outside_engine::GRACE,
            health: self.health.clone(),
        })?;
        let mut state = self.state();
        state.changes = Some(changes);
        state.fault = None;
        Ok(served)
    }

    /// Waits until the engine is to stop, or until the time is over.
    fn until_stopped(&self, limit: Option<Duration>) {
        let state = self.state();
        let running = |state: &mut EngineState| !state.stopping;
        match limit {
            Some(limit) => drop(self.stop.wait_timeout_while(state, limit, running)),
            None => drop(self.stop.wait_while(state, running)),
        }
    }
}
