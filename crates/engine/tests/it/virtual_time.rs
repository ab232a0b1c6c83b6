//! A service with a virtual clock: nothing sleeps, its owner moves the time, and the same commands give the
//! same log.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use stepwell_engine::clock::VirtualClock;
use stepwell_engine::coordinator::Notice;
use stepwell_engine::engine::engine_actor;
use stepwell_engine::mock::Mock;
use stepwell_engine::port::Clock as _;
use stepwell_engine::read::LoggedRun;
use stepwell_engine::service::{Idle, Observer, Service, Setup};
use stepwell_engine::store::MemoryStore;
use stepwell_kernel::command::Command;
use stepwell_kernel::event::Event;
use stepwell_kernel::plan::{Edge, Plan, StepNo};

use crate::{START, chain, config, plan, request, task};

/// How long a test waits for what must come.
const LONG: Duration = Duration::from_secs(20);

/// What an observer was told.
enum Update {
    Changed,
    Idle(Idle),
}

struct SendUpdates(Sender<Update>);

impl Observer for SendUpdates {
    fn notice(&mut self, notice: &Notice) {
        if let Notice::Changed { .. } = notice {
            let _ = self.0.send(Update::Changed);
        }
    }

    fn idle(&mut self, idle: Idle) {
        let _ = self.0.send(Update::Idle(idle));
    }
}

/// Runs a plan whose steps take this long to its end, or until there were so many stops in between.
fn run(plan: &Arc<Plan>, work_ms: u64, stops: usize) -> (Vec<Event>, Arc<VirtualClock>, usize) {
    let store = Arc::new(MemoryStore::with_secret([7; 32]));
    let clock = Arc::new(VirtualClock::at(START));
    let mut mock = Mock::new(store.clone(), clock.clone()).unwrap();
    mock.work_ms = work_ms;
    let (send, updates) = mpsc::channel();
    let service = Service::start(Setup {
        config: Mock::configure(config()),
        clock: clock.clone(),
        observer: Box::new(SendUpdates(send)),
        ..Setup::new(store.clone(), mock)
    })
    .unwrap();
    let handle = service.handle();
    handle.start(plan, request("run_1")).unwrap();
    let mut run = LoggedRun::open(&*store, "run_1").unwrap();
    let mut stopped = 0;
    while !run.state.phase().is_ended() && stopped < stops {
        if let Update::Idle(idle) = updates.recv_timeout(LONG).unwrap() {
            run.catch_up(&*store).unwrap();
            stopped += usize::from(idle.has_more);
            let due = match idle.has_more {
                true => Some(clock.now()),
                false => idle.next_due,
            };
            if let Some(due) = due {
                handle.advance_to(due);
            }
        }
    }
    service.stop(Duration::ZERO).unwrap();
    let mut whole = LoggedRun::open(&*store, "run_1").unwrap();
    (whole.catch_up(&*store).unwrap(), clock, stopped)
}

/// Two branches that end at the same instant, and a step after both.
fn diamond() -> Arc<Plan> {
    let mut net = chain(["a", "b", "c", "d"].map(task).to_vec());
    let edge = |from, to| Edge::plain(StepNo(from), StepNo(to));
    net.edges = vec![edge(0, 1), edge(0, 2), edge(1, 3), edge(2, 3)];
    plan(net)
}

#[test]
fn an_hour_of_virtual_time_passes_in_no_time_and_always_in_the_same_way() {
    let begin = Instant::now();
    let hour = 3_600_000;
    let (first, clock, _) = run(&diamond(), hour, usize::MAX);
    assert!(begin.elapsed() < Duration::from_secs(60), "nothing sleeps");
    assert_eq!(clock.now(), START.plus(3 * hour));
    assert_eq!(first.last().unwrap().body.kind(), "RunCompleted");
    for _ in 0..5 {
        assert_eq!(run(&diamond(), hour, usize::MAX).0, first);
    }
}

#[test]
fn a_workflow_that_goes_round_in_no_time_can_be_stopped() {
    let round = crate::definitions::plan(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: round}\nworkflow:\n- step: start\n  \
         tool: {kind: noop}\n  next: start\n",
    );
    let (events, clock, stops) = run(&round, 0, 3);
    assert_eq!(stops, 3);
    assert_eq!(clock.now(), START, "all of it at one instant");
    assert!(events.len() > 3 * 256, "{} events", events.len());
}

#[test]
fn after_a_flush_the_consequences_of_a_command_are_committed() {
    let store = Arc::new(MemoryStore::default());
    let (send, updates) = mpsc::channel();
    let service = Service::start(Setup {
        observer: Box::new(SendUpdates(send)),
        ..Setup::new(store.clone(), stepwell_engine::engine::Collector::default())
    })
    .unwrap();
    let handle = service.handle();
    let one = plan(chain(vec![task("a")]));
    handle.start(&one, request("run_1")).unwrap();
    let cancel = Command::CancelRun {
        actor: engine_actor(),
        reason: None,
        compensate: false,
        keep_undo: false,
    };
    handle.submit("run_1", cancel).unwrap();
    assert!(handle.flush(LONG).unwrap());
    let mut run = LoggedRun::open(&*store, "run_1").unwrap();
    run.catch_up(&*store).unwrap();
    assert!(run.state.phase().is_ended());
    // The observer was told before: the engine is at rest.
    let told: Vec<Update> = updates.try_iter().collect();
    assert!(matches!(told.last(), Some(Update::Idle(idle)) if idle.in_flight == 0));
    service.stop(Duration::ZERO).unwrap();
}
