//! From the parser's positions to byte offsets in the source.
//!
//! Here: the text as the parser gets it and the way back from its character
//! indices. The two differ in one case: JSON writes characters beyond U+FFFF
//! as two `\uXXXX` escapes, which YAML does not know, so in sources that are
//! JSON each such pair is rewritten to the YAML escape `\UXXXXXXXX`.
//! Not here: parsing.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// The parser's view of a text, and the map back.
pub(crate) struct Offsets<'s> {
    pub(crate) text: Cow<'s, str>,
    /// Byte offset in the source of each character given to the parser; absent
    /// if they are the same, as they are for plain ASCII.
    table: Option<Vec<u32>>,
    end: usize,
}

impl<'s> Offsets<'s> {
    pub(crate) fn new(source: &'s str) -> Self {
        let end = source.len();
        if let Some((text, table)) = with_joined_surrogates(source) {
            return Offsets {
                text: Cow::Owned(text),
                table: Some(table),
                end,
            };
        }
        let table =
            (!source.is_ascii()).then(|| source.char_indices().map(|(at, _)| narrow(at)).collect());
        Offsets {
            text: Cow::Borrowed(source),
            table,
            end,
        }
    }

    /// The byte offset in the source of the character with this index.
    pub(crate) fn byte(&self, index: usize) -> usize {
        match &self.table {
            None => index.min(self.end),
            Some(table) => table.get(index).map_or(self.end, |at| *at as usize),
        }
    }
}

/// Sources are capped far below 4 GiB, so offsets fit.
fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

/// Rewrites surrogate pairs, if there are any and the text is JSON. Only then
/// is every quote known to begin or end a string; in YAML the same characters
/// may stand in a block of text, where they mean themselves.
fn with_joined_surrogates(source: &str) -> Option<(String, Vec<u32>)> {
    if !source.trim_start().starts_with(['{', '[', '"']) {
        return None;
    }
    if !source.contains("\\ud") && !source.contains("\\uD") {
        return None;
    }
    serde_json::from_str::<IgnoredAny>(source).ok()?;

    let bytes = source.as_bytes();
    let mut text = String::with_capacity(source.len());
    let mut table = Vec::with_capacity(source.len());
    let mut chars = source.char_indices();
    while let Some((at, c)) = chars.next() {
        if c != '\\' {
            text.push(c);
            table.push(narrow(at));
            continue;
        }
        // In valid JSON a backslash only stands in strings and always begins
        // an escape, so stepping over the escape keeps in step.
        if let Some(joined) = surrogate_pair(bytes, at) {
            let escape = format!("\\U{:08X}", u32::from(joined));
            table.extend(escape.chars().map(|_| narrow(at)));
            text.push_str(&escape);
            chars.nth(10);
        } else {
            text.push(c);
            table.push(narrow(at));
            if let Some((at, c)) = chars.next() {
                text.push(c);
                table.push(narrow(at));
            }
        }
    }
    Some((text, table))
}

fn surrogate_pair(bytes: &[u8], at: usize) -> Option<char> {
    let high = escape(bytes, at)?;
    let low = escape(bytes, at + 6)?;
    char::decode_utf16([high, low])
        .next()?
        .ok()
        .filter(|c| u32::from(*c) > 0xFFFF)
}

/// The unit of a `\uXXXX` escape at `at`.
fn escape(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
