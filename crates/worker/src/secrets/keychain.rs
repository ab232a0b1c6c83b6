//! The keychain of a playbook: names for secrets, which templates read as `keychain.NAME`.

use serde_json::{Map, Value as Json, json};

use super::error::SecretError;
use super::{Redactor, Secrets};

/// Fields of an entry that name the secret.
const NAMES: [&str; 3] = ["secret", "ref", "credential"];

/// Fields of an entry that name several.
const MAPS: [&str; 2] = ["map", "fields"];

impl Secrets {
    /// What a keychain's entry stands for. It may name a secret with `secret`, `ref` or
    /// `credential`, or several by field with `map` or `fields`; else its own name is the secret's.
    pub async fn keychain(
        &self,
        entries: &Json,
        name: &str,
        seen: &Redactor,
    ) -> Result<Json, SecretError> {
        let items = entries.as_array().map(Vec::as_slice).unwrap_or_default();
        let entry = items
            .iter()
            .filter_map(Json::as_object)
            .find(|entry| text(entry, &["name"]) == Some(name))
            .ok_or_else(|| {
                let why = "the playbook's keychain has no entry of this name";
                SecretError::not_found(&format!("keychain.{name}"), why)
            })?;
        let map = MAPS.iter().find_map(|key| entry.get(*key)?.as_object());
        if let Some(map) = map {
            let mut fields = Json::Object(map.clone());
            self.fill(&mut fields, seen).await?;
            return Ok(with_type(entry, fields));
        }
        let value = self.credential(text(entry, &NAMES).unwrap_or(name)).await?;
        seen.add_value(&value);
        Ok(with_type(entry, value))
    }
}

fn text<'a>(entry: &'a Map<String, Json>, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| entry.get(*key)?.as_str())
}

/// A credential knows what it is, so that a tool can use it as `auth`.
fn with_type(entry: &Map<String, Json>, value: Json) -> Json {
    let kind = text(entry, &["kind", "type"]);
    match (kind, value) {
        (Some("bearer"), Json::String(token)) => json!({ "type": "bearer", "token": token }),
        (Some(kind), Json::Object(mut fields)) => {
            fields.entry("type").or_insert_with(|| kind.into());
            Json::Object(fields)
        }
        (_, value) => value,
    }
}
