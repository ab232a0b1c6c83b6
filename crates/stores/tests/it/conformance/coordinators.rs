//! Servers come and go: dead ones are taken over, lost sessions are replaced, and what is evicted from
//! memory is as good as before.

use std::sync::Arc;

use stepwell_engine::coordinator::{Config, Notice, Serves};
use stepwell_engine::store::AppendResult;
use stepwell_kernel::command::Reply;
use stepwell_kernel::rejection::Code;

use super::{Hand, beside, chain, completed, each_store, offers, request, serves, signal};

const RUN: &str = "run_k";

#[test]
fn the_work_of_a_dead_server_runs_again_and_its_late_result_is_refused() {
    each_store(|lab| {
        let plan = chain(&["a", "b"]);
        let mut old = lab.hand(serves());
        old.trigger(&plan, request(RUN)).unwrap();
        let job = old.jobs.remove(0);
        let mut new = lab.hand(serves());
        // While the old one's session lives nobody touches its run.
        new.advance(15_000).tick();
        assert!(new.jobs.is_empty());
        new.advance(1).tick();
        let again = new.jobs.remove(0);
        assert_eq!(
            again.claimed.claim.execution,
            job.claimed.claim.execution + 1
        );
        assert_eq!(again.claimed.idempotency_key, job.claimed.idempotency_key);
        let before = lab.events(RUN);
        // The old one was only slow. Its result does not count.
        old.now = new.now;
        old.finish(&job, completed(&job.claimed.claim));
        assert_eq!(lab.events(RUN), before);
        assert!(old.jobs.is_empty());
        new.finish(&again, completed(&again.claimed.claim));
        new.work();
        assert_eq!(lab.status(RUN), "COMPLETED");
        assert_eq!(lab.count(RUN, "StepCompleted"), 2);
        assert_eq!(lab.count(RUN, "StepExecutionFailed"), 1);
    });
}

#[test]
fn a_late_result_and_the_takeover_race_and_exactly_one_is_written() {
    each_store(|lab| {
        for result_first in [true, false] {
            let run_id = format!("run_{result_first}");
            let mut old = lab.hand(serves());
            old.trigger(&chain(&["a"]), request(&run_id)).unwrap();
            let job = old.jobs.remove(0);
            // The result is decided while the session lives, and sent when it may be too late.
            old.finish_later(&job, completed(&job.claimed.claim));
            let result = old.batch().unwrap();
            let mut new = lab.hand_at(serves(), old.now);
            if result_first {
                assert_eq!(old.send(&result), [AppendResult::Committed]);
            }
            new.advance(15_001).tick();
            if !result_first {
                assert_ne!(old.send(&result), [AppendResult::Committed]);
                old.now = new.now;
                old.drive();
            }
            new.work();
            assert_eq!(lab.status(&run_id), "COMPLETED");
            assert_eq!(lab.count(&run_id, "StepCompleted"), 1);
            let executions = 1 + lab.count(&run_id, "StepExecutionStarted");
            assert_eq!(executions, if result_first { 1 } else { 2 });
        }
    });
}

#[test]
fn only_one_of_two_servers_takes_a_dead_ones_run_over() {
    each_store(|lab| {
        let mut old = lab.hand(serves());
        for no in 0..5 {
            old.trigger(&chain(&["a"]), request(&format!("run_{no}")))
                .unwrap();
        }
        old.coordinator.close().unwrap();
        let (mut one, mut two) = (lab.hand(serves()), lab.hand(serves()));
        // Both see the dead one before either commits.
        one.coordinator.tick(one.now).unwrap();
        two.coordinator.tick(two.now).unwrap();
        two.drive();
        one.drive();
        assert_eq!((one.jobs.len(), two.jobs.len()), (0, 5));
        two.work();
        one.tick();
        for no in 0..5 {
            let run_id = format!("run_{no}");
            assert_eq!(lab.status(&run_id), "COMPLETED");
            assert_eq!(lab.count(&run_id, "StepExecutionStarted"), 1);
        }
    });
}

