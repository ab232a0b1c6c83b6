//! The `http` tool: sends one request, follows where it is sent on, and reads the answer.
//!
//! How a request is made of a task's fields is in [`request`] and [`auth`], where a redirect leads
//! in [`redirect`], which hosts may be asked in [`crate::hosts`], what an answer becomes in
//! [`response`], what went wrong in [`error`], and what may be shown of an address in [`redact`]. Whether to try again is decided elsewhere.

mod auth;
mod error;
mod redact;
mod redirect;
mod request;
mod response;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Certificate, Client, Response, redirect::Policy};
use serde_json::Value as Json;

use crate::hosts::{CheckedResolver, HostRules};
use crate::outcome::{TaskOutcome, ToolError};
use crate::tool::{StopReason, TaskContext, Tool, ToolCall, ToolFuture};
use request::PreparedRequest;
use response::{BodyReadError, HttpExchange};

/// How the tool sends its requests.
#[derive(Clone)]
pub struct HttpOptions {
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How many redirects are followed.
    pub redirects: usize,
    /// Whether `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` are looked at.
    pub environment_proxy: bool,
    /// Certificates, in PEM, that are trusted beside those of the system.
    pub extra_roots: Vec<Vec<u8>>,
    /// Which hosts may be asked. With any rule no proxy is used: a proxy would look the name up again.
    pub hosts: Arc<HostRules>,
}

impl Default for HttpOptions {
    fn default() -> HttpOptions {
        HttpOptions {
            connect_timeout: Duration::from_secs(10),
            redirects: 10,
            environment_proxy: true,
            extra_roots: Vec::new(),
            hosts: Arc::default(),
        }
    }
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("connect_timeout", &self.connect_timeout)
            .field("redirects", &self.redirects)
            .field("environment_proxy", &self.environment_proxy)
            .field("extra_roots", &self.extra_roots.len())
            .field("hosts", &self.hosts)
            .finish()
    }
}

/// Which client a request needs: whether certificates are checked, and the port if a rule names it.
type ClientKey = (bool, Option<u16>);

/// A client, or why there is none.
type BuiltClient = Result<Client, String>;

/// The tool. Its connections are kept and used again by every task and run, so one is enough.
#[derive(Debug)]
pub struct Http {
    options: HttpOptions,
    /// Made when they are first needed: to read the system's certificates takes time.
    clients: Mutex<HashMap<ClientKey, BuiltClient>>,
}

impl Http {
    /// The tool with these options.
    #[must_use]
    pub fn new(options: HttpOptions) -> Http {
        Http {
            options,
            clients: Mutex::default(),
        }
    }

    /// The client for requests to a port. The addresses that it connects to are checked for this port.
    fn client(&self, verify: bool, port: Option<u16>) -> Result<Client, ToolError> {
        let port = self.options.hosts.named_port(port);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let made = clients
            .entry((verify, port))
            .or_insert_with(|| make_client(&self.options, verify, port));
        made.clone().map_err(|why| error::no_client(&why))
    }

    async fn exchange(
        &self,
        call: &ToolCall,
        cx: &TaskContext,
        seen: &mut HttpExchange,
    ) -> Result<Json, FailedExchange> {
        let verify = call.flag("verify_ssl")?.unwrap_or(true);
        let prepared = request::prepare(&self.client(verify, None)?, call, cx)?;
        if !verify {
            cx.log
                .note("verify_ssl is false: the certificate of the server is not checked");
        }
        let response = self.follow(verify, prepared, cx, seen).await?;
        finish(response, cx, seen).await
    }

    /// Sends the request, and again to where it is sent on.
    async fn follow(
        &self,
        verify: bool,
        prepared: PreparedRequest,
        cx: &TaskContext,
        seen: &mut HttpExchange,
    ) -> Result<Response, ToolError> {
        let mut request = prepared.request;
        let mut left = self.options.redirects;
        loop {
            seen.sending(&request, prepared.query_secret.as_deref());
            if let Err(denied) = self.options.hosts.check(request.url()) {
                let error = error::denied(&denied);
                seen.note(&cx.log, Err(&error));
                return Err(error);
            }
            let again = if prepared.follow {
                request.try_clone()
            } else {
                None
            };
            let client = self.client(verify, request.url().port_or_known_default())?;
            let sent = until(cx, client.execute(request)).await;
            let response = match sent {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => {
                    let error = error::of_transport(error, seen.url());
                    seen.note(&cx.log, Err(&error));
                    return Err(error);
                }
                Err(stop) => return Err(stopped(stop, cx, seen)),
            };
            seen.answered(&response);
            let next = match again {
                Some(again) => redirect::next(again, &response).transpose(),
                None => None,
            };
            let Some(next) = next else {
                return Ok(response);
            };
            seen.note(&cx.log, Ok(response.status()));
            request = next?;
            left = left.checked_sub(1).ok_or_else(|| {
                error::redirects(format!(
                    "more than {} redirects; the addresses may lead in a circle",
                    self.options.redirects
                ))
            })?;
        }
    }
}

