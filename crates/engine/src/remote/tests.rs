//! A worker outside gets work, keeps it, reports it, loses it and gives it back.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::json;
use stepwell_dialects::{Source, load};
use stepwell_kernel::command::EarlierResult;
use stepwell_kernel::event::Patch;
use stepwell_kernel::rejection::Code;

use super::*;
use crate::clock::SystemClock;
use crate::service::{NoWorker, Service, Setup};
use crate::start::StartRequest;
use crate::store::{MemoryStore, RunReader as _};

const LEASE_MS: u64 = 30_000;

struct Site {
    service: Service,
    store: Arc<MemoryStore>,
    work: RemoteWork,
}

impl Site {
    /// A server without a worker of its own, with a run of two steps.
    fn open() -> Site {
        let text =
            b"workflowType: a.b\nworkflowVersion: 1\nsteps: [{stepType: PACK}, {stepType: SHIP}]\n";
        let source = Source::from_bytes("a.yaml", text).unwrap();
        let plan = Arc::new(load(&source).plan.unwrap());
        let store = Arc::new(MemoryStore::default());
        let service = Service::start(Setup::new(store.clone(), NoWorker)).unwrap();
        let mut request = StartRequest {
            run_id: "run_a".into(),
            ..StartRequest::default()
        };
        request.context.tenant_id = "acme".into();
        service.handle().start(&plan, request).unwrap();
        service.handle().flush(Duration::from_secs(5)).unwrap();
        let work = RemoteWork::new(store.clone(), service.handle(), Arc::new(SystemClock));
        Site {
            service,
            store,
            work,
        }
    }

    fn worker(&self, name: &str, tenant: Option<&str>) -> RemoteWorker {
        let run = self.store.find("run_a").unwrap().unwrap();
        let tasks = self.store.load(run).unwrap().unwrap().tasks;
        let pairs = tasks.into_iter().map(|task| (task.queue, task.op));
        RemoteWorker {
            name: name.into(),
            tenant: tenant.map(str::to_owned),
            serves: pairs.collect(),
        }
    }

    fn take(&self, worker: &RemoteWorker) -> Vec<Assignment> {
        let tasks = self.work.reserve(worker, 9).unwrap();
        let claim = |task| {
            let (tell, told) = mpsc::channel();
            let on_claimed = move |claimed| tell.send(claimed).unwrap();
            self.work.claim(task, LEASE_MS, on_claimed).unwrap();
            told.recv().unwrap().unwrap()
        };
        tasks.into_iter().map(claim).collect()
    }

    fn complete(&self, claim: &RemoteClaim) -> Result<Reply, Error> {
        let result = Command::CompleteStep {
            claim: claim.proof(),
            output: json!({"done": true}),
            ctx: Patch::new(),
            artifacts: Vec::new(),
        };
        let (tell, told) = mpsc::channel();
        let on_answer = move |answer| tell.send(answer).unwrap();
        self.work.report(claim, result, on_answer).unwrap();
        told.recv().unwrap()
    }
}

#[test]
fn work_is_claimed_reported_once_and_goes_on() {
    let site = Site::open();
    let first = site.take(&site.worker("w", None));
    assert_eq!(first.len(), 1);
    assert_eq!(&*first[0].run_id, "run_a");
    let claim = RemoteClaim::of(&first[0]);
    let told = serde_json::to_string(&claim).unwrap();
    assert_eq!(serde_json::from_str::<RemoteClaim>(&told).unwrap(), claim);
    assert_eq!(
        site.work.heartbeat(&claim, LEASE_MS).unwrap(),
        LeaseState::Held
    );
    assert_eq!(site.complete(&claim).unwrap(), Reply::Done);
    let again = site.complete(&claim).unwrap();
    assert_eq!(
        again,
        Reply::Duplicate(Box::new(EarlierResult::Succeeded)),
        "the same result gets the same answer"
    );
    assert_eq!(
        site.work.heartbeat(&claim, LEASE_MS).unwrap(),
        LeaseState::Lost
    );
    let second = site.take(&site.worker("w", None));
    assert_eq!(second.len(), 1, "the next step is offered");
    site.complete(&RemoteClaim::of(&second[0])).unwrap();
    site.service.stop(Duration::from_secs(1)).unwrap();
}

