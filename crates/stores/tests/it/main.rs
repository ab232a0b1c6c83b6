//! The stores against the engine's public suite, against each other, and against faults.

mod place;
mod sqlite;
mod sqlite_faults;
mod sqlite_views;
