//! Which parts of a secret are secret by themselves: the password inside an address, the values inside a
//! JSON document, the token behind `Bearer`, what a base64 text contains.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::Value as Json;

/// Fields of a credential that say where and as whom, not with what. Hiding `localhost` or `bearer`
/// would make logs unreadable and results wrong.
const PLAIN_FIELDS: [&str; 16] = [
    "type", "kind", "provider", "scheme", "host", "hostname", "port", "database", "dbname", "db",
    "user", "username", "login", "region", "schema", "sslmode",
];

/// Names of parameters whose value is secret, as parts of a name without case and separators.
const SECRET_NAMES: [&str; 12] = [
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "credential",
    "auth",
    "signature",
    "session",
    "jwt",
    "sas",
    "dsn",
];

/// Words that are values of settings. To hide them would hide every setting of every program.
const PLAIN_WORDS: [&str; 6] = ["true", "false", "null", "none", "bearer", "basic"];

/// Shorter numbers are ports, counts and years.
const SHORTEST_NUMBER: usize = 8;

/// Shorter texts are base64 by chance.
const SHORTEST_BASE64: usize = 16;

/// A user name of this length is a token.
const LONGEST_USER: usize = 20;

/// Secrets contain each other: a JSON document an address, the address a password. No deeper than this.
const DEEPEST: u8 = 4;

/// Every text below a secret value that is secret by itself, but for the fields of a credential that say
/// where and as whom.
pub(super) fn of_value(secret: &Json) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    below(secret, DEEPEST, &mut found);
    found
}

/// A secret text and the parts of it that are secret by themselves.
pub(super) fn of_text(secret: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    text(secret, DEEPEST, &mut found);
    found
}

fn below(secret: &Json, depth: u8, found: &mut BTreeSet<String>) {
    match secret {
        Json::String(it) => text(it, depth, found),
        Json::Array(items) => items.iter().for_each(|item| below(item, depth, found)),
        Json::Object(fields) => {
            for (name, field) in fields {
                let is_plain = PLAIN_FIELDS.contains(&name.to_ascii_lowercase().as_str());
                if !is_plain {
                    below(field, depth, found);
                }
            }
        }
        Json::Number(number) => {
            let digits = number.to_string();
            if digits.len() >= SHORTEST_NUMBER {
                found.insert(digits);
            }
        }
        Json::Null | Json::Bool(_) => {}
    }
}

fn text(secret: &str, depth: u8, found: &mut BTreeSet<String>) {
    let secret = secret.trim_end_matches(['\n', '\r']);
    if PLAIN_WORDS.contains(&secret.to_ascii_lowercase().as_str()) {
        return;
    }
    let is_new = found.insert(secret.to_owned());
    found.insert(secret.trim().to_owned());
    if !is_new || depth == 0 {
        return;
    }
    let depth = depth - 1;
    let trimmed = secret.trim();
    if trimmed.starts_with(['{', '['])
        && let Ok(value) = serde_json::from_str::<Json>(trimmed)
    {
        return below(&value, depth, found);
    }
    for line in secret.lines().map(str::trim) {
        found.insert(line.to_owned());
    }
    for part in address(trimmed)
        .into_iter()
        .chain(settings(trimmed))
        .chain(header(trimmed))
        .chain(decoded(trimmed))
    {
        text(&part, depth, found);
    }
}

/// The secret parts of an address `scheme://user:password@host/path?token=…`.
fn address(secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    let Some((scheme, rest)) = secret.split_once("://") else {
        return found;
    };
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    if scheme.is_empty() || !scheme.chars().all(is_scheme) || secret.contains(char::is_whitespace) {
        return found;
    }
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    // A password may contain a slash that nobody has encoded, so the last `@` is the end.
    if let Some((user_info, _)) = place.rsplit_once('@') {
        match user_info.split_once(':') {
            Some((user, password)) => {
                if password.is_empty() || user.len() >= LONGEST_USER {
                    found.extend(with_decoded(user));
                }
                found.push(user_info.to_owned());
                found.extend(with_decoded(password));
            }
            None => found.extend(with_decoded(user_info)),
        }
    }
    let query = query.split('#').next().unwrap_or_default();
    for pair in query.split(['&', ';']) {
        if let Some((name, value)) = pair.split_once('=')
            && is_secret_name(name)
        {
            found.extend(with_decoded(value));
        }
    }
    found
}

/// The secret values of `host=db password='a b'` and of `Server=db;Password=ab`.
fn settings(secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    if !secret.contains('=') {
        return found;
    }
    let separator = match secret.contains(';') {
        true => |c: char| c == ';' || c == '\n',
        false => char::is_whitespace,
    };
    let mut rest = secret;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.rsplit(separator).next().unwrap_or(name).trim();
        let after = after.trim_start_matches(' ');
        let quote = after.chars().next().filter(|c| "'\"".contains(*c));
        let (value, next) = match quote {
            Some(quote) => quoted(&after[1..], quote),
            None => {
                let end = after.find(separator).unwrap_or(after.len());
                (after[..end].to_owned(), &after[end..])
            }
        };
        if is_secret_name(name) && !value.is_empty() {
            found.push(value);
        }
        rest = next;
    }
    found
}

