//! The words of `dag` are those of the design's tables, for every state.

use serde_json::json;
use stepwell_dialects::dag::words::{run_substatus, run_word, step_substatus, step_word};
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::Rollback;
use stepwell_kernel::plan::{StepNo, StepRef};
use stepwell_kernel::state::{Phase, State, Status};

use crate::made::{edited, fresh, pause, visit};

fn state() -> (stepwell_kernel::plan::Plan, State) {
    let plan = super::plan("  steps: [{name: s, agent: a, action: b}]\n");
    let state = State::new("run_1", &plan);
    (plan, state)
}

#[test]
fn every_run_state_has_a_word() {
    let (plan, _) = state();
    let said = |phase: Phase| {
        let state = fresh(&plan, |it| it["phase"] = json!(phase));
        (run_word(&state), run_substatus(&state))
    };
    assert_eq!(said(Phase::Created), ("idle", None));
    assert_eq!(said(Phase::Queued), ("queued", None));
    assert_eq!(said(Phase::Running), ("executing", None));
    assert_eq!(said(Phase::Finalizing), ("executing", None));
    assert_eq!(said(Phase::Stopping), ("executing", None));
    assert_eq!(said(Phase::Compensating), ("compensating", None));
    assert_eq!(
        said(Phase::Ended(RunOutcome::Succeeded)),
        ("completed", None)
    );
    assert_eq!(said(Phase::Ended(RunOutcome::Partial)), ("completed", None));
    let failed = |rollback| Phase::Ended(RunOutcome::Failed(rollback));
    assert_eq!(said(failed(Rollback::None)), ("failed", None));
    assert_eq!(
        said(failed(Rollback::Complete)),
        ("completed", Some("rollback"))
    );
    assert_eq!(
        said(failed(Rollback::Incomplete)),
        ("failed", Some("partial"))
    );
    for rollback in [Rollback::None, Rollback::Complete, Rollback::Incomplete] {
        let cancelled = Phase::Ended(RunOutcome::Cancelled(rollback));
        assert_eq!(said(cancelled), ("failed", Some("cancelled")));
    }
}

#[test]
fn a_paused_run_is_executing_and_a_waiting_one_is_blocked() {
    let (plan, _) = state();
    let state = fresh(&plan, |it| {
        it["phase"] = json!(Phase::Running);
        it["tally"]["waits_outside"] = json!(1);
    });
    assert_eq!(run_word(&state), "blocked");
    let working = edited(&plan, &state, |it| it["tally"]["running"] = json!(1));
    assert_eq!(run_word(&working), "executing");
    let state = edited(&plan, &state, |it| it["pause"] = pause());
    assert_eq!(
        (run_word(&state), run_substatus(&state)),
        ("executing", Some("paused"))
    );
}

#[test]
fn every_step_state_has_a_word() {
    let (plan, state) = state();
    let at = StepRef::first(StepNo(0));
    assert_eq!(step_word(&plan, &state, at), "pending");
    let said = |status, started: bool| {
        let state = fresh(&plan, |it| {
            let mut visit = visit(status);
            visit["run"]["started_at"] = json!(started.then_some(0));
            it["steps"][0]["visits"] = json!([visit]);
        });
        (step_word(&plan, &state, at), step_substatus(&state, at))
    };
    assert_eq!(said(Status::Arrived, false), ("pending", None));
    assert_eq!(said(Status::Denied, false), ("pending", None));
    assert_eq!(said(Status::Ready, false), ("pending", None));
    assert_eq!(said(Status::Ready, true), ("running", None), "backing off");
    assert_eq!(said(Status::Running, true), ("running", None));
    assert_eq!(said(Status::Waiting, true), ("running", None));
    assert_eq!(said(Status::Waiting, false), ("running", None));
    assert_eq!(said(Status::Looping, true), ("running", None));
    assert_eq!(said(Status::Succeeded, true), ("completed", None));
    assert_eq!(said(Status::Failed, true), ("failed", None));
    assert_eq!(said(Status::Held, true), ("failed", None));
    assert_eq!(said(Status::Skipped, true), ("skipped", None));
    assert_eq!(
        said(Status::Cancelled, true),
        ("skipped", Some("cancelled"))
    );
}
