//! The commands that report the result of a claim: completed, failed, waiting, or killed as asked. The
//! pipeline and the handlers give a [`Command`], and that command is what the engine decides. What the
//! engine makes of it must not be known here.

use std::time::Duration;

use serde_json::Value as Json;
use stepwell_kernel::command::{Claim, Command, WaitFor};
use stepwell_kernel::event::{ArtifactRef, Patch, StepError};

use crate::outcome::ToolError;

/// The longest message of an event, in bytes.
const MAX_MESSAGE: usize = 4 << 10;

/// The command that reports success.
pub(crate) fn completed(
    claim: &Claim,
    output: Json,
    ctx: Patch,
    artifacts: Vec<ArtifactRef>,
) -> Command {
    Command::CompleteStep {
        claim: claim.clone(),
        output,
        ctx,
        artifacts,
    }
}

/// The step failed. The message is cut to the length that an event may have.
pub(crate) fn failed(claim: &Claim, error: ToolError, ctx: Patch) -> Command {
    Command::FailStep {
        claim: claim.clone(),
        error: StepError::new(error.class, error.code, cut(&error.message)),
        retryable: error.retryable,
        delay_ms: error.retry_after.map(millis),
        ctx,
    }
}

/// The step waits, at most for `timeout`. `memo` is handed back when the step runs again.
pub(crate) fn waiting(
    claim: &Claim,
    wait: WaitFor,
    timeout: Option<Duration>,
    outbound: Vec<Json>,
    memo: Option<Json>,
) -> Command {
    Command::WaitStep {
        claim: claim.clone(),
        wait,
        timeout_ms: timeout.map(millis),
        outbound,
        memo,
    }
}

/// The step was cancelled and its work has stopped.
pub(crate) fn killed(claim: &Claim) -> Command {
    Command::ConfirmKill {
        claim: claim.clone(),
    }
}

fn cut(message: &str) -> String {
    let end = message.floor_char_boundary(MAX_MESSAGE);
    match end < message.len() {
        true => format!("{}…", &message[..end]),
        false => message.to_owned(),
    }
}

/// Whole milliseconds, as commands and plans count time.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let long = "ä".repeat(MAX_MESSAGE);
        let short = cut(&long);
        assert!(short.ends_with('…'), "the reader sees that it was cut");
        assert!(short.len() <= MAX_MESSAGE + '…'.len_utf8());
    }
}
