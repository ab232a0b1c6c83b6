//! Callers of a server without access control: they say who they are, and pages of other sites are kept out.

use axum::http::{HeaderMap, StatusCode, header};
use stepwell_kernel::unseen::is_unseen;

use super::Caller;
use super::right::ServerRole;
use crate::codes;
use crate::problem::ApiProblem;

/// The headers with which callers of an open server say who they are.
const ACTOR: &str = "stepwell-actor";
const ROLE: &str = "stepwell-role";
const TENANT: &str = "stepwell-tenant";
/// The most characters of a name.
const MAX_NAME: usize = 200;

/// The caller of a server that trusts everyone who reaches it.
pub(super) fn open_caller(headers: &HeaderMap, source: String) -> Result<Caller, ApiProblem> {
    not_from_a_page(headers)?;
    let roles = match text(headers, ROLE)? {
        None => vec![ServerRole::Admin, ServerRole::Worker],
        Some(words) => {
            let role = |word: &str| {
                ServerRole::from_name(word.trim()).ok_or_else(|| {
                    let known: Vec<&str> = ServerRole::ALL.iter().map(|it| it.name()).collect();
                    ApiProblem::bad_request(format!(
                        "the header {ROLE} has the role {word:?}; roles are {}",
                        known.join(", ")
                    ))
                })
            };
            words.split(',').map(role).collect::<Result<_, _>>()?
        }
    };
    Ok(Caller {
        name: text(headers, ACTOR)?.unwrap_or_else(|| "anonymous".to_owned()),
        roles,
        tenant: text(headers, TENANT)?,
        project: None,
        token: None,
        source,
    })
}

/// A caller with a token acts for the tenant that the request names: one of all tenants for this one only. One of another
/// tenant is refused.
pub(super) fn act_for(caller: &mut Caller, headers: &HeaderMap) -> Result<(), ApiProblem> {
    caller.tenant = caller.tenant_of(text(headers, TENANT)?)?;
    Ok(())
}

/// The value of a header, which is the name of someone or something.
fn text(headers: &HeaderMap, name: &str) -> Result<Option<String>, ApiProblem> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return match headers.contains_key(name) {
            true => Err(ApiProblem::bad_request(format!(
                "the header {name} is there more than once"
            ))),
            false => Ok(None),
        };
    };
    // Names are UTF-8, as everywhere else: people are called Zoë and 李雷, too.
    let value = std::str::from_utf8(value.as_bytes()).map(str::trim);
    let value = value.unwrap_or_default();
    let seen = !value.chars().any(|c| c.is_control() || is_unseen(c));
    match (1..=MAX_NAME).contains(&value.chars().count()) && seen {
        true => Ok(Some(value.to_owned())),
        false => Err(ApiProblem::bad_request(format!(
            "the header {name} has 1 to {MAX_NAME} visible characters in UTF-8"
        ))),
    }
}

/// A page of another site must not use the browser of someone who has an open server on this machine: neither with a
/// request of its own, nor under a name that it has pointed at this machine.
fn not_from_a_page(headers: &HeaderMap) -> Result<(), ApiProblem> {
    let value = |name| headers.get(name).and_then(|it| it.to_str().ok());
    let denied = |what: &str| {
        Err(ApiProblem::new(
            StatusCode::FORBIDDEN,
            codes::ORIGIN_DENIED,
            format!("{what}; a server without access control answers only this machine"),
        ))
    };
    let Some(host) = value(header::HOST) else {
        return Ok(());
    };
    if !is_loopback(host) {
        return denied("the request names another host");
    }
    match value(header::ORIGIN) {
        Some(origin) if origin.split_once("://").map(|it| it.1) != Some(host) => {
            denied("the request comes from a page of another site")
        }
        _ => Ok(()),
    }
}

/// Whether a host, with or without a port, is this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address: Option<std::net::IpAddr> = name.parse().ok();
    name.eq_ignore_ascii_case("localhost") || address.is_some_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn names_of_this_machine_are_known() {
        for own in [
            "localhost",
            "LOCALHOST:7117",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:7117",
        ] {
            assert!(is_loopback(own), "{own}");
        }
        for other in [
            "evil.example",
            "localhost.evil.example:7117",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "",
            "[::2]:1",
        ] {
            assert!(!is_loopback(other), "{other}");
        }
    }

    #[test]
    fn names_are_utf_8() {
        let named = |bytes: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(ACTOR, HeaderValue::from_bytes(bytes).unwrap());
            text(&headers, ACTOR)
        };
        for name in ["ada", "Zoë Müller", "李雷"] {
            assert_eq!(named(name.as_bytes()).unwrap().as_deref(), Some(name));
        }
        for bad in [&b"Zo\xeb"[..], "a\u{200b}".as_bytes(), b" "] {
            assert!(named(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("localhost:7117"));
        assert!(not_from_a_page(&headers).is_ok());
        headers.insert(
            header::ORIGIN,
            HeaderValue::from_static("http://localhost:7117"),
        );
        assert!(not_from_a_page(&headers).is_ok());
        headers.insert(
            header::ORIGIN,
            HeaderValue::from_static("https://evil.example"),
        );
        assert!(not_from_a_page(&headers).is_err());
    }
}
