//! Two forms of a value in one pass, straight from its type: the JSON text that serde gives it, and its
//! canonical form (RFC 8785). The members of an object are written as they come and put in order
//! when the object ends.
//!
//! Integers that a double cannot hold are written as they are, and `is_exact` then says no: code that needs
//! the canonical form of such a value makes it from a tree.

use std::cmp::Ordering;
use std::fmt;

use serde::ser::{self, Serialize};

use super::{LARGEST_EXACT, write_number, write_text};

/// Why a value has no JSON form.
#[derive(Debug)]
pub(crate) struct NoJson(String);

impl fmt::Display for NoJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoJson {}

impl ser::Error for NoJson {
    fn custom<T: fmt::Display>(message: T) -> NoJson {
        NoJson(message.to_string())
    }
}

/// Where a member of an object is in the canonical text.
#[derive(Clone, Copy, Debug)]
struct MemberRange {
    begin: usize,
    /// The end of its name, quotes included.
    name: usize,
    end: usize,
}

/// Memory for the members of objects that are being written.
#[derive(Debug, Default)]
pub(crate) struct MemberStack {
    open: Vec<MemberRange>,
    text: Vec<u8>,
}

/// Appends both forms of a value.
#[derive(Debug)]
pub(crate) struct TwinSerializer<'a> {
    plain: &'a mut Vec<u8>,
    canonical: &'a mut Vec<u8>,
    members: &'a mut MemberStack,
    exact: bool,
}

impl<'a> TwinSerializer<'a> {
    pub(crate) fn new(
        plain: &'a mut Vec<u8>,
        canonical: &'a mut Vec<u8>,
        members: &'a mut MemberStack,
    ) -> TwinSerializer<'a> {
        members.open.clear();
        TwinSerializer {
            plain,
            canonical,
            members,
            exact: true,
        }
    }

    /// Whether the canonical text says everything: no integer in it is larger than a double can hold.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact
    }

    fn both(&mut self, text: &[u8]) {
        self.plain.extend_from_slice(text);
        self.canonical.extend_from_slice(text);
    }

    fn text(&mut self, text: &str) {
        let begin = self.plain.len();
        write_text(text, self.plain);
        self.canonical.extend_from_slice(&self.plain[begin..]);
    }

    fn integer(&mut self, is_negative: bool, size: u64) {
        self.exact &= size <= LARGEST_EXACT;
        let begin = self.plain.len();
        if is_negative {
            self.plain.push(b'-');
        }
        write_number(size, self.plain);
        self.canonical.extend_from_slice(&self.plain[begin..]);
    }

    /// The one kind of value whose two forms differ: `1.0` is `1` in canonical JSON.
    fn fraction<T: Serialize>(&mut self, value: &T) -> Result<(), NoJson> {
        serde_json::to_writer(&mut *self.plain, value).map_err(ser::Error::custom)?;
        let form =
            serde_json_canonicalizer::to_vec(value).map_err(<NoJson as ser::Error>::custom)?;
        self.canonical.extend_from_slice(&form);
        Ok(())
    }

    fn object(&mut self) -> OpenObject<'_, 'a> {
        self.both(b"{");
        OpenObject {
            first: self.members.open.len(),
            begin: self.canonical.len(),
            sorted: true,
            odd: false,
            twin: self,
        }
    }

    fn list(&mut self, closing: &'static [u8]) -> OpenList<'_, 'a> {
        self.both(b"[");
        OpenList {
            empty: true,
            closing,
            twin: self,
        }
    }
}

/// An object that is being written.
pub(crate) struct OpenObject<'t, 'a> {
    twin: &'t mut TwinSerializer<'a>,
    /// The first of its members among all that are open.
    first: usize,
    begin: usize,
    /// The members came in the canonical order so far.
    sorted: bool,
    /// A name has something that is escaped or not ASCII.
    odd: bool,
}

impl<'t, 'a> OpenObject<'t, 'a> {
    /// Begins a member; says where.
    fn separate(&mut self) -> usize {
        if self.twin.members.open.len() > self.first {
            self.twin.both(b",");
        }
        self.twin.canonical.len()
    }

    /// The name of the member that begins there has been written; it may be any value.
    fn named(&mut self, begin: usize) -> Result<(), NoJson> {
        let name = &self.twin.canonical[begin..];
        if !name.starts_with(b"\"") {
            return Err(ser::Error::custom("the name of a member must be text"));
        }
        self.odd |= !name.is_ascii() || name.contains(&b'\\');
        self.member(begin);
        Ok(())
    }

    fn member(&mut self, begin: usize) {
        let twin = &mut *self.twin;
        let name = twin.canonical.len();
        if let Some(before) = twin.members.open[self.first..].last() {
            let text = &twin.canonical;
            self.sorted &= text[before.begin + 1..before.name - 1] < text[begin + 1..name - 1];
        }
        twin.both(b":");
        twin.members.open.push(MemberRange {
            begin,
            name,
            end: name,
        });
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NoJson> {
        value.serialize(&mut *self.twin)?;
        // Those of the value are closed, so the last is this object's.
        if let Some(member) = self.twin.members.open.last_mut() {
            member.end = self.twin.canonical.len();
        }
        Ok(())
    }

    /// A member of a struct: nothing in its name is escaped.
    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), NoJson> {
        let begin = self.separate();
        for text in [&mut *self.twin.plain, &mut *self.twin.canonical] {
            text.push(b'"');
            text.extend_from_slice(name.as_bytes());
            text.push(b'"');
        }
        self.member(begin);
        self.value(value)
    }

    fn close(self) -> &'t mut TwinSerializer<'a> {
        let twin = self.twin;
        if !self.sorted || self.odd {
            let MemberStack { open, text } = &mut *twin.members;
            text.clear();
            text.extend_from_slice(&twin.canonical[self.begin..]);
            let part = |from: usize, to: usize| &text[from - self.begin..to - self.begin];
            let name = |it: &MemberRange| part(it.begin + 1, it.name - 1);
            let members = &mut open[self.first..];
            match self.odd {
                true => members.sort_by(|a, b| by_utf16(name(a), name(b))),
                false => members.sort_unstable_by(|a, b| name(a).cmp(name(b))),
            }
            twin.canonical.truncate(self.begin);
            for (place, member) in members.iter().enumerate() {
                if place > 0 {
                    twin.canonical.push(b',');
                }
                let member = part(member.begin, member.end);
                twin.canonical.extend_from_slice(member);
            }
        }
        twin.members.open.truncate(self.first);
        twin.both(b"}");
        twin
    }
}

/// The order of names that RFC 8785 asks for; the names are escaped.
fn by_utf16(a: &[u8], b: &[u8]) -> Ordering {
    let raw = |name: &[u8]| -> String {
        let quoted = [b"\"", name, b"\""].concat();
        // It was escaped here, so it can be read.
        serde_json::from_slice(&quoted).unwrap_or_default()
    };
    raw(a).encode_utf16().cmp(raw(b).encode_utf16())
}

/// A list that is being written.
pub(crate) struct OpenList<'t, 'a> {
    twin: &'t mut TwinSerializer<'a>,
    empty: bool,
    closing: &'static [u8],
}

impl OpenList<'_, '_> {
    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NoJson> {
        if !self.empty {
            self.twin.both(b",");
        }
        self.empty = false;
        value.serialize(&mut *self.twin)
    }
}

mod serde_impls;

#[cfg(test)]
mod tests;