#[test]
fn a_server_that_stops_gives_back_at_once() {
    each_store(|lab| {
        let mut old = lab.hand(serves());
        old.trigger(&chain(&["a", "b"]), request(RUN)).unwrap();
        let job = old.jobs.remove(0);
        old.coordinator.stop();
        // What is under way may end; nothing new is claimed.
        old.finish(&job, completed(&job.claimed.claim));
        assert!(old.jobs.is_empty());
        let refused = old.trigger(&chain(&["a"]), request("run_late"));
        assert_eq!(refused, Err(stepwell_engine::Error::Stopping));
        old.coordinator.close().unwrap();
        // No time passes, and no attempt is lost.
        let mut new = lab.hand(serves());
        new.tick();
        assert_eq!(new.jobs.len(), 1);
        new.work();
        assert_eq!(lab.status(RUN), "COMPLETED");
        assert_eq!(lab.count(RUN, "StepExecutionFailed"), 0);
    });
}

#[test]
fn a_server_whose_session_was_lost_opens_another_and_goes_on() {
    each_store(|lab| {
        let mut hand = lab.hand(serves());
        hand.trigger(&chain(&["a", "b"]), request(RUN)).unwrap();
        let first = hand.coordinator.session();
        let job = hand.jobs.remove(0);
        // It slept through its session's end, which someone has seen.
        hand.advance(15_001);
        assert_eq!(lab.store.dead_sessions(hand.now).unwrap(), [first]);
        hand.tick();
        assert_ne!(hand.coordinator.session(), first);
        let stopped = |it: &Notice| matches!(it, Notice::Stop { .. });
        assert!(
            hand.said.iter().any(stopped),
            "its work is not its any more"
        );
        // It takes its own run over like any other dead server's.
        hand.tick();
        let again = hand.jobs.remove(0);
        assert_eq!(again.claimed.claim.execution, 2);
        hand.finish(&job, completed(&job.claimed.claim));
        assert_eq!(lab.count(RUN, "StepCompleted"), 0, "the old result is late");
        hand.finish(&again, completed(&again.claimed.claim));
        hand.work();
        assert_eq!(lab.status(RUN), "COMPLETED");
        assert_eq!(hand.coordinator.busy(), 0);
    });
}

#[test]
fn commands_survive_the_loss_of_the_session() {
    each_store(|lab| {
        let mut hand = lab.hand(serves());
        hand.trigger(&chain(&["a"]), request(RUN)).unwrap();
        hand.jobs.clear();
        hand.advance(15_001);
        lab.store.dead_sessions(hand.now).unwrap();
        let ticket = hand.hand_in(RUN, signal("p", "PAUSE"));
        let start = hand.hand_in_start(&chain(&["a"]), request("run_new"));
        for _ in 0..3 {
            hand.drive();
            hand.tick();
        }
        let answer = hand.answer(ticket).expect("it is answered");
        assert!(answer.is_ok(), "{answer:?}");
        assert_eq!(lab.status(RUN), "PAUSED");
        // A start is answered too, whatever the answer.
        hand.answer(start).expect("it is answered").err();
    });
}

#[test]
fn a_batch_of_a_replaced_session_does_not_cost_the_new_one() {
    each_store(|lab| {
        let mut hand = lab.hand(serves());
        hand.trigger(&chain(&["a"]), request(RUN)).unwrap();
        let job = hand.jobs.remove(0);
        hand.finish_later(&job, completed(&job.claimed.claim));
        let batch = hand.batch().unwrap();
        hand.advance(15_001);
        lab.store.dead_sessions(hand.now).unwrap();
        hand.coordinator.tick(hand.now).unwrap();
        let second = hand.coordinator.session();
        // Only now the first session's last commit is answered.
        assert!(matches!(
            hand.send(&batch)[..],
            [AppendResult::GuardFailed(_)]
        ));
        hand.drive();
        hand.tick();
        assert_eq!(hand.coordinator.session(), second);
        hand.work();
        assert_eq!(lab.status(RUN), "COMPLETED");
    });
}