impl Default for Http {
    fn default() -> Http {
        Http::new(HttpOptions::default())
    }
}

impl Tool for Http {
    fn run<'a>(&'a self, call: &'a ToolCall, cx: &'a TaskContext) -> ToolFuture<'a> {
        Box::pin(async move {
            let mut seen = HttpExchange::new(Instant::now());
            let (result, error) = match self.exchange(call, cx, &mut seen).await {
                Ok(result) => (result, None),
                Err(failed) => (failed.result, Some(failed.error)),
            };
            let outcome = TaskOutcome {
                result,
                error,
                ..TaskOutcome::default()
            };
            // Always there, so that a rule may read `outcome.http.status` when nothing answered.
            outcome.with("http", seen.details())
        })
    }
}

/// An error, and what there is to show nevertheless.
struct FailedExchange {
    error: ToolError,
    result: Json,
}

impl From<ToolError> for FailedExchange {
    fn from(error: ToolError) -> FailedExchange {
        FailedExchange {
            error,
            result: Json::Null,
        }
    }
}

/// Reads the last answer. A status that is an error says more than a body that cannot be read.
async fn finish(
    mut response: Response,
    cx: &TaskContext,
    seen: &HttpExchange,
) -> Result<Json, FailedExchange> {
    let refused = error::of_status(response.status(), response.headers());
    let read = until(cx, response::read(&mut response, cx.limits.result_bytes)).await;
    let read = read.map_err(|stop| stopped(stop, cx, seen))?;
    let unread = match read {
        Ok(body) => {
            seen.note(&cx.log, Ok(response.status()));
            let result = response::parse(&body, response.headers(), &cx.log);
            return match refused {
                Some(error) => Err(FailedExchange { error, result }),
                None => Ok(result),
            };
        }
        Err(unread) => unread_error(unread, cx, seen),
    };
    seen.note(&cx.log, Err(&unread));
    Err(refused.unwrap_or(unread).into())
}

fn unread_error(unread: BodyReadError, cx: &TaskContext, seen: &HttpExchange) -> ToolError {
    match unread {
        BodyReadError::TooLarge => error::too_large(cx.limits.result_bytes),
        BodyReadError::Broken(error) => error::of_transport(error, seen.url()),
    }
}

fn stopped(stop: StopReason, cx: &TaskContext, seen: &HttpExchange) -> ToolError {
    let error = stop.error();
    seen.note(&cx.log, Err(&error));
    error
}

/// Does something unless the task must end first. What is dropped closes its connection.
async fn until<T>(cx: &TaskContext, work: impl Future<Output = T>) -> Result<T, StopReason> {
    tokio::select! {
        biased;
        stop = cx.stopped() => Err(stop),
        done = work => Ok(done),
    }
}

fn make_client(options: &HttpOptions, verify: bool, port: Option<u16>) -> BuiltClient {
    install_provider();
    let shown = |error: reqwest::Error| error::chain(&error);
    let mut roots = Vec::new();
    for pem in &options.extra_roots {
        roots.extend(Certificate::from_pem_bundle(pem).map_err(shown)?);
    }
    let mut client = Client::builder()
        .connect_timeout(options.connect_timeout)
        // Followed here, since credentials in headers of any name must stay behind.
        .redirect(Policy::none())
        // An address in a referrer tells one host what another was asked.
        .referer(false)
        .user_agent(concat!("stepwell/", env!("CARGO_PKG_VERSION")));
    client = match (verify, roots.is_empty()) {
        (false, _) => client.tls_danger_accept_invalid_certs(true),
        (true, false) => client.tls_certs_merge(roots),
        (true, true) => client,
    };
    if !options.hosts.is_empty() {
        client = client.dns_resolver(CheckedResolver {
            rules: Arc::clone(&options.hosts),
            port,
        });
    }
    if !options.environment_proxy || !options.hosts.is_empty() {
        client = client.no_proxy();
    }
    client.build().map_err(shown)
}

/// The process's cryptography, unless someone has chosen one.
fn install_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
