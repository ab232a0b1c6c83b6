//! The tools against the real thing.
#![allow(clippy::unwrap_used)]

mod bench;
mod duckdb;
mod postgres;
mod postgres_faults;
mod postgres_login;
mod server;
mod sqlite;
