//! `tool` blocks, which all languages share.

use serde_json::Value as Json;
use stepwell_kernel::plan::Work;

use crate::problem::Problems;
use crate::reader::Field;

/// The work that a `tool` block describes: one mapping with a `kind`, or a list of them.
pub fn work(field: &Field<'_>, p: &mut Problems) -> Option<Work> {
    let mut tasks = Vec::new();
    for (at, item) in field.list_or_one().iter().enumerate() {
        item.map(p)?;
        if item.node.get("kind").is_none() {
            item.error("FIELD_MISSING", "needs `kind`", p)
                .help("add `kind: …`, such as `kind: shell`");
            return None;
        }
        let mut task = item.json();
        if let Json::Object(task) = &mut task {
            task.entry("name")
                .or_insert_with(|| format!("task_{}", at + 1).into());
        }
        tasks.push(task);
    }
    if tasks.is_empty() {
        field.error("FIELD_VALUE", "must not be empty", p);
        return None;
    }
    Some(Work::Pipeline {
        tasks: Json::Array(tasks),
    })
}
