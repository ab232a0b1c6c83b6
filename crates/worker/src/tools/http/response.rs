//! What an answer becomes: its body a result, the rest what `outcome.http` tells.

use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Method, Request, Response, StatusCode};
use serde_json::{Map, Value as Json, json};

use super::redact;
use crate::outcome::ToolError;
use crate::step_log::StepLog;

/// Types beside `text/…` whose bodies are text.
const TEXTS: &[&str] = &[
    "application/xml",
    "application/javascript",
    "application/ecmascript",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/sql",
    "application/graphql",
    "application/ndjson",
    "application/x-ndjson",
    "application/jsonl",
    "application/json-seq",
    "application/x-www-form-urlencoded",
];

/// What is known of the requests of one task.
#[derive(Debug)]
pub(super) struct HttpExchange {
    started: Instant,
    sent: Instant,
    method: Method,
    url: Option<String>,
    status: Option<StatusCode>,
    headers: Map<String, Json>,
}

impl HttpExchange {
    pub(super) fn new(started: Instant) -> HttpExchange {
        HttpExchange {
            started,
            sent: started,
            method: Method::GET,
            url: None,
            status: None,
            headers: Map::new(),
        }
    }

    /// A request goes out; of the answer to the one before nothing is kept.
    pub(super) fn sending(&mut self, request: &Request, query_secret: Option<&str>) {
        self.sent = Instant::now();
        self.method = request.method().clone();
        self.url = Some(redact::url(request.url(), query_secret));
        self.status = None;
        self.headers.clear();
    }

    /// Records status and headers when the answer begins.
    pub(super) fn answered(&mut self, response: &Response) {
        self.status = Some(response.status());
        self.headers = shown_headers(response.headers());
    }

    /// The address as it may be shown.
    pub(super) fn url(&self) -> &str {
        self.url.as_deref().unwrap_or("the address")
    }

    /// Writes the result of the request.
    pub(super) fn note(&self, log: &StepLog, became: Result<StatusCode, &ToolError>) {
        let (method, url, took) = (&self.method, self.url(), millis(self.sent));
        log.note(&match became {
            Ok(status) => format!("{method} {url}: {} in {took} ms", status.as_str()),
            Err(error) => format!("{method} {url}: {} after {took} ms", error.code),
        });
    }

