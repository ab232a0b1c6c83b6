//! The server as a process: what is asked and answered over HTTP.

#![allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]

mod access;
mod backup;
mod collector;
mod confined;
mod definitions;
mod hardening;
mod harness;
mod issuer;
mod listening;
mod load;
mod log_lines;
mod monitoring;
mod oidc;
mod operations;
mod runs;
mod schedules;
mod sessions;
mod several;
mod stores;
mod telemetry;
mod tenants;
mod webhooks;
mod worker_process;
mod workers;
