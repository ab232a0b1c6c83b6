//! The stores against the engine's public suite, against each other, and against faults.
#![allow(clippy::unwrap_used)]

mod conformance;
mod damaged_log;
mod faulty;
mod keys_of_tenants;
#[path = "../../../bus/tests/it/listener.rs"]
mod listener;
mod outbox;
mod parked;
mod pgbouncer;
mod place;
mod postgres;
mod postgres_faults;
mod postgres_views;
mod projector;
mod runs;
mod server;
mod sqlite;
mod sqlite_faults;
#[cfg(target_os = "linux")]
mod sqlite_limits;
mod sqlite_views;
