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
use super::{ArtifactError, Artifacts, Key};

/// A value whose JSON has more bytes than this is kept as an artifact.
pub const INLINE_BYTES: usize = 64 << 10;

const KEPT_BYTES: usize = 16 << 10;
const KEPT_BYTES_IN_ALL: usize = 48 << 10;

/// Items before a kept one become null, so an index far into a list is not kept.
const KEPT_INDEX: usize = 256;

/// Names of fields are listed as long as they take no more.
const KEYS_BYTES: usize = 4 << 10;

/// References further inside are left as they are.
const MAX_DEPTH: usize = 32;

const PREVIEW: &str = "_preview";

/// Which parts of a value stay in its place, as long as they are small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Names of fields and indices of items: `["rows", "0", "id"]`. The earlier ones go first when
    /// not all have room.
    pub paths: Vec<Vec<String>>,
}

impl Artifacts {
    /// A value as the log of events may have it: itself if it is small, else a reference to what is
    /// kept under the key.
    pub async fn shrink(
        &self,
        key: &Key,
        value: Json,
        keep: &Keep,
    ) -> Result<(Json, Option<ArtifactRef>), ArtifactError> {
        let text = value.to_string();
        if text.len() <= INLINE_BYTES {
            return Ok((value, None));
        }
        let reference = self.put(key, "json", text).await?;
        let mut stub = kept(&value, keep, &reference);
        stub.insert(REF.to_owned(), json!(reference));
        describe(&mut stub, &value);
        stub.insert(PREVIEW.to_owned(), preview(&value));
        Ok((Json::Object(stub), Some(reference)))
    }

    /// The value with everything in it that a reference stands for; references inside what was fetched
    /// stay.
    pub async fn expand(&self, value: &Json) -> Result<Json, ArtifactError> {
        let mut expanded = value.clone();
        let mut whole: Vec<(String, Arc<Json>)> = Vec::new();
        for uri in wanted(value) {
            let json = self.parsed(&uri).await?;
            whole.push((uri.uri, json));
        }
        if !whole.is_empty() {
            put_back(&mut expanded, &whole)?;
        }
        Ok(expanded)
    }

    /// What an artifact of JSON says. The last ones are kept, since a loop over one asks for it with
    /// every item.
    async fn parsed(&self, reference: &ArtifactRef) -> Result<Arc<Json>, ArtifactError> {
        let hash = reference.sha256.clone().unwrap_or_default();
        if let Some(known) = self.recent.get(&hash) {
            return Ok(known);
        }
        let bytes = self.get(reference).await?;
        let json: Json =
            serde_json::from_slice(&bytes).map_err(|error| ArtifactError::Corrupt {
                uri: reference.uri.clone(),
                why: format!("it is not JSON: {error}"),
            })?;
        let json = Arc::new(json);
        self.recent.put(hash, bytes.len(), &json);
        Ok(json)
    }
}

/// Whether a value refers to artifacts.
#[must_use]
pub fn refers(value: &Json) -> bool {
    !wanted(value).is_empty()
}

/// The artifacts that a value refers to, each once.
fn wanted(value: &Json) -> Vec<ArtifactRef> {
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
            _ => {}
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
        _ => Ok(()),
    }
}

/// The reference in a value that stands for an artifact. One without size and hash is none: whoever
/// makes a reference up must know what it stands for.
#[must_use]
pub fn is_ref(value: &Json) -> Option<ArtifactRef> {
    let fields = value.as_object()?.get(REF)?;
    let uri = fields.get("uri")?.as_str()?;
    let reference: ArtifactRef = serde_json::from_value(fields.clone()).ok()?;
    let is_whole = reference.sha256.is_some() && reference.size_bytes.is_some();
    (is_whole && uri.starts_with(super::SCHEME)).then_some(reference)
}

fn kept(value: &Json, keep: &Keep, reference: &ArtifactRef) -> Map<String, Json> {
    let mut stub = Json::Object(Map::new());
    // The stub is a mapping, so there is no place in it for the items of a list.
    if value.is_object() {
        let root = json!({ REF: reference });
        let mut left = KEPT_BYTES_IN_ALL;
        let mut paths: Vec<&Vec<String>> = keep.paths.iter().collect();
        // What stands for a part stands for all that is below it, so the short ways go first.
        paths.sort_by_key(|path| path.len());
        let mut elsewhere: Vec<&Vec<String>> = Vec::new();
        for path in paths {
            let reserved = path.first().is_none_or(|it| it.starts_with('_'));
            let covered = elsewhere.iter().any(|it| path.starts_with(it));
            let Some(part) = at(value, path).filter(|_| !reserved && !covered) else {
                continue;
            };
            let size = part.to_string().len() + path_bytes(path);
            if size <= KEPT_BYTES.min(left) && place(&mut stub, value, path, part) {
                left -= size;
            } else {
                let found = path
                    .iter()
                    .fold(root.clone(), |it, name| reference::part(&it, name));
                let mut found = match found {
                    Json::Object(fields) => fields,
                    _ => Map::new(),
                };
                describe(&mut found, part);
                if place(&mut stub, value, path, &Json::Object(found)) {
                    elsewhere.push(path);
                }
            }
        }
    }
    match stub {
        Json::Object(fields) => fields,
        _ => Map::new(),
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
        _ => {}
    }
}

/// What the way to a part takes at most: its names, and a null for each item before it.
fn path_bytes(path: &[String]) -> usize {
    path.iter()
        .map(|it| it.len() + 4 + 5 * index(it).unwrap_or(0))
        .sum()
}

fn index(text: &str) -> Option<usize> {
    text.parse().ok().filter(|at| *at < KEPT_INDEX)
}

fn at<'a>(value: &'a Json, path: &[String]) -> Option<&'a Json> {
    path.iter().try_fold(value, |value, step| match value {
        Json::Object(fields) => fields.get(step),
        Json::Array(items) => items.get(index(step)?),
        _ => None,
    })
}

/// Puts a part of `whole` at its place in `stub`.
fn place(stub: &mut Json, whole: &Json, path: &[String], part: &Json) -> bool {
    let Some((step, rest)) = path.split_first() else {
        *stub = part.clone();
        return true;
    };
    match whole {
        Json::Object(fields) => {
            let Some(below) = fields.get(step) else {
                return false;
            };
            if !stub.is_object() {
                *stub = Json::Object(Map::new());
            }
            let Some(map) = stub.as_object_mut() else {
                return false;
            };
            place(
                map.entry(step.clone()).or_insert(Json::Null),
                below,
                rest,
                part,
            )
        }
        Json::Array(items) => {
            let Some((at, below)) = index(step).and_then(|at| Some((at, items.get(at)?))) else {
                return false;
            };
            if !stub.is_array() {
                *stub = Json::Array(Vec::new());
            }
            let Some(list) = stub.as_array_mut() else {
                return false;
            };
            if list.len() <= at {
                list.resize(at + 1, Json::Null);
            }
            place(&mut list[at], below, rest, part)
        }
        _ => false,
    }
}
