//! A webhook: one POST for each delivery.
//!
//! The body is `{"runId", "firstSeq", "lastSeq", "events": [the contract's events, in order],
//! "outbound": [{"runSeq", "index", "stepId", "event"}]}`. Beside it go these headers:
//!
//! - `Stepwell-Run`, `Stepwell-First-Seq`: the run and the first event; `Stepwell-Attempt`: from 1.
//! - `Idempotency-Key`: the same for each attempt at a delivery. Deliveries come at least once.
//! - `Stepwell-Signature`: with a secret, `t=SECONDS,v1=HEX`, where HEX is the HMAC-SHA256 of
//!   `SECONDS.BODY` under the secret. A receiver rejects signatures that are too old or do not match.
//!
//! A response with a status of 2xx is success; its body is not read. Redirects are not followed: a body
//! that is signed for one server is not sent to another.

use std::fmt;
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Proxy, Response, StatusCode, Url, redirect};
use serde_json::json;
use sha2::Sha256;
use stepwell_engine::outbox::{Delivery, Sink, SinkError};
use stepwell_http::hosts::{CheckedResolver, DeniedHost, HostRules};
use stepwell_kernel::keys;
use tokio::runtime::{Builder, Runtime};

use crate::address::denied_host;

/// The prefix of webhook addresses in configurations.
const SCHEME: &str = "webhook:";

/// The options of a webhook.
#[derive(Clone)]
pub struct WebhookOptions {
    /// The name of the sink in the outbox.
    pub name: String,
    /// The secret that signs bodies.
    pub secret: Option<Vec<u8>>,
    /// How long to wait for an answer.
    pub timeout: Duration,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// A proxy such as `http://proxy:3128`. Proxy variables of the environment are not used.
    pub proxy: Option<String>,
    /// Headers that go with each request.
    pub headers: Vec<(String, String)>,
    /// Which hosts may be asked. With any rule no proxy is used: a proxy would look the name up again.
    pub hosts: Arc<HostRules>,
}

impl Default for WebhookOptions {
    fn default() -> WebhookOptions {
        WebhookOptions {
            name: "webhook".into(),
            secret: None,
            timeout: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(5),
            proxy: None,
            headers: Vec::new(),
            hosts: Arc::default(),
        }
    }
}

/// Secrets stay out of logs; headers may hold some.
impl fmt::Debug for WebhookOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookOptions")
            .field("name", &self.name)
            .field("signed", &self.secret.is_some())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

const WEBHOOK_UNUSABLE: &str = "WEBHOOK_UNUSABLE";

/// The reason why a webhook cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}", code = WEBHOOK_UNUSABLE, reason = .0)]
pub struct WebhookFault(String);

