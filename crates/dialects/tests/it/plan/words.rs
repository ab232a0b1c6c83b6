//! The words of `plan` are the contract's, for every state.

use serde_json::json;
use stepwell_dialects::plan::words::{run_substatus, run_word, step_word};
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::Rollback;
use stepwell_kernel::plan::{StepNo, StepRef};
use stepwell_kernel::state::{Phase, State, Status};

use crate::made::{edited, fresh, pause, visit};

#[test]
fn every_run_state_has_a_word() {
    let plan = super::plan("- {stepId: s}\n");
    let said = |phase: Phase| {
        let state = fresh(&plan, |it| it["phase"] = json!(phase));
        (run_word(&state), run_substatus(&state))
    };
    assert_eq!(said(Phase::Created), ("PENDING", None));
    assert_eq!(said(Phase::Queued), ("PENDING", None));
    assert_eq!(said(Phase::Running), ("RUNNING", None));
    assert_eq!(said(Phase::Finalizing), ("RUNNING", None));
    assert_eq!(
        said(Phase::Stopping),
        ("RUNNING", Some("stepwell/STOPPING"))
    );
    assert_eq!(
        said(Phase::Compensating),
        ("RUNNING", Some("stepwell/COMPENSATING"))
    );
    assert_eq!(
        said(Phase::Ended(RunOutcome::Succeeded)),
        ("COMPLETED", None)
    );
    assert_eq!(said(Phase::Ended(RunOutcome::Partial)), ("COMPLETED", None));
    let failed = |rollback| Phase::Ended(RunOutcome::Failed(rollback));
    assert_eq!(said(failed(Rollback::None)), ("FAILED", None));
    assert_eq!(
        said(failed(Rollback::Complete)),
        ("FAILED", Some("stepwell/ROLLED_BACK"))
    );
    assert_eq!(
        said(failed(Rollback::Incomplete)),
        ("FAILED", Some("stepwell/PARTIAL_ROLLBACK"))
    );
    // As the event of a cancel says it.
    for (rollback, detail) in [
        (Rollback::None, None),
        (Rollback::Complete, Some("stepwell/ROLLED_BACK")),
        (Rollback::Incomplete, Some("stepwell/PARTIAL_ROLLBACK")),
    ] {
        let cancelled = Phase::Ended(RunOutcome::Cancelled(rollback));
        assert_eq!(said(cancelled), ("CANCELLED", detail));
    }
}

#[test]
fn approval_pause_and_waiting_show() {
    let plan = super::plan("- {stepId: s}\n");
    let state = fresh(&plan, |it| {
        it["phase"] = json!(Phase::Created);
        it["approved"] = json!(true);
    });
    assert_eq!(run_word(&state), "APPROVED");
    let state = edited(&plan, &state, |it| {
        it["phase"] = json!(Phase::Running);
        it["tally"]["waits_outside"] = json!(1);
    });
    assert_eq!(
        (run_word(&state), run_substatus(&state)),
        ("RUNNING", Some("WAITING_APPROVAL"))
    );
    let state = edited(&plan, &state, |it| it["pause"] = pause());
    assert_eq!((run_word(&state), run_substatus(&state)), ("PAUSED", None));
    let state = edited(&plan, &state, |it| it["tally"]["running"] = json!(1));
    assert_eq!(
        (run_word(&state), run_substatus(&state)),
        ("PAUSED", Some("DRAINING"))
    );
}

#[test]
fn every_step_state_has_a_word() {
    let plan = super::plan("- {stepId: s}\n");
    let state = State::new("run_1", &plan);
    let at = StepRef::first(StepNo(0));
    assert_eq!(step_word(&plan, &state, at), "PENDING");
    let said = |status, started: bool| {
        let state = fresh(&plan, |it| {
            let mut visit = visit(status);
            visit["run"]["started_at"] = json!(started.then_some(0));
            it["steps"][0]["visits"] = json!([visit]);
        });
        step_word(&plan, &state, at)
    };
    assert_eq!(said(Status::Arrived, false), "PENDING");
    assert_eq!(said(Status::Denied, false), "PENDING");
    assert_eq!(said(Status::Ready, false), "PENDING");
    assert_eq!(said(Status::Ready, true), "RUNNING");
    assert_eq!(said(Status::Running, true), "RUNNING");
    assert_eq!(said(Status::Waiting, false), "PENDING", "at its gate");
    assert_eq!(said(Status::Waiting, true), "RUNNING");
    assert_eq!(said(Status::Looping, true), "RUNNING");
    assert_eq!(said(Status::Succeeded, true), "SUCCESS");
    assert_eq!(said(Status::Failed, true), "FAILED");
    assert_eq!(said(Status::Held, true), "FAILED");
    assert_eq!(said(Status::Skipped, false), "SKIPPED");
    assert_eq!(said(Status::Cancelled, true), "FAILED");
    assert_eq!(said(Status::Cancelled, false), "SKIPPED");
}
