//! The server as a process: what is asked and answered over HTTP.

#![allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]

mod access;
mod command;
mod definitions;
mod harness;
mod issuer;
mod listening;
mod oidc;
mod operations;
mod runs;
mod schedules;
mod sessions;
mod several;
mod webhooks;
mod worker_process;
mod workers;
