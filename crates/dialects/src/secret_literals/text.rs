//! Secrets inside of a text: in addresses and what they ask for, in headers, connection strings and options of programs.

use super::{Literal, is_number_key, is_secret_key};

/// Names of the settings of a connection string that hold a password.
const PASSWORD_SETTINGS: [&str; 3] = ["password", "pwd", "passwd"];

/// Settings that make a text a connection string.
const PLACE_SETTINGS: [&str; 11] = [
    "host",
    "hostaddr",
    "server",
    "data source",
    "dbname",
    "database",
    "driver",
    "dsn",
    "uid",
    "user id",
    "initial catalog",
];

/// Names in a cookie whose values say how long and where it holds.
const COOKIE_ATTRIBUTES: [&str; 5] = ["path", "domain", "expires", "max-age", "samesite"];

/// Where a value inside of a text ends.
fn ends_value(c: char) -> bool {
    c.is_whitespace() || "'\"`<>|\\".contains(c)
}

/// All secrets in a text, each once.
pub(super) fn in_text(text: &str) -> Vec<Literal> {
    let mut found = addresses(text);
    found.extend(queries(text));
    found.extend(headers(text));
    found.extend(settings(text));
    found.extend(options(text));
    found.sort_by_key(|it| (it.range.start, it.range.end));
    found.dedup_by(|a, b| a.range == b.range);
    found
}

/// Whether something else stands there when it is used: a variable of a shell or of a program, a template, a mask.
pub(super) fn is_filled_in(text: &str) -> bool {
    let is_variable = text.strip_prefix('$').is_some_and(|name| {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !name.is_empty() && (name.chars().all(word) || name.starts_with(['{', '(']))
    });
    is_variable || text.contains("{{") || text.chars().all(|c| c == '*')
}

/// The same in an address or an option, which programs make from parts: `?token={token}`, `--token=%s`.
fn is_made(text: &str) -> bool {
    is_filled_in(text) || text.starts_with(['{', '$']) || text == "%s" || text.starts_with("%(")
}

/// Whether a value under this name is a secret: not a switch, and no number unless passwords are meant.
fn is_secret(name: &str, value: &str) -> bool {
    let is_word = ["true", "false", "yes", "no", "null", "none"].contains(&value);
    let is_number = value.bytes().all(|b| b.is_ascii_digit()) && !is_number_key(name);
    is_secret_key(name) && !is_word && !is_number && !is_made(value)
}

/// The secrets among what an address asks for: `?user=me&password=…`, `?api_key=…`.
fn queries(text: &str) -> Vec<Literal> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("://") {
        let start = from + at + 3;
        let end = text[start..]
            .find(ends_value)
            .map_or(text.len(), |at| start + at);
        from = end;
        let Some(at) = text[start..end].find('?') else {
            continue;
        };
        let mut first = start + at + 1;
        for part in text[first..end].split(['&', '#', ';']) {
            if let Some((name, value)) = part.split_once('=')
                && is_secret(name, value)
            {
                let value_at = first + name.len() + 1;
                found.push(Literal {
                    what: "an address",
                    range: value_at..value_at + value.len(),
                });
            }
            first += part.len() + 1;
        }
    }
    found
}

/// The secrets among the options of a program: `--password=…`.
fn options(text: &str) -> Vec<Literal> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("--") {
        let start = from + at + 2;
        from = start;
        let is_first = text[..start - 2]
            .chars()
            .next_back()
            .is_none_or(|c| c.is_whitespace() || "'\"`([,".contains(c));
        if !is_first {
            continue;
        }
        let name_end = |c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c));
        let rest = &text[start..];
        let Some(length) = rest.find(name_end) else {
            continue;
        };
        let (name, after) = rest.split_at(length);
        let Some(value) = after.strip_prefix('=') else {
            continue;
        };
        let opened = value.strip_prefix(['\'', '"']).unwrap_or(value);
        let value_at = start + length + 1 + (value.len() - opened.len());
        let quote = value.chars().next().filter(|_| opened.len() < value.len());
        let end = match quote {
            Some(quote) => opened.find(quote),
            None => opened.find(ends_value),
        };
        let length = end.unwrap_or(opened.len());
        if length > 0 && is_secret(name, &opened[..length]) {
            found.push(Literal {
                what: "an option",
                range: value_at..value_at + length,
            });
        }
    }
    found
}

