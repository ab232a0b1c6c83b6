//! What is recorded instead of a result that cannot be: because the kernel refuses it, because the
//! database does, or because it could not be written in time. A step whose result is lost silently
//! would run without end.

use serde_json::Value as Json;
use stepwell_kernel::codes;
use stepwell_kernel::command::{Claim, Command};
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{Rollback, StepError};
use stepwell_kernel::plan::ErrorClass;
use stepwell_kernel::rejection::Rejection;

use super::Request;
use super::request::Origin;

/// A result that took too long to write becomes a failure.
pub(super) fn too_late(request: &mut Request) {
    let error = StepError::new(
        ErrorClass::Timeout,
        codes::WRITE_LATENCY_EXCEEDED,
        "the result could not be written within the write budget",
    );
    if let Command::CompleteStep { claim, .. } | Command::FailStep { claim, .. } = &request.command
    {
        request.command = Command::FailStep {
            claim: claim.clone(),
            error,
            retryable: None,
            delay_ms: None,
            ctx: Default::default(),
        };
    }
}

/// What is recorded instead of a result of this process's work that the kernel refuses, such as a wait
/// that its step cannot have. Where the execution is no longer current the kernel refuses this too.
pub(super) fn instead_of(request: &Request, rejection: &Rejection) -> Option<Command> {
    if request.origin != Origin::Coordinator {
        return None;
    }
    let error = StepError::new(
        ErrorClass::Validation,
        rejection.code.name(),
        rejection.message.clone(),
    );
    if let Command::CompleteStep { claim, .. } | Command::WaitStep { claim, .. } = &request.command
    {
        return Some(failure(claim, error));
    }
    // What else a worker reports says no more than that the step failed, which is refused for a reason.
    None
}

/// What is recorded instead of a result that the database refuses.
pub(super) fn failure_of(command: &Command, why: &str) -> Option<Command> {
    let error = StepError::new(
        ErrorClass::Validation,
        codes::VALUE_REFUSED,
        format!("the result cannot be written: {why}"),
    );
    if let Command::CompleteStep { claim, .. } | Command::WaitStep { claim, .. } = command {
        return Some(failure(claim, error));
    }
    if let Command::ChildEnded {
        step,
        request_key,
        output,
        ..
    } = command
        && !output.is_null()
    {
        return Some(Command::ChildEnded {
            step: *step,
            request_key: request_key.clone(),
            outcome: RunOutcome::Failed(Rollback::None),
            output: Json::Null,
            error: Some(error),
        });
    }
    // No other command brings the result of work.
    None
}

/// The same work would come to the same result again.
fn failure(claim: &Claim, error: StepError) -> Command {
    Command::FailStep {
        claim: claim.clone(),
        error,
        retryable: Some(false),
        delay_ms: None,
        ctx: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::fixture::target;
    use stepwell_kernel::rejection::Code;

    fn claim() -> Claim {
        Claim {
            target: target(0),
            execution: 2,
            worker: "@1".into(),
            lease_until: None,
        }
    }

    fn completed() -> Command {
        Command::CompleteStep {
            claim: claim(),
            output: Json::Null,
            ctx: Default::default(),
            artifacts: Vec::new(),
        }
    }

    /// The code and the word on trying again of a failure of the same execution.
    fn failure(command: Option<&Command>) -> (&str, Option<bool>) {
        match command {
            Some(Command::FailStep {
                claim: of,
                error,
                retryable,
                ..
            }) if *of == claim() => (&error.code, *retryable),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_result_that_comes_too_late_may_be_tried_again() {
        let mut request = Request::own(completed());
        too_late(&mut request);
        let command = Some(&request.command);
        assert_eq!(failure(command), ("WRITE_LATENCY_EXCEEDED", None));
        let mut other = Request::own(Command::Proceed);
        too_late(&mut other);
        assert_eq!(other.command, Command::Proceed);
    }

    #[test]
    fn a_result_that_is_refused_fails_its_step_for_good() {
        let rejection = Rejection::new(Code::InvalidTransition, "no");
        let own = instead_of(&Request::own(completed()), &rejection);
        let code = Code::InvalidTransition.name();
        assert_eq!(failure(own.as_ref()), (code, Some(false)));
        let written = failure_of(&completed(), "too long");
        assert_eq!(failure(written.as_ref()), ("VALUE_REFUSED", Some(false)));
        // A sender is told instead.
        let origin = Origin::Sender(crate::coordinator::Ticket(1));
        let sent = Request::new(completed(), origin);
        assert_eq!(instead_of(&sent, &rejection), None);
        assert_eq!(failure_of(&Command::Proceed, "too long"), None);
    }
}
