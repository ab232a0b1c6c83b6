//! Large values: what stands in their place in the log of events, and how they come back.
//!
//! `{"_ref": {uri, kind, sha256, sizeBytes}, "_preview": …, …kept}` stands for the whole value. What
//! is kept stands at its place, so that expressions which read only that need not fetch the rest.

use serde_json::{Map, Value as Json, json};
use stepwell_kernel::event::ArtifactRef;

use super::preview::preview;
use super::{ArtifactError, Artifacts, Key};

/// A value whose JSON has more bytes than this is kept as an artifact.
pub const INLINE_BYTES: usize = 64 << 10;

const KEPT_BYTES: usize = 16 << 10;
const KEPT_BYTES_IN_ALL: usize = 48 << 10;

/// Items before a kept one become null, so an index far into a list is not kept.
const KEPT_INDEX: usize = 256;

const REF: &str = "_ref";
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
        let mut stub = kept(&value, keep);
        stub.insert(REF.to_owned(), json!(reference));
        stub.insert(PREVIEW.to_owned(), preview(&value));
        Ok((Json::Object(stub), Some(reference)))
    }

    /// The value that a reference stands for; any other value is returned as it is. References
    /// inside it stay.
    pub async fn expand(&self, value: &Json) -> Result<Json, ArtifactError> {
        let Some(reference) = is_ref(value) else {
            return Ok(value.clone());
        };
        let bytes = self.get(&reference).await?;
        serde_json::from_slice(&bytes).map_err(|error| ArtifactError::Corrupt {
            uri: reference.uri,
            why: format!("it is not JSON: {error}"),
        })
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

fn kept(value: &Json, keep: &Keep) -> Map<String, Json> {
    let mut stub = Json::Object(Map::new());
    // The stub is a mapping, so there is no place in it for the items of a list.
    if value.is_object() {
        let mut left = KEPT_BYTES_IN_ALL;
        for path in &keep.paths {
            let reserved = path.first().is_none_or(|it| it == REF || it == PREVIEW);
            let Some(part) = at(value, path).filter(|_| !reserved) else {
                continue;
            };
            let size = part.to_string().len() + path_bytes(path);
            if size <= KEPT_BYTES.min(left) && place(&mut stub, value, path, part) {
                left -= size;
            }
        }
    }
    match stub {
        Json::Object(fields) => fields,
        _ => Map::new(),
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
