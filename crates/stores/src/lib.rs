//! The databases behind the engine's store port: SQLite inside the process, PostgreSQL for many
//! machines. One logical schema (`../migrations`); SQL moves rows and enforces constraints, and no
//! rule about workflows is here.

pub mod postgres;
pub mod sqlite;
