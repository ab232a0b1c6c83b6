//! The worker's parts against the real thing: files, programs, servers.
#![allow(clippy::unwrap_used)]

mod artifacts;
mod logs;
mod redactor;
mod secrets;
