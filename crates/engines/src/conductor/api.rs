//! The REST interface of a Conductor server: requests, who this process is, and the few forms of JSON that are used.

use std::time::{Duration, Instant};

use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Certificate, Client, Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tokio::sync::Mutex;

use crate::address::{ConductorAddress, ConductorAuth};
use crate::faults::{connect_fault, plain};
use crate::host_thread::HostError;

/// How long a request may take.
const REQUEST: Duration = Duration::from_secs(15);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a token is used before another one is asked for; a server that refuses it sooner is asked sooner.
const TOKEN: Duration = Duration::from_secs(30 * 60);
/// The header of a token.
const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-authorization");
/// The most characters of an answer that a message has.
const SHOWN: usize = 300;

/// Why a request has no good answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// The server is away, or busy; the same request may succeed later.
    #[error("{0}")]
    Away(String),
    #[error("the Conductor server does not know it: {0}")]
    Unknown(String),
    /// The server refuses this request, and will refuse it again.
    #[error("the Conductor server refused the request: {0}")]
    Refused(String),
    /// The server does not accept who this process says it is.
    #[error("the Conductor server does not accept this process: {0}")]
    Denied(String),
}

/// Who this process is to the server.
enum Identity {
    Nobody,
    Header(HeaderName, HeaderValue),
    Key { id: String, secret: String },
}

/// A client of one server.
pub(super) struct Api {
    http: Client,
    base: String,
    identity: Identity,
    token: Mutex<Option<(HeaderValue, Instant)>>,
}

/// A task, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConductorTask {
    pub(super) task_id: String,
    #[serde(default)]
    pub(super) task_type: String,
    pub(super) workflow_instance_id: String,
    #[serde(default)]
    pub(super) status: String,
    #[serde(default)]
    pub(super) update_time: u64,
    #[serde(default)]
    pub(super) input_data: Json,
    #[serde(default)]
    pub(super) output_data: Json,
}

/// A workflow, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Execution {
    pub(super) workflow_id: String,
    pub(super) status: String,
    #[serde(default)]
    pub(super) tasks: Vec<ConductorTask>,
}

