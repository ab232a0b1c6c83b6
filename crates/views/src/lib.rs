//! A run as people and programs see it. The command and the server show runs with the same words.
//!
//! - [`RunView`]: the state and all events of a run, read from a store or a server without an engine.
//! - [`snapshot`]: the run for programs, as the snapshot of the contract with `ext` beside it.
//! - [`run_ext`]: the shape of that snapshot, with schemas.
//! - [`why`]: what an open run waits for, in sentences; [`stuck`]: what keeps it from going on.
//! - [`people`]: who started, approved and answered; [`answers`]: what an answer came to.
//! - [`allowed`]: what a person may do to a run now, and why not.
//! - [`evidence`]: what an auditor gets.
//! - [`watch`]: the snapshot with watermark, lag and gaps.
//! - [`undo`]: what a cancel would undo.
//! - [`phrases`]: what is said about a step wherever it is shown.
//!
//! Everything here only reads. No rule about workflows, no SQL, no HTTP, no terminal.

#![warn(clippy::wildcard_enum_match_arm)]

pub mod allowed;
pub mod answers;
mod artifact_refs;
pub mod duration;
pub mod evidence;
pub mod people;
pub mod phrases;
mod reason;
pub mod run_ext;
mod run_view;
pub mod snapshot;
pub mod stuck;
pub mod undo;
pub mod watch;
pub mod why;

pub use artifact_refs::artifact_ref;
pub use duration::duration;
pub use run_view::{ChildRuns, RunView, child_id, may_see};
