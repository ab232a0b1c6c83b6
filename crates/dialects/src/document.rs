//! A definition that has been parsed: its text and its tree.

use sha2::{Digest, Sha256};
use stepwell_kernel::plan::SourceRef;

use crate::source::Source;
use crate::tree::Node;

/// What a language's compiler gets.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// The text.
    pub source: &'a Source,
    /// The tree.
    pub root: &'a Node,
}

impl Document<'_> {
    /// Where the definition came from, with the hash of its text.
    #[must_use]
    pub fn source_ref(&self) -> SourceRef {
        let name = self.source.name();
        let uri = if has_scheme(name) {
            name.to_owned()
        } else {
            format!("file:{name}")
        };
        let digest = Sha256::digest(self.source.text().as_bytes());
        let sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        SourceRef { uri, sha256 }
    }
}

fn has_scheme(name: &str) -> bool {
    name.split_once(':').is_some_and(|(scheme, _)| {
        scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric())
    })
}