impl Api {
    /// A client; `variable` gives the variables of the environment that the address names.
    pub(super) fn new(
        address: &ConductorAddress,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Api, HostError> {
        let variable = |name: &str| {
            variable(name).ok_or_else(|| {
                HostError::Address(format!(
                    "the variable {name} of the environment has no value; set it, or leave out the option that names it"
                ))
            })
        };
        // The process's cryptography, unless someone has chosen one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let wrong = |what: &str, error: &dyn std::fmt::Display| {
            HostError::Address(format!("{what} cannot be used: {error}"))
        };
        let mut http = Client::builder()
            .timeout(REQUEST)
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("stepwell/", env!("CARGO_PKG_VERSION")))
            .no_proxy();
        if let Some(file) = &address.ca {
            let what = format!("the certificate authorities in {file:?}");
            let pem = std::fs::read(file).map_err(|error| wrong(&what, &error))?;
            let certificates =
                Certificate::from_pem_bundle(&pem).map_err(|error| wrong(&what, &error))?;
            http = http.tls_certs_only(certificates);
        }
        let identity = match &address.auth {
            ConductorAuth::None => Identity::Nobody,
            ConductorAuth::Header { name, value_env } => {
                let header = HeaderName::try_from(&**name);
                let header =
                    header.map_err(|error| wrong(&format!("the header {name:?}"), &error))?;
                let what = format!("the value of the variable {value_env}");
                let value = HeaderValue::try_from(variable(value_env)?);
                Identity::Header(header, secret(value.map_err(|error| wrong(&what, &error))?))
            }
            ConductorAuth::Key {
                key_env,
                secret_env,
            } => Identity::Key {
                id: variable(key_env)?,
                secret: variable(secret_env)?,
            },
        };
        Ok(Api {
            http: http.build().map_err(|error| wrong("the address", &error))?,
            base: address.base.clone(),
            identity,
            token: Mutex::default(),
        })
    }

    /// Sends a request. A token that the server no longer takes is renewed once.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Json>,
    ) -> Result<String, ApiError> {
        let mut fresh = false;
        loop {
            let mut request = self
                .http
                .request(method.clone(), format!("{}{path}", self.base));
            if let Some((name, value)) = self.proof(fresh).await? {
                request = request.header(name, value);
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            let (status, text) = answer(request).await?;
            let is_denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            match is_denied && !fresh && matches!(self.identity, Identity::Key { .. }) {
                true => fresh = true,
                false => return judged(status, path, text),
            }
        }
    }

    /// The header that proves who this process is.
    async fn proof(&self, fresh: bool) -> Result<Option<(HeaderName, HeaderValue)>, ApiError> {
        let (id, key_secret) = match &self.identity {
            Identity::Nobody => return Ok(None),
            Identity::Header(name, value) => return Ok(Some((name.clone(), value.clone()))),
            Identity::Key { id, secret } => (id, secret),
        };
        let mut token = self.token.lock().await;
        if let Some((value, since)) = &*token
            && !fresh
            && since.elapsed() < TOKEN
        {
            return Ok(Some((TOKEN_HEADER, value.clone())));
        }
        let asked = json!({"keyId": id, "keySecret": key_secret});
        let request = self.http.post(format!("{}/token", self.base)).json(&asked);
        let (status, text) = answer(request).await?;
        let text = judged(status, "/token", text)?;
        let given: Json = read(&text)?;
        let value = given["token"]
            .as_str()
            .and_then(|it| HeaderValue::try_from(it).ok());
        let Some(value) = value.map(secret) else {
            return Err(ApiError::Refused(
                "the answer to the request for a token has no token".to_owned(),
            ));
        };
        *token = Some((value.clone(), Instant::now()));
        Ok(Some((TOKEN_HEADER, value)))
    }

    /// Registers task definitions; those that are there are replaced.
    pub(super) async fn register_tasks(&self, tasks: &Json) -> Result<(), ApiError> {
        self.send(Method::POST, "/metadata/taskdefs", Some(tasks))
            .await
            .map(drop)
    }

    /// Registers workflow definitions; those of the same version are replaced.
    pub(super) async fn register_workflows(&self, workflows: &Json) -> Result<(), ApiError> {
        self.send(Method::PUT, "/metadata/workflow", Some(workflows))
            .await
            .map(drop)
    }

    /// Starts a workflow and gives its id.
    pub(super) async fn start(&self, request: &Json) -> Result<String, ApiError> {
        let id = self.send(Method::POST, "/workflow", Some(request)).await?;
        Ok(id.trim().trim_matches('"').to_owned())
    }

    /// A workflow with its tasks.
    pub(super) async fn workflow(&self, id: &str) -> Result<Execution, ApiError> {
        let path = format!("/workflow/{id}?includeTasks=true");
        read(&self.send(Method::GET, &path, None).await?)
    }

    /// The workflows with these correlation ids that have not ended, with their tasks.
    pub(super) async fn open_workflows(
        &self,
        name: &str,
        ids: &[String],
    ) -> Result<Vec<(String, Execution)>, ApiError> {
        let path = format!("/workflow/{name}/correlated?includeClosed=false&includeTasks=true");
        let found = self.send(Method::POST, &path, Some(&json!(ids))).await?;
        let found: std::collections::BTreeMap<String, Vec<Execution>> = read(&found)?;
        let each = found
            .into_iter()
            .flat_map(|(id, all)| all.into_iter().map(move |it| (id.clone(), it)));
        Ok(each.collect())
    }

    /// Lets a workflow go on that someone has paused.
    pub(super) async fn resume(&self, id: &str) -> Result<(), ApiError> {
        self.send(Method::PUT, &format!("/workflow/{id}/resume"), None)
            .await
            .map(drop)
    }

    /// Makes the server look at a workflow.
    pub(super) async fn decide(&self, id: &str) -> Result<(), ApiError> {
        self.send(Method::PUT, &format!("/workflow/decide/{id}"), None)
            .await
            .map(drop)
    }

    /// Tasks that are to be done. The server keeps the request for `wait_ms`: an abandoned long request would take tasks away.
    pub(super) async fn poll(
        &self,
        task: &str,
        (worker, domain): (&str, &str),
        count: usize,
        wait_ms: u64,
    ) -> Result<Vec<ConductorTask>, ApiError> {
        let path = format!(
            "/tasks/poll/batch/{task}?workerid={worker}&domain={domain}&count={count}&timeout={wait_ms}"
        );
        let text = self.send(Method::GET, &path, None).await?;
        match text.trim().is_empty() {
            true => Ok(Vec::new()),
            false => read(&text),
        }
    }

    /// Says how a task is.
    pub(super) async fn update(&self, task: &Json) -> Result<(), ApiError> {
        self.send(Method::POST, "/tasks", Some(task))
            .await
            .map(drop)
    }
}

async fn answer(request: reqwest::RequestBuilder) -> Result<(StatusCode, String), ApiError> {
    let away = |error: reqwest::Error| {
        let error = error.without_url();
        let mut why = error.to_string();
        // `Debug` shows what TLS says behind errors of the system.
        let said = format!("{error:?}");
        match connect_fault("the server", &said) {
            HostError::Tls(_) => why = said,
            _ => {
                let mut cause = std::error::Error::source(&error);
                while let Some(error) = cause {
                    why.push_str(&format!(": {error}"));
                    cause = error.source();
                }
            }
        }
        ApiError::Away(plain(&why))
    };
    let response = request.send().await.map_err(away)?;
    let status = response.status();
    Ok((status, response.text().await.map_err(away)?))
}

