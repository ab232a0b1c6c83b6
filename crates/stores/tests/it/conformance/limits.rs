//! How many runs may run at a time: slots are taken and freed in the commits that start and end them.

use serde_json::json;
use stepwell_engine::coordinator::Config;
use stepwell_engine::limits::{Limits, WhenFull};
use stepwell_engine::store::AppendResult;
use stepwell_engine::{Error, StartRequest};

use super::{Hand, Lab, chain, completed, each_store, request, serves, signal};

fn limited(limits: Limits) -> Config {
    Config { limits, ..serves() }
}

fn one_at_a_time() -> Config {
    limited(Limits {
        total: Some(1),
        ..Limits::default()
    })
}

fn statuses(lab: &Lab, runs: &[&str]) -> Vec<String> {
    runs.iter().map(|run_id| lab.status(run_id)).collect()
}

#[test]
fn queue_persists_the_run_pending_and_starts_it_later() {
    each_store(|lab| {
        let mut hand = lab.hand(one_at_a_time());
        for run_id in ["run_1", "run_2", "run_3"] {
            hand.trigger(&chain(&["a"]), request(run_id)).unwrap();
        }
        let runs = ["run_1", "run_2", "run_3"];
        assert_eq!(statuses(lab, &runs), ["RUNNING", "PENDING", "PENDING"]);
        assert_eq!(lab.kinds("run_2"), ["RunCreated", "RunQueued"]);
        assert_eq!(lab.store.slots_taken("all").unwrap(), 1);
        hand.finish_next();
        assert_eq!(statuses(lab, &runs), ["COMPLETED", "RUNNING", "PENDING"]);
        assert_eq!(lab.store.slots_taken("all").unwrap(), 1);
        hand.work();
        assert_eq!(statuses(lab, &runs), ["COMPLETED"; 3]);
        assert_eq!(lab.store.slots_taken("all").unwrap(), 0);
    });
}

#[test]
fn delay_accepts_the_run_with_a_start_in_the_future() {
    each_store(|lab| {
        let mut config = one_at_a_time();
        config.limits.when_full = WhenFull::Delay { by_ms: 60_000 };
        config.session_ms = 1_000_000;
        let mut hand = lab.hand(config);
        hand.trigger(&chain(&["a"]), request("run_1")).unwrap();
        hand.trigger(&chain(&["a"]), request("run_2")).unwrap();
        hand.finish_next();
        assert_eq!(statuses(lab, &["run_1", "run_2"]), ["COMPLETED", "PENDING"]);
        hand.advance(59_999).tick();
        assert_eq!(lab.status("run_2"), "PENDING", "not before its time");
        hand.advance(1).tick();
        assert_eq!(lab.status("run_2"), "RUNNING");
    });
}

#[test]
fn reject_says_when_to_try_again_and_leaves_nothing() {
    each_store(|lab| {
        let mut config = one_at_a_time();
        config.limits.when_full = WhenFull::Reject {
            retry_after_ms: 7_000,
        };
        let (mut one, mut two) = (lab.hand(config.clone()), lab.hand(config));
        one.trigger(&chain(&["a"]), request("run_1")).unwrap();
        let busy = Error::Busy {
            key: "all".into(),
            retry_after_ms: 7_000,
        };
        let refused = two.trigger(&chain(&["a"]), request("run_2"));
        assert_eq!(refused, Err(busy.clone()));
        assert_eq!(lab.store.find("run_2").unwrap(), None);
        // Also for a server that finds out only by committing.
        one.finish_next();
        let slow = two.hand_in_start(&chain(&["a"]), request("run_3"));
        one.trigger(&chain(&["a"]), request("run_4")).unwrap();
        two.drive();
        assert_eq!(two.answer(slow), Some(Err(busy)));
        assert_eq!(lab.store.find("run_3").unwrap(), None);
        assert_eq!(lab.store.slots_taken("all").unwrap(), 1);
    });
}

