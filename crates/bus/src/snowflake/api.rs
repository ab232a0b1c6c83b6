//! Statements over HTTP: authentication, results in pages, and statements that take longer than one request.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Client, Response, StatusCode, redirect};
use serde_json::{Map, Value as Json, json};
use stepwell_http::hosts::CheckedResolver;

use super::jwt::Signer;
use crate::address::{AddressFault, BrokerAddress, bracketed};
use crate::credentials::Credentials;
use crate::dial;
use crate::kinds::Surroundings;
use crate::link::Failure;

/// How long to wait between two questions whether a statement has ended.
const POLL: Duration = Duration::from_millis(250);

/// A value of a statement.
#[derive(Clone, Debug)]
pub(crate) struct Bind(Option<String>);

impl Bind {
    pub(crate) fn text(value: impl Into<String>) -> Bind {
        Bind(Some(value.into()))
    }

    pub(crate) fn maybe(value: Option<&str>) -> Bind {
        Bind(value.map(str::to_owned))
    }
}

/// Checks what an address must have.
pub(crate) fn check(address: &BrokerAddress) -> Result<(), AddressFault> {
    if place(address).is_none() {
        return Err(AddressFault::new(
            "the path names database and schema: snowflake://USER@ACCOUNT/DATABASE/SCHEMA",
        ));
    }
    let is_plain = address.scheme == "snowflake+http";
    let is_local =
        |(host, _): &(String, u16)| matches!(host.as_str(), "127.0.0.1" | "localhost" | "::1");
    if is_plain && !address.hosts.iter().all(is_local) {
        return Err(AddressFault::new(
            "`snowflake+http` is for an emulation on this machine; use `snowflake`",
        ));
    }
    let has_key = address.user.is_some() && address.param("auth").is_some();
    match is_plain || has_key {
        true => Ok(()),
        false => Err(AddressFault::new(
            "a user before the host and `auth` with the name of the secret that has the private key are needed",
        )),
    }
}

/// The database and the schema.
fn place(address: &BrokerAddress) -> Option<(&str, &str)> {
    let (database, schema) = address.path.split_once('/')?;
    let is_name = |it: &str| !it.is_empty() && !it.contains('/');
    (is_name(database) && is_name(schema)).then_some((database, schema))
}

/// A connection to an account.
#[derive(Debug)]
pub(crate) struct Api {
    client: Client,
    base: String,
    /// What each request has besides its statement.
    fixed: Map<String, Json>,
    /// None for an emulation that asks for no token.
    signer: Option<Signer>,
    timeout: Duration,
}

impl Api {
    pub(crate) async fn open(
        address: &BrokerAddress,
        around: &Surroundings,
    ) -> Result<Api, Failure> {
        let credentials = Credentials::resolve(address, &*around.secrets).await;
        let credentials = credentials.map_err(Failure::Refused)?;
        let Some((host, port)) = address.hosts.first() else {
            return Err(Failure::Never("the address names no host".to_owned()));
        };
        let scheme = match address.scheme.as_str() {
            "snowflake+http" => "http",
            _ => "https",
        };
        let account = address.param("account").unwrap_or(host);
        let key = credentials.field(&["privateKey", "private_key"]);
        let key = key.or(credentials.password.as_deref());
        let signer = match (&credentials.username, key) {
            (Some(user), Some(key)) => {
                Some(Signer::new(account, user, key).map_err(Failure::Refused)?)
            }
            _ => None,
        };
        let mut client = Client::builder()
            .timeout(around.timeout)
            .connect_timeout(around.timeout / 2)
            .redirect(redirect::Policy::none())
            .user_agent(concat!("stepwell/", env!("CARGO_PKG_VERSION")))
            .no_proxy();
        if scheme == "https" {
            client = client.tls_backend_preconfigured(dial::tls(address, &credentials)?);
        }
        if !around.hosts.is_empty() {
            client = client.dns_resolver(CheckedResolver {
                rules: Arc::clone(&around.hosts),
                port: Some(*port),
            });
        }
        let client = client.build();
        let client = client.map_err(|error| Failure::Refused(error.to_string()))?;
        let mut fixed = Map::new();
        if let Some((database, schema)) = place(address) {
            fixed.insert("database".into(), database.into());
            fixed.insert("schema".into(), schema.into());
        }
        for name in ["warehouse", "role"] {
            if let Some(value) = address.param(name) {
                fixed.insert(name.into(), value.into());
            }
        }
        fixed.insert("timeout".into(), around.timeout.as_secs().into());
        Ok(Api {
            client,
            base: format!("{scheme}://{}:{port}/api/v2/statements", bracketed(host)),
            fixed,
            signer,
            timeout: around.timeout,
        })
    }

