//! How the problems of a definition are told by commands: to people on a terminal, and to programs. What
//! the problems are is found by the library (`stepwell::files`).

pub(crate) use stepwell::files::Definition;

use crate::term::Paint;

/// The problems with the places in the text where they are; ends with an empty line if there are any.
pub(crate) fn problems(definition: &Definition, paint: Paint) -> String {
    match definition.render(paint.0) {
        text if text.is_empty() => text,
        text => format!("{}\n\n", text.trim_end()),
    }
}

/// The first error, and how many more there are, for programs that do not read the rest.
pub(crate) fn tell_program(definition: &Definition) {
    if let Some(first) = definition.errors().next() {
        let more = match definition.counts().0 {
            0 | 1 => String::new(),
            errors => format!(" (and {} more)", errors - 1),
        };
        crate::tell_program(Some(first.code), &format!("{}{more}", first.message));
    }
}
