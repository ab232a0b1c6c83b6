//! What must be seen: a value, a text, a list; and how a difference is told.
//!
//! A mapping asks only for the fields that it names; a list in a value asks for exactly its items. A mapping whose
//! only key begins with `$` is a condition.

use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

use crate::words::{self, Variables};

/// The conditions, for messages.
pub(crate) const CONDITIONS: [&str; 14] = [
    "$has", "$lacks", "$like", "$any", "$absent", "$is", "$not", "$from", "$to", "$one_of",
    "$length", "$include", "$sha256", "$longer",
];

/// What a text must be: a part of it, or a condition.
pub(crate) type TextWant = Json;

/// What a list must be.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListWant {
    /// Exactly these, in this order.
    pub(crate) are: Option<Vec<Json>>,
    /// Exactly these, in any order.
    pub(crate) set: Option<Vec<Json>>,
    /// These in this order, with others between them.
    pub(crate) in_order: Option<Vec<Json>>,
    /// These in any order, each another item.
    pub(crate) include: Option<Vec<Json>>,
    /// None of these may be in it.
    pub(crate) none: Vec<Json>,
    /// How many items match.
    pub(crate) count: Vec<(Json, Json)>,
}

impl ListWant {
    pub(crate) fn is_empty(&self) -> bool {
        self.are.is_none()
            && self.set.is_none()
            && self.in_order.is_none()
            && self.include.is_none()
            && self.none.is_empty()
            && self.count.is_empty()
    }

    /// Compares a list with what is wanted; the error says what is missing or too much.
    pub(crate) fn check(&self, seen: &[Json], variables: &Variables) -> Result<(), String> {
        let all = |wants: &[Json]| -> Result<Vec<Json>, String> {
            let wants = wants.iter().map(|it| words::fill_value(it, variables));
            wants.collect()
        };
        if let Some(wants) = &self.are {
            let wants = all(wants)?;
            for (at, want) in wants.iter().enumerate() {
                match seen.get(at) {
                    Some(item) => matches(want, Some(item))
                        .map_err(|why| format!("item {at} is another: {why}{}", told(seen)))?,
                    None => return Err(format!("item {at} is missing: {want}{}", told(seen))),
                }
            }
            if seen.len() > wants.len() {
                let more = &seen[wants.len()];
                let n = wants.len();
                return Err(format!(
                    "{n} items are wanted, then comes {more}{}",
                    told(seen)
                ));
            }
        }
        if let Some(wants) = &self.set {
            let wants = all(wants)?;
            include(&wants, seen)?;
            if seen.len() != wants.len() {
                let (n, m) = (wants.len(), seen.len());
                return Err(format!("{n} items are wanted, there are {m}{}", told(seen)));
            }
        }
        if let Some(wants) = &self.in_order {
            let mut rest = seen.iter();
            for (at, want) in all(wants)?.iter().enumerate() {
                if !rest.any(|item| matches(want, Some(item)).is_ok()) {
                    let after = match at {
                        0 => "",
                        _ => " after those before it",
                    };
                    return Err(format!("nothing matches {want}{after}{}", told(seen)));
                }
            }
        }
        if let Some(wants) = &self.include {
            include(&all(wants)?, seen)?;
        }
        for want in all(&self.none)? {
            if let Some(item) = seen.iter().find(|it| matches(&want, Some(it)).is_ok()) {
                return Err(format!("nothing may match {want}, but {item} does"));
            }
        }
        for (of, is) in &self.count {
            let of = words::fill_value(of, variables)?;
            let is = words::fill_value(is, variables)?;
            let n = seen.iter().filter(|it| matches(&of, Some(it)).is_ok());
            let n = Json::from(n.count());
            if matches(&is, Some(&n)).is_err() {
                return Err(format!("{is} items must match {of}, {n} do{}", told(seen)));
            }
        }
        Ok(())
    }
}

fn include(wants: &[Json], seen: &[Json]) -> Result<(), String> {
    let mut left: Vec<&Json> = seen.iter().collect();
    for want in wants {
        match left.iter().position(|it| matches(want, Some(it)).is_ok()) {
            Some(at) => drop(left.remove(at)),
            None => return Err(format!("nothing matches {want}{}", told(seen))),
        }
    }
    Ok(())
}

/// The list that was seen, cut where it is long.
fn told(seen: &[Json]) -> String {
    if seen.is_empty() {
        return "; the list is empty".to_owned();
    }
    let mut text = String::from("; seen:");
    for item in seen {
        text.push_str("\n    ");
        text.push_str(&shorten(&item.to_string(), 400));
    }
    text
}

