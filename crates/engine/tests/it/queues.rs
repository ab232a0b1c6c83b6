//! Limits of a queue: what is above one is not claimed, and keeps nobody else from being so.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use stepwell_engine::coordinator::Assignment;
use stepwell_engine::rows::served_by;
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::Priority;
use stepwell_kernel::plan::{Plan, Step, Work};
use stepwell_kernel::state::Phase;

use crate::definitions::{Named, engine_on, signal};
use crate::{MemoryEngine, chain, engine, log, plan, request, task};

/// How long each job takes, and how long a step may take, in milliseconds.
const WORK_MS: u64 = 800;
const TIMEOUT_MS: u64 = 1_000;

fn of_queue(name: &str, queue: &str) -> Step {
    let mut step = task(name);
    step.work = Work::Task {
        queue: queue.into(),
        operation: "do".into(),
        config: serde_json::Value::Null,
    };
    step.timeout_ms = Some(TIMEOUT_MS);
    step
}

/// Steps beside each other.
fn beside(steps: Vec<Step>) -> Arc<Plan> {
    let mut net = chain(steps);
    net.edges.clear();
    plan(net)
}

fn limited(capacity: usize, limits: &[(&str, usize)]) -> MemoryEngine {
    let mut engine = engine();
    let limits = limits
        .iter()
        .map(|(queue, jobs)| ((*queue).to_owned(), *jobs));
    engine.config().queues = limits.collect::<BTreeMap<_, _>>();
    engine.serve_everything(capacity).unwrap();
    engine
}

fn queue_of(job: &Assignment) -> &str {
    served_by(&job.plan, job.claimed.claim.target).0
}

fn complete(engine: &mut MemoryEngine, job: &Assignment) {
    let done = Command::CompleteStep {
        claim: job.claimed.claim.clone(),
        output: serde_json::Value::Null,
        ctx: Default::default(),
        artifacts: Vec::new(),
    };
    engine.finish(job, done).unwrap();
}

/// Does all work, a job of each queue after the other, and says in which order the queues were done
/// and how many jobs of each there were at most.
fn work(engine: &mut MemoryEngine) -> (Vec<String>, HashMap<String, usize>) {
    let (mut order, mut most) = (Vec::new(), HashMap::new());
    loop {
        let mut now: HashMap<String, usize> = HashMap::new();
        for job in &engine.worker().assignments {
            *now.entry(queue_of(job).to_owned()).or_default() += 1;
        }
        for (queue, count) in now {
            let known = most.entry(queue).or_insert(0);
            *known = count.max(*known);
        }
        if engine.worker().assignments.is_empty() {
            return (order, most);
        }
        let until = engine.now().plus(WORK_MS);
        engine.clock().advance_to(until);
        engine.fire_due().unwrap();
        for job in std::mem::take(&mut engine.worker_mut().assignments) {
            order.push(queue_of(&job).to_owned());
            complete(engine, &job);
        }
    }
}

fn all_completed(engine: &MemoryEngine) {
    for (run_id, hot) in engine.runs() {
        assert!(
            matches!(hot.state().phase(), Phase::Ended(_)) && hot.state().error().is_none(),
            "{}",
            log(engine, run_id)
        );
    }
    assert_eq!(engine.coordinator().busy(), 0);
    let mut alerts = engine.worker().alerts.iter();
    assert!(alerts.all(|it| it.priority == Priority::P3));
}

#[test]
fn a_full_queue_of_many_runs_neither_times_out_nor_starves_another() {
    let mut engine = limited(4, &[("slow", 1)]);
    for no in 0..40 {
        let plan = beside(vec![of_queue("s", "slow")]);
        engine
            .trigger(&plan, request(&format!("run_slow_{no}")))
            .unwrap();
    }
    for no in 0..20 {
        let plan = beside(vec![of_queue("f", "fast")]);
        engine
            .trigger(&plan, request(&format!("run_fast_{no}")))
            .unwrap();
    }
    let (order, most) = work(&mut engine);
    assert_eq!(order.len(), 60);
    assert_eq!((most["slow"], most["fast"]), (1, 3));
    let last = order.iter().rposition(|queue| queue == "fast").unwrap();
    assert!(last < 30, "the other queue goes on meanwhile: {order:?}");
    all_completed(&engine);
}

