//! The requests: one method for each.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use crate::error::{ClientError, SERVER_ANSWER_INVALID};
use crate::protocol::{
    Heartbeats, PROTOCOL, PollBody, Polled, ResultsAnswer, TaskLine, TaskResult,
};

/// How much longer than a poll waits its answer may take.
const SLACK: Duration = Duration::from_secs(30);
/// How long nothing may come of an answer. Streams say something every 15 seconds.
const READ: Duration = Duration::from_secs(90);

/// How a server is reached.
#[derive(Clone, Default)]
pub struct ConnectionOptions {
    /// An API token, if the server needs one.
    pub token: Option<String>,
    /// A file with certificates (PEM) that are trusted beside those of the system.
    pub ca: Option<PathBuf>,
    /// Send the token also without TLS to another machine.
    pub allow_plain: bool,
    /// Who acts, for a server without access control: name, roles and tenant.
    pub acts_as: ActsAs,
}

impl std::fmt::Debug for ConnectionOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionOptions")
            .field("ca", &self.ca)
            .field("acts_as", &self.acts_as)
            .finish_non_exhaustive()
    }
}

/// Who acts. A server with access control reads it from the token, and not from here.
#[derive(Clone, Debug, Default)]
pub struct ActsAs {
    pub name: Option<String>,
    /// The roles, with commas between; absent: every right.
    pub role: Option<String>,
    /// The only tenant that is seen; absent: every tenant.
    pub tenant: Option<String>,
}

/// A connection to a server. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    client: Client,
    base: Url,
    token: Option<String>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("base", &self.base.as_str())
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// To the server at `http://HOST:PORT`, with an API token if the server needs one.
    pub fn new(url: &str, token: Option<String>) -> Result<Connection, ClientError> {
        let options = ConnectionOptions {
            token,
            allow_plain: true,
            ..ConnectionOptions::default()
        };
        Connection::open(url, options)
    }

    /// To the server at `http://HOST:PORT` or `https://HOST`.
    pub fn open(url: &str, options: ConnectionOptions) -> Result<Connection, ClientError> {
        // Who said it first wins.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let wrong = |why: &dyn ToString| ClientError::Address(url.to_owned(), why.to_string());
        let base = Url::parse(url).map_err(|error| wrong(&error))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(wrong(&"it must begin with http:// or https://"));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(wrong(
                &"it must not contain a name or a password; use a token",
            ));
        }
        let is_exposed = base.scheme() == "http" && !is_loopback(&base);
        if options.token.is_some() && is_exposed && !options.allow_plain {
            return Err(ClientError::PlainToken(url.to_owned()));
        }
        let mut client = Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(READ)
            .default_headers(headers(&options.acts_as, options.token.is_some())?)
            .tcp_nodelay(true)
            // Answers are small, and workers have better things to do with their processor.
            .no_gzip();
        if let Some(file) = &options.ca {
            let wrong = |why: String| ClientError::Certificates(file.clone(), why);
            let pem = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
            let all = reqwest::Certificate::from_pem_bundle(&pem);
            let all = all.map_err(|error| wrong(error.to_string()))?;
            if all.is_empty() {
                return Err(wrong("it has no certificate".to_owned()));
            }
            client = client.tls_certs_merge(all);
        }
        Ok(Connection {
            client: client.build()?,
            base,
            token: options.token,
        })
    }

    /// The address of the server.
    #[must_use]
    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// A request. Its answer must come within a minute, unless it is given another time.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.unlimited(method, path);
        request.timeout(Duration::from_secs(60))
    }

    /// A request whose answer never ends.
    pub(crate) fn unlimited(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url()));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        answer(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Json,
    ) -> Result<T, ClientError> {
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
}

pub(crate) async fn answer<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, ClientError> {
    Ok(good(request.send().await?).await?.json().await?)
}

/// What a problem of the server says.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Problem {
    code: String,
    detail: String,
    #[serde(default)]
    retry_after: Option<u64>,
}

pub(crate) async fn good(response: Response) -> Result<Response, ClientError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = response.text().await.unwrap_or_default();
    let problem: Option<Problem> = serde_json::from_str(&text).ok();
    let (code, detail, retry_after) = match problem {
        Some(problem) => (problem.code, problem.detail, problem.retry_after),
        // Not this server, but something before it: a proxy, or another program at this address.
        None => (
            SERVER_ANSWER_INVALID.to_owned(),
            format!(
                "the answer of status {} is not one of a Stepwell server: {}",
                status.as_u16(),
                text.chars().take(200).collect::<String>().trim()
            ),
            None,
        ),
    };
    Err(ClientError::Refused {
        status: status.as_u16(),
        code,
        detail,
        retry_after: retry_after.map(Duration::from_secs),
    })
}

/// Whether an address is on this machine.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address: Option<std::net::IpAddr> = bare.parse().ok();
    host.eq_ignore_ascii_case("localhost") || address.is_some_and(|it| it.is_loopback())
}

/// The headers with which callers say who they are, and for which tenant they act.
fn headers(acts_as: &ActsAs, has_token: bool) -> Result<HeaderMap, ClientError> {
    let mut headers = HeaderMap::new();
    let all = [
        ("stepwell-actor", &acts_as.name),
        ("stepwell-role", &acts_as.role),
        ("stepwell-tenant", &acts_as.tenant),
    ];
    for (name, value) in all {
        // A token says who acts and in which role; one of all tenants can act for one of them.
        if let Some(value) = value
            && (!has_token || name == "stepwell-tenant")
        {
            let value = HeaderValue::from_bytes(value.as_bytes());
            let value = value.map_err(|_| ClientError::Name(name.to_owned()))?;
            headers.insert(name, value);
        }
    }
    Ok(headers)
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
        assert!(Connection::new("http://me:secret@127.0.0.1", None).is_err());
    }

    #[test]
    fn a_token_is_not_sent_to_another_machine_without_tls() {
        let open = |url: &str, allow_plain| {
            let options = ConnectionOptions {
                token: Some("swt_1_2".to_owned()),
                allow_plain,
                ..ConnectionOptions::default()
            };
            Connection::open(url, options)
        };
        for good in [
            "https://a.example",
            "http://[::1]:1",
            "http://LOCALHOST",
            "http://127.1.2.3",
        ] {
            assert!(open(good, false).is_ok(), "{good}");
        }
        let refused = open("http://a.example", false).unwrap_err();
        assert!(matches!(refused, ClientError::PlainToken(_)), "{refused}");
        assert!(open("http://a.example", true).is_ok());
        assert!(!format!("{:?}", open("https://a.example", false)).contains("swt_"));
    }
}
