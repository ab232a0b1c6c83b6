//! Keys that a mapping has beyond those that are read: never passed over in silence.
//!
//! A key that looks like a slip of a known one is an error. Any other is a warning: files written
//! for other versions of a language carry keys that this engine has no use for, and refusing those
//! files would help nobody.

use crate::problem::Problems;
use crate::reader::Fields;
use crate::words::{list, nearest, quote};

/// Reports what is left of a mapping once everything known was asked for.
pub(crate) fn report(fields: &Fields<'_>, what: &str, known: &[&'static str], p: &mut Problems) {
    for entry in fields.rest() {
        let key = quote(&entry.key);
        if p.is_full() && p.has_errors() {
            // Nobody sees it any more, and finding the nearest word costs.
            p.error("FIELD_UNKNOWN", entry.key_span, key);
        } else if let Some(near) =
            nearest(&entry.key, known).filter(|_| !qualifies(&entry.key, known))
        {
            p.slipped(fields.span(), near);
            p.error(
                "FIELD_UNKNOWN",
                entry.key_span,
                format!("{what} has no field {key}"),
            )
            .help(format!("did you mean {}?", quote(near)));
        } else {
            p.warn(
                "FIELD_UNUSED",
                entry.key_span,
                format!("{what} has no field {key}: it is not used"),
            )
            .help(format!("remove it; the known fields are {}", list(known)));
        }
    }
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
