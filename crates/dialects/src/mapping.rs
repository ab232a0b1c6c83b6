//! A mapping while its entries come in: keys, duplicates and merges.
//!
//! Not here: where keys and values come from, and how deep they nest. `quiet`
//! says that this is a copy by an alias, whose original was reported before.

use std::collections::HashMap;

use crate::codes;
use crate::problem::Problems;
use crate::source::{Source, Span};
use crate::tree::{MapEntry, Node, Value};
use crate::words::quote;

#[derive(Debug)]
struct PendingKey {
    text: String,
    span: Span,
    merge: bool,
    /// Reported already; its value is read and dropped.
    bad: bool,
}

/// A mapping that is still open.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    entries: Vec<MapEntry>,
    seen: HashMap<String, Span>,
    pending: Option<PendingKey>,
    merges: Vec<Node>,
}

impl Mapping {
    /// Whether the next node is a key.
    pub(crate) fn awaits_key(&self) -> bool {
        self.pending.is_none()
    }

    /// Takes a scalar as the next key.
    pub(crate) fn key(
        &mut self,
        text: &str,
        plain: bool,
        span: Span,
        quiet: bool,
        problems: &mut Problems,
    ) {
        let missing = text.is_empty() && plain;
        if missing && !quiet {
            problems
                .error(codes::SOURCE_BAD_KEY, span, "there is no key here")
                .help("write `key: value`");
        }
        self.pending = Some(PendingKey {
            text: text.to_owned(),
            span,
            merge: plain && text == "<<",
            bad: missing,
        });
    }

    /// Takes a finished node: the value of the pending key, or else a
    /// collection in the place of a key, which was reported when it began.
    pub(crate) fn value(
        &mut self,
        node: Node,
        source: &Source,
        quiet: bool,
        problems: &mut Problems,
    ) {
        let Some(key) = self.pending.take() else {
            self.pending = Some(PendingKey {
                text: String::new(),
                span: node.span,
                merge: false,
                bad: true,
            });
            return;
        };
        if key.bad {
            return;
        }
        if let Some(first) = self.seen.get(&key.text) {
            if !quiet {
                report_duplicate(&key, *first, source, problems);
            }
            return;
        }
        self.seen.insert(key.text.clone(), key.span);
        if key.merge {
            merge(node, &mut self.merges, quiet, problems);
        } else {
            self.entries.push(MapEntry {
                key: key.text,
                key_span: key.span,
                node,
            });
        }
    }

    /// Where the last entry ends.
    pub(crate) fn end(&self) -> usize {
        let last = self.entries.last();
        last.map_or(0, |last| last.node.span.end.max(last.key_span.end))
    }

    /// The entries as written, then what is merged and not written.
    pub(crate) fn finish(self) -> Vec<MapEntry> {
        let mut entries = self.entries;
        let mut seen = self.seen;
        for node in self.merges {
            let Value::Map(merged) = node.value else {
                continue;
            };
            for entry in merged {
                if !seen.contains_key(&entry.key) {
                    seen.insert(entry.key.clone(), entry.key_span);
                    entries.push(entry);
                }
            }
        }
        entries
    }
}

/// Takes what `<<` may stand for: a mapping, or a list of mappings.
fn merge(node: Node, merges: &mut Vec<Node>, quiet: bool, problems: &mut Problems) {
    let items = if let Value::Seq(items) = node.value {
        items
    } else {
        vec![node]
    };
    for item in items {
        if item.as_map().is_some() {
            merges.push(item);
        } else if !quiet {
            let found = item.describe();
            problems
                .error(
                    codes::SOURCE_BAD_MERGE,
                    item.span,
                    format!("`<<` merges mappings, but this is {found}"),
                )
                .help("write `<<: *name` or `<<: [*first, *second]`");
        }
    }
}

fn report_duplicate(key: &PendingKey, first: Span, source: &Source, problems: &mut Problems) {
    let name = quote(&key.text);
    let (line, column) = source.line_col(first.start);
    problems
        .error(
            codes::SOURCE_DUPLICATE_KEY,
            key.span,
            format!("the key {name} is already used at line {line}, column {column}"),
        )
        .help("keep one of the two");
}
