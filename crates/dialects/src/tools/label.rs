//! The names of tasks in a block: `name`, the label of `- label: {kind: …}`, or `task_N`.

use std::collections::HashSet;

use super::TaskDef;
use crate::codes;
use crate::field::Field;
use crate::problem::Problems;
use crate::reader::check_name_text;
use crate::tree::Node;
use crate::words::quote;

/// What stands in for a task that was given none.
pub(super) fn default_name(at: usize) -> String {
    format!("task_{}", at + 1)
}

/// Takes `label: {kind: …}` apart. Everything else is given back as it is.
pub(super) fn open<'n>(item: &Field<'n>, p: &mut Problems) -> (Field<'n>, Option<&'n str>) {
    if let Some([entry]) = item.node.as_map()
        && entry.key != "kind"
        && entry.node.as_map().is_some()
    {
        check_name_text(&entry.key, entry.key_span, p);
        return (Field::of(entry), Some(entry.key.as_str()));
    }
    (item.clone(), None)
}

/// Whether a node is a task at all: it has a `kind`, or a single label above one.
pub(super) fn name_of(node: &Node, at: usize) -> String {
    let label = match node.as_map() {
        Some([entry]) if entry.key != "kind" && entry.node.as_map().is_some() => {
            return given(&entry.node).unwrap_or_else(|| entry.key.clone());
        }
        _ => given(node),
    };
    label.unwrap_or_else(|| default_name(at))
}

fn given(node: &Node) -> Option<String> {
    let is_reference =
        node.get("kind").and_then(Node::as_str) == Some("workbook") && node.get("task").is_none();
    if is_reference {
        return None;
    }
    node.get("name").and_then(Node::as_str).map(str::to_owned)
}

/// Reports names that occur twice: `{{ name }}` and `to: name` could mean either.
pub(super) fn unique(tasks: &[Option<TaskDef>], p: &mut Problems) -> bool {
    let mut seen = HashSet::new();
    let mut ok = true;
    for task in tasks.iter().flatten() {
        if !seen.insert(task.name.as_str()) {
            ok = false;
            p.error(
                codes::NAME_DUPLICATE,
                task.span,
                format!("two tasks of this block are named {}", quote(&task.name)),
            )
            .help("give each task a name of its own");
        }
    }
    ok
}
