//! Filters that make or change text.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, State, Value, filters};

use super::meter::{charge, text_out};
use super::{argument, check_has_text, guarded, is_missing, is_strict, text_of};
use crate::expr::value::{OutputBudget, to_json, to_text, type_error};

pub(super) fn add(env: &mut Environment<'static>) {
    guarded(env, "split", filters::split);
    env.add_filter("safe", |value: Value| value);
    env.add_filter("string", string);
    env.add_filter("join", join);
    env.add_filter("tojson", tojson);
    add_text_to_text(env, "lower", |text| text.to_lowercase());
    add_text_to_text(env, "upper", |text| text.to_uppercase());
    add_text_to_text(env, "title", |text| filters::title(text.into()));
    add_text_to_text(env, "capitalize", capitalize);
    add_text_to_text(env, "urlencode", urlencode);
    env.add_filter(
        "trim",
        |state: &mut State<'_, '_>, value: Value, chars: Option<Value>| {
            let text = text_of(state, &value)?;
            strip(state, &text, chars.as_ref(), true, true)
        },
    );
    env.add_filter(
        "replace",
        |state: &mut State<'_, '_>, value: Value, from: Value, to: Value, count: Option<usize>| {
            let (text, from) = (text_of(state, &value)?, text_of(state, &from)?);
            let to = text_of(state, &to)?;
            replace(state, &text, &from, &to, count)
        },
    );
}

fn add_text_to_text(env: &mut Environment<'static>, name: &'static str, to: fn(String) -> String) {
    env.add_filter(name, move |state: &mut State<'_, '_>, value: Value| {
        let text = to(text_of(state, &value)?);
        text_out(state, text)
    });
}

fn string(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        return Ok(value);
    }
    let text = text_of(state, &value)?;
    text_out(state, text)
}

fn capitalize(text: String) -> String {
    let mut chars = text.chars();
    let head = chars.next().into_iter().flat_map(char::to_uppercase);
    head.collect::<String>() + &chars.as_str().to_lowercase()
}

fn urlencode(text: String) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn join(
    state: &mut State<'_, '_>,
    value: Value,
    joiner: Option<Value>,
    attribute: Option<String>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let joiner = match joiner {
        Some(joiner) => text_of(state, &joiner)?,
        None => kwargs.get::<Option<String>>("d")?.unwrap_or_default(),
    };
    let attribute = argument(attribute, &kwargs, "attribute")?;
    kwargs.assert_all_used()?;
    join_items(state, &value, &joiner, attribute.as_deref())
}

/// The items, or one attribute of each, as one text.
pub(super) fn join_items(
    state: &mut State<'_, '_>,
    items: &Value,
    joiner: &str,
    attribute: Option<&str>,
) -> Result<Value, Error> {
    check_has_text(state, items)?;
    if is_missing(items) {
        return Ok(Value::from(""));
    }
    if let Some(text) = items.as_str() {
        charge(state, text.len().saturating_mul(joiner.len() + 1))?;
        let mut out = String::new();
        for c in text.chars() {
            if !out.is_empty() {
                out.push_str(joiner);
            }
            out.push(c);
        }
        return Ok(Value::from(out));
    }
    let mut out = String::new();
    for (i, item) in items.try_iter()?.checked().enumerate() {
        let mut item = item?;
        if let Some(attribute) = attribute {
            item = item.get_attr(attribute)?;
        }
        let text = text_of(state, &item)?;
        charge(state, text.len() + joiner.len() + 1)?;
        if i > 0 {
            out.push_str(joiner);
        }
        out.push_str(&text);
    }
    Ok(Value::from(out))
}

/// Plain JSON: it is spliced into SQL and shell, where HTML escapes would be data.
fn tojson(
    state: &mut State<'_, '_>,
    value: Value,
    indent: Option<usize>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let indent = argument(indent, &kwargs, "indent")?;
    kwargs.assert_all_used()?;
    let mut budget = OutputBudget::new().strict(is_strict(state));
    let json = to_json(&value, &mut budget, 0)?;
    let Some(indent) = indent else {
        return text_out(state, json.to_string());
    };
    let indent = vec![b' '; indent.min(8)];
    let mut out = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(
        &mut out,
        serde_json::ser::PrettyFormatter::with_indent(&indent),
    );
    serde::Serialize::serialize(&json, &mut writer).map_err(|e| type_error(e.to_string()))?;
    text_out(state, String::from_utf8_lossy(&out).into_owned())
}

pub(super) fn replace(
    state: &mut State<'_, '_>,
    text: &str,
    from: &str,
    to: &str,
    count: Option<usize>,
) -> Result<Value, Error> {
    let count = count.unwrap_or(usize::MAX);
    let found = if from.is_empty() {
        text.len() + 1
    } else {
        text.len() / from.len()
    };
    // Charged before it is built: `'aaaa' | replace('a', big)` could not be afterwards.
    let found = found.min(text.matches(from).take(count).count());
    charge(
        state,
        text.len().saturating_add(found.saturating_mul(to.len())),
    )?;
    Ok(Value::from(text.replacen(from, to, count)))
}

pub(super) fn strip(
    state: &mut State<'_, '_>,
    text: &str,
    chars: Option<&Value>,
    start: bool,
    end: bool,
) -> Result<Value, Error> {
    let chars = match chars {
        Some(chars) if !is_missing(chars) => Some(to_text(chars)?),
        _ => None,
    };
    let gone = |c: char| {
        chars
            .as_ref()
            .map_or(c.is_whitespace(), |chars| chars.contains(c))
    };
    let text = if start {
        text.trim_start_matches(gone)
    } else {
        text
    };
    let text = if end {
        text.trim_end_matches(gone)
    } else {
        text
    };
    text_out(state, text.to_owned())
}