/// A text up to its closing quote, without backslashes, and what follows.
fn quoted(text: &str, quote: char) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c if c == quote => return (value, &text[at + c.len_utf8()..]),
            c => value.push(c),
        }
    }
    (value, "")
}

/// The token of `Bearer TOKEN`, `Basic TOKEN`, `Token TOKEN`, also behind the name of a header.
fn header(secret: &str) -> Option<String> {
    let value = match secret.split_once(": ") {
        Some((name, value)) if is_secret_name(name) => value.trim(),
        _ => secret,
    };
    let mut words = value.split(' ').filter(|it| !it.is_empty());
    let (first, second, third) = (words.next()?, words.next(), words.next());
    let is_kind =
        ["bearer", "basic", "token", "apikey"].contains(&first.to_ascii_lowercase().as_str());
    match (is_kind, second, third) {
        (true, Some(token), None) => Some(token.to_owned()),
        _ => (value != secret).then(|| value.to_owned()),
    }
}

/// What a secret in base64 contains, if it is a text: `user:password` gives the password too.
fn decoded(secret: &str) -> Vec<String> {
    let bare = secret.trim_end_matches('=');
    if bare.len() < SHORTEST_BASE64 {
        return Vec::new();
    }
    let bytes = STANDARD_NO_PAD
        .decode(bare)
        .or_else(|_| URL_SAFE_NO_PAD.decode(bare));
    let text = bytes.ok().and_then(|it| String::from_utf8(it).ok());
    let is_text = |it: &String| !it.chars().any(|c| c.is_control() && !c.is_whitespace());
    let Some(text) = text.filter(is_text) else {
        return Vec::new();
    };
    let password = text
        .split_once(':')
        .map(|(_, password)| password.to_owned());
    [Some(text), password].into_iter().flatten().collect()
}

fn with_decoded(part: &str) -> Vec<String> {
    let mut both = vec![part.to_owned()];
    if part.contains('%')
        && let Some(plain) = percent_decoded(part)
    {
        both.push(plain);
    }
    both
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).and_then(|it| std::str::from_utf8(it).ok());
        let code = code.and_then(|it| u8::from_str_radix(it, 16).ok());
        match (first, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = &after[2..];
            }
            (first, _) => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

fn is_secret_name(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect();
    plain == "sig" || SECRET_NAMES.iter().any(|part| plain.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn has(secret: &str, parts: &[&str]) {
        let found = of_text(secret);
        for part in parts {
            assert!(found.contains(*part), "{part} of {secret}: {found:?}");
        }
    }

    fn lacks(secret: &str, parts: &[&str]) {
        let found = of_text(secret);
        for part in parts {
            assert!(!found.contains(*part), "{part} of {secret}: {found:?}");
        }
    }

    #[test]
    fn addresses_give_their_passwords_and_tokens() {
        let dsn = "postgres://loader:p%40ss%2Fword@db.example:5432/main?sslmode=require";
        has(
            dsn,
            &[dsn, "p%40ss%2Fword", "p@ss/word", "loader:p%40ss%2Fword"],
        );
        lacks(dsn, &["loader", "require", "db.example:5432/main"]);
        has("https://ghp_abcdef@github.com/x", &["ghp_abcdef"]);
        has("https://me:a/b@c@host/x", &["a/b@c"]);
        has(
            "https://api.example/x?page=2&access_token=t%2B1#top",
            &["t%2B1", "t+1"],
        );
        lacks("https://api.example/x?page=2222&access_token=t", &["2222"]);
    }

    #[test]
    fn settings_give_their_passwords() {
        has("host=db user=ada password=hunter22 dbname=x", &["hunter22"]);
        has(r"host=db password='a \'b' sslmode=off", &["a 'b"]);
        has(
            "Server=db;User Id=ada;Password=hun ter;Encrypt=yes",
            &["hun ter"],
        );
        lacks(
            "host=database user=ada password=hunter22",
            &["database", "ada"],
        );
    }

    #[test]
    fn documents_headers_and_base64_give_what_they_contain() {
        has(
            r#"{"user":"ada","dsn":"amqp://u:p4ss@h","list":["one1"],"pin":12345678,"n":5432}"#,
            &["p4ss", "one1", "12345678"],
        );
        lacks(
            r#"{"user":"loader","on":"true","n":5432}"#,
            &["loader", "true", "5432"],
        );
        has("Authorization: Bearer abc.def", &["abc.def"]);
        // ada:correct horse
        has(
            "Basic YWRhOmNvcnJlY3QgaG9yc2U=",
            &["correct horse", "ada:correct horse"],
        );
        assert!(of_value(&json!({"token": "t-1", "host": "h"})).contains("t-1"));
        assert!(!of_value(&json!({"token": "t-1", "host": "h"})).contains("h"));
    }

    #[test]
    fn no_text_is_too_odd() {
        for odd in [
            "",
            "=",
            "://",
            "a://@",
            "%",
            "a=%",
            "\"",
            "=='",
            "é=é;é",
            "x://%zz:%e9@h?k=%",
        ] {
            let _ = of_text(odd);
        }
    }
}
