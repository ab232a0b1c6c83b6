//! Who calls, and what this caller may do. Each endpoint names the right that it needs in its OpenAPI description
//! (`security`), and the guard looks it up there: an endpoint without a right is served to nobody.
//!
//! - `guard` stands before every endpoint; `right` is the table of roles and rights.
//! - `gate` finds out who calls: `token_book` (API tokens), `oidc` and `jwt` (tokens of an issuer), `session` (cookies).
//! - `standing` ends streams and waits of callers that were let in and may no longer go on.
//! - `rate` limits how often; `trail` writes the audit log.

mod caller;
mod gate;
mod guard;
mod jwt;
mod oidc;
mod open;
mod rate;
mod right;
mod session;
mod standing;
mod token_book;
mod trail;

use std::sync::Once;

use axum::http::StatusCode;

pub(crate) use caller::{Caller, LOCAL};
pub(crate) use gate::{Gate, Known, Shown};
pub(crate) use guard::{ActedOn, Rights, SCHEME, csrf_denied, guard};
pub use oidc::OidcSettings;
pub use rate::{Rate, RateSettings};
pub use right::Right;
pub(crate) use standing::Lost;
pub use token_book::{FreshToken, NewToken, TokenBook, TokenError, TokenRecord};
pub(crate) use trail::{GivenReason, TrailWriter};

use crate::codes;
use crate::problem::ApiProblem;

/// Who may use a server.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// Everyone who reaches the server, with every right: only for a server that listens on this machine alone. Callers
    /// say who they are with headers, as the options of the command do.
    #[default]
    Open,
    /// Holders of API tokens of the store, and of tokens of an OIDC issuer if there is one.
    Controlled { oidc: Option<OidcSettings> },
}

/// The one answer to everything that proves nothing: nobody learns which part of it was wrong.
pub(crate) fn invalid() -> ApiProblem {
    ApiProblem::new(
        StatusCode::UNAUTHORIZED,
        codes::TOKEN_INVALID,
        "this needs a valid token: send the header `authorization: Bearer TOKEN`",
    )
}

/// The process's cryptography, unless someone has chosen one.
pub(crate) fn install_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
