//! A service, a crew and a driver on a store of the test, and an engine outside that is a loop.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepwell_dialects::{Source, load};
use stepwell_engine::StartRequest;
use stepwell_engine::coordinator::Config;
use stepwell_engine::read::{LogRecords, LoggedRun};
use stepwell_engine::rows::parse_target;
use stepwell_engine::service::{NoWorker, Service, Setup};
use stepwell_engine::store::{MemoryStore, Store};
use stepwell_engines::{AttemptEnd, AttemptWatch, Driver, DriverSetup, KeptReport, WorkItem};
use stepwell_kernel::command::{Claim, Command};
use stepwell_kernel::plan::Plan;
use stepwell_stores::{Address, OpenMode};
use stepwell_worker::artifacts::Artifacts;
use stepwell_worker::logs::Logs;
use stepwell_worker::secrets::{EnvVars, Secrets};
use stepwell_worker::{Crew, Handlers, WorkerResources};
use tempfile::TempDir;

pub(crate) enum StoreKind {
    Memory,
    Sqlite,
}

/// A driver and everything below it.
pub(crate) struct Lab {
    pub(crate) driver: Arc<Driver>,
    pub(crate) store: Arc<dyn Store>,
    plan: Arc<Plan>,
    service: Service,
    folder: TempDir,
}

/// An engine that never stops an attempt.
struct Patient;

impl AttemptWatch for Patient {
    async fn beat(&self, _: Option<&KeptReport>) {}

    async fn stopped(&self) {
        std::future::pending().await
    }
}

/// An engine that lets attempts run.
pub(crate) fn never_stopped() -> impl AttemptWatch {
    Patient
}

impl Lab {
    pub(crate) fn new(kind: StoreKind, text: &str) -> Lab {
        Lab::with_budget(kind, text, Duration::from_secs(3))
    }

    /// A lab whose claims may take so long to be written.
    pub(crate) fn with_budget(kind: StoreKind, text: &str, write_budget: Duration) -> Lab {
        Lab::make(kind, text, write_budget, false)
    }

    /// A lab whose service moves the runs itself.
    pub(crate) fn native(kind: StoreKind, text: &str) -> Lab {
        Lab::make(kind, text, Duration::from_secs(3), true)
    }

