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
//! - `metrics`: what Prometheus reads; `telemetry`: traces for OpenTelemetry.
//! - `retention`: deletes runs that ended long ago.
//! - `problem`: refusals as RFC 9457 problems, with the stable codes.
//! - `definitions`: definitions by name, their revisions, and the definitions of child runs.
//! - `named_documents`: what schedules, webhooks and sources have in common in the store.
//! - `schedules`, `triggers`: what starts runs by itself, once for each due time and event over all servers.
//! - `webhooks`: requests of other systems that start runs or deliver events, by their signatures.
//! - `sources`: messages of brokers that start runs or deliver events; `intake`: what webhooks and sources share.
//! - `changes`: which runs have changed, for streams; `feed`: the same over all servers, with `watermark`s; `deliveries`: the publishers of sinks.
//! - `engines`: engines outside, such as Temporal, that move runs of this server.
//! - `ui`: the web UI, as files inside of the binary.
//! - `workers`: workers in other processes, and the tokens of their tasks.
//!
//! No rule about workflows lives here: the kernel decides, the engine commits, the views say it in words.

#![warn(clippy::wildcard_enum_match_arm)]

mod access;
mod api;
mod app;
mod changes;
mod codes;
mod definitions;
mod deliveries;
mod engines;
mod feed;
mod folder;
mod intake;
mod listener;
mod metrics;
mod named_documents;
mod problem;
mod retention;
mod schedules;
mod server;
mod settings;
mod sink_secrets;
mod sources;
mod telemetry;
mod tls;
pub mod triggers;
mod ui;
mod watermark;
mod webhooks;
mod workers;

pub use access::{
    Access, FreshToken, NewToken, OidcSettings, Rate, RateSettings, Right, TokenBook, TokenError,
    TokenRecord,
};
pub use api::openapi;
pub use definitions::FoundProblem;
pub use engines::{EngineNeeds, EngineStanding, RoutedDefinitions, ServedEngines};
pub use problem::ApiProblem;
pub use retention::RetentionTimes;
pub use server::{FetchPlan, FetchedPlan, RegisteredFile, Server, ServerError, ServerParts};
pub use settings::{PORT, ServerSettings};
pub use sink_secrets::SinkSecrets;
pub use telemetry::TelemetrySettings;
pub use tls::TlsFiles;
