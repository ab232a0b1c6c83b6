//! The contract's words for the kernel's values, and its forms for places and versions.

use serde_json::json;

use super::super::check::{is_hash, is_uri, is_uri_byte, is_version};
use crate::canonical;
use crate::event::{Rollback, SkipReason, WaitKind};
use crate::keys;
use crate::plan::{ErrorClass, Net};

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

/// An error's category in the contract's words, and whether the same work may succeed when tried again.
pub(in super::super) fn category(class: ErrorClass) -> (&'static str, bool) {
    match class {
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
    }
}

/// The plan that a run is pinned to, as canonical JSON.
pub(crate) fn plan_ref(net: &Net, hash: &str) -> String {
    let sha256 = match is_hash(&net.source.sha256) {
        true => &net.source.sha256,
        false => hash,
    };
    let uri = match net.source.uri.as_str() {
        "" => format!("urn:sha256:{sha256}"),
        uri => as_uri(uri),
    };
    let fields = json!({
        "uri": uri,
        "sha256": sha256,
        "schemaVersion": as_version(&net.schema_version),
        "planId": net.plan_id,
        "planVersion": net.plan_version,
    });
    let mut text = Vec::new();
    canonical::write(&fields, &mut text);
    // JSON is text.
    String::from_utf8(text).unwrap_or_default()
}

/// A place as a URI: a path becomes `file:`, what may not stand in a URI is escaped.
pub(in super::super) fn as_uri(place: &str) -> String {
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
fn as_version(version: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_place_is_a_uri() {
        for (place, uri) in [
            ("s3://bucket/plan.json", "s3://bucket/plan.json"),
            ("/plans/a b.json", "file:///plans/a%20b.json"),
            ("plans/ä.yaml", "file:plans/%c3%a4.yaml"),
            ("C:\\plans", "file:C%3a%5cplans"),
            ("", "file:"),
        ] {
            assert_eq!(as_uri(place), uri);
            assert!(is_uri(uri), "{uri}");
        }
    }

    #[test]
    fn any_version_has_the_contracts_form() {
        for (version, wanted) in [
            ("v1.2", "v1.2"),
            ("noetl.io/v2", "v2.0"),
            ("workflow.example/v1alpha1", "v1.0"),
            ("1.2.3", "v1.2"),
            ("", "v1.0"),
        ] {
            assert_eq!(as_version(version), wanted);
        }
    }
}