    /// What templates read as `outcome.http`.
    pub(super) fn details(self) -> Json {
        json!({
            "status": self.status.map(|it| it.as_u16()),
            "headers": self.headers,
            "url": self.url,
            "elapsed_ms": millis(self.started),
        })
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Headers of the same name are joined. Cookies are credentials, and the tool keeps none of them.
fn shown_headers(headers: &HeaderMap) -> Map<String, Json> {
    let mut shown = Map::new();
    for name in headers.keys() {
        let text = if matches!(name.as_str(), "set-cookie" | "set-cookie2") {
            redact::HIDDEN.to_owned()
        } else {
            let values: Vec<_> = headers
                .get_all(name)
                .iter()
                .map(|value| String::from_utf8_lossy(value.as_bytes()))
                .collect();
            values.join(", ")
        };
        shown.insert(name.as_str().to_owned(), Json::String(text));
    }
    shown
}

/// Why a body was not read to its end.
#[derive(Debug)]
pub(super) enum BodyReadError {
    TooLarge,
    Broken(reqwest::Error),
}

/// Reads a body of at most `limit` bytes, counted after they are unpacked.
pub(super) async fn read(response: &mut Response, limit: usize) -> Result<Vec<u8>, BodyReadError> {
    let announced = response.content_length().unwrap_or(0);
    if usize::try_from(announced).map_or(true, |it| it > limit) {
        return Err(BodyReadError::TooLarge);
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(BodyReadError::Broken)? {
        if chunk.len() > limit - body.len() {
            return Err(BodyReadError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// What a body says, by its type. What is announced as JSON and is none stays text.
pub(super) fn parse(body: &[u8], headers: &HeaderMap, log: &StepLog) -> Json {
    if body.is_empty() {
        return Json::Null;
    }
    let content_type = headers.get(CONTENT_TYPE).map(|it| it.as_bytes());
    let content_type = String::from_utf8_lossy(content_type.unwrap_or_default());
    match BodyKind::of(&content_type) {
        BodyKind::Json => from_json(body).unwrap_or_else(|error| {
            log.note(&format!(
                "the body says that it is JSON but is not, so it is kept as text: {error}"
            ));
            text(body, log)
        }),
        BodyKind::Text => text(body, log),
        BodyKind::Binary => binary(body),
        BodyKind::Unsaid => match from_json(body) {
            Ok(value) => value,
            Err(_) if std::str::from_utf8(body).is_ok() => text(body, log),
            Err(_) => binary(body),
        },
    }
}

enum BodyKind {
    Json,
    Text,
    Binary,
    Unsaid,
}

impl BodyKind {
    fn of(content_type: &str) -> BodyKind {
        let essence = content_type.split(';').next().unwrap_or_default();
        match essence.trim().to_ascii_lowercase().as_str() {
            "" => BodyKind::Unsaid,
            "application/json" | "text/json" => BodyKind::Json,
            it if it.ends_with("+json") => BodyKind::Json,
            it if it.starts_with("text/") || TEXTS.contains(&it) => BodyKind::Text,
            it if it.ends_with("+xml") || it.ends_with("+yaml") => BodyKind::Text,
            _ => BodyKind::Binary,
        }
    }
}

fn from_json(body: &[u8]) -> Result<Json, serde_json::Error> {
    // A byte order mark may stand before it (RFC 8259 §8.1).
    serde_json::from_slice(body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body))
}

fn text(body: &[u8], log: &StepLog) -> Json {
    let text = String::from_utf8_lossy(body);
    if matches!(text, std::borrow::Cow::Owned(_)) {
        log.note("the body is not UTF-8; what could not be read was replaced");
    }
    Json::String(text.into_owned())
}

fn binary(body: &[u8]) -> Json {
    json!({ "_base64": STANDARD.encode(body) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    fn parsed(content_type: &str, body: &[u8]) -> Json {
        let mut headers = HeaderMap::new();
        if !content_type.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
        }
        parse(body, &headers, &StepLog::nowhere())
    }

    #[test]
    fn the_type_says_what_a_body_is() {
        assert_eq!(
            parsed("application/json; charset=utf-8", b"[1]"),
            json!([1])
        );
        assert_eq!(
            parsed("Application/Problem+JSON", b"{\"a\":1}"),
            json!({"a": 1})
        );
        assert_eq!(parsed("application/json", b"\xef\xbb\xbf1"), json!(1));
        assert_eq!(parsed("application/json", b"{nope"), json!("{nope"));
        assert_eq!(parsed("text/plain", b"[1]"), json!("[1]"));
        assert_eq!(parsed("application/atom+xml", b"<a/>"), json!("<a/>"));
        assert_eq!(parsed("text/plain", b"a\xff"), json!("a\u{fffd}"));
        assert_eq!(parsed("image/png", b"abc"), json!({"_base64": "YWJj"}));
        assert_eq!(parsed("application/json", b""), Json::Null);
    }

    #[test]
    fn without_a_type_the_body_itself_tells() {
        assert_eq!(parsed("", b" {\"a\": [1]} "), json!({"a": [1]}));
        assert_eq!(parsed("", b"words"), json!("words"));
        assert_eq!(parsed("", b"\xff\xfe"), json!({"_base64": "//4="}));
    }

    #[test]
    fn json_that_is_too_deep_stays_text() {
        let deep = "[".repeat(100_000);
        assert_eq!(parsed("application/json", deep.as_bytes()), json!(deep));
    }
}
