//! `tool` blocks: what the built-in worker runs, in every language.
//!
//! Here: one mapping with a `kind`, or a list of them. What each kind takes is the worker's business.

use serde_json::Value as Json;
use stepwell_kernel::plan::Work;

use crate::problem::Problems;
use crate::reader::Field;
use crate::template;

/// Reads a `tool` block as the work of a step.
pub fn work(field: &Field<'_>, p: &mut Problems) -> Option<Work> {
    let tools = field.list_or_one();
    if tools.is_empty() {
        field
            .error("FIELD_VALUE", "must not be empty", p)
            .help("write a tool such as `{kind: http, url: …}`");
        return None;
    }
    let mut tasks = Vec::new();
    for tool in &tools {
        tasks.extend(task(tool, p));
    }
    (tasks.len() == tools.len()).then_some(Work::Pipeline {
        tasks: Json::Array(tasks),
    })
}

fn task(tool: &Field<'_>, p: &mut Problems) -> Option<Json> {
    let mut fields = tool.fields(p)?;
    let kind = fields.req("kind", p)?.string(p);
    let clean = template::check(tool.node, p);
    (kind.is_some() && clean).then(|| tool.json())
}
