//! The engine of this command: the same service that programs embed, with the tools of this process or the
//! mock as its worker, for one run and those below it; or driven by an engine outside.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use anyhow::Result;
use stepwell::files::Files;
use stepwell::settings::Settings;
use stepwell_engine::coordinator::{Config, Notice};
use stepwell_engine::mock::{FailRule, Mock, Notes};
use stepwell_engine::port::Clock;
use stepwell_engine::service::{Handle, Idle, NoWorker, Observer, Service, Setup, Worker};
use stepwell_engine::store::{RunNo, StoreError};
use stepwell_engines::host_thread::HostHealth;
use stepwell_worker::logs::LogEntry;
use tokio::sync::broadcast::{self, error::TryRecvError};

use super::engine_kind::EngineKind;
use super::{GoArgs, RunStore, clock};
use crate::outside_engine::{self, OutsideEngine, OutsideSetup};
use crate::patience::{WriteBudget, write_budget_ms};
use crate::work;

/// How long a store that many processes share waits before it takes this process for dead.
pub(super) const SESSION_MS: u64 = 5_000;
/// How often the store is asked what others have left there.
const POLL_MS: u64 = 250;
/// How long a result may take to be written before its step fails, where the command is less patient.
const WRITE_BUDGET_MS: u64 = 3_000;

/// What the engine tells this command, in the order in which it happened.
#[derive(Debug)]
pub(super) enum Update {
    /// Events up to this one are committed.
    Changed(RunNo, u64),
    /// The engine has nothing to do for now.
    Idle(Idle),
    /// A call of the store failed; the engine continues to try.
    StoreFailed(StoreError),
    /// Everything that was asked of the engine before `LocalEngine::when_ready` is done.
    Ready,
}

/// A running engine and what is heard from it.
pub(super) struct LocalEngine {
    /// Before the service: what an engine outside is in the middle of needs the service to end.
    outside: Option<OutsideEngine>,
    service: Option<Service>,
    pub(super) handle: Handle,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) updates: Receiver<Update>,
    sender: Sender<Update>,
    /// What the steps of this process say.
    said: Option<broadcast::Receiver<Arc<LogEntry>>>,
    notes: Notes,
}

impl LocalEngine {
    /// Starts an engine that works on these runs, on those that it is asked to start, and on nothing
    /// else.
    pub(super) fn start(
        args: &GoArgs,
        kind: EngineKind,
        rules: Vec<FailRule>,
        place: &RunStore,
        only: HashSet<String>,
    ) -> Result<LocalEngine> {
        let clock = clock::clock(place.is_virtual);
        args.sinks.register(&*place.store, clock.now())?;
        let config = Config {
            name: Config::process_name("stepwell"),
            only: Some(only),
            sinks: args.sinks.names()?,
            capacity: args.parallel.get().into(),
            limits: args.limits.limits(args.config.path())?,
            session_ms: match place.durable {
                true => SESSION_MS,
                // Nobody else can have a run that is in this process's memory.
                false => u64::MAX / 4,
            },
            poll_ms: match place.is_virtual {
                // Time stands still between two looks.
                true => 0,
                false => POLL_MS,
            },
            // Unless asked for, a result is not given up while the store is waited for.
            write_budget_ms: write_budget_ms(
                args.write_budget,
                &place.open.patience,
                WRITE_BUDGET_MS,
            ),
            ..Config::default()
        };
        match kind {
            EngineKind::Native => {
                let security = Settings::open(args.config.path())?.security;
                let crew = work::crew(place.data(&args.data)?, security)?;
                let said = crew.resources().logs.subscribe();
                let config = Config {
                    serves: crew.serves(),
                    ..config
                };
                LocalEngine::with(place, clock, config, crew, Some(said), Notes::default())
            }
            EngineKind::Mock => {
                let mut mock = place.open.start(|store| Mock::new(store, clock.clone()))?;
                mock.rules = rules;
                mock.work_ms = args.work_ms;
                let notes = mock.notes();
                let config = Mock::configure(config);
                LocalEngine::with(place, clock, config, mock, None, notes)
            }
            EngineKind::Outside(engine) => {
                let address = outside_engine::address(&args.engine)?;
                let security = Settings::open(args.config.path())?.security;
                let crew = Arc::new(work::crew(place.data(&args.data)?, security)?);
                let said = crew.resources().logs.subscribe();
                let (config, worker) = outside_engine::configure(config, engine, &*place.store)?;
                let place_id = config.engine_place.clone();
                let (changes, changed) = outside_engine::changes();
                // Runs that are there already are looked at now: the engine may have lost what it was told of them.
                for run_id in config.only.iter().flatten() {
                    if let Some(run) = place.store.find(run_id)? {
                        let _ = changes.send(run);
                    }
                }
                let mut local = LocalEngine::observed(
                    place,
                    clock,
                    config,
                    NoWorker,
                    (Some(said), Some(changes)),
                    Notes::default(),
                )?;
                let budget = args
                    .write_budget
                    .map_or(WRITE_BUDGET_MS, WriteBudget::millis);
                local.outside = Some(OutsideEngine::start(OutsideSetup {
                    address,
                    handle: local.handle.clone(),
                    store: place.store.clone(),
                    clock: local.clock.clone(),
                    crew,
                    worker,
                    place: place_id,
                    changed,
                    parallel: args.parallel.get().into(),
                    write_budget: Duration::from_millis(budget),
                    grace: outside_engine::GRACE_OF_COMMAND,
                    health: HostHealth::default(),
                })?);
                Ok(local)
            }
        }
    }

