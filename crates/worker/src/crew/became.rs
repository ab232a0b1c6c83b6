//! What became of a job, and the command that says so.

use std::time::Duration;

use serde_json::Value as Json;
use stepwell_engine::coordinator::Assignment;
use stepwell_kernel::command::{Command, WaitFor};
use stepwell_kernel::event::{ArtifactRef, Patch, StepError};

use crate::outcome::ToolError;

/// The longest message that an event gets.
const MAX_MESSAGE: usize = 4 << 10;

/// What became of a job, before it is a command.
pub(super) enum Became {
    Completed(Json, Patch, Vec<ArtifactRef>),
    Failed(StepError, Option<bool>, Option<Duration>, Patch),
    Waits(WaitFor, Option<Duration>, Vec<Json>, Option<Json>),
    Stopped,
}

pub(super) fn failed(error: ToolError, ctx: Patch) -> Became {
    let (retryable, delay) = (error.retryable, error.retry_after);
    let message = cut(&error.message);
    Became::Failed(
        StepError::new(error.class, error.code, message),
        retryable,
        delay,
        ctx,
    )
}

pub(super) fn cut(message: &str) -> String {
    let mut end = message.len().min(MAX_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    match end < message.len() {
        true => format!("{}…", &message[..end]),
        false => message.to_owned(),
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn command(job: &Assignment, became: Became) -> Command {
    let claim = job.claimed.claim.clone();
    match became {
        Became::Completed(output, ctx, artifacts) => Command::CompleteStep {
            claim,
            output,
            ctx,
            artifacts,
        },
        Became::Failed(error, retryable, delay, ctx) => Command::FailStep {
            claim,
            error,
            retryable,
            delay_ms: delay.map(millis),
            ctx,
        },
        Became::Waits(wait, timeout, outbound, memo) => Command::WaitStep {
            claim,
            wait,
            timeout_ms: timeout.map(millis),
            outbound,
            memo,
        },
        Became::Stopped => Command::ConfirmKill { claim },
    }
}
