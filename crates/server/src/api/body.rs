//! Bodies and queries of requests: what cannot be read is a problem that says what is wrong.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::access::GivenReason;
use crate::codes;
use crate::problem::ApiProblem;

/// A body in JSON.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiProblem;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>, ApiProblem> {
        not_encoded(request.headers())?;
        let request = noted(request, state).await.map_err(|it| unreadable(&it))?;
        if is_plain_json(&request) {
            return read(request, state).await.map(Body);
        }
        let read = Json::<T>::from_request(request, state).await;
        read.map(|Json(value)| Body(value))
            .map_err(|rejection| unreadable(&rejection))
    }
}

/// Refuses a body that is compressed: it is not unpacked, however small it is on the way.
pub(super) fn not_encoded(headers: &HeaderMap) -> Result<(), ApiProblem> {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    match encodings.all(|it| it.as_bytes().eq_ignore_ascii_case(b"identity")) {
        true => Ok(()),
        false => Err(ApiProblem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            codes::REQUEST_INVALID,
            "the body must not be compressed: leave out the header `content-encoding`",
        )),
    }
}

/// The bytes of a body that is not JSON, or why they are not there.
pub(super) fn whole(body: Result<Bytes, BytesRejection>) -> Result<Bytes, ApiProblem> {
    body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        _ => ApiProblem::bad_request("the body of the request did not arrive as a whole"),
    })
}

pub(super) fn too_large() -> ApiProblem {
    ApiProblem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        codes::BODY_TOO_LARGE,
        "the body of the request is larger than the server allows",
    )
}

fn is_plain_json(request: &Request) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|it| it == "application/json")
}

/// Reads a body. Where in the body it is wrong is found out only if it is wrong: to keep track of the place takes longer than
/// to read.
async fn read<S, T>(request: Request, state: &S) -> Result<T, ApiProblem>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    let bytes = Bytes::from_request(request, state).await;
    let bytes = bytes.map_err(|it| unreadable(&it.into()))?;
    if let Ok(value) = serde_json::from_slice(&bytes) {
        return Ok(value);
    }
    match Json::from_bytes(&bytes) {
        Ok(Json(value)) => Ok(value),
        Err(JsonRejection::JsonSyntaxError(error)) if is_json(&bytes) => {
            Err(two_choices(&error.body_text()))
        }
        Err(rejection) => Err(unreadable(&rejection)),
    }
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

/// The parser calls it an error of syntax if an object that must have one of several fields has two of them.
fn two_choices(text: &str) -> ApiProblem {
    let place = text
        .rsplit_once(" at line ")
        .map_or(String::new(), |(_, place)| format!(" at line {place}"));
    ApiProblem::bad_request(format!(
        "the body cannot be used: an object that takes one of several fields has more than one of them; keep one{place}"
    ))
}

/// Notes the reason in the body for the audit log.
async fn noted<S: Send + Sync>(request: Request, state: &S) -> Result<Request, JsonRejection> {
    let Some(reason) = request.extensions().get::<GivenReason>().cloned() else {
        return Ok(request);
    };
    let (parts, body) = request.into_parts();
    let whole = Request::from_parts(parts.clone(), body);
    let bytes = Bytes::from_request(whole, state).await?;
    reason.look(&bytes);
    Ok(Request::from_parts(parts, bytes.into()))
}

fn unreadable(rejection: &JsonRejection) -> ApiProblem {
    let status = rejection.status();
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ApiProblem::new(
            status,
            codes::REQUEST_INVALID,
            "the body must be JSON: send the header `content-type: application/json`",
        ),
        // What does not fit the type is as wrong as what is not JSON.
        _ => ApiProblem::bad_request(plain(&rejection.body_text())),
    }
}

/// What a parser says, in words for people who do not know its types.
pub(super) fn plain(text: &str) -> String {
    let text = text
        .replace(
            "Failed to deserialize the JSON body into the target type",
            "the body cannot be used",
        )
        .replace(
            "Failed to parse the request body as JSON",
            "the body is no JSON",
        )
        .replace(
            "Failed to deserialize query string",
            "the query cannot be used",
        )
        .replace("invalid digit found in string", "a whole number is needed");
    let mut words = text.split(' ').peekable();
    let mut said: Vec<&str> = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "struct" | "enum" if said.last() == Some(&"expected") => {
                said.extend(["an", "object"]);
                words.next();
            }
            "u8" | "u16" | "u32" | "u64" | "usize" if said.last() == Some(&"expected") => {
                said.extend(["a", "whole", "number"]);
            }
            word => said.push(word),
        }
    }
    said.join(" ")
}

/// The query of a request.
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Params<T>, ApiProblem> {
        let query: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        match query {
            Ok(Query(value)) => Ok(Params(value)),
            Err(rejection) => Err(ApiProblem::bad_request(plain(&rejection.body_text()))),
        }
    }
}

/// The parts of the address of a request that are not texts.
#[derive(Debug)]
pub(super) struct PathOf<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathOf<T> {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathOf<T>, ApiProblem> {
        let path: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
        match path {
            Ok(Path(value)) => Ok(PathOf(value)),
            Err(rejection) => Err(ApiProblem::bad_request(plain(&rejection.body_text()))),
        }
    }
}
