//! Templates inside definitions: checked at load, so that a typo in `{{ … }}` is found with its
//! line and column instead of days later in a run.
//!
//! Not here: evaluating anything; that is the kernel's and the worker's.

use stepwell_kernel::expr::{Template, TemplateValue, has_template};

use crate::field::Field;
use crate::problem::Problems;
use crate::source::Span;
use crate::tree::{Node, Value};

/// Checks every text below a node. True if all of them parse.
pub fn check(node: &Node, p: &mut Problems) -> bool {
    let mut ok = true;
    match &node.value {
        Value::Str(text) => ok = text_ok(text, node.span, p),
        Value::Seq(items) => {
            for item in items {
                ok &= check(item, p);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                ok &= check(&entry.node, p);
            }
        }
        _ => {}
    }
    ok
}

/// A value with templates in it, which are checked.
pub fn value(node: &Node, p: &mut Problems) -> Option<TemplateValue> {
    if !check(node, p) {
        return None;
    }
    match TemplateValue::parse(&node.to_json()) {
        Ok(value) => Some(value),
        Err(error) => {
            report(&error.error.message, node.span, p);
            None
        }
    }
}

/// A condition: text, or `true` or `false`. Text without `{{` is taken as an expression only if the
/// author says so, since `when: ready` would otherwise always be true.
pub fn condition(field: &Field<'_>, p: &mut Problems) -> Option<Template> {
    if let Some(constant) = field.node.as_bool() {
        return parse(
            if constant {
                "{{ true }}"
            } else {
                "{{ false }}"
            },
            field,
            p,
        );
    }
    let text = field.string(p)?;
    if !has_template(text) {
        p.error(
            "CONDITION_CONSTANT",
            field.span(),
            format!(
                "{} is plain text, so it would never change its mind",
                field.label
            ),
        )
        .help(format!("write \"{{{{ {} }}}}\"", text.trim()));
        return None;
    }
    parse(text, field, p)
}

fn parse(text: &str, field: &Field<'_>, p: &mut Problems) -> Option<Template> {
    match Template::parse(text) {
        Ok(template) => Some(template),
        Err(error) => {
            report(&error.message, field.span(), p);
            None
        }
    }
}

fn text_ok(text: &str, span: Span, p: &mut Problems) -> bool {
    if !has_template(text) {
        return true;
    }
    match Template::parse(text) {
        Ok(_) => true,
        Err(error) => {
            report(&error.message, span, p);
            false
        }
    }
}

fn report(message: &str, span: Span, p: &mut Problems) {
    p.error(
        "TEMPLATE_SYNTAX",
        span,
        format!("this template does not parse: {message}"),
    )
    .help("templates are Jinja: `{{ ctx.page | int + 1 }}`; write `{% raw %}{{{% endraw %}` for a literal `{{`");
}
