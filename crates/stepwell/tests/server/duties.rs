//! Separation of duties over HTTP: who may not decide about a step is told so, and gets no other road around the decision.

use serde_json::{Value as Json, json};

use crate::access::{bearer, token};
use crate::harness::{TestServer, asked};
use crate::stores::{Place, on_each_store};

/// A payment that someone else than its maker approves, and a step that is only an approval.
const PAYMENT: &str = "
schemaVersion: 1
workflowId: payment
workspaceId: w
name: Payment
version: 1
active: true
executionTier: Auto
actions:
  - actionId: pay
    order: 1
    portFamily: x
    operation: 'a:b'
    executionTierOverride: HumanApprove
    separationOfDuties: [MakerChecker]
    tool: {kind: noop}
  - {actionId: tidy, order: 2, portFamily: x, operation: 'a:b', executionTierOverride: HumanApprove, tool: {kind: noop}}
  - {actionId: sign, order: 3, portFamily: x, operation: 'a:b', completionMode: manual, tool: {kind: noop}}
";

/// A step that two people sign.
const SIGNED: &str = "
schemaVersion: 1
workflowId: signed
workspaceId: w
name: Signed
version: 1
active: true
executionTier: Auto
actions:
  - {actionId: sign, order: 1, portFamily: x, operation: 'a:b', executionTierOverride: ManualOnly,
     separationOfDuties: [{distinctApprovers: 2}]}
";

on_each_store!(
    a_duty_is_not_passed_by_a_skip_or_a_change,
    who_has_approved_is_not_asked_again,
);

struct Person<'a>(&'a TestServer, String);

impl Person<'_> {
    fn get(&self, path: &str) -> Json {
        let (status, seen) = asked(bearer(self.0.get(path), &self.1));
        assert_eq!(status, 200, "{path}: {seen}");
        seen
    }

    fn post(&self, path: &str, body: &Json) -> (u16, Json) {
        asked(bearer(self.0.post(path, body), &self.1))
    }

    fn signal(&self, run: &str, signal: &str, payload: Json) -> (u16, Json) {
        let body = json!({ "signalType": signal, "payload": payload, "reason": "because" });
        self.post(&format!("/api/v1/runs/{run}/signals"), &body)
    }

    fn skip(&self, run: &str, step: &str) -> (u16, Json) {
        self.signal(run, "SKIP_STEP", json!({ "stepId": step }))
    }

    /// The task of the inbox, once it is there.
    fn task(&self, step: &str) -> Json {
        for _ in 0..200 {
            let inbox = self.get("/api/v1/inbox");
            let tasks = inbox["tasks"].as_array().unwrap().clone();
            if let Some(task) = tasks.into_iter().find(|it| it["stepId"] == step) {
                return task;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{step} does not wait");
    }

    fn complete(&self, run: &str, step: &str) -> (u16, Json) {
        let body = json!({ "outcome": "succeeded" });
        self.post(&format!("/api/v1/runs/{run}/steps/{step}/complete"), &body)
    }
}

#[track_caller]
fn refused(answer: (u16, Json), code: &str) {
    assert_eq!(answer.0, 403, "{}", answer.1);
    assert_eq!(answer.1["code"], code, "{}", answer.1);
}

fn a_duty_is_not_passed_by_a_skip_or_a_change(place: Place) {
    let Some(server) = place.controlled() else {
        return;
    };
    let person = |args: &[&str]| Person(&server, token(&server.folder, args));
    let maker = person(&["ann", "--role", "admin"]);
    let engineer = person(&["eve", "--role", "engineer"]);
    let both = person(&["bob", "--role", "engineer", "--role", "approver"]);
    let body = json!({ "definition": { "text": PAYMENT } });
    let (status, run) = maker.post("/api/v1/runs", &body);
    assert_eq!(status, 201, "{run}");
    let run = run["runId"].as_str().unwrap();

    let task = maker.task("pay");
    assert!(
        task["forbidden"]
            .to_string()
            .contains("ann started the run"),
        "{task}"
    );
    assert_eq!(both.task("pay")["forbidden"], Json::Null);
    refused(maker.complete(run, "pay"), "SOD_DENIED");
    refused(maker.skip(run, "pay"), "SOD_DENIED");
    let again = json!({ "action": "retry", "runs": [run], "dryRun": false });
    let (_, bulk) = maker.post("/api/v1/runs/bulk", &again);
    let code = &bulk["runs"][0]["problem"]["code"];
    assert_eq!(code, "RUN_NOT_TERMINAL", "{bulk}");
    // Who may not approve at all may not skip an approval either.
    refused(engineer.skip(run, "pay"), "AUTHZ_DENIED");
    assert_eq!(both.complete(run, "pay").0, 200);

    maker.task("tidy");
    let params = json!({ "params": { "amount": 1_000_000 } });
    refused(maker.signal(run, "UPDATE_PARAMS", params), "SOD_DENIED");
    let ctx = json!({ "ctx": { "amount": 1 } });
    refused(
        maker.post(&format!("/api/v1/runs/{run}/ctx"), &ctx),
        "SOD_DENIED",
    );
    refused(engineer.skip(run, "tidy"), "AUTHZ_DENIED");
    assert_eq!(both.skip(run, "tidy").0, 200);
    // Work that nobody decides about is skipped as any other work.
    maker.task("sign");
    let (status, skipped) = engineer.skip(run, "sign");
    assert_eq!(status, 200, "{skipped}");

    // A repeated run has another maker.
    let (status, again) = both.signal(run, "RETRY_RUN", json!({}));
    assert_eq!(status, 200, "{again}");
    let run = again["repeatedAs"].as_str().unwrap();
    let task = both.task("pay");
    assert!(
        task["forbidden"]
            .to_string()
            .contains("bob started the run"),
        "{task}"
    );
    refused(both.skip(run, "pay"), "SOD_DENIED");
    assert_eq!(maker.complete(run, "pay").0, 200);
}

fn who_has_approved_is_not_asked_again(place: Place) {
    let Some(server) = place.controlled() else {
        return;
    };
    let person = |args: &[&str]| Person(&server, token(&server.folder, args));
    let first = person(&["ann", "--role", "admin"]);
    let second = person(&["bob", "--role", "admin"]);
    let body = json!({ "definition": { "text": SIGNED } });
    let (status, run) = first.post("/api/v1/runs", &body);
    assert_eq!(status, 201, "{run}");
    let run = run["runId"].as_str().unwrap();
    assert_eq!(first.task("sign")["forbidden"], Json::Null);
    assert_eq!(first.complete(run, "sign").0, 200);
    let task = first.task("sign");
    let why = task["forbidden"].to_string();
    assert!(why.contains("ann has approved already"), "{task}");
    assert_eq!(task["approvals"], 1, "{task}");
    assert_eq!(second.task("sign")["forbidden"], Json::Null);
    assert_eq!(second.complete(run, "sign").0, 200);
}
