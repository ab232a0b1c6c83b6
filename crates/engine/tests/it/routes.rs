//! Runs that an engine outside moves, in the service that moves the others.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use serde_json::json;
use stepwell_engine::clock::VirtualClock;
use stepwell_engine::coordinator::{Assignment, Config, Notice, Serves, engine_actor};
use stepwell_engine::service::{Observer, Reporter, Service, Setup, Worker};
use stepwell_engine::store::{MemoryStore, RunFilter, RunNo, RunReader, RunSummary};
use stepwell_engine::{EngineRoute, EngineRoutes, Error};
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::Target;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::Code;

use crate::{START, chain, config, plan, request, task};

/// How long a test waits for what must come, and for what must not.
const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);

/// Tells which work is begun here.
struct Begun(Sender<String>);

impl Worker for Begun {
    fn start(&mut self, job: Assignment, _: &Reporter) {
        let _ = self.0.send(job.run_id.to_string());
    }

    fn stop(&mut self, _: RunNo, _: Target, _: u32) {}

    fn stop_all(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// Tells of the runs that the engine outside must hear of.
struct Driven(Sender<RunNo>);

impl Observer for Driven {
    fn notice(&mut self, notice: &Notice) {
        if let Notice::Driven(run) = notice {
            let _ = self.0.send(*run);
        }
    }
}

struct Bench {
    service: Service,
    store: Arc<MemoryStore>,
    begun: Receiver<String>,
    driven: Receiver<RunNo>,
}

/// A service that gives the runs of one definition and tenant to Temporal.
fn bench() -> Bench {
    let store = Arc::new(MemoryStore::with_secret([7; 32]));
    bench_on(store)
}

fn bench_on(store: Arc<MemoryStore>) -> Bench {
    let (begin, begun) = mpsc::channel();
    let (drive, driven) = mpsc::channel();
    let route = EngineRoute {
        definition: "plan_*".into(),
        tenant: Some("tenant".into()),
        project: None,
        engine: Some("temporal"),
    };
    let config = Config {
        serves: Serves::Everything,
        routes: Some(Arc::new(EngineRoutes {
            place: "place/".into(),
            engines: vec!["temporal"],
            routes: vec![route],
        })),
        ..config()
    };
    let service = Service::start(Setup {
        config,
        clock: Arc::new(VirtualClock::at(START)),
        observer: Box::new(Driven(drive)),
        ..Setup::new(store.clone(), Begun(begin))
    });
    Bench {
        service: service.unwrap(),
        store,
        begun,
        driven,
    }
}

impl Bench {
    fn summary(&self) -> RunSummary {
        summary(&self.store)
    }

    fn engine(&self, run_id: &str) -> (String, String) {
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
}

fn summary(store: &MemoryStore) -> RunSummary {
    let all = store.list(&RunFilter {
        limit: 9,
        ..RunFilter::default()
    });
    all.unwrap().into_iter().next().unwrap()
}

fn one_step() -> Arc<Plan> {
    plan(chain(vec![task("a")]))
}

#[test]
fn work_of_a_routed_run_is_the_engines_and_a_late_engine_is_told_again() {
    let bench = bench();
    bench
        .service
        .handle()
        .start(&one_step(), request("run_1"))
        .unwrap();
    let run = bench.driven.recv_timeout(LONG).unwrap();
    let named = ("temporal".to_owned(), "temporal://place/run_1".to_owned());
    assert_eq!(bench.engine("run_1"), named);
    assert!(bench.begun.recv_timeout(SHORT).is_err());
    let head = bench.summary().head;
    assert_eq!(head.session, None, "no server owns the run");
    let late = head.wake_at.unwrap();
    assert_eq!(late.since(START), 15_000);
    while bench.driven.try_recv().is_ok() {}
    bench.service.handle().advance_to(late.plus(1));
    assert_eq!(bench.driven.recv_timeout(LONG).unwrap(), run);
    assert!(bench.begun.try_recv().is_err());
}

#[test]
fn runs_of_other_tenants_are_moved_by_the_service_itself() {
    let bench = bench();
    let mut other = request("run_2");
    other.context.tenant_id = "another".into();
    bench.service.handle().start(&one_step(), other).unwrap();
    assert_eq!(bench.begun.recv_timeout(LONG).unwrap(), "run_2");
    let named = ("native".to_owned(), "native://run_2".to_owned());
    assert_eq!(bench.engine("run_2"), named);
    assert!(bench.driven.try_recv().is_err());
}

#[test]
fn a_plan_that_its_engine_cannot_run_is_refused_before_it_starts() {
    let bench = bench();
    for (extra, code) in [
        (
            json!({"requiresCapabilities": ["signal.pause.native"]}),
            Code::PlanCapabilityUnsupported,
        ),
        (
            json!({"targetAdapter": "conductor"}),
            Code::PlanAdapterUnsupported,
        ),
    ] {
        let mut net = chain(vec![task("a")]);
        net.extra = extra;
        let handle = bench.service.handle();
        let refused = handle.start(&plan(net), request("run_3"));
        let Err(Error::Rejected(why)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(why.code, code);
        assert!(bench.store.find("run_3").unwrap().is_none());
    }
}

/// Tells of the runs whose engine the service does not serve.
struct Unserved(Sender<(String, String)>);

impl Observer for Unserved {
    fn notice(&mut self, notice: &Notice) {
        if let Notice::Unserved { run_id, engine, .. } = notice {
            let _ = self.0.send((run_id.to_string(), engine.clone()));
        }
    }
}

#[test]
fn a_run_that_a_process_without_its_engine_has_moved_is_not_forgotten() {
    let bench = bench();
    let handle = bench.service.handle();
    handle.start(&one_step(), request("run_1")).unwrap();
    bench.driven.recv_timeout(LONG).unwrap();
    bench.service.stop(Duration::ZERO).unwrap();

    // Commands are decided while nobody serves the engine.
    let (tell, told) = mpsc::channel();
    let service = Service::start(Setup {
        config: config(),
        clock: Arc::new(VirtualClock::at(START)),
        observer: Box::new(Unserved(tell)),
        ..Setup::new(bench.store.clone(), Begun(mpsc::channel().0))
    });
    let service = service.unwrap();
    for signal in ["PAUSE", "RESUME"] {
        let command = Command::Signal {
            signal_id: signal.to_owned(),
            signal: signal.to_owned(),
            payload: serde_json::Value::Null,
            reason: None,
            actor: engine_actor(),
        };
        service.handle().submit("run_1", command).unwrap();
    }
    let late = summary(&bench.store).head.wake_at.unwrap();
    assert_eq!(late.since(START), 15_000, "the work is looked for");
    service.handle().advance_to(late.plus(1));
    let named = told.recv_timeout(LONG).unwrap();
    assert_eq!(named, ("run_1".to_owned(), "temporal".to_owned()));
    service.stop(Duration::ZERO).unwrap();

    // The next process that serves the engine tells it.
    let again = bench_on(bench.store.clone());
    again.service.handle().advance_to(late.plus(60_000));
    again.driven.recv_timeout(LONG).unwrap();
}
