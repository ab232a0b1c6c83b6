//! `script`: a program or SQL that stands in a file of its own: `{uri, source: {type: file}}`, or only
//! its path. The worker reads it. Not here: anything that reads a file.

use serde_json::{Map, Value as Json, json};

use crate::codes;
use crate::field::Field;
use crate::leftover;
use crate::problem::Problems;
use crate::template;
use crate::words::quote;

/// Reads `script` into `{type: file, uri}` or `{type: inline, code}`.
pub(super) fn read(field: &Field<'_>, out: &mut Map<String, Json>, p: &mut Problems) {
    if !template::check(field.node, p) {
        return;
    }
    let script = match field.node.as_str() {
        Some(uri) => Some(json!({ "type": "file", "uri": uri })),
        None => mapping(field, p),
    };
    out.extend(script.map(|it| ("script".to_owned(), it)));
}

fn mapping(field: &Field<'_>, p: &mut Problems) -> Option<Json> {
    let mut f = field.fields(p)?;
    let uri = f.opt("uri", p);
    let source = f.opt("source", p).and_then(|it| it.fields(p));
    leftover::report(&f, "`script`", &["uri", "source"], p);
    let mut kind = "file";
    let mut code = None;
    if let Some(mut source) = source {
        if let Some(given) = source.opt("type", p) {
            kind = given.string(p)?;
            if !matches!(kind, "file" | "inline") {
                let message = format!("scripts cannot be read from {} here", quote(kind));
                p.error(codes::FIELD_VALUE, given.span(), message).help(
                    "write `type: file` with `uri`, a path on the worker's machine, and bring the file there",
                );
                return None;
            }
        }
        code = source.opt("code", p);
        leftover::report(&source, "the `source` of a script", &["type", "code"], p);
    }
    let (name, text) = match kind {
        "inline" => ("code", code),
        _ => ("uri", uri),
    };
    let Some(text) = text else {
        p.error(
            codes::FIELD_MISSING,
            field.span(),
            format!("this script needs `{name}`"),
        )
        .help(format!("add `{name}: …`"));
        return None;
    };
    Some(json!({ "type": kind, name: text.string(p)? }))
}