#[test]
fn within_one_run_work_of_a_full_queue_is_passed_by() {
    let mut engine = limited(100, &[("slow", 1)]);
    let slow = (0..40).map(|no| of_queue(&format!("s{no}"), "slow"));
    let fast = (0..10).map(|no| of_queue(&format!("f{no}"), "fast"));
    let plan = beside(slow.chain(fast).collect());
    engine.trigger(&plan, request("run_1")).unwrap();
    assert_eq!(
        engine.worker().assignments.len(),
        11,
        "one of the one, all of the other"
    );
    let (order, most) = work(&mut engine);
    assert_eq!(order.len(), 50);
    assert_eq!((most["slow"], most["fast"]), (1, 10));
    all_completed(&engine);
}

#[test]
fn runs_take_turns_in_a_queues_line() {
    let mut engine = limited(100, &[("slow", 1)]);
    for run_id in ["run_1", "run_2", "run_3"] {
        let steps = (0..3).map(|no| of_queue(&format!("s{no}"), "slow"));
        engine
            .trigger(&beside(steps.collect()), request(run_id))
            .unwrap();
    }
    let mut turns = Vec::new();
    while let Some(job) = engine.worker_mut().assignments.pop_front() {
        assert!(engine.worker().assignments.is_empty());
        turns.push(job.run_id.to_string());
        complete(&mut engine, &job);
    }
    // The first stood in line before the others came.
    let first = ["run_1"].into_iter();
    let then = first.chain(["run_1", "run_2", "run_3"].repeat(2));
    let wanted: Vec<&str> = then.chain(["run_2", "run_3"]).collect();
    assert_eq!(turns, wanted);
    all_completed(&engine);
}

#[test]
fn a_run_that_ends_in_line_gives_its_turn_to_the_next() {
    let mut engine = limited(100, &[("slow", 1)]);
    let plan = beside(vec![of_queue("s", "slow")]);
    for run_id in ["run_1", "run_2", "run_3"] {
        engine.trigger(&plan, request(run_id)).unwrap();
    }
    let cancel = Command::CancelRun {
        actor: stepwell_engine::engine::engine_actor(),
        reason: Some("for the test".into()),
        compensate: false,
        keep_undo: false,
    };
    engine.submit("run_2", cancel).unwrap();
    let first = engine.worker_mut().assignments.pop_front().unwrap();
    complete(&mut engine, &first);
    let second = engine.worker_mut().assignments.pop_front().unwrap();
    assert_eq!(&*second.run_id, "run_3");
    complete(&mut engine, &second);
    assert_eq!(engine.coordinator().busy(), 0);
}

#[test]
fn whoever_waits_for_room_is_not_woken_by_time() {
    // A timer in the past would be looked at again and again until there is room.
    let mut engine = limited(1, &[("slow", 1)]);
    for run_id in ["run_1", "run_2"] {
        let plan = beside(vec![of_queue("s", "slow"), of_queue("f", "fast")]);
        engine.trigger(&plan, request(run_id)).unwrap();
    }
    let due = engine
        .next_wake()
        .expect("the work in flight has a timeout");
    assert!(due > engine.now(), "{due:?}");
    work(&mut engine);
    all_completed(&engine);
}

/// A claim of a paused run is refused, so a worker that is offered its work would ask for it again and again.
#[test]
fn a_server_that_takes_over_a_paused_run_offers_nothing_of_it_until_its_resume() {
    let mut engine = engine();
    let store = engine.store().clone();
    let plan = beside(vec![of_queue("s", "outside")]);
    engine.trigger(&plan, request("run_p")).unwrap();
    signal(&mut engine, "run_p", "s1", "PAUSE");
    drop(engine);
    let mut engine = engine_on(store, Named::default());
    engine.recover("run_p").unwrap();
    let pairs = [("outside".to_owned(), "do".to_owned())];
    let next = |engine: &MemoryEngine| engine.store().next_visible(&pairs).unwrap();
    assert_eq!(next(&engine), None);
    signal(&mut engine, "run_p", "s2", "RESUME");
    assert!(next(&engine).is_some());
}
