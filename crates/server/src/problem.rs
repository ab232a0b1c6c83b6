//! Refusals over HTTP: RFC 9457 problems with the stable codes of `stepwell explain`.

use std::num::NonZeroU64;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use stepwell_engine::Error;
use stepwell_engine::store::{StoreError, StoreErrorKind};
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_worker::artifacts::ArtifactError;
use utoipa::ToSchema;

use crate::codes;
use crate::definitions::FoundProblem;

/// Where the page of a code is served.
pub(crate) const PAGES: &str = "/api/v1/errors/";

/// Why a request was not done.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ApiProblem {
    /// The address of the page that explains the code, on this server.
    #[serde(rename = "type")]
    pub kind: Box<str>,
    /// The reason for programs: it never changes.
    pub code: String,
    /// The status of the answer.
    pub status: u16,
    /// The phrase that belongs to the status.
    pub title: &'static str,
    /// The reason for people, and what to do instead.
    pub detail: String,
    /// How many seconds to wait before the request is made again; absent if a repetition does not help.
    #[serde(rename = "retryAfter", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub retry_after: Option<NonZeroU64>,
    /// What is wrong at which place of a definition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<FoundProblem>,
}

/// The code of a refusal beside its response, for the audit log.
#[derive(Clone, Debug)]
pub(crate) struct ProblemCode(pub(crate) String);

impl ApiProblem {
    pub(crate) fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> ApiProblem {
        ApiProblem {
            kind: format!("{PAGES}{code}").into(),
            code: code.to_owned(),
            status: status.as_u16(),
            title: status.canonical_reason().unwrap_or("Error"),
            detail: detail.into(),
            retry_after: None,
            problems: Vec::new(),
        }
    }

    /// The request itself cannot be read.
    pub(crate) fn bad_request(detail: impl Into<String>) -> ApiProblem {
        ApiProblem::new(StatusCode::BAD_REQUEST, codes::REQUEST_INVALID, detail)
    }

    pub(crate) fn not_found(code: &str, detail: impl Into<String>) -> ApiProblem {
        ApiProblem::new(StatusCode::NOT_FOUND, code, detail)
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> ApiProblem {
        self.retry_after = NonZeroU64::new(seconds.max(1));
        self
    }

    pub(crate) fn with_problems(mut self, problems: Vec<FoundProblem>) -> ApiProblem {
        self.problems = problems;
        self
    }

    /// Something is broken that no caller can fix. The log of the server has the cause, the answer has not.
    pub(crate) fn internal(cause: &dyn std::fmt::Display) -> ApiProblem {
        tracing::error!(%cause, "a request failed");
        ApiProblem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            codes::SERVER_FAULT,
            "the server could not do this; its log says why",
        )
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retry_after = self.retry_after;
        let code = ProblemCode(self.code.clone());
        let mut response = (status, axum::Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.get()));
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        response.extensions_mut().insert(code);
        response
    }
}

impl From<Rejection> for ApiProblem {
    fn from(rejection: Rejection) -> ApiProblem {
        ApiProblem::new(
            status_of(rejection.code),
            rejection.code.name(),
            rejection.message,
        )
    }
}

/// The status for each refusal of the kernel.
fn status_of(code: Code) -> StatusCode {
    match code {
        Code::RunUnknown | Code::StepUnknown | Code::SignalNotFound => StatusCode::NOT_FOUND,
        Code::InvalidId
        | Code::SignalInvalidPayload
        | Code::AuthzReasonRequired
        | Code::LabelsInvalid
        | Code::PlanAdapterUnsupported
        | Code::PlanCapabilityUnsupported
        | Code::KeyMissing => StatusCode::UNPROCESSABLE_ENTITY,
        Code::AuthzDenied | Code::AuthzTenantForbidden | Code::SodDenied | Code::TokenMismatch => {
            StatusCode::FORBIDDEN
        }
        Code::SignalRateLimited | Code::InboxFull => StatusCode::TOO_MANY_REQUESTS,
        Code::LogInvalid => StatusCode::INTERNAL_SERVER_ERROR,
        Code::RunTerminal
        | Code::RunStopping
        | Code::RunPaused
        | Code::RunUndoing
        | Code::RunNotPaused
        | Code::RunExists
        | Code::RequestContradicted
        | Code::KeyTaken
        | Code::RunNotTerminal
        | Code::RunNotApproved
        | Code::RunNotRunning
        | Code::InvalidTransition
        | Code::StepNotEligible
        | Code::StepNotRunning
        | Code::StepNotWaiting
        | Code::StepNotTerminal
        | Code::StepTerminal
        | Code::StaleExecution
        | Code::LeaseLost
        | Code::LeaseAlive
        | Code::TimerStale
        | Code::TimerNotDue
        | Code::NotManual
        | Code::SignalDuplicate
        | Code::NothingToDo => StatusCode::CONFLICT,
    }
}

