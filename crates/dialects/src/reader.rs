//! Takes mappings apart, field by field, and collects what is wrong.
//!
//! Here: [`Fields`], a mapping that remembers which keys were asked for; what
//! it gives out is a [`Field`], one value to be read as some type. Nothing here stops at a problem: a reading that fails reports it and
//! gives `None`, and the caller goes on to the next field. Not here: the keys
//! of any language.
//!
//! ```
//! use stepwell_dialects::duration::DurationRule;
//! use stepwell_dialects::{Fields, Problems, Source, tree};
//!
//! let text = b"name: build\ntimeout: 30s\nretires: 3\n";
//! let source = Source::from_bytes("plan.yaml", text).expect("UTF-8");
//! let node = tree::parse(&source).expect("valid YAML");
//! let mut p = Problems::new();
//! if let Some(mut f) = Fields::open(&node, "a plan", &mut p) {
//!     let name = f.req("name", &mut p).and_then(|v| v.string(&mut p));
//!     let timeout = f.opt(["timeout", "timeoutMs"], &mut p)
//!         .and_then(|v| v.duration(DurationRule::MILLIS, &mut p));
//!     let retries = f.opt("retries", &mut p).and_then(|v| v.int(0..=10, &mut p));
//!     f.finish(&mut p); // reports `retires`: did you mean `retries`?
//!     assert_eq!((name, timeout, retries), (Some("build"), Some(30_000), None));
//! }
//! assert_eq!(p.into_vec()[0].code, "FIELD_UNKNOWN");
//! ```

use crate::codes;
use crate::field::wrong_type;
use crate::problem::Problems;
use crate::shape::{KnownFields, Row};
use crate::source::Span;
use crate::tree::{MapEntry, Node};
use crate::words::{self, quote};

pub use crate::field::Field;
pub use crate::name::{MAX_NAME_CHARS, check_name, check_name_text};

/// The names a field goes by: one, or several of which one may be given.
pub trait Names {
    /// The names, the preferred one first.
    fn names(&self) -> &[&'static str];
}

impl Names for &'static str {
    fn names(&self) -> &[&'static str] {
        std::slice::from_ref(self)
    }
}

impl<const N: usize> Names for [&'static str; N] {
    fn names(&self) -> &[&'static str] {
        self
    }
}

/// A mapping that is being read.
#[derive(Debug)]
#[must_use = "call `finish` to report unknown keys"]
pub struct Fields<'n> {
    what: String,
    span: Span,
    entries: &'n [MapEntry],
    known: Vec<&'static str>,
    table: Option<&'static KnownFields>,
}

impl<'n> Fields<'n> {
    /// Reads `node` as a mapping; `what` names it in messages: "a step".
    pub fn open(node: &'n Node, what: impl Into<String>, p: &mut Problems) -> Option<Self> {
        let what = what.into();
        let Some(entries) = node.as_map() else {
            wrong_type(&what, "a mapping", node, p);
            return None;
        };
        Some(Fields {
            what,
            span: node.span,
            entries,
            known: Vec::new(),
            table: None,
        })
    }

    /// As [`Fields::open`], for a mapping whose fields are in a table.
    pub(crate) fn known(
        node: &'n Node,
        what: impl Into<String>,
        table: &'static KnownFields,
        p: &mut Problems,
    ) -> Option<Self> {
        let mut fields = Fields::open(node, what, p)?;
        fields.table = Some(table);
        Some(fields)
    }

