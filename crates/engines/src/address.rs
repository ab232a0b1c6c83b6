//! The address of an engine, as `--engine` names it: `temporal://HOST:PORT/NAMESPACE`, `conductor+http://HOST:PORT/api`.

mod conductor;

use std::collections::BTreeMap;
use std::time::Duration;

pub use conductor::{ConductorAddress, ConductorAuth};

use crate::codes::ENGINE_ADDRESS;

/// Where an engine outside is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineAddress {
    Temporal(TemporalAddress),
    Conductor(ConductorAddress),
}

/// Where a Temporal server is, and how it is talked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemporalAddress {
    /// `HOST:PORT`.
    pub host: String,
    pub namespace: String,
    /// TLS is used; it is with every certificate and with an API key.
    pub tls: bool,
    /// File with the certificates of the authorities that the server's certificate is checked with; absent: those of the
    /// machine.
    pub ca: Option<String>,
    /// Files with the certificate and the key of this client (mTLS).
    pub client: Option<(String, String)>,
    /// The name that the server's certificate must have, if it is not the host.
    pub server_name: Option<String>,
    /// The variable of the environment that has the API key.
    pub api_key_env: Option<String>,
    /// How long the server waits for a heartbeat of an attempt.
    pub heartbeat: Duration,
}

/// Why an address was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{ENGINE_ADDRESS}: {0}")]
pub struct AddressError(pub String);

const HEARTBEAT: Duration = Duration::from_secs(10);
const SCHEME: &str = "temporal://";
const FORM: &str =
    "write `temporal://HOST:PORT/NAMESPACE`, such as `temporal://127.0.0.1:7233/default`";

const OPTIONS: [&str; 7] = [
    "tls",
    "ca",
    "cert",
    "key",
    "server_name",
    "api_key_env",
    "heartbeat",
];
const OPTIONS_HELP: &str =
    "the options are tls, ca, cert with key, server_name, api_key_env and heartbeat";

impl EngineAddress {
    /// Reads an address; none if the text names no engine outside.
    pub fn parse(text: &str) -> Option<Result<EngineAddress, AddressError>> {
        match text.split_once(':') {
            Some(("temporal", _)) => {
                Some(TemporalAddress::parse(text).map(EngineAddress::Temporal))
            }
            _ if text == "temporal" => Some(Err(AddressError(format!(
                "the address of the Temporal server is missing; {FORM}"
            )))),
            Some(("conductor" | "conductor+http" | "conductor+https", _)) => {
                Some(ConductorAddress::parse(text).map(EngineAddress::Conductor))
            }
            _ if text == "conductor" => {
                Some(ConductorAddress::parse(text).map(EngineAddress::Conductor))
            }
            _ => None,
        }
    }

    /// Checks what the address names on this machine: files that can be read, and variables of the environment that are set.
    pub fn verify(&self) -> Result<(), AddressError> {
        let (files, variables): (Vec<&String>, Vec<&String>) = match self {
            EngineAddress::Temporal(it) => {
                let client = it.client.iter().flat_map(|(cert, key)| [cert, key]);
                let files = it.ca.iter().chain(client).collect();
                (files, it.api_key_env.iter().collect())
            }
            EngineAddress::Conductor(it) => {
                let variables = match &it.auth {
                    ConductorAuth::None => Vec::new(),
                    ConductorAuth::Header { value_env, .. } => vec![value_env],
                    ConductorAuth::Key {
                        key_env,
                        secret_env,
                    } => vec![key_env, secret_env],
                };
                (it.ca.iter().collect(), variables)
            }
        };
        for file in files {
            std::fs::read(file).map_err(|error| {
                AddressError(format!("the file {file:?} cannot be read: {error}"))
            })?;
        }
        for name in variables {
            if std::env::var(name).unwrap_or_default().is_empty() {
                return Err(AddressError(format!(
                    "the variable {name} of the environment has no value; set it, or leave out the option that names it"
                )));
            }
        }
        Ok(())
    }

