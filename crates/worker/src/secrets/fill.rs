//! Puts secrets in the place of their references, in all of a value at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value as Json;

use super::error::SecretError;
use super::redactor::Redactor;
use super::reference::embedded;
use super::{Secrets, is_reference};

/// What the references of a definition stand for.
///
/// References are looked for in what the author wrote, before templates are rendered, and replaced
/// after that. So data that a step got from outside cannot name a secret that the task does not use.
#[derive(Clone, Default)]
pub struct ResolvedSecrets {
    values: BTreeMap<String, Json>,
}

/// Which references, never what they stand for.
impl fmt::Debug for ResolvedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

impl Secrets {
    /// Puts secrets in the place of every reference below a value: texts that are one, `secretRef`
    /// mappings, and `${secret:NAME}` inside longer texts. The redactor gets to know each value.
    ///
    /// The value must be the author's own. Where it has been rendered with data from outside, use
    /// [`Secrets::gather`] before and [`ResolvedSecrets::apply`] after rendering.
    pub async fn fill(&self, value: &mut Json, seen: &Redactor) -> Result<(), SecretError> {
        self.gather(value, seen).await?.apply(value)
    }

    /// Resolves every reference below a value, which stays as it is.
    pub async fn gather(
        &self,
        value: &Json,
        seen: &Redactor,
    ) -> Result<ResolvedSecrets, SecretError> {
        let mut references = BTreeSet::new();
        find(value, &mut references);
        let mut values = BTreeMap::new();
        for reference in references {
            let value = self.resolve(&reference).await?;
            seen.add_value(&value);
            values.insert(reference, value);
        }
        Ok(ResolvedSecrets { values })
    }
}

impl ResolvedSecrets {
    /// Puts the values in the place of their references below `value`. Any other reference stays.
    pub fn apply(&self, value: &mut Json) -> Result<(), SecretError> {
        if self.values.is_empty() {
            return Ok(());
        }
        if let Some(found) = secret_ref(value).and_then(|it| self.values.get(&it)) {
            *value = found.clone();
            return Ok(());
        }
        match value {
            Json::String(text) => {
                if let Some(found) = self.values.get(text.trim()) {
                    *value = found.clone();
                } else if let Some(filled) = self.inside(text)? {
                    *text = filled;
                }
                Ok(())
            }
            Json::Array(items) => items.iter_mut().try_for_each(|item| self.apply(item)),
            Json::Object(fields) => fields.values_mut().try_for_each(|field| self.apply(field)),
            Json::Null | Json::Bool(_) | Json::Number(_) => Ok(()),
        }
    }

    /// A longer text with its references replaced, each once: what a secret holds is not looked at.
    fn inside(&self, text: &str) -> Result<Option<String>, SecretError> {
        let mut filled = String::new();
        let mut rest = text;
        for reference in embedded(text) {
            let Some((value, at)) = self.values.get(reference).zip(rest.find(reference)) else {
                continue;
            };
            filled.push_str(&rest[..at]);
            filled.push_str(&as_text(reference, value)?);
            rest = &rest[at + reference.len()..];
        }
        filled.push_str(rest);
        Ok((filled != text).then_some(filled))
    }
}

/// All references below a value, as they stand there.
pub(super) fn find(value: &Json, found: &mut BTreeSet<String>) {
    if let Some(reference) = secret_ref(value) {
        found.insert(reference);
        return;
    }
    match value {
        Json::String(text) if is_reference(text) => {
            found.insert(text.trim().to_owned());
        }
        Json::String(text) => found.extend(embedded(text).into_iter().map(str::to_owned)),
        Json::Array(items) => items.iter().for_each(|item| find(item, found)),
        Json::Object(fields) => fields.values().for_each(|field| find(field, found)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// What `{secretRef: NAME}` refers to, in a form that no plain text has.
fn secret_ref(value: &Json) -> Option<String> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    let name = fields.get("secretRef")?.as_str()?.trim();
    Some(match is_reference(name) {
        true => name.to_owned(),
        false => format!("secretref:{name}"),
    })
}

/// A secret inside a text. A mapping has no place there, but for the field that stands for it.
fn as_text(reference: &str, value: &Json) -> Result<String, SecretError> {
    match value {
        Json::String(text) => Ok(text.clone()),
        Json::Number(number) => Ok(number.to_string()),
        Json::Bool(flag) => Ok(flag.to_string()),
        Json::Object(fields) if fields.get("value").is_some_and(Json::is_string) => {
            Ok(fields["value"].as_str().unwrap_or_default().to_owned())
        }
        Json::Null | Json::Array(_) | Json::Object(_) => Err(SecretError::not_found(
            reference,
            "it is a mapping and cannot stand inside a text; name a field, as in ${secret:NAME/FIELD}",
        )),
    }
}
