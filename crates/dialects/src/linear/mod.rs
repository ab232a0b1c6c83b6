//! `linear`: strictly linear chains, persisted row by row.
//!
//! A file names a `workflowType`, its version and its steps. Each step is claimed by a worker, which
//! completes it, asks for a retry, waits for an event or gives it up; the next step is ready when
//! the one before is done. [`rows`] shows a run as the two tables of the specification.

mod compile;
mod fields;
mod model;
mod read;
pub mod rows;
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
        Dialect::Linear,
        "Stepwell linear workflow",
        &fields::WORKFLOW,
        &[],
    )
}

/// Whether a file says of itself that it is written in this language.
#[must_use]
pub fn detect(root: &Node) -> bool {
    let steps = root.get("steps");
    let typed = |steps: &Node| {
        let mut steps = steps.as_seq().unwrap_or_default().iter();
        steps.any(|step| step.get("stepType").is_some())
    };
    steps.is_some_and(typed) || (steps.is_some() && root.get("workflowType").is_some())
}

/// Reads, checks and compiles a file. Nothing comes back if and only if an error was reported.
pub fn compile(doc: &Document<'_>, p: &mut Problems) -> Option<Net> {
    let mut own = Problems::new();
    let workflow = read::workflow(doc.root, &mut own);
    let failed = own.has_errors();
    p.extend(own.into_vec());
    let workflow = workflow.filter(|_| !failed)?;
    Some(compile::net(workflow, doc.source_ref()))
}
