//! The engine that runs by itself: how it stops, and how work in flight ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use stepwell_engine::coordinator::{Assignment, Config, Serves};
use stepwell_engine::service::{ExternalEvent, NoWorker, Reporter, Service, Setup, Worker};
use stepwell_engine::store::{Delivered, MemoryStore, RunNo, RunReader, SessionNo, Sessions};
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::Target;
use stepwell_kernel::plan::{Step, WaitOn, WaitSpec, Work};

use crate::{chain, plan, request, task};

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(10);

/// A worker that does nothing by itself: the test says when its work ends.
struct Slow {
    begun: Sender<(Assignment, Reporter)>,
    told: Sender<()>,
    takes: Duration,
}

impl Worker for Slow {
    fn start(&mut self, job: Assignment, reporter: &Reporter) {
        let _ = self.begun.send((job, reporter.clone()));
    }

    fn stop(&mut self, _: RunNo, _: Target, _: u32) {}

    fn stop_all(&mut self) -> Duration {
        let _ = self.told.send(());
        self.takes
    }
}

/// An engine with one job in flight.
struct Stage {
    store: Arc<MemoryStore>,
    service: Service,
    job: Assignment,
    reporter: Reporter,
    told: Receiver<()>,
}

fn stage(takes: Duration) -> Stage {
    let store = Arc::new(MemoryStore::default());
    let (begun, begins) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let worker = Slow {
        begun,
        told: tell,
        takes,
    };
    let config = Config {
        serves: Serves::Everything,
        ..Config::default()
    };
    let setup = Setup {
        config,
        ..Setup::new(store.clone(), worker)
    };
    let service = Service::start(setup).unwrap();
    let plan = plan(chain(vec![task("a")]));
    service.handle().start(&plan, request("run_1")).unwrap();
    let (job, reporter) = begins.recv_timeout(LONG).unwrap();
    Stage {
        store,
        service,
        job,
        reporter,
        told,
    }
}

fn owner(store: &MemoryStore) -> Option<SessionNo> {
    let run = store.find("run_1").unwrap().unwrap();
    store.load(run).unwrap().unwrap().head.session
}

/// Sessions that others may take runs from.
fn given_back(store: &MemoryStore) -> bool {
    let now = stepwell_kernel::time::Time(0);
    !store.dead_sessions(now).unwrap().is_empty()
}

#[test]
fn a_run_is_given_back_only_when_its_work_has_stopped() {
    let Stage {
        store,
        service,
        job,
        reporter,
        told,
    } = stage(LONG);
    let stopping = std::thread::spawn(move || service.stop(Duration::ZERO));
    told.recv_timeout(LONG).unwrap();
    assert!(owner(&store).is_some());
    assert!(!given_back(&store), "its work is still under way");
    let claim = job.claimed.claim.clone();
    reporter.report(&job, Command::ConfirmKill { claim });
    stopping.join().unwrap().unwrap();
    assert!(owner(&store).is_none() || given_back(&store));
}

#[test]
fn work_that_does_not_stop_is_given_back_when_its_time_is_over() {
    let stage = stage(Duration::from_millis(50));
    let begin = Instant::now();
    stage.service.stop(Duration::ZERO).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(50));
    assert!(given_back(&stage.store));
}

#[test]
fn a_result_within_the_grace_counts_and_nothing_is_told_to_stop() {
    let Stage {
        store,
        service,
        job,
        reporter,
        told,
    } = stage(LONG);
    let claim = job.claimed.claim.clone();
    let completed = Command::CompleteStep {
        claim,
        output: serde_json::Value::Null,
        ctx: Default::default(),
        artifacts: Vec::new(),
    };
    reporter.report(&job, completed);
    service.stop(LONG).unwrap();
    assert!(told.try_recv().is_err());
    let run = store.find("run_1").unwrap().unwrap();
    let head = store.load(run).unwrap().unwrap().head;
    assert_eq!(head.status, "COMPLETED");
}

#[test]
fn a_service_that_is_dropped_stops_and_lets_go_of_its_store() {
    let Stage {
        store,
        service,
        told,
        ..
    } = stage(Duration::from_millis(50));
    let handle = service.handle();
    drop(service);
    told.try_recv().expect("its work was told to stop");
    assert!(given_back(&store));
    let weak: Weak<MemoryStore> = Arc::downgrade(&store);
    drop(store);
    assert!(weak.upgrade().is_none(), "no thread has it any more");
    let plan = plan(chain(vec![task("a")]));
    let refused = handle.start(&plan, request("run_2"));
    assert_eq!(refused, Err(stepwell_engine::Error::Stopping));
}

fn paid(id: &str, key: &str) -> ExternalEvent {
    ExternalEvent {
        tenant: "tenant".into(),
        id: id.into(),
        event_type: "paid".into(),
        key: key.into(),
        payload: serde_json::json!({ "amount": 5 }),
    }
}

