//! Keys that a mapping has beyond those that are read: never passed over in silence.
//!
//! A key that looks like a slip of a known one is an error. Any other is a warning: files written
//! for other versions of a language carry keys that this engine has no use for, and refusing those
//! files would help nobody. A key that promises how often work is executed is an error too where it has no effect: the
//! author relies on it.

use crate::codes;
use crate::losses;
use crate::problem::Problems;
use crate::reader::Fields;
use crate::tree::MapEntry;
use crate::words::{list, nearest, quote};

/// Reports what is left of a mapping whose fields are in a table.
pub(crate) fn finish(fields: &Fields<'_>, what: &str, p: &mut Problems) {
    let known = fields.table().map(|table| table.names());
    report(fields, what, &known.unwrap_or_default(), p);
}

/// Reports what is left of a mapping once everything known was asked for.
pub(crate) fn report(fields: &Fields<'_>, what: &str, known: &[&'static str], p: &mut Problems) {
    for entry in fields.rest() {
        let key = quote(&entry.key);
        if p.is_full() && p.has_errors() {
            // Nobody sees it any more, and finding the nearest word costs.
            p.error(codes::FIELD_UNKNOWN, entry.key_span, key);
        } else if losses::is_promise(&entry.key) {
            no_promise(entry, what, p);
        } else if let Some(near) =
            nearest(&entry.key, known).filter(|_| !qualifies(&entry.key, known))
        {
            p.slipped(fields.span(), near);
            p.error(
                codes::FIELD_UNKNOWN,
                entry.key_span,
                format!("{what} has no field {key}"),
            )
            .help(format!("did you mean {}?", quote(near)));
        } else {
            p.warn(
                codes::FIELD_UNUSED,
                entry.key_span,
                format!("{what} has no field {key}: it is not used"),
            )
            .help(format!("remove it; the known fields are {}", list(known)));
        }
    }
}

/// Reports what is left of a mapping whose unknown fields are kept with the definition: a warning each, also for what
/// looks like a slip.
pub(crate) fn keep(fields: &Fields<'_>, what: &str, p: &mut Problems) {
    let known = fields.table().map(|table| table.names());
    let known = known.unwrap_or_default();
    for entry in fields.rest() {
        let key = quote(&entry.key);
        if losses::is_promise(&entry.key) {
            no_promise(entry, what, p);
            continue;
        }
        let near = match p.is_full() {
            true => None,
            false => nearest(&entry.key, &known),
        };
        let help = near.map_or_else(
            || "nothing has to be done if other programs read it".to_owned(),
            |near| format!("did you mean {}?", quote(near)),
        );
        p.warn(
            codes::FIELD_UNUSED,
            entry.key_span,
            format!("{what} has no field {key}: it is kept with the definition and not used"),
        )
        .help(help);
    }
}

/// An author relies on a promise of how often work is executed, so one without effect is an error.
fn no_promise(entry: &MapEntry, what: &str, p: &mut Problems) {
    let key = quote(&entry.key);
    p.error(
        codes::FIELD_UNKNOWN,
        entry.key_span,
        format!("{what} has no field {key}: it would have no effect here"),
    )
    .help("write it in the `spec` of a playbook's step, or beside the `tool` of a step of another language");
}

/// `gcs_credential` is not a slip of `credential`: another field is meant.
fn qualifies(key: &str, known: &[&str]) -> bool {
    let prefix = |word: &&str| key.strip_suffix(*word).is_some_and(|it| it.ends_with('_'));
    known.iter().any(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_something_before_it_is_another_word() {
        assert!(qualifies("gcs_credential", &["auth", "credential"]));
        assert!(!qualifies("credentail", &["credential"]));
        assert!(!qualifies("credential", &["credential"]));
    }
}
