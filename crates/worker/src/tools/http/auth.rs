//! What a task's `auth` adds to a request: a header, or a field of the query.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::{Map, Value as Json};

use super::error;
use super::request::{header_name, header_value, scalar};
use crate::outcome::ToolError;
use crate::tool::kind_of;

/// What a request says of who sends it.
#[derive(Debug)]
pub(super) enum Credential {
    None,
    Header(HeaderName, HeaderValue),
    Query(String, String),
}

/// What the types are, for messages.
const UNDERSTOOD: &str = "understood are `bearer` with `token`, `basic` with `username` and \
     `password`, `api_key` with `key`, `header` with `name` and `value`, and `none`";

const TOKEN: &[&str] = &["token", "access_token"];
const USER: &[&str] = &["username", "user"];
const KEY: &[&str] = &["key", "api_key", "value"];
const NAME: &[&str] = &["header", "name"];

/// Reads what `auth` stands for.
pub(super) fn read(auth: Option<&Map<String, Json>>) -> Result<Credential, ToolError> {
    let Some(auth) = auth else {
        return Ok(Credential::None);
    };
    let kind = match text(auth, &["type"])? {
        Some(kind) => kind.trim().to_ascii_lowercase().replace('-', "_"),
        None => guess(auth).to_owned(),
    };
    match kind.as_str() {
        "none" => Ok(Credential::None),
        "bearer" => {
            let token = needed(auth, "bearer", TOKEN)?;
            authorization(&format!("Bearer {}", token.trim()))
        }
        "basic" => {
            let user = needed(auth, "basic", USER)?;
            let password = text(auth, &["password"])?.unwrap_or_default();
            if user.contains(':') {
                return Err(error::field(
                    "the user's name in `auth` must not have a colon",
                ));
            }
            let pair = STANDARD.encode(format!("{user}:{password}"));
            authorization(&format!("Basic {pair}"))
        }
        "api_key" | "apikey" => api_key(auth),
        "header" => {
            let name = needed(auth, "header", NAME)?;
            header(&name, &needed(auth, "header", KEY)?)
        }
        "" => Err(error::field(format!(
            "`auth` has nothing that `http` can use; {UNDERSTOOD}"
        ))),
        other => Err(error::field(format!(
            "`auth` of type {other:?} is not known to `http`; {UNDERSTOOD}"
        ))),
    }
}

/// The type that the fields speak for, or nothing.
fn guess(auth: &Map<String, Json>) -> &'static str {
    let has = |names: &[&str]| names.iter().any(|name| auth.contains_key(*name));
    if has(TOKEN) {
        "bearer"
    } else if has(USER) {
        "basic"
    } else if has(KEY) {
        "api_key"
    } else {
        ""
    }
}

fn api_key(auth: &Map<String, Json>) -> Result<Credential, ToolError> {
    let key = needed(auth, "api_key", KEY)?;
    let name = text(auth, NAME)?;
    match text(auth, &["in"])?.as_deref().unwrap_or("header") {
        "header" => header(name.as_deref().unwrap_or("X-API-Key"), &key),
        "query" => {
            let name = name.unwrap_or_else(|| "api_key".to_owned());
            Ok(Credential::Query(name, key))
        }
        other => Err(error::field(format!(
            "`auth` has `in: {other}`; a key goes in a `header` or in the `query`"
        ))),
    }
}

fn authorization(value: &str) -> Result<Credential, ToolError> {
    header(AUTHORIZATION.as_str(), value)
}

fn header(name: &str, value: &str) -> Result<Credential, ToolError> {
    let mut value = header_value(name, value)?;
    value.set_sensitive(true);
    Ok(Credential::Header(header_name(name)?, value))
}

/// The first of these fields that is there.
fn text(auth: &Map<String, Json>, names: &[&str]) -> Result<Option<String>, ToolError> {
    for name in names {
        match auth.get(*name) {
            None | Some(Json::Null) => {}
            Some(value) => {
                let what = kind_of(value);
                let text = scalar(value).ok_or_else(|| {
                    error::field(format!("`{name}` in `auth` must be text, it is {what}"))
                });
                return text.map(Some);
            }
        }
    }
    Ok(None)
}

fn needed(auth: &Map<String, Json>, kind: &str, names: &[&str]) -> Result<String, ToolError> {
    let found = text(auth, names)?.filter(|text| !text.trim().is_empty());
    found.ok_or_else(|| {
        let name = names.first().copied().unwrap_or_default();
        error::field(format!("`auth` of type `{kind}` needs `{name}`"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `name: value` of a header, `name=value` of a query.
    fn shown(auth: Json) -> String {
        match read(auth.as_object()) {
            Ok(Credential::None) => "none".into(),
            Ok(Credential::Header(name, value)) => {
                assert!(value.is_sensitive());
                format!("{name}: {}", value.to_str().unwrap())
            }
            Ok(Credential::Query(name, value)) => format!("{name}={value}"),
            Err(error) => error.message,
        }
    }

    #[test]
    fn every_type_is_read() {
        let cases = [
            (
                json!({"type": "bearer", "token": "t\n"}),
                "authorization: Bearer t",
            ),
            (
                json!({"type": "Bearer", "access_token": "t"}),
                "authorization: Bearer t",
            ),
            (
                json!({"type": "basic", "username": "u", "password": "p"}),
                "authorization: Basic dTpw",
            ),
            (json!({"type": "api_key", "key": "k"}), "x-api-key: k"),
            (
                json!({"type": "api-key", "api_key": "k", "header": "X-K"}),
                "x-k: k",
            ),
            (
                json!({"type": "api_key", "key": 7, "in": "query", "name": "appid"}),
                "appid=7",
            ),
            (
                json!({"type": "api_key", "key": "k", "in": "query"}),
                "api_key=k",
            ),
            (
                json!({"type": "header", "name": "X-T", "value": "v"}),
                "x-t: v",
            ),
            (json!({"type": "none", "token": "t"}), "none"),
        ];
        for (auth, wanted) in cases {
            assert_eq!(shown(auth.clone()), wanted, "{auth}");
        }
    }

    #[test]
    fn without_a_type_the_fields_tell() {
        assert_eq!(shown(json!({"token": "t"})), "authorization: Bearer t");
        assert_eq!(
            shown(json!({"user": "u", "password": "p"})),
            "authorization: Basic dTpw"
        );
        assert_eq!(shown(json!({"value": "k", "name": "X-K"})), "x-k: k");
    }

    #[test]
    fn what_is_not_understood_is_told_what_is() {
        for auth in [json!({"type": "oauth1"}), json!({"host": "db"}), json!({})] {
            let message = shown(auth);
            assert!(message.contains("understood are `bearer`"), "{message}");
        }
        assert_eq!(
            shown(json!({"type": "bearer"})),
            "`auth` of type `bearer` needs `token`"
        );
        assert!(shown(json!({"token": ["t"]})).contains("must be text, it is a list"));
        assert!(shown(json!({"key": "k", "in": "body"})).contains("in: body"));
        assert!(shown(json!({"user": "a:b"})).contains("colon"));
    }

    #[test]
    fn a_message_never_shows_the_secret() {
        let message = shown(json!({"token": "sec\u{1}ret"}));
        assert!(!message.contains("sec"), "{message}");
    }
}
