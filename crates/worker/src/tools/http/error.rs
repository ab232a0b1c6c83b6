//! What went wrong with a request, as a task's error.

use std::error::Error;
use std::io;
use std::time::{Duration, SystemTime};

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use stepwell_http::retry_after;
use stepwell_kernel::codes;
use stepwell_kernel::plan::ErrorClass;

use crate::hosts::DeniedHost;
use crate::outcome::ToolError;

/// Nobody means to wait longer; a larger number could not be added to a time.
const LONGEST_WAIT: Duration = Duration::from_secs(366 * 24 * 3600);

/// A field of the task that cannot be used.
pub(super) fn field(message: impl Into<String>) -> ToolError {
    ToolError::invalid(codes::TOOL_FIELD, message)
}

/// The worker is set up so that it can ask nobody.
pub(super) fn no_client(why: &str) -> ToolError {
    let message = format!("this worker cannot send requests: {why}");
    ToolError {
        retryable: Some(false),
        ..ToolError::new(ErrorClass::Transport, "HTTP_TRANSPORT", message)
    }
}

/// What a status means that is an error.
pub(super) fn of_status(status: StatusCode, headers: &HeaderMap) -> Option<ToolError> {
    let class = match status.as_u16() {
        0..=399 => return None,
        401 | 403 | 407 => ErrorClass::Auth,
        408 => ErrorClass::Timeout,
        409 | 412 | 423 => ErrorClass::Conflict,
        425 | 429 => ErrorClass::RateLimit,
        500..=599 => ErrorClass::Transient,
        _ => ErrorClass::Validation,
    };
    // What a server cannot do today it cannot do tomorrow.
    let hopeless = matches!(
        status,
        StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED
    );
    let retry_after = headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok());
    let reason = status.canonical_reason().unwrap_or("a status of its own");
    let status = status.as_str();
    Some(ToolError {
        retryable: hopeless.then_some(false),
        retry_after: retry_after.and_then(|it| wait_of(it, SystemTime::now())),
        ..ToolError::new(
            class,
            format!("HTTP_{status}"),
            format!("the answer was {status} {reason}"),
        )
    })
}

/// What `Retry-After` asks for, bounded.
fn wait_of(text: &str, now: SystemTime) -> Option<Duration> {
    Some(retry_after(text, now)?.min(LONGEST_WAIT))
}

/// No answer, or a broken one. `url` is as it may be shown.
pub(super) fn of_transport(error: reqwest::Error, url: &str) -> ToolError {
    let error = error.without_url();
    if let Some(found) = DeniedHost::behind(&error) {
        return denied(found);
    }
    let why = chain(&error);
    if error.is_builder() {
        return field(format!("{url} cannot be asked: {why}"));
    }
    if is_certificate(&error) {
        let message = format!(
            "the certificate of {url} is not trusted: {why}; give the worker the authority's \
             certificate, or set `verify_ssl: false` if the host is your own"
        );
        return ToolError {
            retryable: Some(false),
            ..ToolError::new(ErrorClass::Transport, "HTTP_TLS", message)
        };
    }
    let class = if error.is_timeout() {
        ErrorClass::Timeout
    } else {
        ErrorClass::Transport
    };
    let what = if error.is_connect() {
        "no connection to"
    } else {
        "no whole answer from"
    };
    ToolError::new(class, "HTTP_TRANSPORT", format!("{what} {url}: {why}"))
}

/// The error of a host that the configuration of the worker forbids.
pub(super) fn denied(found: &DeniedHost) -> ToolError {
    ToolError::new(
        ErrorClass::Policy,
        "HTTP_HOST_DENIED",
        format!(
            "{found} in the configuration of this worker; ask another host, or have the list changed"
        ),
    )
}

/// The error of a redirect that must not be followed.
pub(super) fn redirects(message: impl Into<String>) -> ToolError {
    ToolError::invalid("HTTP_REDIRECTS", message)
}

/// The answer has more bytes than a result may have.
pub(super) fn too_large(limit: usize) -> ToolError {
    ToolError::invalid(
        "HTTP_TOO_LARGE",
        format!(
            "the answer has more than the {limit} bytes that a result may have; ask for less at a \
             time, or have the worker's limit raised"
        ),
    )
}

/// An error with what caused it.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

/// Whether the other side's certificate is what is wrong: it will be tomorrow too.
fn is_certificate(error: &reqwest::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        // An I/O error names as its source what its content has as one, not the content.
        let content = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let tls = match content {
            Some(content) => content.downcast_ref::<rustls::Error>(),
            None => error.downcast_ref::<rustls::Error>(),
        };
        if let Some(rustls::Error::InvalidCertificate(_)) = tls {
            return true;
        }
        cause = match content {
            Some(content) => Some(content),
            None => error.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn statuses_have_their_class() {
        let said = |status: u16| {
            let status = StatusCode::from_u16(status).unwrap();
            let error = of_status(status, &HeaderMap::new())?;
            let retryable = error.is_retryable();
            Some((error.code, error.class.name(), retryable))
        };
        for fine in [200, 204, 302, 304, 399] {
            assert_eq!(said(fine), None, "{fine}");
        }
        for (class, retryable, statuses) in [
            ("auth", false, &[401, 403, 407][..]),
            ("timeout", true, &[408]),
            ("conflict", false, &[409, 412, 423]),
            ("rate_limit", true, &[425, 429]),
            ("transient", true, &[500, 502, 503, 504, 599]),
            ("transient", false, &[501, 505]),
            (
                "validation",
                false,
                &[400, 404, 405, 410, 413, 414, 415, 422, 451, 600],
            ),
        ] {
            for status in statuses {
                let wanted = (format!("HTTP_{status}"), class, retryable);
                assert_eq!(said(*status), Some(wanted));
            }
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = UNIX_EPOCH + Duration::from_secs(1_445_412_470);
        let parsed = |text| wait_of(text, now).map(|it| it.as_secs());
        assert_eq!(parsed(" 120 "), Some(120));
        assert_eq!(parsed("Wed, 21 Oct 2015 07:28:00 GMT"), Some(10));
        assert_eq!(parsed("Tue, 20 Oct 2015 07:28:00 GMT"), Some(0));
        assert_eq!(parsed("18446744073709551615"), Some(LONGEST_WAIT.as_secs()));
        for odd in ["", "-1", "soon", "1.5", "Wed, 21 Oct 2015"] {
            assert_eq!(parsed(odd), None, "{odd}");
        }
    }
}
