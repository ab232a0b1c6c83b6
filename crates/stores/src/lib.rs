//! The databases behind the engine's store port: SQLite inside the process, PostgreSQL for many
//! machines. One logical schema (`../migrations`); SQL moves rows and enforces constraints, and no
//! rule about workflows is here.

mod address;
pub mod bare;
pub mod postgres;
pub mod sqlite;

pub use address::{Address, FORMS, OpenMode, open, without_password};

/// How the slots of a head are kept: a JSON list, nothing where there are none.
fn slots_text(slots: &[String]) -> Option<String> {
    let some = !slots.is_empty();
    some.then(|| serde_json::Value::from(slots).to_string())
}

fn slots_list(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}