#[test]
fn a_worker_of_a_tenant_gets_no_work_of_others() {
    let site = Site::open();
    assert!(site.take(&site.worker("w", Some("other"))).is_empty());
    assert_eq!(site.take(&site.worker("w", Some("acme"))).len(), 1);
    site.service.stop(Duration::from_secs(1)).unwrap();
}

#[test]
fn what_is_given_back_is_offered_again_and_its_late_result_is_refused() {
    let site = Site::open();
    let first = RemoteClaim::of(&site.take(&site.worker("w", None))[0]);
    assert_eq!(site.work.give_back("other").unwrap(), 0);
    assert_eq!(site.work.give_back("w").unwrap(), 1);
    let other = site.worker("x", None);
    let until = Instant::now() + Duration::from_secs(20);
    let second = loop {
        if let Some(given) = site.take(&other).pop() {
            break RemoteClaim::of(&given);
        }
        assert!(Instant::now() < until, "the work is not offered again");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(second.execution > first.execution);
    let late = site.complete(&first).unwrap_err();
    let Error::Rejected(rejection) = late else {
        panic!("{late:?}");
    };
    assert_eq!(rejection.code, Code::LeaseLost);
    site.complete(&second).unwrap();
    site.service.stop(Duration::from_secs(1)).unwrap();
}

/// A seat, and how often it had news.
fn sit(site: &Site, worker: &RemoteWorker, places: usize) -> (Seat, mpsc::Receiver<()>) {
    let (tell, told) = mpsc::channel();
    let wake = move || {
        let _ = tell.send(());
    };
    let seat = site.work.sit(worker.clone(), places, LEASE_MS, wake);
    (seat, told)
}

fn all_pairs() -> Vec<(String, String)> {
    let pair = |op: &str| ("a.b".to_owned(), op.to_owned());
    vec![pair("PACK"), pair("SHIP")]
}

#[test]
fn a_worker_that_waits_gets_the_next_step_in_the_commit_of_its_result() {
    let site = Site::open();
    let mut worker = site.worker("w", None);
    let first = RemoteClaim::of(&site.take(&worker)[0]);
    worker.serves = all_pairs();
    let (seat, told) = sit(&site, &worker, 1);
    assert!(seat.take().is_empty());
    let commits = site.service.stats().commits.load(Ordering::SeqCst);
    site.complete(&first).unwrap();
    told.recv_timeout(Duration::from_secs(20)).unwrap();
    let given = seat.take();
    assert_eq!(given.len(), 1);
    assert_eq!(given[0].claimed.step_id, "SHIP");
    assert_eq!(given[0].claimed.claim.worker, "w");
    assert_eq!(
        site.service.stats().commits.load(Ordering::SeqCst),
        commits + 1,
        "the result and the next claim are one commit"
    );
    let second = RemoteClaim::of(&given[0]);
    let state = site.work.heartbeat(&second, LEASE_MS).unwrap();
    assert_eq!(state, LeaseState::Held, "it is a lease like any other");
    assert!(site.take(&worker).is_empty(), "nobody else gets it");
    site.complete(&second).unwrap();
    site.service.stop(Duration::from_secs(1)).unwrap();
}

#[test]
fn a_seat_is_given_only_what_its_worker_may_get_and_has_room_for() {
    let site = Site::open();
    let mut worker = site.worker("w", None);
    let first = RemoteClaim::of(&site.take(&worker)[0]);
    worker.serves = all_pairs();
    let other = RemoteWorker {
        tenant: Some("other".into()),
        ..worker.clone()
    };
    let unfit = RemoteWorker {
        serves: vec![("a.b".into(), "PACK".into())],
        ..worker.clone()
    };
    let seats = [
        sit(&site, &other, 9),
        sit(&site, &unfit, 9),
        sit(&site, &worker, 0),
        sit(&site, &worker, 9),
    ];
    seats[3].0.leave();
    site.complete(&first).unwrap();
    site.service
        .handle()
        .flush(Duration::from_secs(20))
        .unwrap();
    for (seat, _) in &seats {
        assert!(seat.take().is_empty() && !seat.is_expecting());
    }
    assert_eq!(site.take(&worker).len(), 1, "it lies in the store");
    site.service.stop(Duration::from_secs(1)).unwrap();
}

#[test]
fn a_worker_that_came_a_moment_late_is_told_to_look() {
    let site = Site::open();
    let worker = site.worker("w", None);
    let first = RemoteClaim::of(&site.take(&worker)[0]);
    let late = RemoteWorker {
        serves: all_pairs(),
        ..worker
    };
    assert!(site.work.reserve(&late, 9).unwrap().is_empty());
    assert!(site.work.clear_until(&late).is_some(), "nothing lies there");
    let (seat, told) = sit(&site, &late, 1);
    let aside = seat.set_aside(9);
    assert_eq!(aside, 1);
    site.complete(&first).unwrap();
    site.service
        .handle()
        .flush(Duration::from_secs(20))
        .unwrap();
    assert!(told.try_recv().is_err(), "it had no room");
    assert_eq!(site.work.clear_until(&late), None, "something lies there");
    let reserved = site.work.reserve(&late, 9).unwrap();
    assert_eq!(reserved.len(), 1);
    assert!(
        site.work.reserve(&late, 9).unwrap().is_empty(),
        "it is about to be claimed"
    );
    site.service.stop(Duration::from_secs(1)).unwrap();
}

#[test]
fn the_worker_that_has_waited_longest_is_first() {
    let site = Site::open();
    let mut worker = site.worker("w", None);
    let first = RemoteClaim::of(&site.take(&worker)[0]);
    worker.serves = all_pairs();
    let (early, _) = sit(&site, &worker, 1);
    let (late, _) = sit(&site, &worker, 1);
    site.complete(&first).unwrap();
    assert_eq!((early.take().len(), late.take().len()), (1, 0));
    drop((early, late));
    assert!(site.service.handle().seats().is_empty());
    site.service.stop(Duration::from_secs(1)).unwrap();
}

#[test]
fn of_the_seats_of_one_worker_the_one_that_reports_is_first() {
    let site = Site::open();
    let mut worker = site.worker("w", None);
    let first = RemoteClaim::of(&site.take(&worker)[0]);
    worker.serves = all_pairs();
    let mut other = worker.clone();
    other.name = "v".into();
    let (waiting, _) = sit(&site, &worker, 1);
    let (of_other, _) = sit(&site, &other, 1);
    let (reporting, _) = sit(&site, &worker, 1);
    of_other.set_reporting(true);
    reporting.set_reporting(true);
    site.complete(&first).unwrap();
    let given = [&waiting, &of_other, &reporting].map(|it| it.take().len());
    assert_eq!(
        given,
        [0, 0, 1],
        "it is the turn of w, and not of another worker"
    );
    site.service.stop(Duration::from_secs(1)).unwrap();
}

#[test]
fn who_leaves_a_seat_is_told_once_when_nothing_more_is_on_its_way() {
    let seats = Arc::new(Seats::default());
    let worker = RemoteWorker {
        name: "w".into(),
        tenant: None,
        serves: all_pairs(),
    };
    let (tell, told) = mpsc::channel();
    let seat = seats.sit(worker, 3, LEASE_MS, move || {
        let _ = tell.send(());
    });
    let places: Vec<_> = (0..3)
        .map(|_| seats.place("a.b", "PACK", "acme").unwrap())
        .collect();
    assert!(seats.place("a.b", "PACK", "acme").is_none(), "no room");
    seat.leave();
    drop(places);
    assert_eq!(told.try_iter().count(), 1);
    assert!(!seat.is_expecting());
}