/// The values of a cookie, `session=…; Path=/`, that begins at this place of its text.
pub(super) fn cookies(cookie: &str, from: usize) -> Vec<Literal> {
    let mut found = Vec::new();
    let mut start = from;
    for part in cookie.split(';') {
        if let Some((name, value)) = part.split_once('=')
            && !COOKIE_ATTRIBUTES.contains(&name.trim().to_ascii_lowercase().as_str())
            && !value.trim().is_empty()
            && !is_made(value.trim())
        {
            let gap = value.len() - value.trim_start().len();
            let first = start + name.len() + 1 + gap;
            found.push(Literal {
                what: "a cookie",
                range: first..first + value.trim().len(),
            });
        }
        start += part.len() + 1;
    }
    found
}

/// The passwords of addresses `scheme://user:password@host`, anywhere in a text.
fn addresses(text: &str) -> Vec<Literal> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("://") {
        let start = from + at + 3;
        let end = text[start..]
            .find(ends_value)
            .map_or(text.len(), |at| start + at);
        let place = &text[start..end];
        let place = place.split(['?', '#']).next().unwrap_or(place);
        // A password may contain a slash that nobody has encoded; a port does not.
        let (host, _) = place.split_once('/').unwrap_or((place, ""));
        let place = match host.contains('@') {
            true => host,
            false => place,
        };
        let is_port = |text: &str| {
            let number = text.split('/').next().unwrap_or(text);
            !host.contains('@') && number.chars().all(|c| c.is_ascii_digit())
        };
        if let Some((info, _)) = place.rsplit_once('@')
            && let Some((user, password)) = info.split_once(':')
            && !user.contains('/')
            && !password.is_empty()
            && !is_port(password)
            && !is_filled_in(password)
        {
            let first = start + user.len() + 1;
            found.push(Literal {
                what: "an address",
                range: first..first + password.len(),
            });
        }
        from = end;
    }
    found
}

/// The credentials of `Authorization: Bearer …` and the values of `Cookie: …` inside of a text.
fn headers(text: &str) -> Vec<Literal> {
    const NAME: &str = "authorization:";
    const COOKIE: &str = "cookie:";
    let lower = text.to_ascii_lowercase();
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = lower[from..].find(COOKIE) {
        let start = from + at + COOKIE.len();
        let ends = |c: char| "'\"`\n".contains(c);
        let end = text[start..].find(ends).map_or(text.len(), |at| start + at);
        found.extend(cookies(&text[start..end], start));
        from = end;
    }
    let mut from = 0;
    while let Some(at) = lower[from..].find(NAME) {
        from += at + NAME.len();
        let rest = &text[from..];
        let gap = rest.len() - rest.trim_start_matches(' ').len();
        let kinds = ["bearer", "basic", "token"];
        // No kind is longer.
        let mut first = rest[gap..].char_indices().take(7);
        let Some((at, _)) = first.find(|(_, c)| *c == ' ') else {
            continue;
        };
        let (kind, after) = (&rest[gap..gap + at], &rest[gap + at + 1..]);
        if !kinds.contains(&kind.to_ascii_lowercase().as_str()) {
            continue;
        }
        let end = |c: char| c.is_whitespace() || "'\"`,;".contains(c);
        let length = after.find(end).unwrap_or(after.len());
        let start = from + gap + kind.len() + 1;
        if length > 0 && !is_filled_in(&after[..length]) {
            found.push(Literal {
                what: "a header",
                range: start..start + length,
            });
        }
    }
    found
}

