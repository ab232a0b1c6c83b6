//! The stores against the engine's public suite, against each other, and against faults.
// Helpers of tests are tests too: a failed expectation is a panic.
#![allow(clippy::unwrap_used)]

mod postgres;
mod postgres_faults;
mod postgres_views;
mod server;
