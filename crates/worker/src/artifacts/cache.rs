//! Artifacts that were read a moment ago: the next item of a loop asks for the same one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value as Json;

/// The largest number of cached artifacts, and the largest sum of their sizes in bytes.
const MOST: usize = 8;
const MOST_BYTES: usize = 32 << 20;

/// Hash, size in bytes and value of an artifact.
type CachedArtifact = (String, usize, Arc<Json>);

/// The artifacts that were read last. Cheap to clone; clones share the content.
#[derive(Clone, Debug, Default)]
pub(super) struct ArtifactCache {
    kept: Arc<Mutex<VecDeque<CachedArtifact>>>,
}

impl ArtifactCache {
    pub(super) fn get(&self, hash: &str) -> Option<Arc<Json>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().find(|(known, ..)| known == hash);
        found.map(|(.., json)| Arc::clone(json))
    }

    pub(super) fn put(&self, hash: String, bytes: usize, json: &Arc<Json>) {
        if bytes > MOST_BYTES || hash.is_empty() {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((hash, bytes, Arc::clone(json)));
        let all =
            |kept: &VecDeque<CachedArtifact>| kept.iter().map(|(_, bytes, _)| bytes).sum::<usize>();
        while kept.len() > MOST || all(&kept) > MOST_BYTES {
            kept.pop_front();
        }
    }
}
