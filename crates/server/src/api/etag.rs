//! Entity tags: an answer that did not change since the caller saw it is not sent again.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;
use sha2::{Digest as _, Sha256};

/// What a cache may do with an answer: keep it for its caller, and ask before it is used.
const CACHE: &str = "private, no-cache";

/// Adds a tag to the answers in JSON, and answers 304 if the caller has it.
pub(super) async fn etag(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let known = request.headers().get_all(header::IF_NONE_MATCH);
    let known: Vec<HeaderValue> = known.iter().cloned().collect();
    let response = next.run(request).await;
    if !reads || response.status() != StatusCode::OK || !is_json(response.headers()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let bytes: Bytes = match body.collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) => return crate::problem::ApiProblem::internal(&error).into_response(),
    };
    let hash = Sha256::digest(&bytes);
    let hex: String = hash[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // Weak: the compression around this changes the bytes.
    let tag = format!("W/\"{hex}\"");
    if known.iter().any(|known| names(known, &tag)) {
        let headers = [
            (header::ETAG, tag),
            (header::CACHE_CONTROL, CACHE.to_owned()),
        ];
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    if let Ok(tag) = HeaderValue::try_from(tag) {
        parts.headers.insert(header::ETAG, tag);
    }
    parts
        .headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static(CACHE));
    Response::from_parts(parts, Body::from(bytes))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|it| it.to_str().ok()).unwrap_or_default();
    kind.starts_with("application/json")
}

/// Whether a list of tags has this one. Weak and strong tags are compared as weak ones are.
fn names(list: &HeaderValue, tag: &str) -> bool {
    let weak = |tag: &str| tag.trim_start_matches("W/").to_owned();
    let list = list.to_str().unwrap_or_default();
    list.split(',')
        .map(str::trim)
        .any(|it| it == "*" || weak(it) == weak(tag))
}
