//! Why a request was not done.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustls::CertificateError;

/// The code of an answer that is not one of a Stepwell server.
pub(crate) const SERVER_ANSWER_INVALID: &str = "SERVER_ANSWER_INVALID";
const SERVER_ADDRESS_INVALID: &str = "SERVER_ADDRESS_INVALID";
const SERVER_UNREACHABLE: &str = "SERVER_UNREACHABLE";
const SERVER_UNTRUSTED: &str = "SERVER_UNTRUSTED";
const TOKEN_EXPOSED: &str = "TOKEN_EXPOSED";

/// Why a request was not done.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("SERVER_ADDRESS_INVALID: the address {0} cannot be used: {1}")]
    Address(String, String),
    #[error("SERVER_ADDRESS_INVALID: the certificates of {0} cannot be used: {1}")]
    Certificates(PathBuf, String),
    #[error("SERVER_ADDRESS_INVALID: {0}: this name has characters that a header cannot have")]
    Name(String),
    /// A token would go over the network as it is.
    #[error(
        "TOKEN_EXPOSED: {0} is not on this machine and has no TLS: everyone on the way could read the token; use https://"
    )]
    PlainToken(String),
    #[error("SERVER_UNREACHABLE: the server cannot be reached: {}", causes(.0))]
    // Not a source: the message has all causes, and who prints sources would print them twice.
    Unreachable(reqwest::Error),
    /// The certificate of the server is not one that the caller trusts. Waiting does not help.
    #[error(
        "SERVER_UNTRUSTED: the certificate of the server is not trusted: {0}; give the certificate of its authority with --ca FILE"
    )]
    Untrusted(String),
    /// The server refused the request.
    #[error("{code}: {detail}")]
    Refused {
        status: u16,
        code: String,
        detail: String,
        /// How long the server asks to wait before the request is made again.
        retry_after: Option<Duration>,
    },
}

impl From<reqwest::Error> for ClientError {
    fn from(error: reqwest::Error) -> ClientError {
        match certificate_fault(&error) {
            Some(why) => ClientError::Untrusted(why),
            None => ClientError::Unreachable(error),
        }
    }
}

/// What is wrong with the certificate of the server, if that is the cause.
fn certificate_fault(error: &reqwest::Error) -> Option<String> {
    let mut cause = error.source();
    while let Some(it) = cause {
        if let Some(rustls::Error::InvalidCertificate(why)) = it.downcast_ref() {
            return Some(said(why));
        }
        // An error of the system is no source of what it was made of.
        let made_of = it.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = match made_of {
            Some(inner) => Some(inner),
            None => it.source(),
        };
    }
    None
}

fn said(why: &CertificateError) -> String {
    let text = match why {
        CertificateError::UnknownIssuer => "nobody vouches for it that is known here",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name than that of the address"
        }
        CertificateError::Revoked => "it was revoked",
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is the certificate of an authority (CA:TRUE), which a server must not show as its own; make one with CA:FALSE"
        }
        other => return other.to_string(),
    };
    text.to_owned()
}

/// An error and everything that has caused it: only the last cause says what happened.
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(it) = cause {
        text.push_str(&format!(": {it}"));
        cause = it.source();
    }
    text
}

impl ClientError {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            ClientError::Address(..)
            | ClientError::Certificates(..)
            | ClientError::Name(_)
            | ClientError::PlainToken(_)
            | ClientError::Untrusted(_) => false,
            ClientError::Unreachable(error) => !error.is_builder(),
            ClientError::Refused { status, .. } => *status == 429 || *status >= 500,
        }
    }

    /// Whether a question may be answered later: the server is away, stops, or has too much to do.
    #[must_use]
    pub fn is_away(&self) -> bool {
        match self {
            ClientError::Unreachable(error) => !error.is_builder(),
            ClientError::Refused { status, code, .. } => {
                code == "RATE_LIMITED" || matches!(status, 502..=504)
            }
            ClientError::Address(..)
            | ClientError::Certificates(..)
            | ClientError::Name(_)
            | ClientError::PlainToken(_)
            | ClientError::Untrusted(_) => false,
        }
    }

    /// Whether the server has certainly not done what was asked, and may do it later.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        match self {
            ClientError::Unreachable(error) => error.is_connect(),
            // A 504 is given while a command is still in its mailbox.
            ClientError::Refused { status, code, .. } => {
                code == "RATE_LIMITED" || matches!(status, 502 | 503) && code != "REQUEST_TIMEOUT"
            }
            ClientError::Address(..)
            | ClientError::Certificates(..)
            | ClientError::Name(_)
            | ClientError::PlainToken(_)
            | ClientError::Untrusted(_) => false,
        }
    }

    /// The code, for programs and for `stepwell explain`.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            ClientError::Address(..) | ClientError::Certificates(..) | ClientError::Name(_) => {
                SERVER_ADDRESS_INVALID
            }
            ClientError::PlainToken(_) => TOKEN_EXPOSED,
            ClientError::Unreachable(_) => SERVER_UNREACHABLE,
            ClientError::Untrusted(_) => SERVER_UNTRUSTED,
            ClientError::Refused { code, .. } => code,
        }
    }

    /// The status of the answer, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            ClientError::Refused { status, .. } => Some(*status),
            ClientError::Address(..)
            | ClientError::Certificates(..)
            | ClientError::Name(_)
            | ClientError::PlainToken(_)
            | ClientError::Untrusted(_)
            | ClientError::Unreachable(_) => None,
        }
    }
}