#[test]
fn c32_two_servers_that_race_for_a_queued_run_start_it_once() {
    each_store(|lab| {
        let mut one = lab.hand(one_at_a_time());
        one.trigger(&chain(&["a"]), request("run_1")).unwrap();
        one.trigger(&chain(&["a"]), request("run_2")).unwrap();
        let mut two = lab.hand(one_at_a_time());
        // The slot is freed, and both see it before either commits.
        let job = one.jobs.remove(0);
        one.finish_later(&job, completed(&job.claimed.claim));
        let end = one.batch().unwrap();
        one.send(&end);
        one.coordinator.dequeue(one.now).unwrap();
        two.coordinator.dequeue(two.now).unwrap();
        let (ours, theirs) = (one.batch().unwrap(), two.batch().unwrap());
        assert_eq!(two.send(&theirs), [AppendResult::Committed]);
        assert_eq!(one.send(&ours), [AppendResult::Moved]);
        one.drive();
        two.drive();
        assert_eq!(lab.count("run_2", "RunStarted"), 1);
        assert_eq!(lab.count("run_2", "StepStarted"), 1);
        assert_eq!((one.jobs.len(), two.jobs.len()), (0, 1));
        assert_eq!(lab.store.slots_taken("all").unwrap(), 1);
        two.work();
        assert_eq!(lab.status("run_2"), "COMPLETED");
        assert_eq!(lab.store.slots_taken("all").unwrap(), 0);
    });
}

#[test]
fn c32_many_servers_with_threads_start_each_queued_run_once_within_the_limits() {
    each_store(|lab| {
        let config = limited(Limits {
            total: Some(3),
            ..Limits::default()
        });
        let runs: Vec<String> = (0..12).map(|no| format!("run_{no}")).collect();
        let mut first = lab.hand(config.clone());
        for run_id in &runs {
            first.trigger(&chain(&["a"]), request(run_id)).unwrap();
        }
        let mut hands: Vec<Hand> = (0..3).map(|_| lab.hand(config.clone())).collect();
        hands.push(first);
        let store = &lab.store;
        std::thread::scope(|scope| {
            for mut hand in hands {
                scope.spawn(move || {
                    // Until every run has ended.
                    let open = stepwell_engine::store::RunFilter {
                        open: true,
                        limit: 100,
                        ..Default::default()
                    };
                    for round in 0.. {
                        if store.list(&open).unwrap().is_empty() {
                            break;
                        }
                        assert!(round < 2_000, "someone goes on");
                        hand.tick();
                        assert!(store.slots_taken("all").unwrap() <= 3);
                        hand.work();
                    }
                });
            }
        });
        for run_id in &runs {
            assert_eq!(lab.count(run_id, "RunStarted"), 1);
            assert_eq!(lab.count(run_id, "StepStarted"), 1);
            assert_eq!(lab.status(run_id), "COMPLETED");
        }
        assert_eq!(lab.store.slots_taken("all").unwrap(), 0);
    });
}

#[test]
fn limits_count_for_each_tenant_plan_and_key() {
    each_store(|lab| {
        let limits = Limits {
            per_tenant: Some(2),
            per_plan: Some(3),
            per_key: Some(("/customer".into(), 1)),
            ..Limits::default()
        };
        let mut hand = lab.hand(limited(limits));
        let plan = chain(&["a"]);
        let mut start = |run_id: &str, tenant: &str, customer: u32| {
            let mut request = StartRequest {
                params: json!({ "customer": customer }),
                ..request(run_id)
            };
            request.context.tenant_id = tenant.into();
            hand.trigger(&plan, request).unwrap();
            lab.status(run_id)
        };
        assert_eq!(start("run_1", "t1", 1), "RUNNING");
        assert_eq!(start("run_2", "t1", 1), "PENDING", "the customer has one");
        assert_eq!(start("run_3", "t1", 2), "RUNNING");
        assert_eq!(start("run_4", "t1", 3), "PENDING", "the tenant has two");
        assert_eq!(start("run_5", "t2", 4), "RUNNING", "nobody else is held up");
        assert_eq!(start("run_6", "t3", 5), "PENDING", "the plan has three");
        let taken = |key: &str| lab.store.slots_taken(key).unwrap();
        assert_eq!((taken("tenant/t1"), taken("plan/plan_stores")), (2, 3));
        hand.work();
        for no in 1..=6 {
            assert_eq!(lab.status(&format!("run_{no}")), "COMPLETED");
        }
        assert_eq!((taken("tenant/t1"), taken("plan/plan_stores")), (0, 0));
    });
}

