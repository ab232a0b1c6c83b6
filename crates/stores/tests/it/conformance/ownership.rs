//! The head of a run names the server that has some of the run's work, whatever happens to its commits and reads: else
//! nobody would notice the end of that server.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use stepwell_engine::coordinator::{Config, Retry, Serves, worker_of};
use stepwell_engine::store::{AppendResult, Guard, Head, StoreErrorKind, TaskRow};
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::Target;
use stepwell_kernel::evolve::replay;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::Status;

use super::linear::LEASE_MS;
use super::{Hand, Lab, START, beside, chain, completed, completed_with, each_store, offers};
use super::{request, serves, signal};
use crate::faulty::Torn;

/// A server that does the work of these steps; the rest is for others.
fn does(steps: &[&str]) -> Config {
    let pairs = steps.iter().map(|it| ("default".into(), (*it).into()));
    Config {
        serves: Serves::Only(Arc::new(pairs.collect())),
        session_ms: 1_000_000_000,
        ..serves()
    }
}

/// A server whose reads can fail.
fn server(lab: &Lab, config: Config) -> (Arc<Torn>, Hand) {
    let store = Arc::new(Torn::new(lab.second()));
    let hand = Hand::new(store.clone(), config, START);
    (store, hand)
}

fn head(lab: &Lab, run_id: &str) -> Head {
    let run = lab.store.find(run_id).unwrap().unwrap();
    lab.store.load(run).unwrap().unwrap().head
}

/// Which steps a server has by the log; its head must say so.
#[track_caller]
fn has(lab: &Lab, plan: &Plan, run_id: &str, hand: &Hand) -> Vec<String> {
    let session = hand.coordinator.session();
    let state = replay(plan, run_id, None, &lab.events(run_id)).unwrap();
    let runs = state.open().iter().filter(|at| {
        let run = state.run(**at).unwrap();
        let lease = run.lease().filter(|_| run.status() == Status::Running);
        lease.is_some_and(|lease| lease.worker == worker_of(session))
    });
    let steps: Vec<String> = runs.map(|at| plan.step_id(*at)).collect();
    let head = head(lab, run_id);
    assert!(
        steps.is_empty() || head.session == Some(session),
        "the server has {steps:?}, and the head is {head:?}"
    );
    steps
}

fn claim(target: Target, worker: &str, hand: &Hand) -> Command {
    Command::ClaimStep {
        target,
        worker: worker.into(),
        lease_until: hand.now.plus(LEASE_MS),
    }
}

/// Gives up a commit while runs cannot be read: what is known of the run has to wait.
fn park(store: &Torn, hand: &mut Hand, run_id: &str) {
    hand.hand_in(run_id, signal("late", "UPDATE_PARAMS"));
    let batch = hand.batch().unwrap();
    store.set_down(true);
    let budget = hand.coordinator.config().write_budget_ms;
    hand.advance(budget + 1);
    assert_eq!(hand.lose(&batch, StoreErrorKind::Unavailable), Retry::Never);
}

#[test]
fn work_whose_run_could_not_be_read_is_not_lost_to_the_next_command() {
    each_store(|lab| {
        let plan = beside(&["here", "there"]);
        let (store, mut hand) = server(lab, does(&["here"]));
        hand.trigger(&plan, request("run_1")).unwrap();
        let there = hand.target("run_1", "there");
        park(&store, &mut hand, "run_1");
        store.set_down(false);
        let claim = claim(there, "remote", &hand);
        let claimed = hand.submit("run_1", claim).unwrap();
        assert_eq!(has(lab, &plan, "run_1", &hand), ["here"]);
        assert_eq!(lab.count("run_1", "StepExecutionFailed"), 0, "{claimed:?}");
        hand.work();
        assert_eq!(lab.count("run_1", "StepCompleted"), 1);
        assert_eq!(hand.coordinator.busy(), 0);
    });
}

