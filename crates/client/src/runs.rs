//! Runs over HTTP: start, read, follow, and what people and programs do to them.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::connection::{Connection, escaped, good};
use crate::error::ClientError;
use crate::stream::EventStream;

/// A run that was started.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedRun {
    pub run_id: String,
    /// False: a request with the same id had started the run before.
    #[serde(default)]
    pub created: bool,
    /// The run, if it was waited for.
    #[serde(default)]
    pub run: Option<Json>,
}

/// A part of the log of a run, and what is known of the run beside it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventPage {
    /// The events of the contract, with `ext`, `prevHash` and `hash` beside.
    pub events: Vec<Json>,
    /// The number of the last event of the run.
    pub last_seq: u64,
    /// The hash of the compiled definition.
    pub plan_hash: String,
    pub status: String,
    pub ended_at: Option<String>,
    /// Whether a process works on the run.
    pub has_owner: bool,
}

/// The log of one execution of a step.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionLog {
    pub step_id: String,
    pub execution: u32,
    pub size_bytes: u64,
}

/// A line that a step wrote.
#[derive(Clone, Debug, Deserialize)]
pub struct StepLogLine {
    pub at: String,
    pub task: String,
    /// `out`, `err` or `note`.
    pub stream: String,
    pub text: String,
}

/// Lines of the log of a step.
#[derive(Clone, Debug, Deserialize)]
pub struct LogPage {
    pub lines: Vec<StepLogLine>,
    /// The place after the last line.
    pub next: u64,
}

/// What came of a command to a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandAnswer {
    /// DONE, or BEFORE if the same was done before.
    pub answer: String,
    #[serde(default)]
    pub outcome: Option<String>,
}

/// What became of an event.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveredEvent {
    /// TO_RUN, KEPT or AGAIN.
    pub delivered: String,
    #[serde(default)]
    pub run_id: Option<String>,
}

fn of_run(run_id: &str, rest: &str) -> String {
    format!("/api/v1/runs/{}{rest}", escaped(run_id))
}

/// `?a=1&b=2` of the pairs that have a value.
pub(crate) fn query(pairs: &[(&str, Option<String>)]) -> String {
    let given = pairs.iter().filter_map(|(name, value)| {
        let value = value.as_deref()?;
        Some(format!("{name}={}", escaped(value)))
    });
    let given: Vec<String> = given.collect();
    match given.is_empty() {
        true => String::new(),
        false => format!("?{}", given.join("&")),
    }
}

impl Connection {
    /// Starts a run. `body` has `definition`, `params`, `requestId`, `waitSeconds` and more, as the API describes it.
    pub async fn start(&self, body: &Json) -> Result<StartedRun, ClientError> {
        self.post("/api/v1/runs", body).await
    }

