//! The activities of the workflow: they call the driver of this process.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use stepwell_kernel::command::{Command, Role};
use temporalio_macros::activities;
use temporalio_sdk::ApplicationFailure;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use super::workflow::UpdateAnswer;
use crate::attempt::{AttemptEnd, AttemptWatch};
use crate::driver::{Driver, TurnError};
use crate::turn::{KeptReport, Seen, Turn, WorkItem};

/// What a turn is asked with.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnRequest {
    pub run_id: String,
    /// What the workflow has seen of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
    /// What the history keeps for the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<KeptReport>,
}

/// One attempt of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptRequest {
    pub run_id: String,
    pub work: WorkItem,
}

/// A command for a run, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandRequest {
    pub run_id: String,
    pub command: Json,
}

/// The activities of this process.
#[derive(Debug)]
pub struct EngineActivities {
    pub driver: Arc<Driver>,
}

#[activities]
impl EngineActivities {
    /// One turn of a run.
    #[activity(name = "stepwell.turn")]
    pub async fn turn(
        self: Arc<Self>,
        _ctx: ActivityContext,
        asked: TurnRequest,
    ) -> Result<Turn, ActivityError> {
        let turn = self
            .driver
            .turn(&asked.run_id, asked.seen.as_ref(), asked.report);
        turn.await.map_err(failure)
    }

    /// One attempt of a run.
    #[activity(name = "stepwell.attempt")]
    pub async fn attempt(
        self: Arc<Self>,
        ctx: ActivityContext,
        asked: AttemptRequest,
    ) -> Result<AttemptEnd, ActivityError> {
        let watch = Watch { ctx };
        let end = self.driver.attempt(&asked.run_id, &asked.work, &watch);
        end.await.map_err(failure)
    }

    /// A command, with the kernel's answer.
    #[activity(name = "stepwell.command")]
    pub async fn command(
        self: Arc<Self>,
        _ctx: ActivityContext,
        asked: CommandRequest,
    ) -> Result<UpdateAnswer, ActivityError> {
        let command: Command = match serde_json::from_value(asked.command) {
            Ok(command) => command,
            Err(error) => {
                return Ok(UpdateAnswer::refused(
                    "REQUEST_INVALID",
                    format!("the command cannot be read: {error}"),
                ));
            }
        };
        if let Some(why) = not_for_people(&command) {
            return Ok(UpdateAnswer::refused("REQUEST_INVALID", why.to_owned()));
        }
        let answer = self.driver.command(&asked.run_id, command).await;
        Ok(match answer.map_err(failure)? {
            Ok(_) => UpdateAnswer {
                accepted: true,
                code: None,
                message: None,
            },
            Err(why) => UpdateAnswer::refused(why.code.name(), why.message),
        })
    }
}

/// Why a command is not taken from outside: it is the engine's own, or claims to come from the engine itself.
fn not_for_people(command: &Command) -> Option<&'static str> {
    let actor = match command {
        Command::ApproveRun { actor, .. }
        | Command::CompleteManually { actor, .. }
        | Command::PatchCtx { actor, .. }
        | Command::CancelRun { actor, .. }
        | Command::Signal { actor, .. } => actor,
        Command::DeliverEvent { .. } => return None,
        Command::CreateRun { .. }
        | Command::EnqueueRun
        | Command::StartRun { .. }
        | Command::ClaimStep { .. }
        | Command::CompleteStep { .. }
        | Command::FailStep { .. }
        | Command::WaitStep { .. }
        | Command::ConfirmKill { .. }
        | Command::ExpireLease { .. }
        | Command::FireTimer(_)
        | Command::ChildEnded { .. }
        | Command::Proceed => return Some("this command is the engine's own"),
    };
    (actor.role == Role::System).then_some("the role `system` is the engine's own")
}

/// An error that stays the same ends the workflow; after others the call is tried again.
fn failure(error: TurnError) -> ActivityError {
    let message = error.to_string();
    match error {
        TurnError::Later(_) => ApplicationFailure::new(message).into(),
        TurnError::Diverged(_) | TurnError::Fatal(_) => {
            ApplicationFailure::non_retryable(message).into()
        }
    }
}

/// Tells the server that the attempt is alive, and hears from it.
struct Watch {
    ctx: ActivityContext,
}

impl AttemptWatch for Watch {
    async fn beat(&self, unwritten: Option<&KeptReport>) {
        if let Err(error) = self.ctx.record_heartbeat(unwritten.cloned()).await {
            tracing::warn!(%error, "a heartbeat could not be sent");
        }
    }

    async fn stopped(&self) {
        self.ctx.cancelled().await;
    }
}
