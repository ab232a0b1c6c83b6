//! The server as a process: what is asked and answered over HTTP.

#![allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]

mod definitions;
mod harness;
mod operations;
mod runs;
mod schedules;
mod several;
mod webhooks;