impl From<StoreError> for ApiProblem {
    fn from(error: StoreError) -> ApiProblem {
        let away = [StoreErrorKind::Held, StoreErrorKind::Gone];
        let is_away = error.kind.may_pass() || away.contains(&error.kind);
        let status = match is_away {
            true => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        // What the database says may name hosts and users: the log of the server has it.
        tracing::warn!(%error, "a request found the store unusable");
        let problem = ApiProblem::new(
            status,
            error.kind.code(),
            "the store of the server cannot be used now",
        );
        match is_away {
            true => problem.retry_after(1),
            false => problem,
        }
    }
}

impl From<Error> for ApiProblem {
    fn from(error: Error) -> ApiProblem {
        let code = error.code().unwrap_or(codes::SERVER_FAULT).to_owned();
        let of = |status, detail: String| ApiProblem::new(status, &code, detail);
        match error {
            Error::Rejected(rejection) => rejection.into(),
            Error::Store(error) => error.into(),
            Error::UnknownRun(run) => of(StatusCode::NOT_FOUND, format!("there is no run {run}")),
            Error::Contended(run) => {
                let why = format!("run {run} changes too fast; try again");
                of(StatusCode::SERVICE_UNAVAILABLE, why).retry_after(1)
            }
            Error::Refused { why, .. } => of(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!("the database refuses a value: {why}"),
            ),
            Error::Busy {
                key,
                retry_after_ms,
            } => of(
                StatusCode::TOO_MANY_REQUESTS,
                format!("no slot is free for {key}; try again later"),
            )
            .retry_after(retry_after_ms.div_ceil(1000)),
            error @ Error::OtherEngine { .. } => of(StatusCode::CONFLICT, error.to_string()),
            Error::Stopping => of(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server is stopping; ask another one".to_owned(),
            )
            .retry_after(2),
            error @ (Error::LogInvalid { .. }
            | Error::Unreadable { .. }
            | Error::ChainBroken { .. }
            | Error::Quarantined { .. }
            | Error::Newer { .. }
            | Error::Plan { .. }) => of(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            error @ (Error::Schema { .. } | Error::Server { .. }) => ApiProblem::internal(&error),
        }
    }
}

impl From<ArtifactError> for ApiProblem {
    fn from(error: ArtifactError) -> ApiProblem {
        let of = |status| ApiProblem::new(status, error.code(), error.to_string());
        match &error {
            ArtifactError::Missing { .. } => of(StatusCode::NOT_FOUND),
            ArtifactError::Exists { .. } => of(StatusCode::CONFLICT),
            ArtifactError::TooLarge { .. } => of(StatusCode::PAYLOAD_TOO_LARGE),
            // Damage is for the people who run the server, too.
            ArtifactError::Corrupt { .. } => {
                tracing::error!(%error, "an artifact is damaged");
                of(StatusCode::INTERNAL_SERVER_ERROR)
            }
            // The message may name hosts and files: the log of the server has it.
            ArtifactError::Store { .. } | ArtifactError::Address(_) => {
                tracing::error!(%error, "the artifact store cannot be used");
                let why = "the artifact store of the server cannot be used now";
                ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, error.code(), why).retry_after(1)
            }
        }
    }
}

/// The run did not answer in time; the command may still be executed.
pub(crate) fn unanswered(run: &str) -> ApiProblem {
    ApiProblem::new(
        StatusCode::GATEWAY_TIMEOUT,
        codes::RUN_UNANSWERED,
        format!(
            "the owner of run {run} did not answer in time; the command may still be executed: look at the run"
        ),
    )
}
