//! Stepwell as a service: one process that everyone can reach over HTTP.
//!
//! ```text
//! listener ──► access ──► api ──► engine (commands)  ──► store
//!                            └──► store, views (reads)
//! ```
//!
//! - [`Server`]: the engine with its worker, and the HTTP listener around it; started and stopped here.
//! - `listener`: connections, TLS, limits, a stop that drains.
//! - `access`: who calls, and what this caller may do.
//! - `api`: one file for each group of endpoints; the OpenAPI document is made from the same functions.
//! - `problem`: refusals as RFC 9457 problems, with the stable codes.
//! - `workers`: workers in other processes, and the tokens of their tasks.
//! - `changes`: which runs have changed, for streams.
//!
//! No rule about workflows lives here: the kernel decides, the engine commits, the views say it in words.

#![warn(clippy::wildcard_enum_match_arm)]

mod access;
mod api;
mod app;
mod changes;
mod codes;
mod listener;
mod problem;
mod server;
mod settings;
mod workers;

pub use access::{Access, Right};
pub use api::openapi;
pub use problem::ApiProblem;
pub use server::{FetchPlan, FetchedPlan, Server, ServerError, ServerParts};
pub use settings::{PORT, ServerSettings};
