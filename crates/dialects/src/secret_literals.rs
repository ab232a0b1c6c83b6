//! Secrets that a definition has written out: values of fields such as `password`, `Authorization` headers, passwords in
//! addresses and in connection strings. A definition is stored, hashed and shown, so it should hold references only.
//!
//! Here: which fields have a secret, for the checks of all languages, for the worker, which redacts these values, and for
//! commands that show a definition ([`masked`]). What a reference is, is in [`is_reference`]; where secrets are inside of a
//! longer text, in `text.rs`.

mod text;

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Value as Json;
use stepwell_kernel::expr::{Template, has_template};
use stepwell_kernel::plan::Net;

use self::text::{cookies, in_text, is_filled_in};
use crate::codes;
use crate::document::Document;
use crate::problem::{Problems, Severity};
use crate::source::Span;
use crate::tree::{Node, Value};
use crate::words::quote;

/// Endings of keys whose value is a secret, without case and separators.
const SECRET_KEYS: [&str; 13] = [
    "password",
    "passwd",
    "pwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "credentials",
    "authorization",
    "signingkey",
];

/// Endings of keys that look the same and say where a reading goes on, or what something is.
const OTHER_KEYS: [&str; 6] = [
    "pagetoken",
    "nexttoken",
    "continuationtoken",
    "completiontoken",
    "synctoken",
    "isauthorization",
];

/// Endings of keys under which a number is a secret too.
const NUMBER_KEYS: [&str; 4] = ["password", "passwd", "pwd", "passphrase"];

/// Fields of `auth` that name a credential instead of containing it.
const CREDENTIAL_NAMES: [&str; 2] = ["secret", "credential"];

/// What stands in the place of a secret.
pub(crate) const MASK: &str = "***";

/// A part of a text that is a secret.
struct Literal {
    what: &'static str,
    range: Range<usize>,
}

/// Reports every secret that the definition has written out: an error in a plan, which must hold references only, and a
/// warning in the other languages.
pub(crate) fn check(document: &Document<'_>, severity: Severity, p: &mut Problems) {
    let mut open = vec![(None, document.root, false)];
    while let Some((key, node, in_auth)) = open.pop() {
        match &node.value {
            Value::Str(text) => {
                for literal in of_text(key, in_auth, text) {
                    report(key, node, text, literal, severity, p);
                }
            }
            Value::Int(_) | Value::Float(_) if key.is_some_and(is_number_key) => {
                let whole = Literal {
                    what: "value",
                    range: 0..0,
                };
                report(key, node, "", whole, severity, p);
            }
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {}
            Value::Seq(items) => {
                let key = key.filter(|key| !is_list_of_names(key));
                open.extend(items.iter().map(|item| (key, item, in_auth)));
            }
            Value::Map(entries) => {
                // `{name: Authorization, value: …}`: the pair is a header or a variable.
                let named = node.get("name").and_then(Node::as_str);
                for entry in entries {
                    let key = match entry.key.as_str() {
                        "value" => named.unwrap_or("value"),
                        key => key,
                    };
                    // Entries of the keychain have warnings of their own.
                    let is_keychain = std::ptr::eq(node, document.root) && key == "keychain";
                    if !is_keychain {
                        open.push((Some(key), &entry.node, in_auth || entry.key == "auth"));
                    }
                }
            }
        }
    }
}

fn report(
    key: Option<&str>,
    node: &Node,
    text: &str,
    literal: Literal,
    severity: Severity,
    p: &mut Problems,
) {
    let (message, help) = match (literal.what, key) {
        ("value", Some(key)) => (
            format!("{} is a secret that is written out", quote(key)),
            format!("keep it in a secret store, and write `{key}: secret://NAME`"),
        ),
        (what, _) => (
            format!("{what} contains a secret that is written out"),
            "keep it in a secret store, and write a reference such as `secret://NAME` instead"
                .to_owned(),
        ),
    };
    let (code, message) = match severity {
        Severity::Error => (
            codes::PLAN_SECRET_VALUE,
            format!("{message}; a plan contains only references to secrets"),
        ),
        Severity::Warning => (codes::SECRET_VALUE, message),
    };
    let problem = crate::problem::Problem::new(code, severity, node.span, message);
    let problem = p.push(problem).help(help);
    if literal.what != "value" {
        problem.inside(text, literal.range);
    }
}

