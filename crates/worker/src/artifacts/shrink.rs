//! Large values: what stands in their place in the log of events, and how they come back.
//!
//! `{"_ref": {uri, kind, sha256, sizeBytes}, "_preview": …, …kept}` stands for the whole value, as the
//! kernel's `reference` has it. What is kept stands at its place, so that expressions which read only that
//! need not fetch the rest; what should be kept and is too large is a reference to its part of the whole,
//! which can be handed on, looped over and counted.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use stepwell_kernel::event::ArtifactRef;
use stepwell_kernel::reference::{self, AT, COUNT, KEYS, REF};

use super::preview::preview;
use super::{ArtifactError, ArtifactKey, Artifacts};

/// A value whose JSON has more bytes than this is kept as an artifact.
pub const INLINE_BYTES: usize = 64 << 10;

const KEPT_BYTES: usize = 16 << 10;
const KEPT_BYTES_IN_ALL: usize = 48 << 10;

/// Names of fields are listed as long as they take no more.
const KEYS_BYTES: usize = 4 << 10;

/// References further inside are left as they are.
const MAX_DEPTH: usize = 32;

const PREVIEW: &str = "_preview";

/// Which parts of a value stay in its place, as long as they are small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetainedPaths {
    /// Names of fields and indices of items: `["rows", "0", "id"]`. The earlier ones go first when
    /// not all have room.
    pub paths: Vec<Vec<String>>,
}

impl Artifacts {
    /// A value as the log of events may have it: itself if it is small, else a reference to what is
    /// kept under the key.
    pub async fn shrink(
        &self,
        key: &ArtifactKey,
        value: Json,
        keep: &RetainedPaths,
    ) -> Result<(Json, Option<ArtifactRef>), ArtifactError> {
        let text = value.to_string();
        if text.len() <= INLINE_BYTES {
            return Ok((value, None));
        }
        let reference = self.put(key, "json", text).await?;
        let paths: Vec<&[String]> = keep.paths.iter().map(Vec::as_slice).collect();
        let mut left = KEPT_BYTES_IN_ALL;
        let mut stub = stub(&value, &json!({ REF: reference }), &paths, &mut left);
        stub.insert(PREVIEW.to_owned(), preview(&value));
        Ok((Json::Object(stub), Some(reference)))
    }

    /// The value with everything in it that a reference stands for; references inside what was fetched
    /// stay.
    pub async fn expand(&self, value: &Json) -> Result<Json, ArtifactError> {
        let mut expanded = value.clone();
        let mut whole: Vec<(String, Arc<Json>)> = Vec::new();
        for uri in references(value) {
            let json = self.parsed(&uri).await?;
            whole.push((uri.uri, json));
        }
        if !whole.is_empty() {
            put_back(&mut expanded, &whole)?;
        }
        Ok(expanded)
    }

    /// The same for a value that is shared: as it is if nothing in it is kept elsewhere, and what is kept
    /// once if it stands for a whole artifact.
    pub async fn expand_shared(&self, value: &Arc<Json>) -> Result<Arc<Json>, ArtifactError> {
        match is_ref(value) {
            Some(reference) if value.get(AT).is_none() => self.parsed(&reference).await,
            None if !refers(value) => Ok(Arc::clone(value)),
            _ => Ok(Arc::new(self.expand(value).await?)),
        }
    }

    /// What an artifact of JSON says. The last ones are kept, since a loop over one asks for it with
    /// every item.
    async fn parsed(&self, reference: &ArtifactRef) -> Result<Arc<Json>, ArtifactError> {
        let hash = reference.sha256.clone().unwrap_or_default();
        if let Some(known) = self.cache.get(&hash) {
            return Ok(known);
        }
        let bytes = self.get(reference).await?;
        let json: Json =
            serde_json::from_slice(&bytes).map_err(|error| ArtifactError::Corrupt {
                uri: reference.uri.clone(),
                why: format!("it is not JSON: {error}"),
            })?;
        let json = Arc::new(json);
        self.cache.put(hash, bytes.len(), &json);
        Ok(json)
    }
}