    fn with(
        place: &RunStore,
        clock: Arc<dyn Clock>,
        config: Config,
        worker: impl Worker + 'static,
        said: Option<broadcast::Receiver<Arc<LogEntry>>>,
        notes: Notes,
    ) -> Result<LocalEngine> {
        LocalEngine::observed(place, clock, config, worker, (said, None), notes)
    }

    /// An engine; the numbers of changed runs go to the engine outside that drives it, too.
    fn observed(
        place: &RunStore,
        clock: Arc<dyn Clock>,
        config: Config,
        worker: impl Worker + 'static,
        (said, changes): (
            Option<broadcast::Receiver<Arc<LogEntry>>>,
            Option<outside_engine::Changes>,
        ),
        notes: Notes,
    ) -> Result<LocalEngine> {
        let (send, updates) = mpsc::channel();
        let service = place.open.start(|store| {
            Service::start(Setup {
                catalog: Box::new(Files::default()),
                config,
                clock,
                observer: Box::new(SendUpdates(send.clone(), changes)),
                ..Setup::new(store, worker)
            })
        })?;
        Ok(LocalEngine {
            handle: service.handle(),
            clock: service.clock().clone(),
            service: Some(service),
            updates,
            sender: send,
            said,
            notes,
            outside: None,
        })
    }

    /// Sends `Update::Ready` once everything that was asked of the engine so far is done.
    pub(super) fn when_ready(&self) -> Result<()> {
        let sender = self.sender.clone();
        let ready = move || drop(sender.send(Update::Ready));
        Ok(self.handle.flush_with(ready)?)
    }

    /// Whether people and events are real, and may come at any time.
    pub(super) fn waits_for_people(&self) -> bool {
        self.said.is_some()
    }

    /// Whether an engine outside gives this process work, also of other runs of the store.
    pub(super) fn shares_work(&self) -> bool {
        self.outside.is_some()
    }

    /// How many steps are being worked on; pretended work does not count.
    pub(super) fn busy(&self) -> usize {
        if let Some(outside) = &self.outside {
            return outside.busy();
        }
        match self.said {
            Some(_) => self.service.as_ref().map_or(0, Service::in_flight),
            None => 0,
        }
    }

    /// Stops: steps that run have `grace` to end, or until `hurry` is set; then they are told to, and everything is
    /// given back.
    pub(super) fn stop(&mut self, grace: Duration, hurry: &AtomicBool) -> Result<(), StoreError> {
        if let Some(outside) = self.outside.take() {
            outside.stop_sooner(grace, hurry);
        }
        match self.service.take() {
            Some(service) => service.stop_sooner(grace, hurry),
            None => Ok(()),
        }
    }

    /// What steps have said since this was asked last. Of a step that says too much some lines are
    /// missing here; the step's log has them all.
    pub(super) fn said(&mut self) -> Option<Arc<LogEntry>> {
        let said = self.said.as_mut()?;
        loop {
            match said.try_recv() {
                Ok(entry) => return Some(entry),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }

    /// What was done that the log does not show.
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.take()
    }
}

/// Sends what the engine tells to the thread that shows it. If that thread is gone, nobody needs it.
struct SendUpdates(Sender<Update>, Option<outside_engine::Changes>);

impl Observer for SendUpdates {
    fn notice(&mut self, notice: &Notice) {
        if let Notice::Changed { run, seq, .. } = notice {
            let _ = self.0.send(Update::Changed(*run, *seq));
            if let Some(changes) = &self.1 {
                let _ = changes.send(*run);
            }
        }
    }

    fn idle(&mut self, idle: Idle) {
        let _ = self.0.send(Update::Idle(idle));
    }

    fn store_failed(&mut self, error: &StoreError) {
        let _ = self.0.send(Update::StoreFailed(error.clone()));
    }
}
