//! Expressions: what stands between `{{` and `}}` in a definition.
//!
//! A [`Template`] is Jinja2 as its authors know it from Python, evaluated by a pure,
//! bounded function of a [`Scope`]: no clock, no randomness, no files, and an error
//! rather than a panic or an endless loop for any input. A [`TemplateValue`] is JSON
//! with templates in its strings.
//!
//! Where it differs from Jinja2, and why:
//!
//! * A string that is one `{{ … }}` (blanks around it aside) keeps the native type of
//!   its value, null included. Anything else renders to text.
//! * Undefined chains: any attribute of it is undefined. It prints as nothing, is null
//!   natively, is false, equals only undefined, contains nothing and iterates as empty.
//!   Arithmetic with it, and ordering it with `<`, is an error. A strict scope
//!   ([`Scope::is_strict`]) makes a value that is made from it an error too, and null in a text.
//! * Ordering two different kinds with `<` is an error, as in Python.
//! * Text prints `True`, `False`, `None` and `100.0` as Python does, but lists and
//!   mappings as compact JSON, and nothing is ever HTML-escaped.
//! * Repeating text or lists with `*` works for short literals only (`'-' * 40`); slices
//!   have no step; `if`, `for`, `set` and `raw` are the only statements.
//!
//! A source is first read by `scan`, which decides what is safe and what is read; then
//! compiled by `program` with what `library` offers, and evaluated by `template`; `value`
//! carries JSON in and out.
//!
//! What must not live here: anything that knows of workflows, steps or events.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "the kinds of values are those of JSON and of the template library, where everything else is a leaf"
)]

mod error;
mod library;
mod program;
mod scan;
mod template;
mod template_value;
mod value;

use std::sync::Arc;

use serde_json::Value as Json;

pub use error::{TemplateError, TemplateErrorKind};
pub use scan::{OutputTag, ReadSite, output_tags};
pub use template::{Template, UnknownCall};
pub use template_value::{TemplateValue, TemplateValueError};

/// Engine instructions one evaluation may execute.
pub const FUEL: u64 = 200_000;
/// Longest template source, in bytes.
pub const MAX_SOURCE: usize = 64 * 1024;
/// Largest result, in bytes of text or JSON.
pub const MAX_OUTPUT: usize = 1024 * 1024;
/// Bytes one evaluation may build on the way to its result.
pub const MAX_WORK: usize = 16 * 1024 * 1024;
/// Most numbers one `range()` may make.
pub const MAX_RANGE: usize = 100_000;

/// Whether a string has to be evaluated at all.
pub fn has_template(s: &str) -> bool {
    s.contains("{{") || s.contains("{%")
}

/// Where templates find their names.
///
/// Only the names a template mentions are looked up, once per evaluation, and what is
/// returned is shared with the evaluation rather than copied.
pub trait Scope {
    /// The value of a top-level name, or `None` if it is undefined.
    fn lookup(&self, name: &str) -> Option<Arc<Json>>;

    /// The same for a template that reads nothing of the value but these keys. A scope that would have to copy the
    /// value may leave out the others.
    fn lookup_keys(&self, name: &str, keys: &[String]) -> Option<Arc<Json>> {
        let _ = keys;
        self.lookup(name)
    }

    /// Whether a template fails that makes its value from something without a value, unless it says what holds then (a
    /// default, a test), or that writes null into a text. Otherwise undefined is null, and nothing in a text, and null is
    /// `None` there. Conditions may always ask.
    fn is_strict(&self) -> bool {
        false
    }
}

impl<F: Fn(&str) -> Option<Arc<Json>>> Scope for F {
    fn lookup(&self, name: &str) -> Option<Arc<Json>> {
        self(name)
    }
}