    /// Runs a statement to its end. Its rows, all pages of them.
    pub(crate) async fn run(
        &mut self,
        statement: &str,
        binds: &[Bind],
    ) -> Result<Vec<Vec<Json>>, Failure> {
        let mut body = self.fixed.clone();
        body.insert("statement".into(), statement.into());
        if !binds.is_empty() {
            let bind = |(no, it): (usize, &Bind)| {
                ((no + 1).to_string(), json!({"type": "TEXT", "value": it.0}))
            };
            let binds: Map<String, Json> = binds.iter().enumerate().map(bind).collect();
            body.insert("bindings".into(), binds.into());
        }
        let request = self.client.post(&self.base);
        let request = request.body(Json::Object(body).to_string());
        let (mut status, mut answer) = self.ask(request).await?;
        let until = SystemTime::now() + self.timeout;
        while status == StatusCode::ACCEPTED && SystemTime::now() < until {
            tokio::time::sleep(POLL).await;
            let handle = handle(&answer)?;
            let request = self.client.get(format!("{}/{handle}", self.base));
            (status, answer) = self.ask(request).await?;
        }
        if status != StatusCode::OK {
            return Err(Failure::Down(format!(
                "the statement did not end within {} s",
                self.timeout.as_secs()
            )));
        }
        let mut rows = read_rows(&answer);
        let pages = answer["resultSetMetaData"]["partitionInfo"]
            .as_array()
            .map_or(0, Vec::len);
        for page in 1..pages {
            let handle = handle(&answer)?;
            let request = self
                .client
                .get(format!("{}/{handle}?partition={page}", self.base));
            let (_, more) = self.ask(request).await?;
            rows.extend(read_rows(&more));
        }
        Ok(rows)
    }

    async fn ask(
        &mut self,
        request: reqwest::RequestBuilder,
    ) -> Result<(StatusCode, Json), Failure> {
        let mut request = request
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json");
        if let Some(signer) = &mut self.signer {
            let token = signer.token(SystemTime::now()).map_err(Failure::Refused)?;
            request = request
                .header(AUTHORIZATION, format!("Bearer {token}"))
                .header("X-Snowflake-Authorization-Token-Type", "KEYPAIR_JWT");
        }
        let answer = request.send().await.map_err(|error| {
            let error = error.without_url();
            dial::unreachable("Snowflake", &error)
        })?;
        let status = answer.status();
        match status {
            StatusCode::OK | StatusCode::ACCEPTED => Ok((status, read(answer).await?)),
            StatusCode::UNPROCESSABLE_ENTITY => {
                let body = read(answer).await?;
                let message = body["message"].as_str().unwrap_or("no reason given");
                Err(Failure::Refused(format!(
                    "Snowflake refused the statement: {message}"
                )))
            }
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS => {
                Err(Failure::Down(format!("Snowflake answered {status}")))
            }
            _ if status.is_server_error() => {
                Err(Failure::Down(format!("Snowflake answered {status}")))
            }
            _ => Err(Failure::Refused(format!("Snowflake answered {status}"))),
        }
    }
}

async fn read(answer: Response) -> Result<Json, Failure> {
    let body = answer.bytes().await;
    let body = body.map_err(|error| Failure::Down(error.without_url().to_string()))?;
    serde_json::from_slice(&body)
        .map_err(|error| Failure::Down(format!("the answer of Snowflake is no JSON: {error}")))
}

fn handle(answer: &Json) -> Result<&str, Failure> {
    let handle = answer["statementHandle"].as_str();
    handle.ok_or_else(|| Failure::Down("Snowflake gave no handle of the statement".to_owned()))
}

fn read_rows(answer: &Json) -> Vec<Vec<Json>> {
    let rows = answer["data"].as_array().into_iter().flatten();
    rows.map(|row| row.as_array().cloned().unwrap_or_default())
        .collect()
}
