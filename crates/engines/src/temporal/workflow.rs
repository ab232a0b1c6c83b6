//! The workflow of a run: its messages and its start. What it does is in `interpreter`.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::{
    SyncWorkflowContext, WorkflowCancellationToken, WorkflowContext, WorkflowContextView,
    WorkflowResult,
};

use super::activities::{CommandRequest, EngineActivities};
use super::interpreter;
use crate::codes::ENGINE_UNREACHABLE;
use crate::turn::{Seen, Turn};

/// What a workflow starts with, and what it hands to its continuation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunInput {
    pub run_id: String,
    /// What the workflow has seen of the log; absent at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
    /// The status that the search attributes have.
    #[serde(default)]
    pub status: String,
    /// How many histories came before this one.
    #[serde(default)]
    pub rotation: u32,
    /// How long the server waits for a heartbeat of an attempt, in milliseconds.
    pub heartbeat_ms: u64,
    /// The server knows the search attributes.
    #[serde(default)]
    pub searchable: bool,
}

/// The kernel's answer to a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateAnswer {
    pub accepted: bool,
    /// The stable code of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl UpdateAnswer {
    pub(super) fn refused(code: &str, message: String) -> UpdateAnswer {
        UpdateAnswer {
            accepted: false,
            code: Some(code.to_owned()),
            message: Some(message),
        }
    }
}

/// The driver of a run.
#[workflow]
#[derive(Debug)]
pub struct RunWorkflow {
    pub(super) input: RunInput,
    /// How often the bell was rung.
    pub(super) rings: u64,
    /// The last turn, for those who ask.
    pub(super) turn: Option<Turn>,
}

#[workflow_methods]
impl RunWorkflow {
    #[init]
    fn new(_ctx: &WorkflowContextView, input: RunInput) -> Self {
        Self {
            input,
            rings: 0,
            turn: None,
        }
    }

    /// Drives the run to its end. A change that old histories do not replay with gets another name.
    #[run(name = "stepwell.run.v1")]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<String> {
        interpreter::interpret(ctx).await
    }

    /// The run wants something else than the workflow was told.
    #[signal(name = "look")]
    pub fn look(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _why: String) {
        self.rings += 1;
    }

    /// The last turn that the workflow got.
    #[query(name = "turn")]
    pub fn last_turn(&self, _ctx: &WorkflowContextView) -> Option<Turn> {
        self.turn.clone()
    }

    /// A command for the run, in the JSON form of the kernel's commands; the kernel's answer.
    #[update(name = "command")]
    pub async fn command(ctx: &mut WorkflowContext<Self>, command: Json) -> UpdateAnswer {
        let run_id = ctx.state(|it| it.input.run_id.clone());
        let asked = CommandRequest { run_id, command };
        let options = interpreter::local_options(WorkflowCancellationToken::new());
        let answer = ctx.execute_local_activity(EngineActivities::command, asked, options);
        let answer = answer.await;
        ctx.state_mut(|it| it.rings += 1);
        answer.unwrap_or_else(|error| UpdateAnswer::refused(ENGINE_UNREACHABLE, error.to_string()))
    }
}