/// The secrets that are written out below a value of a compiled definition.
#[must_use]
pub fn of_json(value: &Json) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![(None, value, false)];
    while let Some((key, value, in_auth)) = open.pop() {
        match value {
            Json::String(text) => {
                let literals = of_text(key, in_auth, text);
                found.extend(literals.into_iter().map(|it| text[it.range].to_owned()));
            }
            Json::Number(number) if key.is_some_and(is_number_key) => {
                found.insert(number.to_string());
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
            Json::Array(items) => {
                let key = key.filter(|key| !is_list_of_names(key));
                open.extend(items.iter().map(|item| (key, item, in_auth)));
            }
            Json::Object(fields) => {
                let named = fields.get("name").and_then(Json::as_str);
                for (name, field) in fields {
                    let key = match name.as_str() {
                        "value" => named.unwrap_or("value"),
                        key => key,
                    };
                    open.push((Some(key), field, in_auth || name == "auth"));
                }
            }
        }
    }
    found
}

/// The fewest characters of a secret that is removed; shorter texts are in too many words.
pub(crate) const HIDDEN_LENGTH: usize = 4;

/// The secrets that a net has written out and that its events must not show.
pub(crate) fn hidden_in(net: &Net) -> Vec<String> {
    let whole = serde_json::to_value(net).unwrap_or_default();
    let found = of_json(&whole).into_iter();
    found.filter(|it| it.len() >= HIDDEN_LENGTH).collect()
}

/// The secrets in a text that stands under this key.
fn of_text(key: Option<&str>, in_auth: bool, text: &str) -> Vec<Literal> {
    let names_credential = |key: &str| in_auth && CREDENTIAL_NAMES.contains(&plain(key).as_str());
    if let Some(key) = key
        && is_secret_key(key)
        && !names_credential(key)
        && !is_reference(text)
    {
        let range = 0..text.len();
        return vec![Literal {
            what: "value",
            range,
        }];
    }
    match key.is_some_and(is_cookie_key) {
        true => cookies(text, 0),
        false => in_text(text),
    }
}

/// The value without the secrets that are written out in it, for everything that shows a definition. A secret is removed
/// wherever it is, if it has at least four characters, and otherwise where it stands as a secret.
#[must_use]
pub fn masked(value: &Json) -> Json {
    let mut shown = value.clone();
    mask(None, false, &mut shown, &long_secrets(value));
    shown
}

/// A text that was made from the value, without the value's secrets.
#[must_use]
pub fn masked_text(value: &Json, text: &str) -> String {
    without(&long_secrets(value), text)
}

/// An address, a connection string or a command without the secrets in it.
#[must_use]
pub fn masked_address(text: &str) -> String {
    let mut shown = text.to_owned();
    mask_parts(&mut shown, in_text(text));
    shown
}

/// Where secrets seem to be in a text that is no definition: on lines with `password: …`, and inside of texts.
pub(crate) fn on_lines(text: &str) -> Vec<Span> {
    let mut found = Vec::new();
    let mut from = 0;
    for line in text.split_inclusive('\n') {
        let mut literals = in_text(line);
        literals.extend(fields(line));
        let spans = literals.into_iter().map(|it| it.range);
        found.extend(spans.map(|it| Span::new(from + it.start, from + it.end)));
        from += line.len();
    }
    found
}

