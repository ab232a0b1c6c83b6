//! What may be shown of a request: no password, no token, no key.

use reqwest::Url;

/// What stands for a value that is not shown.
pub(super) const HIDDEN: &str = "***";

/// Parts of names whose values are secret.
const PARTS: &[&str] = &[
    "token",
    "secret",
    "passw",
    "pwd",
    "auth",
    "credential",
    "signature",
    "session",
    "cookie",
    "jwt",
    "apikey",
    "accesskey",
];

/// Whether a query's field or a header of that name holds a secret, as far as names can tell.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['-', '_', '.'], "");
    if name == "idempotencykey" {
        return false;
    }
    name.ends_with("key")
        || matches!(name.as_str(), "sig" | "code" | "pass")
        || PARTS.iter().any(|part| name.contains(part))
}

/// An address as it may be shown; `also` names one more field of the query that is secret.
pub(super) fn url(url: &Url, also: Option<&str>) -> String {
    let hidden = |name: &str| is_secret(name) || also == Some(name);
    let mut shown = url.clone();
    // Neither can fail: an http address has a host.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.set_fragment(None);
    if url.query_pairs().any(|(name, _)| hidden(&name)) {
        let mut query = shown.query_pairs_mut();
        query.clear();
        for (name, value) in url.query_pairs() {
            let value = if hidden(&name) { HIDDEN } else { &*value };
            query.append_pair(&name, value);
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_addresses_are_hidden_and_the_rest_stays() {
        let shown = |text: &str| url(&Url::parse(text).unwrap(), Some("appid"));
        assert_eq!(
            shown("https://me:pw@h.example/a?page=2&api_key=abc&appid=7&q=x%20y#t=1"),
            "https://h.example/a?page=2&api_key=***&appid=***&q=x+y"
        );
        assert_eq!(
            shown("http://h.example/a?q=x%20y"),
            "http://h.example/a?q=x%20y"
        );
    }

    #[test]
    fn names_tell_what_is_secret() {
        for name in [
            "Authorization",
            "X-API-Key",
            "Cookie",
            "access_token",
            "sig",
            "Ocp-Apim-Subscription-Key",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "Idempotency-Key",
            "Accept",
            "page",
            "signal",
            "X-Request-Id",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
