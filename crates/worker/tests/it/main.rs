//! The worker's parts against the real things: files, programs, interpreters, servers.
#![allow(clippy::unwrap_used)]

mod artifacts;
mod http;
mod logs;
mod orphans;
mod programs;
mod python;
mod python_hostile;
mod redactor;
mod secrets;
mod shell;
