//! Who calls, and what this caller may do. Each endpoint names the right that it needs in its OpenAPI description
//! (`security`), and the guard looks it up there: an endpoint without a right is served to nobody.

mod caller;
mod guard;
mod right;

pub(crate) use caller::{Caller, LOCAL};
pub(crate) use guard::{Rights, SCHEME, guard};
pub use right::Right;

/// Who may use a server.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// Everyone who reaches the server, with every right: only for a server that listens on this machine alone. Callers
    /// say who they are with headers, as the options of the command do.
    #[default]
    Open,
}
