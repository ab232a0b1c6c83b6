//! A store that is away for longer than the write budget, again and again: commands wait for it and are not refused.

use std::sync::Arc;

use stepwell_engine::coordinator::{Coordinator, Notice, Retry, Ticket};
use stepwell_engine::port::NoCatalog;
use stepwell_engine::read::events;
use stepwell_engine::store::{
    AppendResult, Commits as _, Guard, MemoryStore, StoreError, StoreErrorKind, Tasks as _,
};
use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::effect::Target;
use stepwell_kernel::plan::{StepNo, StepRef};
use stepwell_kernel::time::Time;

use crate::{chain, config, plan, request, task};

#[test]
fn a_start_is_not_called_contended_because_the_store_is_away() {
    let store = Arc::new(MemoryStore::default());
    let mut config = config();
    config.session_ms = 10_000_000;
    let budget = config.write_budget_ms;
    let mut coordinator =
        Coordinator::open(store.clone(), Box::new(NoCatalog), config, Time(0)).unwrap();
    let mut now = Time(0);
    let one = plan(chain(vec![task("a")]));
    coordinator.start(&one, request("run_1"), true, Ticket(1), now);
    let away = StoreError::new(StoreErrorKind::Unavailable, "nobody is there");
    for round in 0..20 {
        let batch = coordinator.next_batch(now).expect("something to commit");
        now = now.plus(budget + 1);
        assert_eq!(coordinator.failed(&batch, &away, now), Retry::Never);
        let answered = coordinator
            .notices()
            .any(|notice| matches!(notice, Notice::Answer(..)));
        assert!(!answered, "the command was given up in round {round}");
    }
    let batch = coordinator.next_batch(now).expect("something to commit");
    let results = store.commit(&batch).unwrap();
    coordinator.committed(&batch, results, now);
    let created = coordinator.notices().any(|notice| {
        matches!(notice, Notice::Answer(Ticket(1), Ok(Reply::Created { run_id })) if run_id == "run_1")
    });
    assert!(created);
}

/// Commits all that is decided, and says how often the lease of a step has ended in the log of `run_1`.
fn settle(coordinator: &mut Coordinator, store: &MemoryStore, now: Time) -> usize {
    while let Some(batch) = coordinator.next_batch(now) {
        let results = store.commit(&batch).unwrap();
        coordinator.committed(&batch, results, now);
    }
    coordinator.notices().for_each(drop);
    let log = events(store, "run_1", 0).unwrap();
    log.iter()
        .filter(|event| event.body.kind() == "StepExecutionFailed")
        .count()
}

#[test]
fn the_lease_of_a_claim_that_came_through_late_ends_by_its_time() {
    const LEASE_MS: u64 = 60_000;
    let store = Arc::new(MemoryStore::default());
    let mut config = config();
    config.session_ms = 10_000_000;
    let budget = config.write_budget_ms;
    let mut coordinator =
        Coordinator::open(store.clone(), Box::new(NoCatalog), config, Time(0)).unwrap();
    let one = plan(chain(vec![task("a")]));
    coordinator.start(&one, request("run_1"), true, Ticket(1), Time(0));
    assert_eq!(settle(&mut coordinator, &store, Time(0)), 0);

    // A worker outside asks for the step; the commit of the claim is given up.
    let (worker, target) = ("remote", Target::Step(StepRef::first(StepNo(0))));
    let pairs = [("default".into(), "a".into())];
    let now = Time(1);
    let tasks = store
        .reserve(&pairs, worker, now, now.plus(10_000), 1)
        .unwrap();
    let guard = Guard::Lease {
        target: tasks[0].target.clone(),
        worker: worker.into(),
    };
    let claim = Command::ClaimStep {
        target,
        worker: worker.into(),
        lease_until: now.plus(LEASE_MS),
    };
    coordinator.submit_guarded("run_1", claim, guard, Ticket(2), now);
    let late = coordinator.next_batch(now).expect("a claim to commit");
    let now = now.plus(budget + 1);
    let away = StoreError::new(StoreErrorKind::Unavailable, "nobody is there");
    assert_eq!(coordinator.failed(&late, &away, now), Retry::Never);
    let again = coordinator
        .next_batch(now)
        .expect("the claim is decided again");
    coordinator.abandon(&again, &away);

    // Meanwhile something else has made this server read the run.
    coordinator.recover("run_1", now).unwrap();
    assert_eq!(settle(&mut coordinator, &store, now), 0);

    // It comes through after all, and the worker has never heard of it.
    assert_eq!(store.commit(&late).unwrap(), [AppendResult::Committed]);
    let mut now = now.plus(LEASE_MS);
    for _ in 0..10 {
        now = now.plus(1_000);
        coordinator.tick(now).unwrap();
        if settle(&mut coordinator, &store, now) == 1 {
            return;
        }
    }
    panic!("nobody ended the lease");
}