#[test]
fn forgetting_runs_changes_nothing() {
    each_store(|lab| {
        let logs = |cache: usize| {
            let plan = chain(&["a", "b", "c"]);
            let config = Config { cache, ..offers() };
            let mut hand = lab.hand(config);
            let runs: Vec<String> = (0..12).map(|no| format!("run_{cache}_{no}")).collect();
            for run_id in &runs {
                hand.trigger(&plan, request(run_id)).unwrap();
            }
            // A command to a run that has to be read first is answered like any other.
            for run_id in &runs {
                let tick = super::event("e", "tick", serde_json::json!({}));
                hand.submit(run_id, tick).unwrap();
            }
            // Round by round, so that every run is touched after all the others.
            for step in ["a", "b", "c"] {
                for run_id in &runs {
                    let claim = hand.claim_as(run_id, step, "w").unwrap().claim;
                    hand.advance(1);
                    let done = hand.submit(run_id, completed(&claim)).unwrap();
                    assert_eq!(done, Reply::Done);
                    if cache < 5 {
                        assert!(hand.coordinator.all_hot().count() <= 2 * cache + 1);
                    }
                }
            }
            let again = hand.code(&runs[0], claim_of_the_first());
            assert_eq!(again, Code::RunTerminal);
            hand.coordinator.close().unwrap();
            let logs = runs.iter().map(|run_id| lab.kinds(run_id));
            logs.collect::<Vec<_>>()
        };
        assert_eq!(logs(2), logs(10_000));
    });
}

fn claim_of_the_first() -> stepwell_kernel::command::Command {
    stepwell_kernel::command::Command::ClaimStep {
        target: stepwell_kernel::effect::Target::Step(stepwell_kernel::plan::StepRef::first(
            stepwell_kernel::plan::StepNo(0),
        )),
        worker: "w".into(),
        lease_until: super::START.plus(1_000_000),
    }
}

#[test]
fn work_that_takes_longer_than_its_lease_says_is_still_its_sessions() {
    each_store(|lab| {
        let mut hand = lab.hand(serves());
        hand.trigger(&chain(&["a"]), request(RUN)).unwrap();
        let job = hand.jobs.remove(0);
        for _ in 0..20 {
            hand.advance(5_000).tick();
        }
        assert!(hand.jobs.is_empty(), "nobody runs it again");
        hand.finish(&job, completed(&job.claimed.claim));
        assert_eq!(lab.status(RUN), "COMPLETED");
    });
}

#[test]
fn a_wake_up_is_seen_by_whoever_lives() {
    each_store(|lab| {
        let mut hand: Hand = lab.hand(serves());
        hand.trigger(&chain(&["a"]), request(RUN)).unwrap();
        let job = hand.jobs.remove(0);
        hand.finish(
            &job,
            super::failed(&job.claimed.claim, "busy", true, 600_000),
        );
        // Nobody has the run while it waits, so nobody's death matters.
        hand.coordinator.close().unwrap();
        let mut other = lab.hand_at(serves(), hand.now);
        other.tick();
        assert!(other.jobs.is_empty());
        other.advance(600_000).tick();
        other.work();
        assert_eq!(
            lab.kinds(RUN).last(),
            Some(&"RunCompleted"),
            "{:?}",
            lab.kinds(RUN)
        );
    });
}

#[test]
fn the_end_of_a_lease_outside_does_not_take_a_run_from_its_server() {
    each_store(|lab| {
        let only = ("default".to_owned(), "a".to_owned());
        let config = Config {
            serves: Serves::Only(Arc::new([only].into())),
            ..serves()
        };
        // One step is done by the server itself, the other by a worker outside.
        let mut owner = lab.hand(config.clone());
        owner.trigger(&beside(&["a", "b"]), request(RUN)).unwrap();
        assert_eq!(owner.jobs.len(), 1);
        let claim = stepwell_kernel::command::Command::ClaimStep {
            target: owner.target(RUN, "b"),
            worker: "w".into(),
            lease_until: owner.now.plus(5_000),
        };
        owner.submit(RUN, claim).unwrap();
        let run = lab.store.find(RUN).unwrap().unwrap();
        let session = || lab.store.load(run).unwrap().unwrap().head.session;
        let mut other = lab.hand(config);
        other.advance(5_001).tick();
        assert_eq!(
            session(),
            Some(owner.coordinator.session()),
            "it keeps its run"
        );
        owner.advance(5_001).tick();
        assert_eq!(lab.count(RUN, "StepExecutionFailed"), 1, "and sees to it");
        // It dies, and its own work is found and done again.
        let died = owner.now;
        drop(owner);
        other.now = died.plus(15_001);
        for _ in 0..3 {
            other.tick();
        }
        assert_eq!(other.jobs.len(), 1);
        other.work();
        assert_eq!(lab.count(RUN, "StepCompleted"), 1);
        let claim = other.claim_as(RUN, "b", "w").unwrap().claim;
        other.submit(RUN, completed(&claim)).unwrap();
        assert_eq!(lab.status(RUN), "COMPLETED");
    });
}
