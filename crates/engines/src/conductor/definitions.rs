//! The definitions of the workflows and tasks, and their registration. A change of a workflow gets another version: workflows that
//! are open go on with the version that they started with.

use serde_json::{Value as Json, json};

use super::api::{Api, ApiError};

/// The version of the workflow definitions.
pub const VERSION: u32 = 1;
/// The workflow of a run.
pub(super) const RUN: &str = "stepwell_run";
/// The workflow of an attempt, and its task.
pub(super) const ATTEMPT: &str = "stepwell_attempt";
/// The task that is a turn.
pub(super) const TURN: &str = "stepwell_turn";

/// The server wants an address of an owner.
const OWNER: &str = "stepwell@example.com";
/// How long the server waits for an attempt or a turn that says nothing, in seconds. The kernel has its own leases: this only frees
/// the server's own record.
const SILENCE_S: u32 = 120;

/// The definitions of the workflows.
#[must_use]
pub fn workflows() -> Json {
    json!([run(), attempt()])
}

/// `DO_WHILE { turn, WAIT until the next wake-up }`, then the end in Conductor's own words.
fn run() -> Json {
    let wait = json!({
        "name": "wait",
        "taskReferenceName": "wait",
        "type": "WAIT",
        "inputParameters": {"duration": "${turn.output.wait}"},
    });
    let turn = json!({
        "name": TURN,
        "taskReferenceName": "turn",
        "type": "SIMPLE",
        // In the second iteration this is the first one's output, and so on.
        "inputParameters": {"runId": "${workflow.input.runId}", "seen": "${turn.output.seen}"},
    });
    let terminate = |name: &str, status: &str| {
        json!([{
            "name": name,
            "taskReferenceName": name,
            "type": "TERMINATE",
            "inputParameters": {"terminationStatus": status, "terminationReason": "${turn.output.reason}"},
        }])
    };
    json!({
        "name": RUN,
        "version": VERSION,
        "description": "Drives a run of Stepwell: asks for a turn, waits until the next wake-up, and asks again",
        "schemaVersion": 2,
        "ownerEmail": OWNER,
        "timeoutSeconds": 0,
        "timeoutPolicy": "ALERT_ONLY",
        "outputParameters": {"status": "${turn.output.status}"},
        "tasks": [
            {
                "name": "loop",
                "taskReferenceName": "loop",
                "type": "DO_WHILE",
                // Iterations that are over are not kept, so that a long run stays small.
                "inputParameters": {"keepLastN": 2},
                "loopCondition": "if ($.turn['go'] == 'on') { true; } else { false; }",
                "loopOver": [turn, switch("on", "go", "${turn.output.go}", json!({"on": [wait]}), json!([]))],
            },
            switch(
                "end",
                "end",
                "${turn.output.end}",
                json!({"FAILED": terminate("failed", "FAILED"), "CANCELLED": terminate("cancelled", "TERMINATED")}),
                json!([]),
            ),
        ],
    })
}

/// The attempt; then a turn that brings what the attempt could not write, or what is known of one that is lost.
fn attempt() -> Json {
    let report = json!({
        "name": TURN,
        "taskReferenceName": "report",
        "type": "SIMPLE",
        "inputParameters": {"runId": "${workflow.input.runId}", "report": "${attempt.output.report}"},
    });
    json!({
        "name": ATTEMPT,
        "version": VERSION,
        "description": "One execution of a step of a run of Stepwell",
        "schemaVersion": 2,
        "ownerEmail": OWNER,
        "timeoutSeconds": 0,
        "timeoutPolicy": "ALERT_ONLY",
        "tasks": [
            {
                "name": ATTEMPT,
                "taskReferenceName": "attempt",
                "type": "SIMPLE",
                "optional": true,
                "inputParameters": {"runId": "${workflow.input.runId}", "work": "${workflow.input.work}"},
            },
            switch("after", "end", "${attempt.output.end}", json!({"written": []}), json!([report])),
        ],
    })
}

fn switch(name: &str, expression: &str, value: &str, cases: Json, otherwise: Json) -> Json {
    json!({
        "name": name,
        "taskReferenceName": name,
        "type": "SWITCH",
        "evaluatorType": "value-param",
        "expression": expression,
        "inputParameters": {expression: value},
        "decisionCases": cases,
        "defaultCase": otherwise,
    })
}

/// The definitions of the tasks. The kernel decides about retries and timeouts.
fn tasks() -> Json {
    let task = |name: &str, retries: u32| {
        json!({
            "name": name,
            "ownerEmail": OWNER,
            "retryCount": retries,
            "retryLogic": "FIXED",
            "retryDelaySeconds": 1,
            "timeoutSeconds": 0,
            "timeoutPolicy": "RETRY",
            "responseTimeoutSeconds": SILENCE_S,
        })
    };
    // A turn that was lost with its worker is asked for again.
    json!([task(TURN, 1_000_000), task(ATTEMPT, 0)])
}

/// Registers everything; doing it again changes nothing.
pub(super) async fn register(api: &Api) -> Result<(), ApiError> {
    api.register_tasks(&tasks()).await?;
    api.register_workflows(&workflows()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definitions of each version, as they were registered.
    const VERSIONS: [&str; 1] = [include_str!(
        "../../../../fixtures/engines/conductor/v1.json"
    )];

    #[test]
    fn a_changed_workflow_has_another_version() {
        assert_eq!(u32::try_from(VERSIONS.len()).unwrap(), VERSION);
        let kept: Json = serde_json::from_str(VERSIONS[VERSIONS.len() - 1]).unwrap();
        assert_eq!(
            workflows(),
            kept,
            "the workflows have changed: raise VERSION and keep the new ones; open workflows go on with the version that they have"
        );
    }
}
