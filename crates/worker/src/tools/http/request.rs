//! The request that a task's fields ask for.

use reqwest::header::{
    CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use reqwest::{Client, Method, Request, Url};
use serde_json::Value as Json;

use super::auth::{self, Credential};
use super::{error, redact};
use crate::outcome::ToolError;
use crate::tool::{TaskContext, ToolCall, kind_of, list_or_one};

/// A request, ready to be sent.
pub(super) struct PreparedRequest {
    pub(super) request: Request,
    /// Whether to follow redirects.
    pub(super) follow: bool,
    /// The query parameter that `auth` added, which messages must not contain.
    pub(super) query_secret: Option<String>,
}

/// Builds the request from the fields of the task. A request that may change something tells which execution sends it;
/// headers of the task have priority.
pub(super) fn prepare(
    client: &Client,
    call: &ToolCall,
    cx: &TaskContext,
) -> Result<PreparedRequest, ToolError> {
    let follow = call.flag("follow_redirects")?.unwrap_or(true);
    let body = body(call)?;
    let method = method(call, body.is_some())?;
    let mut headers = headers(call)?;
    let credential = auth::read(call.auth.as_ref())?;
    let mut url = url(call)?;
    let query_secret = match credential {
        Credential::None => None,
        Credential::Header(name, value) => {
            headers.insert(name, value);
            None
        }
        Credential::Query(name, value) => {
            url.query_pairs_mut().append_pair(&name, &value);
            Some(name)
        }
    };
    let repeats = matches!(method, Method::GET | Method::HEAD | Method::OPTIONS);
    if !repeats {
        for (fact, value) in cx.facts() {
            if !headers.contains_key(fact.header) {
                let value = header_value(fact.header, &visible(&value))?;
                headers.insert(HeaderName::from_static(fact.header), value);
            }
        }
    }
    for (name, value) in cx.trace_headers() {
        if !headers.contains_key(name) {
            headers.insert(HeaderName::from_static(name), header_value(name, value)?);
        }
    }
    // The client turns a name and a password in the address into a header, which ours replaces.
    let request = client.request(method, url);
    let request = match body {
        None => request.headers(headers),
        Some(RequestBody::Text(text)) => request.headers(headers).body(text),
        Some(RequestBody::Form(pairs)) => request.form(&pairs).headers(headers),
        Some(RequestBody::Json(value)) => request
            .headers(typed("application/json"))
            .headers(headers)
            .body(value.to_string()),
    };
    let request = request
        .build()
        .map_err(|error| error::field(format!("no request can be made of it: {error}")))?;
    Ok(PreparedRequest {
        request,
        follow,
        query_secret,
    })
}

/// The body from the fields `body`, `json` or `form`.
enum RequestBody {
    Text(String),
    Json(Json),
    Form(Vec<(String, String)>),
}

fn body(call: &ToolCall) -> Result<Option<RequestBody>, ToolError> {
    let given = |name: &'static str| {
        let value = call.fields.get(name).filter(|value| !value.is_null());
        value.map(|value| (name, value))
    };
    let bodies: Vec<_> = ["json", "body", "form"]
        .into_iter()
        .filter_map(given)
        .collect();
    match bodies[..] {
        [] => Ok(None),
        [("json", value)] => Ok(Some(RequestBody::Json(value.clone()))),
        [("form", value)] => match value {
            Json::Object(_) | Json::Array(_) => Ok(Some(RequestBody::Form(pairs("form", value)?))),
            other @ (Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_)) => {
                Err(wrong_kind("form", "a mapping", other))
            }
        },
        [(_, value)] => Ok(Some(match scalar(value) {
            Some(text) => RequestBody::Text(text),
            None => RequestBody::Json(value.clone()),
        })),
        _ => {
            let names: Vec<String> = bodies.iter().map(|(name, _)| format!("`{name}`")).collect();
            Err(error::field(format!(
                "a request has one body; keep one of {}",
                names.join(" and ")
            )))
        }
    }
}

fn method(call: &ToolCall, has_body: bool) -> Result<Method, ToolError> {
    let Some(method) = call.text("method")? else {
        return Ok(if has_body { Method::POST } else { Method::GET });
    };
    match method.trim().to_ascii_uppercase().as_str() {
        "GET" => Ok(Method::GET),
        "POST" => Ok(Method::POST),
        "PUT" => Ok(Method::PUT),
        "PATCH" => Ok(Method::PATCH),
        "DELETE" => Ok(Method::DELETE),
        "HEAD" => Ok(Method::HEAD),
        "OPTIONS" => Ok(Method::OPTIONS),
        other => Err(error::field(format!(
            "`method` is {other:?}; it is one of GET, POST, PUT, PATCH, DELETE, HEAD and OPTIONS"
        ))),
    }
}

