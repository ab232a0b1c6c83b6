//! The worker's parts against the real things: files, programs, servers.
#![allow(clippy::unwrap_used)]

mod artifacts;
mod http;
mod logs;
mod redactor;
mod secrets;
