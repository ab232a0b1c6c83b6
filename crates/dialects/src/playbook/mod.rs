//! Playbooks: token routing. Steps pass tokens along guarded arcs; a run ends when no token is left.
//!
//! Two vocabularies are in use, v10 (`args`, `outcome`, `set_ctx`) and a later one (`input`,
//! `output`, `set`); both are read here and compile to the same net. Keys that this engine has no
//! use for are warnings, slips are errors; nothing is passed over in silence.
//!
//! `read` turns the tree into the [`model`], `validate` looks at the model as a graph, `compile`
//! writes the net.

mod compile;
mod executor;
mod fields;
mod model;
mod next;
mod policy;
mod read;
mod step;
mod validate;
pub mod words;

use serde_json::Value as Json;
use stepwell_kernel::plan::{Dialect, Net};

use crate::document::{Document, root_text};
use crate::problem::Problems;
use crate::schema;
use crate::tree::Node;

/// The JSON Schema of the file format, for editors.
#[must_use]
pub fn schema() -> Json {
    schema::language(Dialect::Playbook, "Playbook", &fields::PLAYBOOK, &[])
}

/// Whether a file says of itself that it is a playbook.
#[must_use]
pub fn detect(root: &Node) -> bool {
    root_text(root, "kind") == Some("Playbook")
        || root_text(root, "apiVersion").is_some_and(|text| text.starts_with("noetl.io/"))
}

/// Reads, checks and compiles a playbook. `None` if there was an error.
pub fn compile(doc: &Document<'_>, p: &mut Problems) -> Option<Net> {
    let playbook = read::playbook(doc.root, p)?;
    validate::check(&playbook, p);
    (!p.has_errors()).then(|| compile::net(playbook, doc.source_ref()))
}
