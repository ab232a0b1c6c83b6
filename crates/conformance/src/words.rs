//! Command lines and variables: `run flow.yaml -i 'x=1 2'` as words, and `<<name>>` in texts and values.

use std::collections::BTreeMap;

use serde_json::Value as Json;

/// What was captured, and what the kit itself provides.
pub(crate) type Variables = BTreeMap<String, Json>;

/// Splits a command line as a shell does, with single and double quotes, but without any expansion.
pub(crate) fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some(end) if end == c => break,
                        Some('\\') if c == '"' => word.extend(chars.next()),
                        Some(inner) => word.push(inner),
                        None => return Err(format!("the quote {c} is not closed")),
                    }
                }
            }
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Puts variables into a text.
pub(crate) fn fill(text: &str, variables: &Variables) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("<<") {
        let (before, from) = rest.split_at(at);
        filled.push_str(before);
        let name = from[2..]
            .find(">>")
            .map(|end| &from[2..2 + end])
            .filter(|it| is_name(it));
        let Some(name) = name else {
            // Two signs that begin no variable, such as those of a shell.
            filled.push_str("<<");
            rest = &from[2..];
            continue;
        };
        match variables.get(name) {
            Some(Json::String(text)) => filled.push_str(text),
            Some(value) => filled.push_str(&value.to_string()),
            None => return Err(unknown(name, variables)),
        }
        rest = &from[name.len() + 4..];
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Puts variables into all texts of a value. A text that is one variable becomes its value, with its type.
pub(crate) fn fill_value(value: &Json, variables: &Variables) -> Result<Json, String> {
    Ok(match value {
        Json::String(text) => {
            let name = text.strip_prefix("<<").and_then(|it| it.strip_suffix(">>"));
            match name.filter(|it| is_name(it)) {
                Some(name) => match variables.get(name) {
                    Some(value) => value.clone(),
                    None => return Err(unknown(name, variables)),
                },
                None => Json::String(fill(text, variables)?),
            }
        }
        Json::Array(items) => {
            let items = items.iter().map(|it| fill_value(it, variables));
            Json::Array(items.collect::<Result<_, _>>()?)
        }
        Json::Object(fields) => {
            let filled = fields
                .iter()
                .map(|(key, it)| Ok((fill(key, variables)?, fill_value(it, variables)?)));
            Json::Object(filled.collect::<Result<_, String>>()?)
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => value.clone(),
    })
}

fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(letter)
}

fn unknown(name: &str, variables: &Variables) -> String {
    let known: Vec<&str> = variables.keys().map(String::as_str).collect();
    format!(
        "nothing was captured as {name}; known are {}",
        known.join(", ")
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_line_is_split_as_a_shell_does() {
        let words = split(r#"runs signal r --payload '{"a": 1}' "x \" y" '' z"#).unwrap();
        let want = [
            "runs",
            "signal",
            "r",
            "--payload",
            r#"{"a": 1}"#,
            "x \" y",
            "",
            "z",
        ];
        assert_eq!(words, want);
        assert!(split("run 'x").is_err());
    }

    #[test]
    fn variables_keep_their_type_where_they_stand_alone() {
        let variables = Variables::from([
            ("n".to_owned(), json!(3)),
            ("run".to_owned(), json!("run_1")),
        ]);
        assert_eq!(
            fill("<<run>>:<<n>> << x", &variables).unwrap(),
            "run_1:3 << x"
        );
        let value = json!({"a": ["<<n>>", "<<n>>!"]});
        assert_eq!(
            fill_value(&value, &variables).unwrap(),
            json!({"a": [3, "3!"]})
        );
        assert!(fill("<<gone>>", &variables).unwrap_err().contains("gone"));
    }
}
