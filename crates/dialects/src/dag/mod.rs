//! `dag`: workflow resources (`apiVersion: ioa.dev/v0.2`, `kind: Workflow`), a graph of steps that
//! agents perform, with retries by error category, approval gates and saga compensation.
//!
//! Here: from the file to the net, the language's words, and its telemetry. Not here: any rule of
//! execution; the net's policies carry what this language means.

mod compile;
mod fields;
mod model;
mod read;
pub mod telemetry;
mod validate;
pub mod words;

use serde_json::Value as Json;
use stepwell_kernel::plan::{Dialect, Net};

use crate::document::Document;
use crate::problem::Problems;
use crate::schema;
use crate::tree::Node;

/// The JSON Schema of the file format, for editors.
#[must_use]
pub fn schema() -> Json {
    schema::language(
        Dialect::Dag,
        "Workflow (dag)",
        &fields::RESOURCE,
        &[("retryOn", read::retry_on_schema())],
    )
}

/// The one version of the format that is read.
pub const API_VERSION: &str = "ioa.dev/v0.2";

/// Whether the file says that it is a workflow resource, of whatever version.
#[must_use]
pub fn detect(root: &Node) -> bool {
    let text = |key| root.get(key).and_then(Node::as_str);
    match (text("apiVersion"), text("kind")) {
        (Some(version), _) if version.starts_with("ioa.dev/") => true,
        (None, Some("Workflow")) => root.get("spec").is_some(),
        _ => false,
    }
}

/// Reads, checks and compiles a definition. `None` if and only if an error was reported.
pub fn compile(doc: &Document<'_>, p: &mut Problems) -> Option<Net> {
    let mut found = Problems::new();
    let workflow = read::workflow(doc.root, &mut found);
    let needs = workflow
        .as_ref()
        .map(|it| validate::workflow(it, &mut found));
    let refused = found.has_errors();
    p.extend(found.into_vec());
    match (workflow, needs) {
        (Some(workflow), Some(needs)) if !refused => {
            Some(compile::net(workflow, &needs, doc.source_ref()))
        }
        _ => None,
    }
}
