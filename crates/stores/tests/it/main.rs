//! The stores against the engine's public suite, against each other, and against faults.

mod postgres;
mod postgres_faults;
mod postgres_views;
mod server;
