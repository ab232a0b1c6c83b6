//! L7: many claimers at once, each with a coordinator of its own and, where the store takes several, with a
//! connection of its own.

use std::collections::HashMap;
use std::thread;

use stepwell_engine::Error;
use stepwell_kernel::command::Command;
use stepwell_kernel::rejection::Code;

use super::linear::{LEASE_MS, plan};
use super::{Hand, each_store, offers, request};

const RUNS: usize = 24;
const WORKERS: [&str; 4] = ["w0", "w1", "w2", "w3"];

#[test]
fn l7_concurrent_claimers_never_get_the_same_step() {
    each_store(|lab| {
        let mut hand = lab.hand(offers());
        for no in 0..RUNS {
            hand.trigger(&plan(), request(&format!("run_{no}")))
                .unwrap();
        }
        // The way of workers: reserve what is visible, claim it.
        let hands: Vec<Hand> = WORKERS.map(|_| lab.hand(offers())).into();
        let claims = together(hands, |hand, worker| {
            let mut got = Vec::new();
            loop {
                let tasks = hand.reserve(&plan(), worker, 3);
                if tasks.is_empty() {
                    return got;
                }
                for task in tasks {
                    let stored = hand.coordinator.store().load(task.run).unwrap().unwrap();
                    hand.claim_as(&stored.run_id, &task.target, worker)
                        .expect("what is reserved can be claimed");
                    got.push(stored.run_id);
                }
            }
        });
        let mut all: Vec<&String> = claims.iter().flat_map(|(_, runs)| runs).collect();
        all.sort_unstable();
        all.dedup();
        let taken: usize = claims.iter().map(|(_, runs)| runs.len()).sum();
        assert_eq!((all.len(), taken), (RUNS, RUNS), "each once");
        for (worker, runs) in &claims {
            for run_id in runs {
                let locked = format!("locked_by={worker} ");
                assert!(lab.tables(run_id).contains(&locked), "{run_id}");
            }
        }
    });
}

#[test]
fn l7_of_claimers_that_ask_for_the_same_step_exactly_one_gets_it() {
    each_store(|lab| {
        let mut hand = lab.hand(offers());
        for no in 0..RUNS {
            hand.trigger(&plan(), request(&format!("run_{no}")))
                .unwrap();
        }
        let hands: Vec<Hand> = WORKERS.map(|_| lab.hand(offers())).into();
        let claims = together(hands, |hand, worker| {
            let mut got = Vec::new();
            for no in 0..RUNS {
                let run_id = format!("run_{no}");
                match hand.claim_as(&run_id, "VALIDATE", worker) {
                    Ok(_) => got.push(run_id),
                    Err(Error::Rejected(it)) => assert_eq!(it.code, Code::StepNotEligible),
                    Err(other) => panic!("{other}"),
                }
            }
            got
        });
        let mut owners: HashMap<&String, Vec<&str>> = HashMap::new();
        for (worker, runs) in &claims {
            for run_id in runs {
                owners.entry(run_id).or_default().push(worker);
            }
        }
        assert_eq!(owners.len(), RUNS);
        for (run_id, workers) in owners {
            assert_eq!(workers.len(), 1, "{run_id}: {workers:?}");
            assert_eq!(lab.count(run_id, "StepStarted"), 1);
        }
    });
}

#[test]
fn l7_both_decide_before_either_commits() {
    each_store(|lab| {
        let (mut one, mut two) = (lab.hand(offers()), lab.hand(offers()));
        one.trigger(&plan(), request("run_raced")).unwrap();
        let claim = |hand: &mut Hand, worker: &str| {
            let target = hand.target("run_raced", "VALIDATE");
            let claim = Command::ClaimStep {
                target,
                worker: worker.into(),
                lease_until: hand.now.plus(LEASE_MS),
            };
            let ticket = hand.hand_in("run_raced", claim);
            (ticket, hand.batch().unwrap())
        };
        let (first, one_batch) = claim(&mut one, "one");
        let (second, two_batch) = claim(&mut two, "two");
        one.send(&one_batch);
        two.send(&two_batch);
        two.drive();
        assert!(matches!(one.answer(first), Some(Ok(_))));
        let refused = two.answer(second);
        assert!(
            matches!(&refused, Some(Err(Error::Rejected(it))) if it.code == Code::StepNotEligible),
            "{refused:?}"
        );
        assert!(lab.tables("run_raced").contains("locked_by=one "));
        assert_eq!(lab.count("run_raced", "StepStarted"), 1);
    });
}

/// Does the same with each coordinator, all at once.
fn together<T: Send>(
    hands: Vec<Hand>,
    work: impl Fn(&mut Hand, &str) -> T + Sync,
) -> Vec<(&'static str, T)> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = WORKERS
            .into_iter()
            .zip(hands)
            .map(|(worker, mut hand)| scope.spawn(move || (worker, work(&mut hand, worker))))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    })
}