fn judged(status: StatusCode, path: &str, text: String) -> Result<String, ApiError> {
    if status.is_success() {
        return Ok(text);
    }
    let shown = shown(&text);
    let path = path.split('?').next().unwrap_or_default();
    let why = format!("{path}: {status}: {shown}");
    let is_busy = matches!(
        status,
        StatusCode::CONFLICT
            | StatusCode::LOCKED
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::REQUEST_TIMEOUT
    );
    Err(match status {
        StatusCode::NOT_FOUND => ApiError::Unknown(why),
        _ if status.is_server_error() || is_busy => ApiError::Away(why),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ApiError::Denied(why),
        _ => ApiError::Refused(why),
    })
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, ApiError> {
    serde_json::from_str(text).map_err(|error| {
        ApiError::Refused(format!(
            "its answer cannot be read: {error}: {}",
            shown(text)
        ))
    })
}

/// The beginning of an answer, in one line; a page for people says nothing here.
fn shown(text: &str) -> String {
    match text.trim_start().starts_with('<') {
        true => "a page in HTML".to_owned(),
        false => {
            let start: String = text.chars().take(SHOWN).collect();
            start.split_whitespace().collect::<Vec<_>>().join(" ")
        }
    }
}

/// A value that logs do not show.
fn secret(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::address::EngineAddress;

    /// Answers each request as the function says, and keeps what was asked.
    async fn server(
        answer: fn(&str) -> (u16, &'static str),
    ) -> (u16, std::sync::Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = std::sync::Arc::new(Mutex::new(Vec::new()));
        let keep = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 4096];
                let read = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..read]).to_lowercase();
                let (status, body) = answer(&request);
                keep.lock().await.push(request);
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                stream
                    .write_all(format!("{head}{body}").as_bytes())
                    .await
                    .unwrap();
            }
        });
        (port, asked)
    }

    fn client(port: u16, options: &str) -> Api {
        let text = format!("conductor+http://127.0.0.1:{port}/api{options}");
        let Some(Ok(EngineAddress::Conductor(address))) = EngineAddress::parse(&text) else {
            panic!("{text}");
        };
        Api::new(&address, |name| Some(format!("value-of-{name}"))).unwrap()
    }

    #[tokio::test]
    async fn a_fixed_header_goes_with_each_request() {
        let (port, asked) = server(|_| (200, "")).await;
        let api = client(port, "?header=X-Key&header_env=k");
        api.decide("w").await.unwrap();
        assert!(
            asked.lock().await[0].contains("x-key: value-of-k"),
            "{:?}",
            asked.lock().await
        );
    }

    #[tokio::test]
    async fn a_token_that_is_refused_is_asked_for_again_once() {
        let answer = |request: &str| match request {
            _ if request.starts_with("post /api/token") => (200, r#"{"token": "t-1"}"#),
            _ if request.contains("x-authorization: t-1") => (401, "expired"),
            _ => (500, "no token"),
        };
        let (port, asked) = server(answer).await;
        let refused = client(port, "?key_env=k&secret_env=s").decide("w").await;
        assert!(
            matches!(&refused, Err(ApiError::Denied(why)) if why.contains("401")),
            "{refused:?}"
        );
        let asked = asked.lock().await;
        let lines: Vec<&str> = asked.iter().filter_map(|it| it.lines().next()).collect();
        let token = "post /api/token http/1.1";
        let decide = "put /api/workflow/decide/w http/1.1";
        assert_eq!(lines, [token, decide, token, decide]);
    }

    #[tokio::test]
    async fn a_server_that_is_busy_or_away_is_asked_again_and_one_that_refuses_is_not() {
        let (port, _) = server(|_| (503, "starting")).await;
        assert!(matches!(
            client(port, "").decide("w").await,
            Err(ApiError::Away(_))
        ));
        let (port, _) = server(|_| (404, "nothing")).await;
        assert!(matches!(
            client(port, "").decide("w").await,
            Err(ApiError::Unknown(_))
        ));
        let free = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        assert!(matches!(
            client(free, "").decide("w").await,
            Err(ApiError::Away(_))
        ));
    }

    #[test]
    fn a_missing_variable_is_named() {
        let text = "conductor+http://h/api?header=X-Key&header_env=NOT_THERE";
        let Some(Ok(EngineAddress::Conductor(address))) = EngineAddress::parse(text) else {
            panic!("{text}");
        };
        let error = Api::new(&address, |_| None).err().map(|it| it.to_string());
        assert!(
            error.is_some_and(|it| it.starts_with("ENGINE_ADDRESS") && it.contains("NOT_THERE"))
        );
    }
}
