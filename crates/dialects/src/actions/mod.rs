//! `actions`: ordered lists of actions, or a graph of them, with retries, people and sagas.
//!
//! A file is a `WorkflowV1`. Without `dependsOn` the actions run one after the other by `order`;
//! with it they form a graph in which an action starts once everything it depends on succeeded. A
//! failure for good stops the run and undoes what was done, in reverse order of completion.
//!
//! Reading ([`read`](self)) turns the tree into a model and reports what is wrong with single
//! fields, validation what is wrong between them, compilation cannot fail.

mod compile;
pub mod evidence;
mod fields;
mod model;
mod read;
mod retry;
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
        Dialect::Actions,
        "Stepwell actions workflow",
        &fields::WORKFLOW,
        &[("retryableErrors", retry::schema())],
    )
}

/// Whether a file says of itself that it is written in this language.
#[must_use]
pub fn detect(root: &Node) -> bool {
    if root.get("apiVersion").is_some() {
        return false;
    }
    let described = |node: &Node| {
        let mut items = node.as_seq().unwrap_or_default().iter();
        items.any(|item| item.get("actionId").is_some() || item.get("portFamily").is_some())
    };
    let actions = root.get("actions");
    actions.is_some_and(described) || (actions.is_some() && root.get("workflowId").is_some())
}

/// Reads, checks and compiles a file. Nothing comes back if and only if an error was reported.
pub fn compile(doc: &Document<'_>, p: &mut Problems) -> Option<Net> {
    let mut own = Problems::new();
    let workflow = read::workflow(doc.root, &mut own);
    if let Some(workflow) = &workflow {
        validate::check(workflow, &mut own);
    }
    let failed = own.has_errors();
    p.extend(own.into_vec());
    let workflow = workflow.filter(|_| !failed)?;
    Some(compile::net(&workflow, doc.source_ref()))
}