/// A text, cut in its middle if it is longer than `limit`.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    let length = text.chars().count();
    if length <= limit {
        return text.to_owned();
    }
    let head: String = text.chars().take(limit / 2).collect();
    let tail: String = text.chars().skip(length - limit / 2).collect();
    format!("{head} … {tail}")
}

/// Compares a value with what is wanted of it; the error says where they differ.
pub(crate) fn matches(want: &Json, seen: Option<&Json>) -> Result<(), String> {
    compare(want, seen, "")
}

fn compare(want: &Json, seen: Option<&Json>, at: &str) -> Result<(), String> {
    let place = if at.is_empty() { "the value" } else { at };
    let differs = || {
        let seen = seen.map_or_else(|| "nothing".to_owned(), Json::to_string);
        Err(format!(
            "{place}: expected {}, seen {}",
            shorten(&want.to_string(), 600),
            shorten(&seen, 600)
        ))
    };
    let holds = |holds: bool| if holds { Ok(()) } else { differs() };
    match want {
        Json::Object(fields) => {
            if let Some((key, value)) = condition(fields) {
                return holds(satisfies(key, value, seen));
            }
            let Some(Json::Object(found)) = seen else {
                return differs();
            };
            for (key, value) in fields {
                compare(value, found.get(key), &format!("{at}/{key}"))?;
            }
            Ok(())
        }
        Json::Array(items) => {
            let Some(Json::Array(found)) = seen else {
                return differs();
            };
            if items.len() != found.len() {
                return differs();
            }
            for (i, (item, found)) in items.iter().zip(found).enumerate() {
                compare(item, Some(found), &format!("{at}/{i}"))?;
            }
            Ok(())
        }
        Json::Number(number) => match seen {
            Some(Json::Number(found)) => holds(number.as_f64() == found.as_f64()),
            _ => differs(),
        },
        // A field that is absent and a field that is null say the same.
        Json::Null => holds(matches!(seen, None | Some(Json::Null))),
        Json::Bool(_) | Json::String(_) => holds(seen == Some(want)),
    }
}

/// The condition that a mapping is, if it is one.
fn condition(fields: &serde_json::Map<String, Json>) -> Option<(&str, &Json)> {
    let (key, value) = fields.iter().next().filter(|_| fields.len() == 1)?;
    key.starts_with('$').then_some((key.as_str(), value))
}

