//! Templates inside definitions: checked at load, so that a typo in `{{ … }}` is found with its
//! line and column instead of days later in a run.
//!
//! Not here: evaluating anything; that is the kernel's and the worker's.

use stepwell_kernel::expr::{Template, TemplateError, TemplateValue, has_template};

use crate::codes;
use crate::field::Field;
use crate::problem::Problems;
use crate::source::Span;
use crate::tree::{Node, Value};
use crate::words::{list, nearest, quote};

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
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {}
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
            report(&error.error, "", node.span, p);
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
            codes::CONDITION_CONSTANT,
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
    template(text, field.span(), p)
}

fn text_ok(text: &str, span: Span, p: &mut Problems) -> bool {
    !has_template(text) || template(text, span, p).is_some()
}

/// The template, if it parses and calls only what exists.
fn template(text: &str, span: Span, p: &mut Problems) -> Option<Template> {
    let template = match Template::parse(text) {
        Ok(template) => template,
        Err(error) => {
            report(&error, text, span, p);
            return None;
        }
    };
    let Some(call) = template.unknown_call() else {
        return Some(template);
    };
    let message = format!("there is no {} {}", call.what, quote(&call.name));
    let help = match nearest(&call.name, call.known) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => format!("the {}s are {}", call.what, list(call.known)),
    };
    p.error(codes::TEMPLATE_SYNTAX, span, message)
        .inside(text, call.range)
        .help(help);
    None
}

fn report(error: &TemplateError, text: &str, span: Span, p: &mut Problems) {
    let message = format!("this template does not parse: {}", error.message);
    let problem = p.error(codes::TEMPLATE_SYNTAX, span, message);
    if let Some(range) = &error.range {
        problem.inside(text, range.clone());
    }
    problem.help("templates are Jinja: `{{ ctx.page | int + 1 }}`; write `{% raw %}{{{% endraw %}` for a literal `{{`");
}
