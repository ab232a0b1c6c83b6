//! Templates inside values are checked when a definition is loaded, not when a step runs days later.

use stepwell_kernel::expr::{Template, has_template};

use crate::problem::Problems;
use crate::tree::{Node, Value};

/// Reports every text below `node` that is no template, at its own place. Says whether all are fine.
pub(crate) fn check(node: &Node, p: &mut Problems) -> bool {
    match &node.value {
        Value::Str(text) if has_template(text) => match Template::parse(text) {
            Ok(_) => true,
            Err(error) => {
                p.error("TEMPLATE_INVALID", node.span, error.to_string())
                    .help("write expressions as `{{ input.name }}`, with quotes around the whole");
                false
            }
        },
        // Each is looked at, also after one that is wrong.
        Value::Seq(items) => items.iter().filter(|item| !check(item, p)).count() == 0,
        Value::Map(entries) => {
            let wrong = entries.iter().filter(|entry| !check(&entry.node, p));
            wrong.count() == 0
        }
        _ => true,
    }
}