    /// The table of the fields, all of which must have been asked for by now: a field that nobody reads would be
    /// ignored silently, though the schema has it.
    pub(crate) fn table(&self) -> Option<&'static KnownFields> {
        let asked = |row: &Row| row.names.iter().any(|name| self.known.contains(name));
        let rows = self.table.map(|table| table.rows).unwrap_or_default();
        debug_assert!(
            rows.iter().all(asked),
            "{} has fields that are not read: {:?}",
            self.what,
            rows.iter().find(|row| !asked(row))
        );
        self.table
    }

    /// Where the whole mapping stands.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Where the value of `key` stands, or the whole mapping without it.
    pub fn span_of(&self, key: &str) -> Span {
        self.find(key).map_or(self.span, |entry| entry.node.span)
    }

    /// Where the key itself stands, or the whole mapping without it.
    pub fn key_span_of(&self, key: &str) -> Span {
        self.find(key).map_or(self.span, |entry| entry.key_span)
    }

    /// Whether `key` is there and not null. Does not count as asking for it.
    pub fn has(&self, key: &str) -> bool {
        self.find(key).is_some_and(|entry| !entry.node.is_null())
    }

    /// An optional field. Null counts as absent. With several names, giving
    /// more than one of them is a `FIELD_CONFLICT`.
    pub fn opt(&mut self, names: impl Names, p: &mut Problems) -> Option<Field<'n>> {
        self.lookup(names.names(), p)
    }

    fn lookup(&mut self, names: &[&'static str], p: &mut Problems) -> Option<Field<'n>> {
        self.known.extend_from_slice(names);
        let row = self.table.and_then(|table| table.row(names.first()?));
        debug_assert!(
            self.table.is_none()
                || row.is_some_and(|row| names.iter().all(|it| row.names.contains(it))),
            "the table of {} has no field {names:?}",
            self.what
        );
        let mut found: Option<&'n MapEntry> = None;
        for name in names {
            let Some(entry) = self.find(name).filter(|entry| !entry.node.is_null()) else {
                continue;
            };
            if let Some(first) = found {
                let (one, two) = (quote(&first.key), quote(&entry.key));
                p.error(
                    codes::FIELD_CONFLICT,
                    entry.key_span,
                    format!("{one} and {two} mean the same; only one may be given"),
                )
                .help(format!("keep {one}"));
            } else {
                found = Some(entry);
            }
        }
        let field = Field::of(found?);
        Some(Field { row, ..field })
    }

    /// A required field; `FIELD_MISSING` if it is absent or null.
    pub fn req(&mut self, names: impl Names, p: &mut Problems) -> Option<Field<'n>> {
        let field = self.lookup(names.names(), p);
        if field.is_none() {
            let first = names.names().first().copied().unwrap_or_default();
            let empty = names.names().iter().find_map(|name| self.find(name));
            let what = &self.what;
            match empty {
                Some(entry) => p
                    .error(
                        codes::FIELD_MISSING,
                        entry.key_span,
                        format!("{} of {what} has no value", quote(&entry.key)),
                    )
                    .help("write its value after the `:`"),
                None => p
                    .missing(
                        codes::FIELD_MISSING,
                        self.span,
                        names.names(),
                        format!("{what} needs {}", words::one_of(names.names())),
                    )
                    .help(format!("add `{first}: …`")),
            };
        }
        field
    }

    /// Declares fields as known without reading them.
    pub fn ignore(&mut self, names: impl Names) {
        self.known.extend_from_slice(names.names());
    }

    /// The fields that were not asked for so far, in source order.
    pub fn rest(&self) -> impl Iterator<Item = &'n MapEntry> + '_ {
        let unknown = |entry: &&'n MapEntry| !self.known.contains(&entry.key.as_str());
        self.entries.iter().filter(unknown)
    }

    /// Reports every key that was not asked for as `FIELD_UNKNOWN`.
    pub fn finish(self, p: &mut Problems) {
        self.finish_as(codes::FIELD_UNKNOWN, p);
    }

    /// As [`Fields::finish`], under another code.
    pub fn finish_as(self, code: &'static str, p: &mut Problems) {
        let mut known = match self.table() {
            Some(table) => table.names(),
            None => self.known.clone(),
        };
        known.sort_unstable();
        known.dedup();
        for entry in self.rest() {
            let (what, key) = (&self.what, quote(&entry.key));
            let message = format!("{what} has no field {key}");
            // Past the cap nobody sees the help, and finding it costs.
            let help = if p.is_full() {
                None
            } else if let Some(near) = words::nearest(&entry.key, &known) {
                p.slipped(self.span, near);
                Some(format!("did you mean {}?", quote(near)))
            } else if known.is_empty() {
                Some("remove it".to_owned())
            } else {
                Some(format!("the known fields are {}", words::list(&known)))
            };
            p.error(code, entry.key_span, message).maybe_help(help);
        }
    }

    fn find(&self, key: &str) -> Option<&'n MapEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}