    fn make(kind: StoreKind, text: &str, write_budget: Duration, is_native: bool) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = match kind {
            StoreKind::Memory => Arc::new(MemoryStore::with_secret([7; 32])),
            StoreKind::Sqlite => {
                let path = folder.path().join("runs.db");
                let address = Address::parse(&path.to_string_lossy()).unwrap();
                address.open(OpenMode::Own).unwrap()
            }
        };
        let source = Source::from_bytes("test.yaml", text.as_bytes()).unwrap();
        let loaded = load(&source);
        let plan = loaded
            .plan
            .unwrap_or_else(|| panic!("{:?}", loaded.problems));
        let crew = || {
            let secrets = Secrets::from_vars(&EnvVars::new(|_: &str| None)).unwrap();
            let artifacts = Artifacts::open("memory:").unwrap();
            let resources = WorkerResources::new(secrets, artifacts, Logs::open(folder.path()));
            Crew::new(resources.with_all_tools(), Handlers::new()).unwrap()
        };
        let service = match is_native {
            true => {
                let crew = crew();
                let config = Config {
                    serves: crew.serves(),
                    ..Config::default()
                };
                Service::start(Setup {
                    config,
                    ..Setup::new(store.clone(), crew)
                })
            }
            false => {
                let config = Config {
                    engine_type: "temporal",
                    engine_place: "test/".into(),
                    driven: true,
                    poll_ms: 50,
                    // A result is waited for, however long the store is locked.
                    write_budget_ms: 60_000,
                    ..Config::default()
                };
                Service::start(Setup {
                    config,
                    ..Setup::new(store.clone(), NoWorker)
                })
            }
        };
        let service = service.unwrap();
        let driver = Driver::new(DriverSetup {
            handle: service.handle(),
            store: store.clone(),
            clock: service.clock().clone(),
            crew: Arc::new(crew()),
            engine: "temporal",
            worker: "temporal:test".into(),
            write_budget,
        });
        Lab {
            driver: Arc::new(driver.unwrap()),
            store,
            plan: Arc::new(plan),
            service,
            folder,
        }
    }

    /// Keeps others from writing to the store, as long as the value lives.
    pub(crate) fn lock(&self) -> rusqlite::Connection {
        let lock = rusqlite::Connection::open(self.folder.path().join("runs.db")).unwrap();
        lock.execute_batch("PRAGMA busy_timeout = 5000; BEGIN IMMEDIATE")
            .unwrap();
        lock
    }

    /// The result of a step that a worker has done.
    pub(crate) fn completed(&self, step: &str, worker: &str) -> Command {
        Command::CompleteStep {
            claim: Claim {
                target: parse_target(&self.plan, step).unwrap(),
                execution: 1,
                worker: worker.into(),
                lease_until: None,
            },
            output: serde_json::Value::Null,
            ctx: Default::default(),
            artifacts: Vec::new(),
        }
    }

    /// The types of the events of each commit of a run.
    pub(crate) fn commits(&self, run_id: &str) -> Vec<Vec<String>> {
        let run = self.store.find(run_id).unwrap().unwrap();
        let types = self.event_types(run_id);
        let chunks = self.store.chunks(run, 0, 1_000).unwrap();
        let of = |seq: u64| types[usize::try_from(seq - 1).unwrap()].clone();
        let each = chunks
            .iter()
            .map(|it| (it.first..=it.last).map(of).collect());
        each.collect()
    }

    /// Waits for the end of a run that nobody drives.
    pub(crate) async fn wait(&self, run_id: &str) {
        self.until(run_id, "RunCompleted").await;
    }

    /// Waits for an event of this type.
    pub(crate) async fn until(&self, run_id: &str, event_type: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        while !self.event_types(run_id).iter().any(|it| it == event_type) {
            assert!(Instant::now() < until, "there is no {event_type}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The types and keys of the events of each step in their order; those of the run itself under no name.
    pub(crate) fn steps(&self, run_id: &str) -> BTreeMap<String, Vec<String>> {
        let mut steps: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let logged = LoggedRun::open(&*self.store, run_id).unwrap();
        let mut records = LogRecords::of(&logged);
        for record in records.unread(&*self.store, 100_000).unwrap() {
            let text = |name: &str| {
                record.contract[name]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            let line = format!("{} {}", text("eventType"), text("idempotencyKey"));
            steps.entry(text("stepId")).or_default().push(line);
        }
        steps
    }

    pub(crate) fn start(&self, run_id: &str) {
        let request = StartRequest {
            run_id: run_id.into(),
            ..StartRequest::default()
        };
        self.service.handle().start(&self.plan, request).unwrap();
    }

    /// Drives a run to its end, as an engine outside does.
    pub(crate) async fn drive(&self, run_id: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        let mut running: HashSet<String> = HashSet::new();
        let (tell, mut ended) = tokio::sync::mpsc::unbounded_channel();
        loop {
            assert!(Instant::now() < until, "the run does not end");
            let turn = self.driver.turn(run_id, None, None).await.unwrap();
            if turn.ended.is_some() {
                return;
            }
            let ready = turn
                .work
                .iter()
                .filter(|it| !it.held && it.start_in_ms == 0);
            for item in ready {
                if running.insert(item.key()) {
                    let (driver, item) = (self.driver.clone(), item.clone());
                    let (tell, run_id) = (tell.clone(), run_id.to_owned());
                    tokio::spawn(async move {
                        let end = attempt(&driver, &run_id, &item).await;
                        drop(tell.send((item.key(), end)));
                    });
                }
            }
            let nap = turn.wake_in_ms.unwrap_or(50).clamp(5, 50);
            let nap = Duration::from_millis(nap);
            if let Ok(Some((key, end))) = tokio::time::timeout(nap, ended.recv()).await {
                running.remove(&key);
                if let AttemptEnd::Kept(report) = end {
                    self.driver.turn(run_id, None, Some(report)).await.unwrap();
                }
            }
        }
    }

    pub(crate) fn event_types(&self, run_id: &str) -> Vec<String> {
        let events = stepwell_engine::read::events(&*self.store, run_id, 0).unwrap();
        let names = events.iter().map(|event| event.body.event_type().name());
        names.map(str::to_owned).collect()
    }

    /// The engine of a run and its id there, as the log names them.
    pub(crate) fn engine_of(&self, run_id: &str) -> (String, String) {
        let events = stepwell_engine::read::events(&*self.store, run_id, 0).unwrap();
        let started = events.iter().find_map(|event| match &event.body {
            stepwell_kernel::event::Body::RunStarted {
                engine,
                engine_run_ref,
                ..
            } => Some((engine.clone(), engine_run_ref.clone())),
            _ => None,
        });
        started.unwrap()
    }

    pub(crate) fn alert_codes(&self) -> Vec<String> {
        let alerts = self.store.alerts(100).unwrap();
        alerts.into_iter().map(|it| it.code).collect()
    }
}

async fn attempt(driver: &Arc<Driver>, run_id: &str, item: &WorkItem) -> AttemptEnd {
    driver.attempt(run_id, item, &Patient).await.unwrap()
}
