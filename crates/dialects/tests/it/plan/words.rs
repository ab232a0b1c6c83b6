//! The words of `plan` are the contract's, for every state.

use stepwell_dialects::plan::words::{run_substatus, run_word, step_word};
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::Rollback;
use stepwell_kernel::plan::{StepNo, StepRef};
use stepwell_kernel::state::{Pause, Phase, State, Status, StepRun, Visit};
use stepwell_kernel::time::Time;

#[test]
fn every_run_state_has_a_word() {
    let plan = super::plan("- {stepId: s}\n");
    let mut state = State::new("run_1", &plan);
    let mut said = |phase| {
        state.phase = phase;
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
    for rollback in [Rollback::None, Rollback::Complete, Rollback::Incomplete] {
        let cancelled = Phase::Ended(RunOutcome::Cancelled(rollback));
        assert_eq!(said(cancelled), ("CANCELLED", None));
    }
}

#[test]
fn approval_pause_and_waiting_show() {
    let plan = super::plan("- {stepId: s}\n");
    let mut state = State::new("run_1", &plan);
    state.phase = Phase::Created;
    state.approved = true;
    assert_eq!(run_word(&state), "APPROVED");
    state.phase = Phase::Running;
    state.tally.waits_outside = 1;
    assert_eq!(
        (run_word(&state), run_substatus(&state)),
        ("RUNNING", Some("WAITING_APPROVAL"))
    );
    state.pause = Some(Pause {
        ordinal: 1,
        drain_timed_out: false,
    });
    assert_eq!((run_word(&state), run_substatus(&state)), ("PAUSED", None));
    state.tally.running = 1;
    assert_eq!(
        (run_word(&state), run_substatus(&state)),
        ("PAUSED", Some("DRAINING"))
    );
}

#[test]
fn every_step_state_has_a_word() {
    let plan = super::plan("- {stepId: s}\n");
    let mut state = State::new("run_1", &plan);
    let at = StepRef::first(StepNo(0));
    assert_eq!(step_word(&plan, &state, at), "PENDING");
    let mut said = |status, started: bool| {
        let mut run = StepRun::new(status, Time(0));
        run.started_at = started.then_some(Time(0));
        state.steps[0].visits = vec![Visit {
            run,
            args: None,
            each: None,
        }];
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
