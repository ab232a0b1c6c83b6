//! Templates in free-form values (`input`, `config`), checked when a definition is loaded so that a
//! typing mistake does not wait for the step that has it.
//!
//! Not here: evaluating anything.

use stepwell_kernel::expr::{Template, has_template};

use crate::problem::Problems;
use crate::tree::{Node, Value};

/// Reports every text below `node` that is a template with a syntax error.
pub(crate) fn check(node: &Node, p: &mut Problems) {
    match &node.value {
        Value::Str(text) if has_template(text) => {
            if let Err(error) = Template::parse(text) {
                p.error("TEMPLATE_INVALID", node.span, error.to_string())
                    .help("write an expression such as `{{ input.name }}`");
            }
        }
        Value::Seq(items) => items.iter().for_each(|item| check(item, p)),
        Value::Map(entries) => entries.iter().for_each(|entry| check(&entry.node, p)),
        _ => {}
    }
}