/// The values of `password: …` on a line.
fn fields(line: &str) -> Vec<Literal> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(colon) = line[from..].find(':') {
        let at = from + colon;
        from = at + 1;
        let before = line[..at].trim_end_matches(['"', '\'']);
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let key = before.trim_end_matches(is_word).len();
        if !is_secret_key(&before[key..]) {
            continue;
        }
        let rest = line[at + 1..].trim_start();
        let opened = rest.trim_start_matches(['"', '\'']);
        let end = match rest.len() > opened.len() {
            true => opened.find(['"', '\'']),
            false => opened.find([',', '}', '\n', '\r']),
        };
        let value = opened[..end.unwrap_or(opened.len())].trim_end();
        let first = line.len() - opened.len();
        let is_other = opened.starts_with(['{', '[', '|', '>', '&', '*']);
        if !is_other && !is_reference(value) {
            found.push(Literal {
                what: "value",
                range: first..first + value.len(),
            });
        }
        // Each part of a line is looked at once, however many keys are in a value.
        from = from.max(first + value.len());
    }
    found
}

/// The longest first: one may contain another.
fn long_secrets(value: &Json) -> Vec<String> {
    let found = of_json(value).into_iter();
    let mut long: Vec<String> = found.filter(|it| it.len() >= HIDDEN_LENGTH).collect();
    long.sort_by_key(|it| std::cmp::Reverse(it.len()));
    long
}

fn without(secrets: &[String], text: &str) -> String {
    let mut shown = text.to_owned();
    for secret in secrets {
        shown = shown.replace(secret.as_str(), MASK);
    }
    shown
}

fn mask(key: Option<&str>, in_auth: bool, value: &mut Json, secrets: &[String]) {
    match value {
        Json::String(text) => {
            let was_template = has_template(text) && Template::parse(text).is_ok();
            let literals = of_text(key, in_auth, text);
            mask_parts(text, literals);
            *text = without(secrets, text);
            if was_template && Template::parse(text).is_err() {
                *text = readable(text);
            }
        }
        Json::Number(number) => {
            if key.is_some_and(is_number_key) || secrets.contains(&number.to_string()) {
                *value = Json::from(MASK);
            }
        }
        Json::Null | Json::Bool(_) => {}
        Json::Array(items) => {
            let key = key.filter(|key| !is_list_of_names(key));
            for item in items {
                mask(key, in_auth, item, secrets);
            }
        }
        Json::Object(fields) => {
            let named = fields.get("name").and_then(Json::as_str);
            let named = named.unwrap_or("value").to_owned();
            for (name, field) in fields {
                let key = match name.as_str() {
                    "value" => &named,
                    _ => name,
                };
                mask(Some(key), in_auth || name == "auth", field, secrets);
            }
        }
    }
}

/// A template that was cut by masks, so that it can be read as a template again: a number of an expression becomes a text.
/// Who reads a definition that is shown, to follow a run, evaluates nothing in it.
fn readable(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(MASK) {
        let before = &rest[..at];
        quoted.push_str(before);
        let is_inside = before.ends_with(['\'', '"']);
        quoted.push_str(&match is_inside {
            true => MASK.to_owned(),
            false => format!("\"{MASK}\""),
        });
        rest = &rest[at + MASK.len()..];
    }
    quoted.push_str(rest);
    match Template::parse(&quoted) {
        Ok(_) => quoted,
        Err(_) => MASK.to_owned(),
    }
}

fn mask_parts(text: &mut String, mut literals: Vec<Literal>) {
    literals.sort_by_key(|it| std::cmp::Reverse(it.range.start));
    let mut end = text.len();
    for literal in literals {
        // Parts that overlap are masked once.
        if literal.range.end <= end {
            end = literal.range.start;
            text.replace_range(literal.range, MASK);
        }
    }
}

/// `secret://…` and other addresses, `${secret:…}`, `$VARIABLE`, `{{ keychain.… }}`; nothing is no secret.
#[must_use]
pub fn is_reference(text: &str) -> bool {
    let text = text.trim();
    let starts = [
        "secret://",
        "secretfile://",
        "vault://",
        "env://",
        "secretref:",
        "${",
    ];
    text.is_empty()
        || starts.iter().any(|start| text.starts_with(start))
        || is_filled_in(text)
        || stepwell_kernel::expr::has_template(text)
}

fn is_secret_key(key: &str) -> bool {
    let plain = plain(key);
    let ends = |endings: &[&str]| endings.iter().any(|ending| plain.ends_with(ending));
    (ends(&SECRET_KEYS) || last_word(key) == "pass") && !ends(&OTHER_KEYS)
}

