//! Prints the problems of a definition: as text for people, and as JSON for programs. The library
//! (`stepwell::files`) finds the problems.

pub(crate) use stepwell::files::Definition;

use crate::term::Paint;

/// The problems with their source lines; ends with an empty line if there are any problems.
pub(crate) fn problems(definition: &Definition, paint: Paint) -> String {
    match definition.render(paint.0) {
        text if text.is_empty() => text,
        text => format!("{}\n\n", text.trim_end()),
    }
}

/// Writes the first error and the number of further errors as JSON to standard error.
pub(crate) fn tell_program(definition: &Definition) {
    if let Some(first) = definition.errors().next() {
        let more = match definition.counts().0 {
            0 | 1 => String::new(),
            errors => format!(" (and {} more)", errors - 1),
        };
        crate::tell_program(Some(first.code), &format!("{}{more}", first.message));
    }
}
