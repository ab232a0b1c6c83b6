//! The address of a Conductor server: `conductor+http://HOST:PORT/api?OPTION=VALUE`.

use super::{AddressError, no_password, options};

/// Where a Conductor server is, and how this process names itself there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConductorAddress {
    /// The address of the REST interface, without a slash at its end: `http://HOST:PORT/api`.
    pub base: String,
    /// File with the certificates of the authorities that the server's certificate is checked with; absent: those of the
    /// machine.
    pub ca: Option<String>,
    pub auth: ConductorAuth,
}

/// How this process proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConductorAuth {
    None,
    /// A header with a fixed value, which a variable of the environment has.
    Header {
        name: String,
        value_env: String,
    },
    /// A key and a secret, in variables of the environment, that the server gives a token for.
    Key {
        key_env: String,
        secret_env: String,
    },
}

const FORM: &str = "write `conductor+http://HOST:PORT/api` or `conductor+https://HOST/api`, such as \
                    `conductor+http://127.0.0.1:8080/api`";
const OPTIONS: [&str; 5] = ["ca", "header", "header_env", "key_env", "secret_env"];
const OPTIONS_HELP: &str =
    "the options are ca, header with header_env, and key_env with secret_env";

impl ConductorAddress {
    pub(super) fn parse(text: &str) -> Result<ConductorAddress, AddressError> {
        let fail = |why: String| Err(AddressError(why));
        let base = text.strip_prefix("conductor+").unwrap_or(text);
        let (base, query) = base.split_once('?').unwrap_or((base, ""));
        let place = base
            .strip_prefix("http://")
            .or_else(|| base.strip_prefix("https://"));
        let host = place.map(|place| place.split('/').next().unwrap_or_default());
        let Some(host) = host.filter(|host| !host.is_empty() && !base.contains('#')) else {
            return fail(format!(
                "{text:?} is not the address of a Conductor server; {FORM}"
            ));
        };
        if host.contains('@') {
            return fail(no_password("Conductor", OPTIONS_HELP));
        }
        let port = host
            .rsplit_once(':')
            .filter(|(_, port)| !port.ends_with(']'));
        if port.is_some_and(|(_, port)| port.parse::<u16>().is_err()) {
            return fail(format!(
                "the port in {text:?} is not a number up to 65535; {FORM}"
            ));
        }
        let mut options = options(query, "Conductor", &OPTIONS, OPTIONS_HELP)?;
        let mut option = |name: &str| options.remove(name);
        let ca = option("ca");
        let auth = [
            option("header"),
            option("header_env"),
            option("key_env"),
            option("secret_env"),
        ];
        let auth = match auth {
            [None, None, None, None] => ConductorAuth::None,
            [Some(name), Some(value_env), None, None] => ConductorAuth::Header { name, value_env },
            [None, None, Some(key_env), Some(secret_env)] => ConductorAuth::Key {
                key_env,
                secret_env,
            },
            _ => {
                return fail(format!(
                    "a Conductor address has both `header=NAME` and `header_env=VARIABLE`, or both `key_env=VARIABLE` and \
                     `secret_env=VARIABLE`, or none of them; {OPTIONS_HELP}"
                ));
            }
        };
        Ok(ConductorAddress {
            base: base.trim_end_matches('/').to_owned(),
            ca,
            auth,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::EngineAddress;

    fn read(text: &str) -> Result<ConductorAddress, AddressError> {
        match EngineAddress::parse(text) {
            Some(Ok(EngineAddress::Conductor(address))) => Ok(address),
            Some(Err(error)) => Err(error),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn an_address_names_the_rest_interface() {
        let address = read("conductor+http://127.0.0.1:18080/api/").unwrap();
        assert_eq!(address.base, "http://127.0.0.1:18080/api");
        assert_eq!(address.auth, ConductorAuth::None);
        assert_eq!(
            read("conductor+https://c.example.com/api").unwrap().base,
            "https://c.example.com/api"
        );
        assert_eq!(
            read("conductor+http://[::1]/api").unwrap().base,
            "http://[::1]/api"
        );
    }

    #[test]
    fn secrets_are_named_and_not_written() {
        let header = read("conductor+http://h/api?header=X-Key&header_env=KEY").unwrap();
        let expected = ConductorAuth::Header {
            name: "X-Key".into(),
            value_env: "KEY".into(),
        };
        assert_eq!(header.auth, expected);
        let key = read("conductor+https://h/api?key_env=K&secret_env=S").unwrap();
        assert!(matches!(key.auth, ConductorAuth::Key { .. }));
    }

    #[test]
    fn a_wrong_address_says_what_to_write() {
        for (text, part) in [
            ("conductor", "HOST:PORT"),
            ("conductor://h:1/api", "conductor+http://"),
            ("conductor+http://", "HOST:PORT"),
            ("conductor+http://h:99999/api", "port"),
            ("conductor+http://me:secret@h/api", "no password"),
            ("conductor+http://h/api?colour=red", "options are"),
            ("conductor+http://h/api?ca=a&ca=b", "twice"),
            ("conductor+http://h/api?ca=", "no value"),
            ("conductor+http://h/api?header=X", "header_env=VARIABLE"),
            (
                "conductor+http://h/api?key_env=X&header=Y",
                "secret_env=VARIABLE",
            ),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(
                error.starts_with("ENGINE_ADDRESS: ") && error.contains(part),
                "{error}"
            );
        }
    }
}
