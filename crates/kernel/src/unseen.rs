//! Characters that nobody sees: two names that differ only in them look the same.

/// Whether a character is not seen, or changes the order or the line of what is seen. Joiners are none of them, because
/// words and emoji of several languages need them.
#[must_use]
pub fn is_unseen(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}