/// Whether a value refers to artifacts.
#[must_use]
pub fn refers(value: &Json) -> bool {
    !references(value).is_empty()
}

/// The artifacts that a value refers to, each once.
#[must_use]
pub fn references(value: &Json) -> Vec<ArtifactRef> {
    fn find(value: &Json, depth: usize, found: &mut Vec<ArtifactRef>) {
        if let Some(reference) = is_ref(value) {
            if !found.contains(&reference) {
                found.push(reference);
            }
            return;
        }
        if depth > MAX_DEPTH {
            return;
        }
        match value {
            Json::Array(items) => items.iter().for_each(|it| find(it, depth + 1, found)),
            Json::Object(map) => map.values().for_each(|it| find(it, depth + 1, found)),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }
    let mut found = Vec::new();
    find(value, 0, &mut found);
    found
}

/// Puts what was fetched in the place of what stands for it.
fn put_back(value: &mut Json, whole: &[(String, Arc<Json>)]) -> Result<(), ArtifactError> {
    if let Some(reference) = is_ref(value) {
        let Some((_, json)) = whole.iter().find(|(uri, _)| *uri == reference.uri) else {
            return Ok(());
        };
        let at = value.get(AT).and_then(Json::as_str).unwrap_or_default();
        let part = json.pointer(at).ok_or_else(|| ArtifactError::Corrupt {
            uri: reference.uri.clone(),
            why: format!("it has nothing at {at}"),
        })?;
        *value = part.clone();
        return Ok(());
    }
    match value {
        Json::Array(items) => items.iter_mut().try_for_each(|it| put_back(it, whole)),
        Json::Object(map) => map.values_mut().try_for_each(|it| put_back(it, whole)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => Ok(()),
    }
}

/// The reference in a value that stands for an artifact.
#[must_use]
pub fn is_ref(value: &Json) -> Option<ArtifactRef> {
    let fields = value.get(REF).filter(|_| reference::is_reference(value))?;
    serde_json::from_value(fields.clone()).ok()
}

/// What stands for a value: where it is, what it is, and inside, at their places, the parts that are kept.
/// What is on the way to a kept part is such a stub itself, so that nobody takes a part for the whole.
fn stub(value: &Json, whole: &Json, paths: &[&[String]], left: &mut usize) -> Map<String, Json> {
    let mut stub = whole.as_object().cloned().unwrap_or_default();
    let mut done: Vec<&String> = Vec::new();
    for path in paths {
        let Some(name) = path.first() else { continue };
        if done.contains(&name) || name.starts_with('_') {
            continue;
        }
        done.push(name);
        let Some(part) = child(value, name) else {
            continue;
        };
        let below: Vec<&[String]> = paths
            .iter()
            .filter(|it| it.first() == Some(name))
            .map(|it| &it[1..])
            .collect();
        let size = part.to_string().len() + name.len() + 4;
        let kept = match below.iter().any(|it| it.is_empty()) && size <= KEPT_BYTES.min(*left) {
            true => {
                *left -= size;
                part.clone()
            }
            false => Json::Object(self::stub(
                part,
                &reference::part(whole, name),
                &below,
                left,
            )),
        };
        stub.insert(name.clone(), kept);
    }
    describe(&mut stub, value);
    stub
}

fn child<'a>(value: &'a Json, name: &str) -> Option<&'a Json> {
    match value {
        Json::Object(fields) => fields.get(name),
        Json::Array(items) => items.get(name.parse::<usize>().ok()?),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => None,
    }
}

/// Says of what stands for a value how many items it has, or which fields that are not here.
fn describe(stub: &mut Map<String, Json>, value: &Json) {
    match value {
        Json::Array(items) => {
            stub.insert(COUNT.to_owned(), json!(items.len()));
        }
        Json::Object(map) => {
            let hidden: Vec<&String> = map.keys().filter(|key| !stub.contains_key(*key)).collect();
            if hidden.iter().map(|key| key.len() + 3).sum::<usize>() <= KEYS_BYTES {
                stub.insert(KEYS.to_owned(), json!(hidden));
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}