    /// The host and the port of the server.
    #[must_use]
    pub fn host_and_port(&self) -> String {
        match self {
            EngineAddress::Temporal(it) => it.host.clone(),
            EngineAddress::Conductor(it) => {
                let (scheme, place) = it.base.split_once("://").unwrap_or(("http", &it.base));
                let host = place.split('/').next().unwrap_or_default();
                let port = if scheme == "https" { 443 } else { 80 };
                match host.rsplit_once(':').is_some_and(|it| !it.1.ends_with(']')) {
                    true => host.to_owned(),
                    false => format!("{host}:{port}"),
                }
            }
        }
    }

    /// The address without its options: nothing secret, for people and logs.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            EngineAddress::Temporal(it) => format!("{SCHEME}{}/{}", it.host, it.namespace),
            EngineAddress::Conductor(it) => format!("conductor+{}", it.base),
        }
    }

    /// The engine that the log names.
    #[must_use]
    pub fn engine(&self) -> &'static str {
        match self {
            EngineAddress::Temporal(_) => "temporal",
            EngineAddress::Conductor(_) => "conductor",
        }
    }
}

impl TemporalAddress {
    fn parse(text: &str) -> Result<TemporalAddress, AddressError> {
        let fail = |why: String| Err(AddressError(why));
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return fail(format!(
                "{text:?} is not the address of a Temporal server; {FORM}"
            ));
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, namespace) = place.split_once('/').unwrap_or((place, "default"));
        let namespace = if namespace.is_empty() {
            "default"
        } else {
            namespace
        };
        if host.contains('@') {
            return fail(no_password("Temporal", OPTIONS_HELP));
        }
        let port = host.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if host.is_empty() || namespace.contains('/') {
            return fail(format!(
                "{text:?} is not the address of a Temporal server; {FORM}"
            ));
        }
        let host = match port {
            Some(Ok(_)) => host.to_owned(),
            None => format!("{host}:7233"),
            Some(Err(_)) => {
                return fail(format!(
                    "the port in {text:?} is not a number up to 65535; {FORM}"
                ));
            }
        };
        let mut options = options(query, "Temporal", &OPTIONS, OPTIONS_HELP)?;
        let mut option = |name: &str| options.remove(name);
        let heartbeat = match option("heartbeat") {
            None => HEARTBEAT,
            Some(value) => {
                let seconds = value
                    .strip_suffix('s')
                    .and_then(|it| it.parse::<u64>().ok());
                match seconds.filter(|it| (1..=300).contains(it)) {
                    Some(seconds) => Duration::from_secs(seconds),
                    None => {
                        return fail(format!(
                            "heartbeat={value} is not a time from 1s to 300s; write `heartbeat=10s`"
                        ));
                    }
                }
            }
        };
        let tls = match option("tls").as_deref() {
            None => None,
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(other) => {
                return fail(format!("tls={other} is neither `tls=true` nor `tls=false`"));
            }
        };
        let client = match (option("cert"), option("key")) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                return fail(
                    "a client certificate needs both `cert=FILE` and `key=FILE`".to_owned(),
                );
            }
        };
        let mut address = TemporalAddress {
            host,
            namespace: namespace.to_owned(),
            tls: false,
            ca: option("ca"),
            client,
            server_name: option("server_name"),
            api_key_env: option("api_key_env"),
            heartbeat,
        };
        let needs_tls = address.ca.is_some()
            || address.client.is_some()
            || address.server_name.is_some()
            || address.api_key_env.is_some();
        if needs_tls && tls == Some(false) {
            return fail(
                "tls=false does not fit the options ca, cert, key, server_name and api_key_env, which are used with TLS"
                    .to_owned(),
            );
        }
        address.tls = needs_tls || tls == Some(true);
        Ok(address)
    }
}

