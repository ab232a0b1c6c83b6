//! `plan`: the execution contract's plans (`metadata{planId, planVersion, schemaVersion}`, `steps[]`),
//! and the older shape that has these at the root.
//!
//! Here: from the file to the net, the contract's words for states, and references to plans. Not
//! here: fetching anything; a reference is checked by the caller that fetches, with [`reference`].

mod capabilities;
mod compile;
mod fields;
mod header;
mod model;
pub mod reference;
mod step;
mod validate;
pub mod words;

use serde_json::Value as Json;
use stepwell_kernel::plan::{Dialect, Net};

use crate::backoff::Kinds;
use crate::codes;
use crate::document::Document;
use crate::problem::{Problems, Severity};
use crate::reader::Fields;
use crate::schema;
use crate::secret_literals;
use crate::tree::Node;

/// The JSON Schema of the file format, for editors.
#[must_use]
pub fn schema() -> Json {
    let backoff = schema::step_backoff(Kinds::All);
    schema::language(
        Dialect::Plan,
        "Plan",
        &fields::PLAN,
        &[("backoff", backoff)],
    )
}

pub use capabilities::{KNOWN as CAPABILITIES, MISSING as MISSING_CAPABILITIES, check_engine};

/// Whether the file has a plan's id where a plan has it.
#[must_use]
pub fn detect(root: &Node) -> bool {
    let metadata = root.get("metadata");
    let id = root
        .get("planId")
        .or(metadata.and_then(|it| it.get("planId")));
    let first = root
        .get("steps")
        .and_then(Node::as_seq)
        .and_then(<[Node]>::first);
    let foreign = root.get("apiVersion").is_some();
    !foreign && (id.is_some() || first.is_some_and(|step| step.get("stepId").is_some()))
}

/// Reads, checks and compiles a definition. `None` if and only if an error was reported.
pub fn compile(doc: &Document<'_>, p: &mut Problems) -> Option<Net> {
    let mut found = Problems::new();
    let read = read(doc.root, &mut found);
    secret_literals::check(doc, Severity::Error, &mut found);
    let needs = read
        .as_ref()
        .map(|(header, steps)| validate::plan(header, steps, &mut found));
    let refused = found.has_errors();
    p.extend(found.into_vec());
    match (read, needs) {
        (Some((header, steps)), Some(needs)) if !refused => {
            Some(compile::net(header, steps, &needs, doc.source_ref()))
        }
        _ => None,
    }
}

fn read<'n>(
    root: &'n Node,
    p: &mut Problems,
) -> Option<(model::Header<'n>, Vec<model::PlanStep<'n>>)> {
    let mut f = Fields::known(root, "the plan", &fields::PLAN, p)?;
    let header = header::read(&mut f, p);
    let steps = f.req("steps", p);
    let steps_span = steps.as_ref().map_or(f.span(), |it| it.span());
    let items = steps.and_then(|steps| steps.list(p));
    if items.as_ref().is_some_and(Vec::is_empty) {
        p.error(
            codes::INVALID_PLAN_SCHEMA,
            steps_span,
            "a plan needs at least one step",
        )
        .help("add `- stepId: …` with a `kind`");
    }
    f.opt("$schema", p).and_then(|it| it.string(p));
    let mut header = header?;
    header.keep_unknown(&f, p);
    header.steps_span = steps_span;
    let read = items
        .iter()
        .flatten()
        .filter_map(|item| step::read(item, p));
    let read = read.collect();
    items?;
    Some((header, read))
}
