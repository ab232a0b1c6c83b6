//! A definition that was read: its text and its tree. What language it is in is not known here.

use stepwell_kernel::keys::sha256_hex;
use stepwell_kernel::plan::SourceRef;

use crate::source::Source;
use crate::tree::Node;

/// A definition that was read.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// Its text, for positions.
    pub source: &'a Source,
    /// Its tree.
    pub root: &'a Node,
}

impl Document<'_> {
    /// Where it came from and what exactly it said.
    #[must_use]
    pub fn source_ref(&self) -> SourceRef {
        let name = self.source.name();
        let uri = if name.contains("://") || name.starts_with("file:") {
            name.to_owned()
        } else {
            format!("file:{name}")
        };
        SourceRef {
            uri,
            sha256: sha256_hex(self.source.text()),
        }
    }
}
