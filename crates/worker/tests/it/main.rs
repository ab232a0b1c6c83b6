//! The worker's parts against the real things: files, programs, interpreters, servers.
#![allow(clippy::unwrap_used)]

mod artifacts;
mod bench;
mod duckdb;
mod http;
mod logs;
mod orphans;
mod pipeline;
mod postgres;
mod postgres_faults;
mod postgres_login;
mod programs;
mod python;
mod python_hostile;
mod redactor;
mod redis;
mod secrets;
mod server;
mod shell;
mod sqlite;
