//! Words for states.

use serde_json::json;
use stepwell_dialects::document::{run_substatus, run_word, step_word};
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::Rollback;
use stepwell_kernel::plan::{Plan, StepNo, StepRef};
use stepwell_kernel::state::{Phase, State, Status};

use crate::made::{edited, fresh, pause, visit};

use super::loaded;

fn plan() -> Plan {
    loaded("workflow: [{step: a}]\n").plan.expect("a plan")
}

#[test]
fn every_phase_has_its_word() {
    let plan = plan();
    let table = [
        (Phase::Void, "pending"),
        (Phase::Created, "pending"),
        (Phase::Queued, "queued"),
        (Phase::Running, "running"),
        (Phase::Finalizing, "running"),
        (Phase::Stopping, "running"),
        (Phase::Compensating, "compensating"),
        (Phase::Ended(RunOutcome::Succeeded), "success"),
        (Phase::Ended(RunOutcome::Partial), "partial"),
        (Phase::Ended(RunOutcome::Failed(Rollback::None)), "failed"),
        (
            Phase::Ended(RunOutcome::Failed(Rollback::Complete)),
            "failed",
        ),
        (
            Phase::Ended(RunOutcome::Failed(Rollback::Incomplete)),
            "failed",
        ),
        (
            Phase::Ended(RunOutcome::Cancelled(Rollback::None)),
            "cancelled",
        ),
    ];
    for (phase, word) in table {
        let state = fresh(&plan, |it| it["phase"] = json!(phase));
        assert_eq!(run_word(&plan, &state), word, "{phase:?}");
    }
    let state = fresh(&plan, |it| {
        it["phase"] = json!(Phase::Running);
        it["stalled"] = json!(["a"]);
    });
    assert_eq!(run_substatus(&plan, &state), Some("stalled"));
    let state = edited(&plan, &state, |it| it["pause"] = pause());
    assert_eq!(run_word(&plan, &state), "paused");
}

#[test]
fn every_status_has_its_word() {
    let plan = plan();
    let at = StepRef::first(StepNo(0));
    let state = State::new("run_1", &plan);
    assert_eq!(step_word(&plan, &state, at), "pending");
    let table = [
        (Status::Arrived, "ready"),
        (Status::Denied, "pending"),
        (Status::Ready, "ready"),
        (Status::Running, "running"),
        (Status::Waiting, "waiting"),
        (Status::Looping, "running"),
        (Status::Succeeded, "success"),
        (Status::Failed, "failed"),
        (Status::Held, "waiting"),
        (Status::Skipped, "skipped"),
        (Status::Cancelled, "cancelled"),
    ];
    for (status, word) in table {
        let state = fresh(&plan, |it| {
            it["steps"][0]["visits"] = json!([visit(status)])
        });
        assert_eq!(step_word(&plan, &state, at), word, "{status:?}");
    }
}