/// `DB_PASS` and `smtpPass`, not `bypass`.
fn last_word(key: &str) -> String {
    let is_small = key.chars().any(char::is_lowercase);
    let begins = |(_, c): &(usize, char)| !c.is_alphanumeric() || (is_small && c.is_uppercase());
    let at = key.char_indices().rfind(begins);
    plain(at.map_or(key, |(at, _)| &key[at..]))
}

/// Headers that have secrets beside names and other words.
fn is_cookie_key(key: &str) -> bool {
    matches!(plain(key).as_str(), "cookie" | "setcookie")
}

/// A list under such a key names credentials.
fn is_list_of_names(key: &str) -> bool {
    plain(key).ends_with("credentials")
}

fn is_number_key(key: &str) -> bool {
    let plain = plain(key);
    NUMBER_KEYS.iter().any(|ending| plain.ends_with(ending))
}

fn plain(key: &str) -> String {
    let letters = key.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(value: Json) -> Vec<String> {
        of_json(&value).into_iter().collect()
    }

    #[test]
    fn values_of_secret_fields_are_secrets_and_references_are_not() {
        assert_eq!(found(json!({"dbPassword": "hunter2"})), ["hunter2"]);
        assert_eq!(found(json!({"env": {"API_KEY": "k-123"}})), ["k-123"]);
        assert_eq!(found(json!({"pwd": 123_456})), ["123456"]);
        assert_eq!(found(json!({"pass": "p-1"})), ["p-1"]);
        assert_eq!(
            found(json!({"DB_PASS": "p-1", "smtpPass": "p-2"})),
            ["p-1", "p-2"]
        );
        assert_eq!(found(json!({"Cookie": "session=c-1; Path=/"})), ["c-1"]);
        let header = json!([{"name": "Authorization", "value": "Bearer abc"}]);
        assert_eq!(found(header), ["Bearer abc"]);
        for fine in [
            json!({"password": "secret://db/password"}),
            json!({"password": "{{ keychain.db.password }}"}),
            json!({"password": "$DB_PASSWORD"}),
            json!({"password": ""}),
            json!({"token": {"secretRef": "orders-api"}}),
            json!({"next_page_token": "abc"}),
            json!({"auth": {"secret": "api"}}),
            json!({"max_tokens": 4000, "idempotencyKey": "a-b"}),
            json!({"bypass": "yes", "compass": "north", "passes": "3"}),
            json!({"pass": "{{ workload.pw }}", "Cookie": "session={{ keychain.s }}"}),
            json!({"cookie": "consent", "Set-Cookie": "a=$A; Path=/; Max-Age=100"}),
        ] {
            assert_eq!(found(fine.clone()), [""; 0], "{fine}");
        }
    }

    #[test]
    fn what_is_shown_of_a_definition_has_no_secrets() {
        let whole = json!({
            "password": "hunter2", "pwd": 1234, "pin": {"passphrase": "abc"},
            "cmds": ["echo hunter2 abc 1234", "curl https://u:hunter23@h/?token=t-1"],
        });
        let shown = json!({
            "password": "***", "pwd": "***", "pin": {"passphrase": "***"},
            "cmds": ["echo *** abc ***", "curl https://u:***@h/?token=***"],
        });
        assert_eq!(masked(&whole), shown);
        assert_eq!(masked_text(&whole, "a hunter23 b"), "a *** b");
        // What was an expression can be read as one.
        let guard = |when: &str| {
            let net = json!({ "pin_pwd": 987_654, "password": "hunter23", "when": when });
            masked(&net)["when"].as_str().unwrap_or_default().to_owned()
        };
        let both = "{{ a == 'hunter23' and pin == 987654 }}";
        assert_eq!(guard(both), "{{ a == '***' and pin == \"***\" }}");
        assert_eq!(guard("{{ a987654 }}"), "***");
        assert_eq!(guard("pin 987654"), "pin ***");
        assert_eq!(masked_address("https://u:pw@h/x"), "https://u:***@h/x");
    }
}