/// The address with what `params` adds. It is not shown when it is wrong: it may hold a password.
fn url(call: &ToolCall) -> Result<Url, ToolError> {
    let text = call.text("url")?.unwrap_or_default().trim();
    if text.is_empty() {
        return Err(error::field("`url` is missing or empty"));
    }
    let mut url = Url::parse(text).map_err(|error| {
        error::field(format!(
            "`url` must be a whole address, as https://example.org/orders: {error}"
        ))
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        let scheme = url.scheme();
        return Err(error::field(format!(
            "`url` has the scheme `{scheme}`; only http and https are known"
        )));
    }
    match call.fields.get("params") {
        None | Some(Json::Null) => {}
        Some(Json::String(text)) => {
            let text = text.trim().trim_start_matches(['?', '&']);
            let query = match url.query() {
                Some(query) if !query.is_empty() => format!("{query}&{text}"),
                _ => text.to_owned(),
            };
            url.set_query(Some(&query).filter(|it| !it.is_empty()).map(String::as_str));
        }
        Some(value) => {
            let pairs = pairs("params", value)?;
            if !pairs.is_empty() {
                url.query_pairs_mut().extend_pairs(pairs);
            }
        }
    }
    Ok(url)
}

fn headers(call: &ToolCall) -> Result<HeaderMap, ToolError> {
    let mut headers = HeaderMap::new();
    let pairs = match call.fields.get("headers") {
        None | Some(Json::Null) => return Ok(headers),
        Some(value @ Json::Object(_)) => pairs("headers", value)?,
        Some(other) => return Err(wrong_kind("headers", "a mapping", other)),
    };
    for (name, value) in pairs {
        let known = header_name(&name)?;
        // They follow from the body; a wrong one makes the next request part of this one.
        if matches!(known, CONTENT_LENGTH | TRANSFER_ENCODING) {
            continue;
        }
        let mut value = header_value(&name, &value)?;
        value.set_sensitive(redact::is_secret(&name));
        headers.append(known, value);
    }
    Ok(headers)
}

pub(super) fn header_name(name: &str) -> Result<HeaderName, ToolError> {
    let known = HeaderName::from_bytes(name.trim().as_bytes());
    known.map_err(|_| error::field(format!("invalid header name {name:?}")))
}

/// Blanks around a value are no part of it; a line's end often comes along from a file.
pub(super) fn header_value(name: &str, value: &str) -> Result<HeaderValue, ToolError> {
    HeaderValue::from_bytes(value.trim().as_bytes()).map_err(|_| {
        error::field(format!(
            "the value of header `{name}` has characters that no header may have, as a line's end"
        ))
    })
}

fn typed(content_type: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))])
}

/// The pairs of a mapping, or of a list of them: a list of values repeats its name, null is left out.
fn pairs(field: &str, value: &Json) -> Result<Vec<(String, String)>, ToolError> {
    let mut pairs = Vec::new();
    match value {
        Json::Object(map) => {
            for (name, value) in map {
                add_pairs(&mut pairs, field, name, value)?;
            }
        }
        Json::Array(list) => {
            for pair in list {
                match pair.as_array().map(Vec::as_slice) {
                    Some([Json::String(name), value]) => {
                        add_pairs(&mut pairs, field, name, value)?;
                    }
                    _ => {
                        return Err(error::field(format!(
                            "`{field}` is a list, so each of it must be a pair: [name, value]"
                        )));
                    }
                }
            }
        }
        other @ (Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_)) => {
            return Err(wrong_kind(field, "a mapping", other));
        }
    }
    Ok(pairs)
}

fn add_pairs(
    pairs: &mut Vec<(String, String)>,
    field: &str,
    name: &str,
    value: &Json,
) -> Result<(), ToolError> {
    for value in list_or_one(value).iter().filter(|value| !value.is_null()) {
        let path = || format!("{field}.{name}");
        let text = scalar(value).ok_or_else(|| wrong_kind(&path(), "text or a number", value))?;
        pairs.push((name.to_owned(), text));
    }
    Ok(())
}

/// The text of a value that has one.
pub(super) fn scalar(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(flag) => Some(flag.to_string()),
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}

/// A text as a header can have it: what is not visible ASCII is written as `%XX`.
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

fn wrong_kind(field: &str, wanted: &str, value: &Json) -> ToolError {
    error::field(format!(
        "`{field}` must be {wanted}, it is {}",
        kind_of(value)
    ))
}