#[test]
fn many_events_at_once_wake_the_runs_that_wait_for_them() {
    let store = Arc::new(MemoryStore::default());
    let service = Service::start(Setup::new(store.clone(), NoWorker)).unwrap();
    let handle = service.handle();
    let wait = Work::Wait(WaitSpec {
        on: WaitOn::Event {
            event_type: "paid".into(),
        },
        deadline_ms: None,
    });
    let plan = plan(chain(vec![Step::new("wait", wait)]));
    let ids: Vec<String> = (0..600).map(|no| format!("run_{no}")).collect();
    for id in &ids {
        handle.start(&plan, request(id)).unwrap();
    }
    let (tell, told) = mpsc::channel();
    for id in &ids {
        let tell = tell.clone();
        let on_delivered = move |delivered| drop(tell.send(delivered));
        handle.deliver_with(paid(id, id), on_delivered).unwrap();
    }
    for _ in &ids {
        let delivered = told.recv_timeout(LONG).unwrap().unwrap();
        assert!(matches!(delivered, Delivered::ToRun(_)), "{delivered:?}");
    }
    assert_eq!(handle.deliver(paid("run_7", "run_7")), Ok(Delivered::Again));
    assert_eq!(handle.deliver(paid("early", "later")), Ok(Delivered::Kept));
    assert!(handle.flush(LONG).unwrap());
    service.stop(LONG).unwrap();
    for id in &ids {
        let run = store.find(id).unwrap().unwrap();
        let head = store.load(run).unwrap().unwrap().head;
        assert_eq!(head.status, "COMPLETED", "{id}");
    }
    let gone = handle.deliver(paid("late", "later"));
    assert_eq!(gone, Err(stepwell_engine::Error::Stopping));
}

/// Counts how much is done at a time, and does it on a thread.
struct Counted {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Worker for Counted {
    fn start(&mut self, job: Assignment, reporter: &Reporter) {
        let at_a_time = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(at_a_time, Ordering::SeqCst);
        let (reporter, now) = (reporter.clone(), self.now.clone());
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(2));
            now.fetch_sub(1, Ordering::SeqCst);
            let completed = Command::CompleteStep {
                claim: job.claimed.claim.clone(),
                output: serde_json::Value::Null,
                ctx: Default::default(),
                artifacts: Vec::new(),
            };
            reporter.report(&job, completed);
        });
    }
}

#[test]
fn shards_finish_all_runs_within_one_limit_of_work() {
    let store = Arc::new(MemoryStore::default());
    let (now, most) = (Arc::default(), Arc::<AtomicUsize>::default());
    let service = Service::start(Setup {
        config: Config {
            serves: Serves::Everything,
            capacity: 3,
            ..Config::default()
        },
        shards: 4,
        ..Setup::new(
            store.clone(),
            Counted {
                now,
                most: most.clone(),
            },
        )
    })
    .unwrap();
    let plan = plan(chain(vec![task("a"), task("b"), task("c")]));
    let handle = service.handle();
    for run in 0..40 {
        handle
            .start_later(&plan, request(&format!("run_{run}")))
            .unwrap();
    }
    let ended = || {
        (0..40)
            .filter(|run| status(&store, &format!("run_{run}")) == "COMPLETED")
            .count()
    };
    let begin = Instant::now();
    while ended() < 40 {
        assert!(begin.elapsed() < LONG, "{} runs have ended", ended());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(handle.flush(LONG).unwrap());
    assert_eq!(
        most.load(Ordering::SeqCst),
        3,
        "the limit is for all shards together, and is used"
    );
    let numbers = (0..40).map(|run| store.find(&format!("run_{run}")).unwrap().unwrap());
    let shards: std::collections::BTreeSet<i64> = numbers.map(|run| run.0 % 4).collect();
    assert_eq!(shards.len(), 4, "every shard has runs");
    service.stop(LONG).unwrap();
    assert!(
        store
            .dead_sessions(stepwell_kernel::time::Time(0))
            .unwrap()
            .is_empty()
    );
}

/// Commands reach a run whose number is another shard's than its id, as after a start with fewer shards.
#[test]
fn a_command_finds_its_run_in_whichever_shard() {
    let store = Arc::new(MemoryStore::default());
    let plan = plan(chain(vec![task("a")]));
    let start = |shards| {
        let setup = Setup {
            shards,
            ..Setup::new(store.clone(), NoWorker)
        };
        Service::start(setup).unwrap()
    };
    let one = start(1);
    for run in 0..12 {
        one.handle()
            .start(&plan, request(&format!("run_{run}")))
            .unwrap();
    }
    one.stop(LONG).unwrap();
    let many = start(3);
    for run in 0..12 {
        let cancel = Command::CancelRun {
            actor: stepwell_engine::engine::engine_actor(),
            reason: None,
            compensate: false,
            keep_undo: false,
        };
        many.handle().submit(&format!("run_{run}"), cancel).unwrap();
        assert_eq!(status(&store, &format!("run_{run}")), "CANCELLED");
    }
    many.stop(LONG).unwrap();
}

fn status(store: &MemoryStore, run_id: &str) -> String {
    let Some(run) = store.find(run_id).unwrap() else {
        return String::new();
    };
    store.load(run).unwrap().unwrap().head.status
}
