//! The contract's words for the kernel's values, and its forms for places and versions.

use serde_json::{Map, Value as Json};

use stepwell_kernel::event::{ArtifactRef, Rollback, SkipReason, StepError, WaitKind};
use stepwell_kernel::keys;
use stepwell_kernel::plan::ErrorClass;

pub(super) fn skip_word(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::OnFailure => "ON_FAILURE",
        SkipReason::Operator | SkipReason::OperatorAhead => "OPERATOR",
        SkipReason::DependencyFailed => "DEPENDENCY_FAILED",
        SkipReason::Cancelled => "CANCELLED",
        SkipReason::Discarded => "DISCARDED",
    }
}

pub(super) fn wait_word(wait: &WaitKind) -> &'static str {
    match wait {
        WaitKind::Gate => "gate",
        WaitKind::Approval => "approval",
        WaitKind::Manual => "manual",
        WaitKind::Event { .. } => "event",
        WaitKind::Timer { .. } => "timer",
        WaitKind::Child { .. } => "child",
    }
}

pub(super) fn rollback_word(rollback: Rollback) -> Option<&'static str> {
    match rollback {
        Rollback::None => None,
        Rollback::Complete => Some("stepwell/ROLLED_BACK"),
        Rollback::Incomplete => Some("stepwell/PARTIAL_ROLLBACK"),
    }
}

/// An error in the contract's words.
pub(super) fn failure(error: &StepError) -> Json {
    let (category, retryable) = match error.class {
        ErrorClass::Timeout => ("timeout", true),
        ErrorClass::RateLimit
        | ErrorClass::Transient
        | ErrorClass::Transport
        | ErrorClass::External
        | ErrorClass::Agent
        | ErrorClass::LeaseLost => ("infrastructure", true),
        ErrorClass::Unknown => ("infrastructure", false),
        ErrorClass::Validation | ErrorClass::Expression => ("validation", false),
        ErrorClass::Policy
        | ErrorClass::Auth
        | ErrorClass::Conflict
        | ErrorClass::Governance
        | ErrorClass::Rejected
        | ErrorClass::Cancelled => ("business", false),
    };
    let mut fields = Map::new();
    fields.insert("code".into(), error.code.as_str().into());
    fields.insert("message".into(), error.message.as_str().into());
    fields.insert("retryable".into(), retryable.into());
    fields.insert("category".into(), category.into());
    Json::Object(fields)
}

/// The error of an execution that another follows.
pub(super) fn retried(mut failure: Json) -> Json {
    failure["retryable"] = true.into();
    failure
}

/// A pointer in the contract's words; a hash that is none is left to `ext`.
pub(super) fn artifact(artifact: &ArtifactRef) -> Json {
    let mut fields = Map::new();
    fields.insert("uri".into(), as_uri(&artifact.uri).into());
    fields.insert("kind".into(), artifact.kind.as_str().into());
    if let Some(sha256) = artifact.sha256.as_ref().filter(|hash| is_hash(hash)) {
        fields.insert("sha256".into(), sha256.as_str().into());
    }
    if let Some(size) = artifact.size_bytes {
        fields.insert("sizeBytes".into(), size.into());
    }
    if let Some(expires) = artifact.expires_at {
        fields.insert("expiresAt".into(), expires.to_rfc3339().into());
    }
    Json::Object(fields)
}

/// A place as a URI: a path becomes `file:`, what may not stand in a URI is escaped.
pub(super) fn as_uri(place: &str) -> String {
    if is_uri(place) {
        return place.to_owned();
    }
    let mut uri = String::from(if place.starts_with('/') {
        "file://"
    } else {
        "file:"
    });
    for byte in place.bytes() {
        if is_uri_byte(byte) && byte != b'%' && byte != b':' {
            uri.push(byte as char);
        } else {
            uri.push('%');
            uri.push_str(&keys::hex(&[byte]));
        }
    }
    uri
}

/// A format's version in the contract's form: `noetl.io/v2` is `v2.0`, and no version at all `v1.0`.
pub(super) fn as_version(version: &str) -> String {
    if is_version(version) {
        return version.to_owned();
    }
    let version = version.rsplit('/').next().unwrap_or_default();
    let mut numbers = version
        .split(|c: char| !c.is_ascii_digit())
        .filter(|part| !part.is_empty());
    let major = numbers.next().unwrap_or("1");
    // `v1alpha1` names no minor version.
    let minor = numbers.next().filter(|_| version.contains('.'));
    format!("v{major}.{}", minor.unwrap_or("0"))
}

/// 64 lower-case hex digits.
pub(super) fn is_hash(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// A major and a minor number, such as `v1.2`.
pub(super) fn is_version(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.strip_prefix('v')
        .and_then(|rest| rest.split_once('.'))
        .is_some_and(|(major, minor)| digits(major) && digits(minor))
}

/// A scheme, a colon, and only characters that a URI may have.
pub(super) fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        && rest.bytes().all(|byte| is_uri_byte(byte) || byte == b'#')
        && rest.bytes().filter(|byte| *byte == b'#').count() <= 1
        && escapes_are_whole(rest)
}

/// Whether a byte may stand in a URI behind its scheme.
pub(super) fn is_uri_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?@!$&'()*+,;=%".contains(&byte)
}

fn escapes_are_whole(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit()))
}
