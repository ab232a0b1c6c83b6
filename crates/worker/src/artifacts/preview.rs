//! A bounded picture of a value that is kept elsewhere: types, lengths and what comes first.

use serde_json::{Map, Value as Json, json};

/// What a preview may take as JSON.
pub(super) const PREVIEW_BYTES: usize = 2 << 10;

/// How much of a value is shown.
#[derive(Clone, Copy)]
struct Detail {
    depth: usize,
    fields: usize,
    items: usize,
    chars: usize,
}

/// From fine to coarse; the first whose picture fits is taken.
const DETAILS: [Detail; 4] = [
    detail(4, 24, 3, 120),
    detail(3, 12, 2, 60),
    detail(2, 8, 1, 32),
    detail(1, 6, 1, 16),
];

const fn detail(depth: usize, fields: usize, items: usize, chars: usize) -> Detail {
    Detail {
        depth,
        fields,
        items,
        chars,
    }
}

/// A picture of a value in at most 2 KiB.
#[must_use]
pub fn preview(value: &Json) -> Json {
    DETAILS
        .into_iter()
        .map(|detail| picture(value, detail))
        .find(|it| it.to_string().len() <= PREVIEW_BYTES)
        .unwrap_or_else(|| outline(value))
}

fn picture(value: &Json, detail: Detail) -> Json {
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => value.clone(),
        Json::String(text) => match cut(text, detail.chars) {
            Some(start) => {
                json!({ "type": "text", "length": text.chars().count(), "start": start })
            }
            None => value.clone(),
        },
        Json::Array(_) | Json::Object(_) if detail.depth == 0 => outline(value),
        Json::Array(items) => {
            let below = deeper(detail);
            let first: Vec<Json> = items
                .iter()
                .take(detail.items)
                .map(|item| picture(item, below))
                .collect();
            json!({ "type": "list", "length": items.len(), "first": first })
        }
        Json::Object(fields) => {
            let below = deeper(detail);
            let shown: Map<String, Json> = fields
                .iter()
                .take(detail.fields)
                .map(|(name, field)| {
                    let name = cut(name, detail.chars).unwrap_or(name).to_owned();
                    (name, picture(field, below))
                })
                .collect();
            json!({ "type": "mapping", "length": fields.len(), "fields": shown })
        }
    }
}

fn deeper(detail: Detail) -> Detail {
    Detail {
        depth: detail.depth - 1,
        ..detail
    }
}

fn outline(value: &Json) -> Json {
    match value {
        Json::Array(items) => json!({ "type": "list", "length": items.len() }),
        Json::Object(fields) => json!({ "type": "mapping", "length": fields.len() }),
        Json::String(text) => json!({ "type": "text", "length": text.chars().count() }),
        scalar @ (Json::Null | Json::Bool(_) | Json::Number(_)) => scalar.clone(),
    }
}

/// The first characters of a text, if it has more.
fn cut(text: &str, chars: usize) -> Option<&str> {
    text.char_indices().nth(chars).map(|(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_shown_by_its_first_rows() {
        let rows: Vec<Json> = (0..1000).map(|id| json!({ "id": id })).collect();
        let seen = preview(&json!({ "rows": rows }));
        assert_eq!(seen["fields"]["rows"]["length"], 1000);
        assert_eq!(seen["fields"]["rows"]["first"][0]["fields"]["id"], 0);
    }

    #[test]
    fn whatever_the_value_the_picture_fits() {
        let wide: Map<String, Json> = (0..500)
            .map(|n| {
                (
                    format!("{n}{}", "k".repeat(5000)),
                    json!(["\u{1}".repeat(900)]),
                )
            })
            .collect();
        let deep = (0..100).fold(json!("x".repeat(9000)), |inner, _| {
            json!([inner, inner_of()])
        });
        for value in [Json::Object(wide), deep, json!("ä".repeat(70_000))] {
            assert!(preview(&value).to_string().len() <= PREVIEW_BYTES);
        }
    }

    fn inner_of() -> Json {
        json!({ "a": "b".repeat(200) })
    }
}
