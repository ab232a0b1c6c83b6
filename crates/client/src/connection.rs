//! The requests: one method for each.

use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use crate::protocol::{
    Heartbeats, PROTOCOL, PollBody, Polled, ResultsAnswer, TaskLine, TaskResult,
};

/// How much longer than a poll waits its answer may take.
const SLACK: Duration = Duration::from_secs(30);

/// Why a request was not done.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the address {0} cannot be used: {1}")]
    Address(String, String),
    #[error("the server cannot be reached: {0}")]
    Unreachable(#[from] reqwest::Error),
    /// The server refused the request.
    #[error("{code}: {detail}")]
    Refused {
        status: u16,
        code: String,
        detail: String,
    },
}

impl ClientError {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            ClientError::Address(..) => false,
            ClientError::Unreachable(_) => true,
            ClientError::Refused { status, .. } => *status == 429 || *status >= 500,
        }
    }
}

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

/// A connection to a server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connection {
    client: Client,
    base: Url,
    token: Option<String>,
}

impl Connection {
    /// To the server at `http://HOST:PORT`, with an API token if the server needs one.
    pub fn new(url: &str, token: Option<String>) -> Result<Connection, ClientError> {
        // Who said it first wins.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let wrong = |why: &dyn ToString| ClientError::Address(url.to_owned(), why.to_string());
        let base = Url::parse(url).map_err(|error| wrong(&error))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(wrong(&"it must begin with http:// or https://"));
        }
        let client = Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .timeout(Duration::from_secs(60))
            .tcp_nodelay(true)
            // Answers are small, and workers have better things to do with their processor.
            .no_gzip()
            .build()?;
        Ok(Connection {
            client,
            base,
            token,
        })
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let base = self.base.as_str().trim_end_matches('/');
        let request = self.client.request(method, format!("{base}{path}"));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &Json) -> Result<T, ClientError> {
        answer(self.request(Method::POST, path).json(body)).await
    }

    /// Asks for work, and reports results.
    pub async fn poll(&self, body: &PollBody<'_>) -> Result<Polled, ClientError> {
        let request = self.request(Method::POST, "/api/v1/worker/poll");
        let patience = Duration::from_secs(body.wait_seconds) + SLACK;
        answer(request.json(body).timeout(patience)).await
    }

    /// Reports results of tasks; each gets an answer of its own.
    pub async fn report(&self, results: &[TaskResult]) -> Result<ResultsAnswer, ClientError> {
        let body = json!({ "protocol": PROTOCOL, "results": results });
        self.post("/api/v1/worker/results", &body).await
    }

    /// Extends the leases of tasks, and learns which of them must stop.
    pub async fn heartbeat(
        &self,
        tokens: &[String],
        lease_seconds: u64,
    ) -> Result<Heartbeats, ClientError> {
        let body =
            json!({ "protocol": PROTOCOL, "taskTokens": tokens, "leaseSeconds": lease_seconds });
        self.post("/api/v1/worker/heartbeats", &body).await
    }

    /// Writes lines of step logs.
    pub async fn log(&self, lines: &[TaskLine]) -> Result<(), ClientError> {
        let body = json!({ "protocol": PROTOCOL, "lines": lines });
        self.post::<Json>("/api/v1/worker/logs", &body).await?;
        Ok(())
    }

    /// Gives back what a worker still has.
    pub async fn drain(&self, worker_id: &str) -> Result<(), ClientError> {
        let path = format!("/api/v1/worker/{worker_id}");
        answer::<Json>(self.request(Method::DELETE, &path)).await?;
        Ok(())
    }

    /// The compiled definition of a run.
    pub async fn plan(&self, hash: &str, run_id: &str) -> Result<Json, ClientError> {
        let path = format!("/api/v1/plans/{hash}?run={}", escaped(run_id));
        answer(self.request(Method::GET, &path)).await
    }

    /// Keeps bytes as an artifact of a task; the answer is the reference.
    pub async fn put_artifact(
        &self,
        token: &str,
        name: &str,
        kind: &str,
        bytes: impl Into<reqwest::Body>,
    ) -> Result<Json, ClientError> {
        let path = format!(
            "/api/v1/worker/artifacts?taskToken={token}&name={}&kind={}",
            escaped(name),
            escaped(kind)
        );
        answer(self.request(Method::PUT, &path).body(bytes)).await
    }

    /// Reads the bytes of an artifact that a task refers to.
    pub async fn get_artifact(&self, uri: &str) -> Result<Vec<u8>, ClientError> {
        let path = format!("/api/v1/worker/artifacts?uri={}", escaped(uri));
        let response = good(self.request(Method::GET, &path).send().await?).await?;
        Ok(response.bytes().await?.to_vec())
    }

    /// Starts a run. `body` has `definition`, `params`, `requestId`, `waitSeconds` and more, as the API describes it.
    pub async fn start(&self, body: &Json) -> Result<StartedRun, ClientError> {
        self.post("/api/v1/runs", body).await
    }

    /// Waits until a run has ended, and returns it.
    pub async fn wait(&self, run_id: &str) -> Result<Json, ClientError> {
        let path = format!("/api/v1/runs/{}", escaped(run_id));
        loop {
            let run: Json = answer(self.request(Method::GET, &path)).await?;
            let status = run["status"].as_str().unwrap_or_default();
            if matches!(status, "COMPLETED" | "FAILED" | "CANCELLED") {
                return Ok(run);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
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
        let path = format!("/api/v1/runs/{}/signals", escaped(run_id));
        self.post(&path, &body).await
    }

    /// Delivers an event. The same id counts once.
    pub async fn event(
        &self,
        id: &str,
        event_type: &str,
        key: Option<&str>,
        payload: &Json,
    ) -> Result<Json, ClientError> {
        let mut body = json!({ "id": id, "type": event_type, "payload": payload });
        if let Some(key) = key {
            body["key"] = json!(key);
        }
        self.post("/api/v1/events", &body).await
    }
}

async fn answer<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, ClientError> {
    Ok(good(request.send().await?).await?.json().await?)
}

/// What a problem of the server says.
#[derive(Deserialize)]
struct Problem {
    code: String,
    detail: String,
}

pub(crate) async fn good(response: Response) -> Result<Response, ClientError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = response.text().await.unwrap_or_default();
    let problem: Option<Problem> = serde_json::from_str(&text).ok();
    let (code, detail) = match problem {
        Some(problem) => (problem.code, problem.detail),
        None => (format!("HTTP_{}", status.as_u16()), text),
    };
    Err(ClientError::Refused {
        status: status.as_u16(),
        code,
        detail,
    })
}

/// A text as a part of an address.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_addresses_are_escaped() {
        assert_eq!(escaped("run_a-1.b~"), "run_a-1.b~");
        assert_eq!(escaped("a/b?c=ä"), "a%2Fb%3Fc%3D%C3%A4");
    }

    #[test]
    fn only_addresses_of_http_are_used() {
        assert!(Connection::new("http://127.0.0.1:7117/", None).is_ok());
        assert!(Connection::new("ftp://127.0.0.1", None).is_err());
        assert!(Connection::new("nowhere", None).is_err());
    }
}
