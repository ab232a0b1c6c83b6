//! Every open run can move, also after a crash that came between two halves of a long decision.

use serde_json::json;
use stepwell_kernel::command::{TimerKind, WaitFor};
use stepwell_kernel::decide::MAX_CONSEQUENCES;
use stepwell_kernel::effect::{Effect, RunOutcome, Target};
use stepwell_kernel::event::{Rollback, TaskKind};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::plan::{Net, Step, WaitOn, WaitTimeout};
use stepwell_kernel::state::{Phase, Status};

use crate::support::{Sim, chain, constant, net, retry, task, tasks, waits};

fn many(count: usize) -> Vec<Step> {
    (0..count).map(|no| task(&format!("s{no}"))).collect()
}

fn sources(sim: &Sim) -> Vec<WakeSource> {
    wake_sources(&sim.plan, &sim.state)
}

/// Crashes after every decision, and does what the state then says is left to do.
#[track_caller]
fn proceed_over_crashes(sim: &mut Sim) -> usize {
    let mut cuts = 0;
    while !sim.phase().is_ended() {
        sim.crash();
        assert_eq!(sources(sim), [WakeSource::Proceed]);
        sim.proceed().unwrap();
        cuts += 1;
    }
    cuts
}

#[test]
fn a_large_cancel_goes_on_after_a_crash() {
    let mut sim = Sim::started(net(many(2 * MAX_CONSEQUENCES + 500), &[]));
    sim.checked = false;
    sim.cancel().unwrap();
    assert_eq!(sim.phase(), Phase::Stopping);
    assert_eq!(proceed_over_crashes(&mut sim), 2);
    assert_eq!(sim.outcome(), Some(RunOutcome::Cancelled(Rollback::None)));
}

#[test]
fn steps_that_were_never_reached_are_skipped_over_crashes() {
    let mut net = chain(many(2 * MAX_CONSEQUENCES + 500));
    net.policy.skip_unreached = true;
    let mut sim = Sim::started(net);
    sim.checked = false;
    sim.cancel().unwrap();
    assert_eq!(proceed_over_crashes(&mut sim), 2);
    assert_eq!(sim.count("StepSkipped"), 2 * MAX_CONSEQUENCES + 500);
}

/// Waits that an event kept in the inbox ends at once: all of it follows from the start.
#[test]
fn a_run_whose_last_step_ends_a_full_decision_still_ends() {
    // RunApproved and RunStarted, then one event a wait: the wait for no time at all.
    let instant = |no: usize| waits(&format!("w{no}"), WaitOn::Timer { millis: 0 }, None);
    let mut sim = Sim::started(net((0..MAX_CONSEQUENCES).map(instant).collect(), &[]));
    sim.checked = false;
    while !sim.phase().is_ended() {
        sim.crash();
        let next = sources(&sim);
        match next.first().unwrap() {
            WakeSource::Proceed => drop(sim.proceed().unwrap()),
            WakeSource::Timer { .. } => drop(sim.advance_to_next_timer().unwrap()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sim.outcome(), Some(RunOutcome::Succeeded));
}

fn claimed_waits(wait_timeout: WaitTimeout) -> Sim {
    let mut net: Net = tasks(&["a"]);
    net.policy.wait_timeout = wait_timeout;
    let mut sim = Sim::started(net);
    sim.claim("a").unwrap();
    let event_type = "paid".into();
    sim.wait("a", WaitFor::Event { event_type }, Some(5_000))
        .unwrap();
    sim
}

#[test]
fn a_wait_that_a_worker_is_told_of_is_offered_again_after_a_crash() {
    let mut sim = claimed_waits(WaitTimeout::Claim);
    let offered = sim.take_effects().into_iter().find_map(|it| match it {
        Effect::Dispatch {
            target,
            visible_at,
            task: TaskKind::WaitingTimeout,
        } => Some((target, visible_at)),
        _ => None,
    });
    sim.crash();
    let (target, visible_at) = offered.unwrap();
    assert!(sources(&sim).contains(&WakeSource::Task {
        target,
        visible_at,
        task: TaskKind::WaitingTimeout,
    }));
}

#[test]
fn a_wait_whose_deadline_means_nothing_is_left_to_the_event() {
    let mut sim = claimed_waits(WaitTimeout::Ignore);
    sim.crash();
    assert!(matches!(sources(&sim)[..], [WakeSource::Outside { .. }]));
    sim.advance(10_000).deliver("e1", "paid", json!(1)).unwrap();
    assert_eq!(sim.status("a"), Some(Status::Ready));
}

#[test]
fn a_paused_run_waits_for_its_operator_and_its_drain_only() {
    let mut step = task("a");
    step.timeout_ms = Some(1_000);
    step.retry = retry(3, constant(1_000));
    let mut sim = Sim::started(net(vec![step, task("b")], &[]));
    sim.claim("a").unwrap();
    sim.pause().unwrap();
    sim.crash();
    let kinds: Vec<TimerKind> = sources(&sim)
        .iter()
        .filter_map(|source| match source {
            WakeSource::Timer { kind, .. } => Some(*kind),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, [TimerKind::Drain]);
    assert_eq!(sources(&sim)[0], WakeSource::Operator);
    let b = Target::Step(sim.at("b"));
    let claimable = |it: &WakeSource| matches!(it, WakeSource::Task { target, .. } if *target == b);
    assert!(!sources(&sim).iter().any(claimable), "nothing new starts");
}