    /// Waits until a run has ended, and returns it.
    pub async fn wait(&self, run_id: &str) -> Result<Json, ClientError> {
        loop {
            let run: Json = self.get(&of_run(run_id, "")).await?;
            let status = run["status"].as_str().unwrap_or_default();
            if matches!(status, "COMPLETED" | "FAILED" | "CANCELLED") {
                return Ok(run);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// A page of runs, newest first, with the filters that the API describes.
    pub async fn list(&self, filters: &[(&str, Option<String>)]) -> Result<Json, ClientError> {
        self.get(&format!("/api/v1/runs{}", query(filters))).await
    }

    /// How many runs there are for each status, with the filters that the API describes.
    pub async fn counts(&self, filters: &[(&str, Option<String>)]) -> Result<Json, ClientError> {
        let filters = query(filters);
        self.get(&format!("/api/v1/runs/counts{filters}")).await
    }

    /// A run as the contract's snapshot.
    pub async fn run(&self, run_id: &str) -> Result<Json, ClientError> {
        self.get(&of_run(run_id, "")).await
    }

    /// What an open run waits for: `reasons` with a sentence each.
    pub async fn explain(&self, run_id: &str) -> Result<Json, ClientError> {
        self.get(&of_run(run_id, "/explain")).await
    }

    /// The completion tokens of the steps that wait for a person, by step.
    pub async fn completion_tokens(
        &self,
        run_id: &str,
    ) -> Result<BTreeMap<String, String>, ClientError> {
        self.get(&of_run(run_id, "/completion-tokens")).await
    }

    /// A page of the log of a run after an event.
    pub async fn events(
        &self,
        run_id: &str,
        after: u64,
        limit: usize,
    ) -> Result<EventPage, ClientError> {
        let rest = format!("/events?after={after}&limit={limit}");
        self.get(&of_run(run_id, &rest)).await
    }

    /// The compiled definition of a run.
    pub async fn net(&self, run_id: &str) -> Result<Json, ClientError> {
        self.get(&of_run(run_id, "/net")).await
    }

    /// The log of a run as it grows, after an event.
    pub async fn follow(&self, run_id: &str, after: u64) -> Result<EventStream, ClientError> {
        let request = self.unlimited(Method::GET, &of_run(run_id, "/stream"));
        EventStream::open(request, (after > 0).then(|| after.to_string())).await
    }

    /// The snapshot of a run whenever the run changes.
    pub async fn watch(&self, run_id: &str) -> Result<EventStream, ClientError> {
        EventStream::open(self.unlimited(Method::GET, &of_run(run_id, "/watch")), None).await
    }

    /// The snapshot of a run with its watermark, as it is now.
    pub async fn snapshot(&self, run_id: &str) -> Result<Json, ClientError> {
        self.get(&of_run(run_id, "/snapshot")).await
    }

    /// Makes the snapshot of a run again: `full` or `from_snapshot`.
    pub async fn resync(&self, run_id: &str, mode: &str) -> Result<Json, ClientError> {
        self.post(&of_run(run_id, &format!("/resync?mode={mode}")), &json!({}))
            .await
    }

    /// The logs of the steps of a run.
    pub async fn logs(&self, run_id: &str) -> Result<Vec<ExecutionLog>, ClientError> {
        self.get(&of_run(run_id, "/logs")).await
    }

    /// Lines of the log of an execution, from a place on.
    pub async fn log_lines(
        &self,
        run_id: &str,
        step_id: &str,
        execution: u32,
        after: u64,
    ) -> Result<LogPage, ClientError> {
        let rest = format!(
            "/logs/{}?execution={execution}&after={after}&limit=10000",
            escaped(step_id)
        );
        self.get(&of_run(run_id, &rest)).await
    }

    /// The artifacts of a run.
    pub async fn artifacts(&self, run_id: &str) -> Result<Json, ClientError> {
        self.get(&of_run(run_id, "/artifacts")).await
    }

    /// The bytes of an artifact of a run; the server checks their hash.
    pub async fn artifact(&self, run_id: &str, uri: &str) -> Result<Vec<u8>, ClientError> {
        let rest = format!("/artifact?uri={}", escaped(uri));
        let request = self.unlimited(Method::GET, &of_run(run_id, &rest));
        Ok(good(request.send().await?).await?.bytes().await?.to_vec())
    }

    /// Sends a command to a run: `signals`, `cancel`, `approve`, `steps/STEP/complete` or `ctx`.
    pub async fn command(
        &self,
        run_id: &str,
        command: &str,
        body: &Json,
    ) -> Result<CommandAnswer, ClientError> {
        self.post(&of_run(run_id, &format!("/{command}")), body)
            .await
    }

    /// Answers a step that waits for a person.
    pub async fn complete(
        &self,
        run_id: &str,
        step_id: &str,
        body: &Json,
    ) -> Result<Json, ClientError> {
        let rest = format!("/steps/{}/complete", escaped(step_id));
        self.post(&of_run(run_id, &rest), body).await
    }

    /// Sends a signal of the contract, such as `PAUSE`.
    pub async fn signal(
        &self,
        run_id: &str,
        signal: &str,
        payload: &Json,
        reason: Option<&str>,
    ) -> Result<Json, ClientError> {
        let mut body = json!({ "signalType": signal, "payload": payload });
        if let Some(reason) = reason {
            body["reason"] = json!(reason);
        }
        self.post(&of_run(run_id, "/signals"), &body).await
    }

    /// Delivers an event to one run. The same id counts once.
    pub async fn event_to_run(
        &self,
        run_id: &str,
        id: &str,
        event_type: &str,
        payload: &Json,
    ) -> Result<DeliveredEvent, ClientError> {
        let body = json!({ "id": id, "type": event_type, "payload": payload });
        self.post(&of_run(run_id, "/events"), &body).await
    }

    /// Delivers an event. The same id counts once.
    pub async fn event(
        &self,
        id: &str,
        event_type: &str,
        key: Option<&str>,
        payload: &Json,
    ) -> Result<DeliveredEvent, ClientError> {
        let mut body = json!({ "id": id, "type": event_type, "payload": payload });
        if let Some(key) = key {
            body["key"] = json!(key);
        }
        self.post("/api/v1/events", &body).await
    }

    /// Registers a definition. The same content again changes nothing.
    pub async fn register(&self, text: &str, file: Option<&str>) -> Result<Json, ClientError> {
        let body = json!({ "text": text, "file": file });
        self.post("/api/v1/definitions", &body).await
    }

    /// The hash of the text of a definition that is registered under a name; absent if none is.
    pub async fn definition_sha256(&self, name: &str) -> Result<Option<String>, ClientError> {
        let path = format!("/api/v1/definitions/{}", escaped(name));
        let known: Json = match self.get(&format!("{path}?limit=1")).await {
            Err(error) if error.status() == Some(404) => return Ok(None),
            known => known?,
        };
        let current = known["current"].as_u64().unwrap_or(1);
        let after = current.saturating_sub(1);
        let page: Json = self.get(&format!("{path}?after={after}&limit=1")).await?;
        let sha256 = &page["revisions"][0]["sha256"];
        Ok(Some(sha256.as_str().unwrap_or_default().to_owned()))
    }
}