/// The options of an address, each given at most once and with a value.
fn options(
    query: &str,
    engine: &str,
    known: &[&str],
    help: &str,
) -> Result<BTreeMap<String, String>, AddressError> {
    let mut found = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let wrong = match name {
            _ if !known.contains(&name) => "is not an option",
            _ if value.is_empty() => "has no value as an option",
            _ if found.contains_key(name) => "is given twice as an option",
            _ => {
                found.insert(name.to_owned(), value.to_owned());
                continue;
            }
        };
        return Err(AddressError(format!(
            "{name:?} {wrong} of a {engine} address; {help}"
        )));
    }
    Ok(found)
}

/// What is said of an address with a user or a password, which is not repeated.
fn no_password(engine: &str, help: &str) -> String {
    format!(
        "an address of a {engine} server has no user and no password: others can read the arguments of a command; {help}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TemporalAddress, AddressError> {
        match EngineAddress::parse(text) {
            Some(Ok(EngineAddress::Temporal(address))) => Ok(address),
            Some(Err(error)) => Err(error),
            Some(Ok(EngineAddress::Conductor(_))) => panic!("{text} names Conductor"),
            None => panic!("{text} names no engine"),
        }
    }

    #[test]
    fn an_address_names_the_server_and_the_namespace() {
        let address = read("temporal://127.0.0.1:17233/shop").unwrap();
        assert_eq!(
            (&*address.host, &*address.namespace),
            ("127.0.0.1:17233", "shop")
        );
        assert!(!address.tls);
        let short = read("temporal://temporal.example.com").unwrap();
        assert_eq!(
            (&*short.host, &*short.namespace),
            ("temporal.example.com:7233", "default")
        );
    }

    #[test]
    fn certificates_and_keys_mean_tls() {
        let address = read("temporal://a:1/n?cert=c.pem&key=k.pem&ca=ca.pem").unwrap();
        assert!(address.tls);
        assert_eq!(address.client, Some(("c.pem".into(), "k.pem".into())));
        assert!(
            read("temporal://a:1/n?api_key_env=TEMPORAL_KEY")
                .unwrap()
                .tls
        );
    }

    #[test]
    fn what_is_shown_has_no_options_and_what_is_named_must_be_there() {
        let parse = |text: &str| EngineAddress::parse(text).unwrap().unwrap();
        let temporal = parse("temporal://h/n?ca=/nowhere/ca.pem");
        assert_eq!(temporal.shown(), "temporal://h:7233/n");
        assert_eq!(temporal.host_and_port(), "h:7233");
        let missing = temporal.verify().unwrap_err().to_string();
        assert!(missing.contains("/nowhere/ca.pem"), "{missing}");
        let conductor = parse("conductor+https://c/api?key_env=NOT_SET_1&secret_env=NOT_SET_2");
        assert_eq!(conductor.shown(), "conductor+https://c/api");
        assert_eq!(conductor.host_and_port(), "c:443");
        let missing = conductor.verify().unwrap_err().to_string();
        assert!(missing.contains("NOT_SET_1"), "{missing}");
        let plain = parse("conductor+http://c:8080/api");
        assert_eq!(plain.host_and_port(), "c:8080");
        assert!(plain.verify().is_ok());
    }

    #[test]
    fn a_wrong_address_says_what_to_write() {
        for (text, part) in [
            ("temporal:", "HOST:PORT"),
            ("temporal", "HOST:PORT"),
            ("temporal://h:99999/n", "port"),
            ("temporal://h:1/n?cert=a", "key=FILE"),
            ("temporal://h:1/n?colour=red", "options are"),
            ("temporal://h:1/n?heartbeat=0s", "1s to 300s"),
            ("temporal://h:1/n?tls=yes", "tls=true"),
            ("temporal://h:1/n?tls=false&ca=a", "used with TLS"),
            ("temporal://h:1/n?ca=a&ca=b", "twice"),
            ("temporal://h:1/n?ca", "no value"),
            ("temporal://me:hush@h:1/n", "no password"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(
                error.starts_with("ENGINE_ADDRESS: ") && error.contains(part),
                "{error}"
            );
            assert!(!error.contains("hush"), "{error}");
        }
        assert!(EngineAddress::parse("native").is_none());
    }
}