fn satisfies(key: &str, value: &Json, seen: Option<&Json>) -> bool {
    let seen = seen.filter(|it| !it.is_null());
    let text = seen.map(|it| match it {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    });
    let wanted = match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let number = seen.and_then(Json::as_f64);
    match key {
        "$any" => seen.is_some(),
        "$absent" => seen.is_none(),
        "$has" => text.is_some_and(|it| it.contains(&wanted)),
        "$lacks" => !text.unwrap_or_default().contains(&wanted),
        "$like" => text.is_some_and(|it| like(&wanted, &it)),
        "$is" => seen == Some(value),
        "$not" => compare(value, seen, "").is_err(),
        // Texts too, so that times in the form of ISO 8601 can be compared.
        "$from" => match (number, value.as_f64()) {
            (Some(seen), Some(from)) => seen >= from,
            _ => text.is_some_and(|it| it >= wanted),
        },
        "$to" => match (number, value.as_f64()) {
            (Some(seen), Some(to)) => seen <= to,
            _ => text.is_some_and(|it| it <= wanted),
        },
        "$one_of" => {
            let wants = value.as_array().map_or(&[][..], Vec::as_slice);
            wants.iter().any(|it| compare(it, seen, "").is_ok())
        }
        "$length" => {
            let length = match seen {
                Some(Json::Array(items)) => items.len(),
                Some(Json::Object(fields)) => fields.len(),
                Some(Json::String(text)) => text.chars().count(),
                _ => return false,
            };
            compare(value, Some(&Json::from(length)), "").is_ok()
        }
        "$include" => {
            let wants = value.as_array().map_or(&[][..], Vec::as_slice);
            let items = seen.and_then(Json::as_array);
            items.is_some_and(|items| include(wants, items).is_ok())
        }
        "$longer" => {
            let length = text.map_or(0, |it| it.chars().count());
            value.as_u64().is_some_and(|limit| length as u64 > limit)
        }
        "$sha256" => text.is_some_and(|it| it == hex(&Sha256::digest(wanted.as_bytes()))),
        // The reader lets no other condition through.
        _ => false,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a text has the form of a pattern in which `*` is any text and `?` any character.
pub(crate) fn like(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            p = at + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Compares a text with what is wanted of it: parts that it must have, or conditions.
pub(crate) fn check_text(
    what: &str,
    wants: &[TextWant],
    seen: &str,
    variables: &Variables,
) -> Result<(), String> {
    for want in wants {
        let want = words::fill_value(want, variables)?;
        let holds = match &want {
            Json::String(part) => seen.contains(part),
            other => compare(other, Some(&Json::from(seen.trim_end())), "").is_ok(),
        };
        if !holds {
            let seen = shorten(seen.trim_end(), 2000).replace('\n', "\n    ");
            return Err(format!("{what} must have {want}; seen:\n    {seen}"));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(want: ListWant, seen: &[Json]) -> Result<(), String> {
        want.check(seen, &Variables::new())
    }

    #[test]
    fn a_mapping_asks_for_its_fields_only() {
        let seen = json!({"a": 1, "b": {"c": "text", "d": [1, 2]}});
        assert!(matches(&json!({"a": 1.0, "b": {"c": "text"}}), Some(&seen)).is_ok());
        assert!(matches(&json!({"b": {"d": [1]}}), Some(&seen)).is_err());
        let why = matches(&json!({"b": {"c": "x"}}), Some(&seen)).unwrap_err();
        assert!(why.starts_with("/b/c: expected \"x\""), "{why}");
    }

    #[test]
    fn every_condition_can_hold_and_can_fail() {
        let pairs = [
            (json!({"$has": "ex"}), json!("text"), json!("other")),
            (json!({"$lacks": "ex"}), json!("other"), json!("text")),
            (json!({"$like": "a*:?"}), json!("ab:c"), json!("ab:")),
            (json!({"$any": true}), json!(0), json!(null)),
            (json!({"$absent": true}), json!(null), json!(0)),
            (
                json!({"$is": {"a": 1}}),
                json!({"a": 1}),
                json!({"a": 1, "b": 2}),
            ),
            (json!({"$not": 1}), json!(2), json!(1)),
            (json!({"$from": 2}), json!(2), json!(1)),
            (json!({"$to": "2026"}), json!("2025"), json!("2027")),
            (json!({"$one_of": [1, 2]}), json!(2), json!(3)),
            (json!({"$length": 2}), json!([1, 2]), json!([1])),
            (json!({"$include": [2]}), json!([1, 2]), json!([1])),
            (json!({"$longer": 3}), json!("text"), json!("tex")),
            (
                json!({"$sha256": "abc"}),
                json!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
                json!("00"),
            ),
        ];
        assert_eq!(pairs.len(), CONDITIONS.len());
        for (want, holds, fails) in pairs {
            assert!(matches(&want, Some(&holds)).is_ok(), "{want} {holds}");
            assert!(matches(&want, Some(&fails)).is_err(), "{want} {fails}");
        }
    }

    #[test]
    fn every_form_of_a_list_can_hold_and_can_fail() {
        let seen = [json!(1), json!(2), json!(3)];
        let of = |values: &[i64]| Some(values.iter().map(|it| json!(it)).collect::<Vec<_>>());
        let are = |values: &[i64]| ListWant {
            are: of(values),
            ..Default::default()
        };
        let set = |values: &[i64]| ListWant {
            set: of(values),
            ..Default::default()
        };
        let in_order = |values: &[i64]| ListWant {
            in_order: of(values),
            ..Default::default()
        };
        let include = |values: &[i64]| ListWant {
            include: of(values),
            ..Default::default()
        };
        assert!(list(are(&[1, 2, 3]), &seen).is_ok());
        assert!(list(are(&[1, 2]), &seen).is_err());
        assert!(list(are(&[1, 2, 3, 4]), &seen).is_err());
        assert!(list(set(&[3, 2, 1]), &seen).is_ok());
        assert!(list(set(&[3, 2]), &seen).is_err());
        assert!(list(in_order(&[1, 3]), &seen).is_ok());
        assert!(list(in_order(&[3, 1]), &seen).is_err());
        assert!(list(include(&[3, 1]), &seen).is_ok());
        assert!(list(include(&[3, 3]), &seen).is_err());
        let none = ListWant {
            none: vec![json!(2)],
            ..Default::default()
        };
        assert!(list(none, &seen).is_err());
        let count = |n: i64| ListWant {
            count: vec![(json!({"$from": 2}), json!(n))],
            ..Default::default()
        };
        assert!(list(count(2), &seen).is_ok());
        assert!(list(count(3), &seen).is_err());
    }

    #[test]
    fn patterns_have_stars() {
        for (pattern, text, holds) in [
            ("*", "", true),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abcd", false),
            ("*:*:*", "a:b:c", true),
            ("a?c", "abc", true),
            ("", "x", false),
        ] {
            assert_eq!(like(pattern, text), holds, "{pattern} {text}");
        }
    }
}
