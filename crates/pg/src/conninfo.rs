//! Reading an address: a URL, or `name=value` pairs, as libpq documents both.

use std::collections::BTreeMap;

use crate::ParameterError;

/// What an address looks like, for messages.
const FORM: &str =
    "an address is like postgresql://user:password@host:5432/database?sslmode=verify-full";

pub(crate) fn parse(text: &str) -> Result<BTreeMap<String, String>, ParameterError> {
    let text = text.trim();
    match text.split_once("://") {
        // `postgresql+psycopg2` and the like name a driver of another language too.
        Some((scheme, rest)) if !scheme.contains(['=', ' ']) => {
            match scheme.split('+').next().unwrap_or_default() {
                "postgresql" | "postgres" => url(rest),
                _ => Err(ParameterError::new(format!(
                    "the scheme is not postgresql; {FORM}"
                ))),
            }
        }
        _ => pairs(text),
    }
}

fn url(rest: &str) -> Result<BTreeMap<String, String>, ParameterError> {
    let mut values = BTreeMap::new();
    let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, dbname) = base.split_once('/').unwrap_or((base, ""));
    let hosts = match authority.rsplit_once('@') {
        None => authority,
        Some((login, hosts)) => {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            put(&mut values, "user", decoded(user)?);
            put(&mut values, "password", decoded(password)?);
            hosts
        }
    };
    let (names, ports) = hosts_and_ports(hosts)?;
    put(&mut values, "host", names);
    put(&mut values, "port", ports);
    put(&mut values, "dbname", decoded(dbname)?);
    for pair in query.split('&').filter(|it| !it.is_empty()) {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(ParameterError::new(
                "what follows the ? is not name=value; a ? in a password is written %3F",
            ));
        };
        match (decoded(name)?.as_str(), decoded(value)?) {
            // As other drivers write it.
            ("ssl", value) if value == "true" => put(&mut values, "sslmode", "require".into()),
            (name, value) => put(&mut values, name, value),
        }
    }
    Ok(values)
}

fn put(values: &mut BTreeMap<String, String>, name: &str, value: String) {
    if !value.is_empty() {
        values.insert(name.to_owned(), value);
    }
}

/// `a:1,[::1]:2,c` as the two lists of libpq: `a,::1,c` and `1,2,`.
fn hosts_and_ports(text: &str) -> Result<(String, String), ParameterError> {
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in text.split(',') {
        let (name, port) = match host.strip_prefix('[') {
            Some(inner) => {
                let closed = inner.split_once(']');
                let (name, rest) = closed
                    .ok_or_else(|| ParameterError::new("an IPv6 address has no closing bracket"))?;
                (name, rest.strip_prefix(':').unwrap_or(rest))
            }
            None => host.split_once(':').unwrap_or((host, "")),
        };
        names.push(decoded(name)?);
        ports.push(decoded(port)?);
    }
    // One port is the port of all hosts.
    let given = ports.iter().filter(|it| !it.is_empty()).count();
    let ports = match (given, ports.last()) {
        (0, _) => String::new(),
        (1, Some(last)) if !last.is_empty() => last.clone(),
        _ => ports.join(","),
    };
    Ok((names.join(","), ports))
}

/// `%2F` and the like.
fn decoded(text: &str) -> Result<String, ParameterError> {
    let invalid = || {
        ParameterError::new(format!(
            "a % is not followed by two hexadecimal digits; {FORM}"
        ))
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = after;
            continue;
        }
        let (digits, left) = after.split_at_checked(2).ok_or_else(invalid)?;
        let digits = std::str::from_utf8(digits).map_err(|_| invalid())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| invalid())?);
        rest = left;
    }
    String::from_utf8(bytes).map_err(|_| ParameterError::new("the address is not UTF-8"))
}

/// `name = value` pairs; a value with spaces stands in quotes, a backslash takes the next character as it
/// is.
fn pairs(text: &str) -> Result<BTreeMap<String, String>, ParameterError> {
    let mut values = BTreeMap::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let Some((name, after)) = rest.split_once('=') else {
            return Err(ParameterError::new(format!(
                "this is no address of a PostgreSQL database; {FORM}"
            )));
        };
        let after = after.trim_start();
        let quoted = after.starts_with('\'');
        let mut value = String::new();
        let mut closed = !quoted;
        let mut chars = after.char_indices().skip(usize::from(quoted));
        let mut end = after.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => value.extend(chars.next().map(|(_, c)| c)),
                '\'' if quoted => {
                    closed = true;
                    end = at + 1;
                    break;
                }
                c if !quoted && c.is_whitespace() => {
                    end = at;
                    break;
                }
                c => value.push(c),
            }
        }
        if !closed {
            return Err(ParameterError::new("a quoted value has no closing quote"));
        }
        put(&mut values, name.trim(), value);
        rest = after[end..].trim_start();
    }
    Ok(values)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let values = parse(text).unwrap();
        let pairs = values.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn addresses_are_read_as_libpq_documents_them() {
        let table = [
            ("postgresql://", ""),
            ("postgres://localhost", "host=localhost"),
            ("postgresql://u@h/d", "dbname=d host=h user=u"),
            (
                "postgresql://u:p%40w@h:1/d",
                "dbname=d host=h password=p@w port=1 user=u",
            ),
            (
                "postgresql://[2001:db8::1]:99/d",
                "dbname=d host=2001:db8::1 port=99",
            ),
            ("postgresql://a:1,b:2/d", "dbname=d host=a,b port=1,2"),
            ("postgresql://a,b:2/d", "dbname=d host=a,b port=2"),
            ("postgresql://a:1,b/d", "dbname=d host=a,b port=1,"),
            ("postgresql://%2Frun%2Fpg/d", "dbname=d host=/run/pg"),
            (
                "postgresql:///d?host=/run/pg&ssl=true",
                "dbname=d host=/run/pg sslmode=require",
            ),
            (
                "postgresql://h/d?options=-c%20x%3D1",
                "dbname=d host=h options=-c x=1",
            ),
            ("postgresql+psycopg2://h/d", "dbname=d host=h"),
            (
                "host=h user = 'a b' password='it\\'s' dbname=d",
                "dbname=d host=h password=it's user=a b",
            ),
        ];
        for (text, wanted) in table {
            assert_eq!(shown(text), wanted, "{text}");
        }
        for text in [
            "mysql://h/d",
            "postgresql://h/%zz",
            "nonsense",
            "host='h",
            "postgresql://[::1/d",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
