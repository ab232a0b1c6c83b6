//! The credentials of a broker. An address names a secret; who opens a sink or a source gives what resolves it, and it is
//! asked at every connection, so that a secret can be exchanged while a server runs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use serde_json::{Map, Value as Json};

use crate::address::BrokerAddress;

/// The answer of a [`SecretSource`].
pub type CredentialFuture<'a> = Pin<Box<dyn Future<Output = Result<Json, String>> + Send + 'a>>;

/// Resolves the secrets that addresses name.
pub trait SecretSource: Send + Sync + fmt::Debug {
    /// The value of a secret, by its name or by a reference: a text, or a mapping. An error says why, without the value.
    fn credential<'a>(&'a self, name: &'a str) -> CredentialFuture<'a>;
}

/// No secrets: for brokers that ask for none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSecrets;

impl SecretSource for NoSecrets {
    fn credential<'a>(&'a self, _: &'a str) -> CredentialFuture<'a> {
        Box::pin(async { Err("this process has no secrets".to_owned()) })
    }
}

/// Who connects, and by what. All of it may be absent.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    /// A token, the seed of an nkey, the content of a credentials file, or a private key: as the kind of broker says.
    fields: Map<String, Json>,
}

/// Secrets stay out of logs.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    /// The credentials that an address names. The user in the address counts if the secret has none.
    pub(crate) async fn resolve(
        address: &BrokerAddress,
        secrets: &dyn SecretSource,
    ) -> Result<Credentials, String> {
        let mut found = Credentials {
            username: address.user.clone(),
            ..Credentials::default()
        };
        let Some(name) = address.param("auth") else {
            return Ok(found);
        };
        match secrets.credential(name).await? {
            Json::String(text) => found.password = Some(text),
            Json::Object(fields) => {
                found.fields = fields;
                found.password = found.field(&["password"]).map(str::to_owned);
                let named = found.field(&["username", "user"]).map(str::to_owned);
                found.username = named.or(found.username);
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) => {
                return Err(
                    "the secret that `auth` names is neither a text nor a mapping".to_owned(),
                );
            }
        }
        Ok(found)
    }

    /// A text under one of its names.
    pub(crate) fn field(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|it| self.fields.get(*it)?.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug)]
    struct One(Json);

    impl SecretSource for One {
        fn credential<'a>(&'a self, _: &'a str) -> CredentialFuture<'a> {
            Box::pin(async { Ok(self.0.clone()) })
        }
    }

    fn resolved(address: &str, secret: Json) -> Result<Credentials, String> {
        let address = BrokerAddress::read(address, 1, &[]).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(Credentials::resolve(&address, &One(secret)))
    }

    #[test]
    fn a_text_is_a_password_and_a_mapping_has_names() {
        let it = resolved("a://u@h?auth=x", json!("p")).unwrap();
        assert_eq!(
            (it.username.as_deref(), it.password.as_deref()),
            (Some("u"), Some("p"))
        );
        let it = resolved("a://u@h?auth=x", json!({"user": "v", "token": "t"})).unwrap();
        assert_eq!(
            (it.username.as_deref(), it.field(&["token"])),
            (Some("v"), Some("t"))
        );
        assert!(resolved("a://h?auth=x", json!(1)).is_err());
        let none = resolved("a://h", json!("unused")).unwrap();
        assert!(none.password.is_none() && !format!("{none:?}").contains("unused"));
    }
}