/// The passwords of `host=db password=…` and `Server=db;Password=…`.
fn settings(text: &str) -> Vec<Literal> {
    let lower = text.to_ascii_lowercase();
    let mut found = Vec::new();
    let mut has_place = false;
    let separator = match text.contains(';') {
        true => |c: char| c == ';' || c == '\n',
        false => char::is_whitespace,
    };
    let mut from = 0;
    for part in lower.split(separator) {
        let start = from;
        from += part.len() + 1;
        has_place |= part.trim_start().starts_with("jdbc:");
        let Some((name, value)) = part.split_once('=') else {
            continue;
        };
        let bare = name.trim().trim_start_matches(['\'', '"']);
        has_place |= PLACE_SETTINGS.contains(&bare);
        let first = start + name.len() + 1;
        let quoted = value.trim().trim_matches(['\'', '"']);
        if PASSWORD_SETTINGS.contains(&bare)
            && !quoted.is_empty()
            && let Some(at) = value.find(quoted)
            && let Some(original) = text.get(first + at..first + at + quoted.len())
            && !is_filled_in(original)
        {
            found.push(Literal {
                what: "a connection string",
                range: first + at..first + at + quoted.len(),
            });
        }
    }
    found.retain(|_| has_place);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        let found = in_text(text).into_iter();
        found.map(|it| &text[it.range]).collect()
    }

    #[test]
    fn addresses_headers_and_connection_strings_give_their_secrets() {
        assert_eq!(found("postgres://me:p%40ss@db/x?sslmode=off"), ["p%40ss"]);
        assert_eq!(found("curl 'https://u:a/b@c@host/x' -o y"), ["a/b@c"]);
        assert_eq!(found("redis://:hunter2@localhost:6379/0"), ["hunter2"]);
        assert_eq!(
            found("curl -H 'Authorization: Bearer abc.def' x"),
            ["abc.def"]
        );
        assert_eq!(found("curl -u {{ ctx.x }} ftp://a:b1@c"), ["b1"]);
        assert_eq!(found("host=db user=ada password='hun' x=y"), ["hun"]);
        assert_eq!(found("Server=db;Password=Hun ter;Encrypt=yes"), ["Hun ter"]);
        assert_eq!(found("jdbc:postgresql://h/db?user=u&password=j-1"), ["j-1"]);
        assert_eq!(
            found("jdbc:sqlserver://h:1433;user=sa;password=j-2;"),
            ["j-2"]
        );
        assert_eq!(found("Driver=x;UID=u;PWD=o-1;"), ["o-1"]);
        assert_eq!(
            found("curl 'https://h/x?api_key=k-1&page=2&access_token=t-1#x'"),
            ["k-1", "t-1"]
        );
        assert_eq!(found("--password=c-1"), ["c-1"]);
        assert_eq!(found("deploy --api-token='c 2' --x"), ["c 2"]);
        assert_eq!(found("curl -H 'Cookie: a=c-3; b=c-4' x"), ["c-3", "c-4"]);
        for fine in [
            "https://h/x?page_token=abc&token=$TOKEN&api_key={{ workload.k }}&max_tokens=5",
            "f'https://h/x?token={token}' 'https://h/x?token=' + token",
            "https://h/x?token=true&secret=",
            "deploy --password-file=/run/pw --token=$TOKEN --save-token=true --password= --token",
            "x=--password=a echo cookie: none",
            "https://example.com:8080/a@b",
            "https://me@example.com/x",
            "postgres://me:$PASSWORD@db/x",
            "postgres://me:{{ workload.pw }}@db/x",
            "curl -H \"Authorization: Bearer $TOKEN\" x",
            "secret://db/password",
            "password=hunter2 ./deploy",
            "host=db password=$PGPASSWORD",
            "é://é:@é=é;=password",
        ] {
            assert_eq!(found(fine), [""; 0], "{fine}");
        }
    }
}