/// A sink that posts each delivery to one URL.
pub struct Webhook {
    options: WebhookOptions,
    url: Url,
    client: Client,
    runtime: Runtime,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("options", &self.options)
            .field("host", &self.url.host_str())
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// A webhook at an address: `https://…`, or `webhook:https://…` as in configurations.
    pub fn new(address: &str, options: WebhookOptions) -> Result<Webhook, WebhookFault> {
        install_provider();
        let address = address.strip_prefix(SCHEME).unwrap_or(address);
        let url = Url::parse(address)
            .map_err(|error| WebhookFault(format!("the address is not a valid URL: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            let scheme = url.scheme();
            return Err(WebhookFault(format!(
                "the scheme {scheme:?} is not supported; use http or https"
            )));
        }
        let denied = |denied: DeniedHost| WebhookFault(denied_host(&denied));
        options.hosts.check(&url).map_err(denied)?;
        let fault = |error: reqwest::Error| WebhookFault(chain(&error));
        let mut client = Client::builder()
            .timeout(options.timeout)
            .connect_timeout(options.connect_timeout)
            .redirect(redirect::Policy::none())
            .default_headers(headers(&options.headers)?)
            .user_agent(concat!("stepwell/", env!("CARGO_PKG_VERSION")))
            .no_proxy();
        if !options.hosts.is_empty() {
            client = client.dns_resolver(CheckedResolver {
                rules: Arc::clone(&options.hosts),
                port: url.port_or_known_default(),
            });
        } else if let Some(proxy) = &options.proxy {
            client = client.proxy(Proxy::all(proxy).map_err(fault)?);
        }
        // One extra thread, so that a connection that the server closes while idle is noticed before
        // the next delivery.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("stepwell-webhook")
            .enable_all()
            .build()
            .map_err(|error| WebhookFault(error.to_string()))?;
        Ok(Webhook {
            options,
            url,
            client: client.build().map_err(fault)?,
            runtime,
        })
    }

    async fn post(&self, delivery: &Delivery) -> Result<Response, reqwest::Error> {
        let outbound = delivery.outbound.iter().map(|it| {
            json!({"runSeq": it.seq, "index": it.place, "stepId": it.step_id, "event": it.event})
        });
        let outbound: Vec<_> = outbound.collect();
        let mut body = json!({
            "runId": delivery.run_id,
            "firstSeq": delivery.first_seq,
            "lastSeq": delivery.last_seq,
            "events": delivery.events,
            "outbound": outbound,
        });
        if !delivery.telemetry.is_empty() {
            body["telemetry"] = delivery.telemetry.clone().into();
        }
        let body = body.to_string();
        let mut request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("Stepwell-Run", visible(&delivery.run_id))
            .header("Stepwell-First-Seq", delivery.first_seq)
            .header("Stepwell-Attempt", delivery.attempt)
            .header("Idempotency-Key", visible(&delivery.key()));
        if let Some(secret) = &self.options.secret {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let seconds = since.unwrap_or_default().as_secs();
            let signed = signature(secret, seconds, body.as_bytes());
            request = request.header("Stepwell-Signature", format!("t={seconds},v1={signed}"));
        }
        request.body(body).send().await
    }
}

impl Sink for Webhook {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn deliver(&self, delivery: &Delivery) -> Result<(), SinkError> {
        match self.runtime.block_on(self.post(delivery)) {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(refusal(&response)),
            // The address is configuration and may hold a token.
            Err(error) => {
                let error = error.without_url();
                Err(match DeniedHost::behind(&error) {
                    // Nothing is wrong with the other side; the lists must be changed first.
                    Some(denied) => SinkError::refused(denied_host(denied)),
                    None => SinkError::down(chain(&error)),
                })
            }
        }
    }

    fn patience(&self) -> Duration {
        self.options.timeout + Duration::from_secs(1)
    }
}

/// Converts an unsuccessful response into an error.
fn refusal(response: &Response) -> SinkError {
    let status = response.status();
    let why = format!("the webhook answered with status {status}");
    let busy = matches!(
        status,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
    );
    let gateway = matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    );
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|it| it.to_str().ok());
    SinkError {
        why,
        retry_after: retry_after.and_then(|it| stepwell_http::retry_after(it, SystemTime::now())),
        // Any other status, also 500, may concern only this delivery.
        down: busy || gateway,
        is_final: false,
    }
}

/// The signature of a body, in hexadecimal.
#[must_use]
pub fn signature(secret: &[u8], seconds: u64, body: &[u8]) -> String {
    // HMAC accepts keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else {
        return String::new();
    };
    mac.update(format!("{seconds}.").as_bytes());
    mac.update(body);
    keys::hex(&mac.finalize().into_bytes())
}

fn headers(pairs: &[(String, String)]) -> Result<HeaderMap, WebhookFault> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let fault = || WebhookFault(format!("the header {name:?} has an invalid name or value"));
        let known: HeaderName = name.parse().map_err(|_| fault())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| fault())?;
        value.set_sensitive(true);
        headers.append(known, value);
    }
    Ok(headers)
}

/// Encodes a text for a header: characters other than visible ASCII are written as `%XX`.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'%' => shown.push(char::from(byte)),
            _ => shown.push_str(&format!("%{byte:02X}")),
        }
    }
    shown
}

/// The error text with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Installs the TLS provider of the process, unless one is already installed.
pub(crate) fn install_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
