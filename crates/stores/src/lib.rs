//! The databases behind the engine's store port: SQLite inside the process, PostgreSQL for many
//! machines. One logical schema (`../migrations`); SQL moves rows and enforces constraints, and no
//! rule about workflows is here.

#![warn(clippy::wildcard_enum_match_arm)]

mod address;
#[cfg(feature = "bench")]
pub mod bare;
pub mod postgres;
pub mod sqlite;

pub use address::{Address, FORMS, OpenMode, open, without_password};

/// How the slots of a head are kept: a JSON list, nothing where there are none.
fn slots_text(slots: &[String]) -> Option<String> {
    let some = !slots.is_empty();
    some.then(|| serde_json::Value::from(slots).to_string())
}

/// Reads what `slots_text` wrote. An error is damage: a run whose slots are not known would never free them.
fn slots_list(text: Option<&str>) -> Result<Vec<String>, serde_json::Error> {
    text.map_or_else(|| Ok(Vec::new()), serde_json::from_str)
}