#[test]
fn slots_survive_a_crash_and_are_freed_by_whoever_ends_the_run() {
    each_store(|lab| {
        let mut old = lab.hand(one_at_a_time());
        old.trigger(&chain(&["a"]), request("run_1")).unwrap();
        old.trigger(&chain(&["a"]), request("run_2")).unwrap();
        // A commit was on its way when it died; it never came through.
        let job = old.jobs.remove(0);
        old.finish_later(&job, completed(&job.claimed.claim));
        assert!(old.batch().is_some());
        let died = old.now;
        drop(old);
        assert_eq!(lab.store.slots_taken("all").unwrap(), 1);
        let mut new = lab.hand_at(one_at_a_time(), died.plus(15_001));
        new.tick();
        assert_eq!(statuses(lab, &["run_1", "run_2"]), ["RUNNING", "PENDING"]);
        assert_eq!(lab.store.slots_taken("all").unwrap(), 1, "still its");
        new.work();
        assert_eq!(statuses(lab, &["run_1", "run_2"]), ["COMPLETED"; 2]);
        assert_eq!(lab.store.slots_taken("all").unwrap(), 0);
        // What it holds is freed even if the limits are others by then.
        new.trigger(&chain(&["a"]), request("run_3")).unwrap();
        *new.coordinator.config() = serves();
        new.submit("run_3", signal("c", "CANCEL")).unwrap();
        new.work();
        assert_eq!(lab.store.slots_taken("all").unwrap(), 0);
    });
}

#[test]
fn a_command_beside_a_start_that_finds_no_slot_is_answered() {
    each_store(|lab| {
        let mut one = lab.hand(one_at_a_time());
        one.trigger(&chain(&["a"]), request("run_1")).unwrap();
        one.trigger(&chain(&["a"]), request("run_2")).unwrap();
        one.trigger(&chain(&["a"]), request("run_3")).unwrap();
        let mut two = lab.hand(one_at_a_time());
        let job = one.jobs.remove(0);
        one.finish_later(&job, completed(&job.claimed.claim));
        let end = one.batch().unwrap();
        one.send(&end);
        // Both want to start one; one of them also has a command for it.
        two.coordinator.dequeue(two.now).unwrap();
        let ticket = two.hand_in("run_2", super::event("e", "tick", json!({})));
        let batch = two.batch().unwrap();
        let run_3 = lab.store.find("run_3").unwrap().unwrap();
        // Someone else takes the slot in between, with another run.
        let mut other = batch.appends[0].slots.clone();
        other.retain(|slot| slot.change > 0);
        let mut steal = stepwell_engine::store::Append::new(run_3, 2);
        let stored = lab.store.load(run_3).unwrap().unwrap();
        steal.head_version = Some(stored.head_version);
        steal.slots = other;
        let stolen = lab.store.commit(&stepwell_engine::store::Batch {
            id: stepwell_engine::store::CommitId {
                session: 900,
                number: 1,
            },
            session: None,
            now: one.now,
            appends: vec![steal],
        });
        assert_eq!(stolen.unwrap(), [AppendResult::Committed]);
        assert_eq!(two.send(&batch), [AppendResult::SlotsFull("all".into())]);
        two.drive();
        assert!(matches!(two.answer(ticket), Some(Ok(_))));
        assert_eq!(lab.status("run_2"), "PENDING");
        assert_eq!(lab.count("run_2", "EventReceived"), 1);
    });
}