#[test]
fn a_result_whose_run_could_not_be_read_comes_before_the_next_command() {
    each_store(|lab| {
        let plan = beside(&["here", "there"]);
        let (store, mut hand) = server(lab, does(&["here"]));
        hand.trigger(&plan, request("run_1")).unwrap();
        let there = hand.target("run_1", "there");
        park(&store, &mut hand, "run_1");
        let job = hand.jobs.remove(0);
        hand.finish_later(&job, completed(&job.claimed.claim));
        store.set_down(false);
        let claim = claim(there, "remote", &hand);
        hand.hand_in("run_1", claim);
        // The first commit after the store is back, whatever comes later.
        let batch = hand.batch().unwrap();
        hand.send(&batch);
        assert!(has(lab, &plan, "run_1", &hand).is_empty());
        assert_eq!(lab.count("run_1", "StepCompleted"), 1);
        assert_eq!(lab.count("run_1", "StepExecutionFailed"), 0);
        assert_eq!(head(lab, "run_1").session, None);
    });
}

/// The run stays parked for as long as it takes, and nobody sees half of it meanwhile.
#[test]
fn a_run_that_waits_for_the_store_is_not_served_until_all_of_it_is_there() {
    each_store(|lab| {
        let plan = beside(&["here", "there"]);
        let (store, mut hand) = server(lab, does(&["here"]));
        hand.trigger(&plan, request("run_1")).unwrap();
        let there = hand.target("run_1", "there");
        park(&store, &mut hand, "run_1");
        let early = claim(there, "remote", &hand);
        let early = hand.hand_in("run_1", early);
        assert!(hand.answer(early).unwrap().is_err(), "nobody can read it");
        hand.coordinator.recover("run_1", hand.now).unwrap_err();
        store.set_down(false);
        hand.coordinator.recover("run_1", hand.now).unwrap();
        hand.drive();
        assert_eq!(has(lab, &plan, "run_1", &hand), ["here"]);
        assert_eq!(hand.coordinator.busy(), 1);
        assert_eq!(lab.count("run_1", "StepExecutionFailed"), 0);
    });
}

#[test]
fn a_head_names_the_session_while_a_result_waits_for_another_one() {
    each_store(|lab| {
        let plan = beside(&["one", "two"]);
        let (_, mut hand) = server(lab, does(&["one", "two"]));
        hand.trigger(&plan, request("run_1")).unwrap();
        let (one, two) = (hand.jobs.remove(0), hand.jobs.remove(0));
        hand.finish_later(&one, completed(&one.claimed.claim));
        // No store could be asked for this, so each of the results is decided alone.
        let deep = (0..1_000).fold(Json::Null, |inner, _| json!([inner]));
        hand.finish_later(&two, completed_with(&two.claimed.claim, deep));
        let batch = hand.batch().unwrap();
        hand.send(&batch);
        assert_eq!(has(lab, &plan, "run_1", &hand), ["two"]);
        hand.drive();
        assert_eq!(lab.status("run_1"), "FAILED");
    });
}

/// The commit that offers a run to other servers is given up, and comes through just before this server claims the
/// work itself.
#[test]
fn a_commit_that_was_given_up_does_not_take_a_run_from_its_server() {
    each_store(|lab| {
        let store = Arc::new(Torn::shared(lab.second()));
        let config = Config {
            capacity: 1,
            ..does(&["work"])
        };
        let mut hand = Hand::new(store, config, START);
        let plan = chain(&["work"]);
        hand.trigger(&plan, request("run_fills")).unwrap();
        hand.trigger(&plan, request("run_1")).unwrap();
        assert_eq!(hand.jobs.len(), 1, "there is room for one");
        let now = hand.now;
        hand.coordinator.tick(now).unwrap();
        let late = hand.batch().unwrap();
        let offered = late.appends[0].head.as_ref().unwrap();
        assert_eq!(offered.session, None);
        let budget = hand.coordinator.config().write_budget_ms;
        hand.advance(budget + 1);
        assert_eq!(hand.lose(&late, StoreErrorKind::AnswerLost), Retry::Never);

        let job = hand.jobs.remove(0);
        hand.finish_later(&job, completed(&job.claimed.claim));
        let batch = hand.batch().unwrap();
        assert_eq!(lab.store.commit(&late).unwrap(), [AppendResult::Committed]);
        hand.send(&batch);
        let more = hand.batch();
        more.iter().for_each(|more| drop(hand.send(more)));
        assert_eq!(has(lab, &plan, "run_1", &hand), ["work"]);
        let run = lab.store.find("run_1").unwrap().unwrap();
        let tasks = lab.store.load(run).unwrap().unwrap().tasks;
        assert!(tasks.is_empty(), "nobody else is to do it: {tasks:?}");
        hand.work();
        assert_eq!(lab.status("run_1"), "COMPLETED");
    });
}

/// A commit that was given up is found in the store, and the run cannot be read just then.
#[test]
fn work_goes_on_while_a_late_commit_cannot_be_read() {
    each_store(|lab| {
        let plan = beside(&["here", "there"]);
        let (store, mut hand) = server(lab, does(&["here"]));
        hand.trigger(&plan, request("run_1")).unwrap();
        let task = hand.reserve(&plan, "remote", 1).remove(0);
        let there = hand.target("run_1", "there");
        assert_eq!(task.target, "there");
        let claim = claim(there, "remote", &hand);
        hand.submit("run_1", claim).unwrap();
        let now = hand.advance(LEASE_MS + 1).now;
        hand.coordinator.tick(now).unwrap();
        let late = hand.batch().unwrap();
        let budget = hand.coordinator.config().write_budget_ms;
        hand.advance(budget + 1);
        assert_eq!(hand.lose(&late, StoreErrorKind::AnswerLost), Retry::Never);
        assert!(hand.batch().is_none());
        assert_eq!(lab.store.commit(&late).unwrap(), [AppendResult::Committed]);
        store.set_down(true);
        hand.coordinator.tick(hand.now).unwrap_err();
        store.set_down(false);
        hand.tick();
        assert_eq!(has(lab, &plan, "run_1", &hand), ["here"]);
        assert_eq!(lab.count("run_1", "StepExecutionFailed"), 1);
        assert_eq!(hand.coordinator.busy(), 1);
        hand.finish_next();
        assert_eq!(lab.count("run_1", "StepCompleted"), 1);
    });
}

/// Lets a worker outside ask for the only step of `run_1`; the claim is guarded by the row of the task.
fn claim_guarded(hand: &mut Hand, task: &TaskRow, worker: &str) {
    let target = hand.target("run_1", &task.target);
    let guard = Guard::Lease {
        target: task.target.clone(),
        worker: worker.into(),
    };
    let (claim, now) = (claim(target, worker, hand), hand.now);
    let ticket = stepwell_engine::coordinator::Ticket(1_000);
    hand.coordinator
        .submit_guarded("run_1", claim, guard, ticket, now);
}

#[track_caller]
fn lease_ends(lab: &Lab, hand: &mut Hand) {
    hand.advance(LEASE_MS);
    for _ in 0..4 {
        hand.advance(1_000).tick();
    }
    assert_eq!(lab.count("run_1", "StepExecutionFailed"), 1);
}

/// The answer to a claim is lost, and the claim sent again is refused because another worker has the task by then. The
/// first sending arrives when the task is the first worker's again.
#[test]
fn the_lease_of_a_claim_that_was_refused_and_came_through_ends_by_its_time() {
    each_store(|lab| {
        let plan = chain(&["a"]);
        let mut hand = lab.hand(offers());
        hand.trigger(&plan, request("run_1")).unwrap();
        let task = hand.reserve(&plan, "first", 1).remove(0);
        claim_guarded(&mut hand, &task, "first");
        let claim = hand.batch().unwrap();
        assert_eq!(hand.lose(&claim, StoreErrorKind::AnswerLost), Retry::Same);
        hand.advance(1_001);
        assert_eq!(hand.reserve(&plan, "second", 1).len(), 1);
        assert_eq!(hand.send(&claim), [AppendResult::GuardFailed(0)]);
        hand.drive();
        hand.advance(1_001);
        assert_eq!(hand.reserve(&plan, "first", 1).len(), 1);
        assert_eq!(lab.store.commit(&claim).unwrap(), [AppendResult::Committed]);
        lease_ends(lab, &mut hand);
    });
}

/// A claim comes through that nobody in this process has sent.
#[test]
fn the_lease_of_a_claim_that_nobody_here_has_sent_ends_by_its_time() {
    each_store(|lab| {
        let plan = chain(&["a"]);
        let mut before = lab.hand(offers());
        before.trigger(&plan, request("run_1")).unwrap();
        let task = before.reserve(&plan, "remote", 1).remove(0);
        claim_guarded(&mut before, &task, "remote");
        let claim = before.batch().unwrap();
        drop(before);
        let mut hand = lab.hand(offers());
        hand.coordinator.recover("run_1", hand.now).unwrap();
        hand.drive();
        assert_eq!(lab.store.commit(&claim).unwrap(), [AppendResult::Committed]);
        lease_ends(lab, &mut hand);
    });
}
