//! The address of a broker: `SCHEME://[USER@]HOST[:PORT][,HOST[:PORT]…][/PATH][?NAME=VALUE&…]`. It has no secret: the
//! parameter `auth` names one, and a password in the address is refused.

use std::collections::BTreeMap;

use reqwest::Url;
use stepwell_http::hosts::{DeniedHost, HostRules};
use stepwell_kernel::codes::HOST_DENIED;

/// The code of every address that cannot be used.
const BROKER_ADDRESS_INVALID: &str = "BROKER_ADDRESS_INVALID";

/// The most bytes of an address.
const MAX_LENGTH: usize = 2_000;

/// Why an address cannot be used. The address itself is not repeated: it may hold a secret by mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {reason}", code = BROKER_ADDRESS_INVALID, reason = .0)]
pub struct AddressFault(String);

impl AddressFault {
    pub(crate) fn new(why: impl Into<String>) -> AddressFault {
        AddressFault(why.into())
    }
}

/// A parameter that all brokers know.
pub(crate) const COMMON: &[(&str, &str)] = &[
    (
        "auth",
        "the name of a secret, or a reference to one, with the credentials",
    ),
    (
        "ca",
        "a file with the certificates that the server is checked by, instead of those of the system",
    ),
    (
        "format",
        "`structured` (default) or `binary`, the two content modes of CloudEvents",
    ),
];

/// An address that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokerAddress {
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    /// At least one, each with its port.
    pub(crate) hosts: Vec<(String, u16)>,
    /// Decoded, without the first `/`.
    pub(crate) path: String,
    params: BTreeMap<String, String>,
}

impl BrokerAddress {
    /// Reads an address. `port` is used for hosts without one; `known` are the parameters besides the common ones.
    pub(crate) fn read(
        text: &str,
        port: u16,
        known: &[(&str, &str)],
    ) -> Result<BrokerAddress, AddressFault> {
        if text.len() > MAX_LENGTH || text.chars().any(|it| it.is_control() || it == ' ') {
            return Err(AddressFault::new(format!(
                "an address has at most {MAX_LENGTH} bytes, and no spaces or control characters"
            )));
        }
        let (scheme, rest) = text
            .split_once("://")
            .ok_or_else(|| AddressFault::new("the address has no `://`"))?;
        let rest = rest.split('#').next().unwrap_or_default();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (servers, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, servers) = match servers.rsplit_once('@') {
            None => (None, servers),
            Some((user, _)) if user.contains(':') => {
                return Err(AddressFault::new(
                    "the address has a password, and addresses are stored; keep the password in a secret, and name \
                     the secret: `?auth=NAME`",
                ));
            }
            Some((user, servers)) => (Some(decoded(user)?), servers),
        };
        let mut hosts = Vec::new();
        for server in servers.split(',') {
            hosts.push(host_and_port(server, port)?);
        }
        Ok(BrokerAddress {
            scheme: scheme.to_owned(),
            user,
            hosts,
            path: decoded(path)?,
            params: params(query, known)?,
        })
    }

    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str)
    }

    /// A parameter that is yes or no.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, AddressFault> {
        match self.param(name) {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(_) => Err(AddressFault::new(format!("`{name}` is true or false"))),
        }
    }

    /// Adds a domain to hosts that have none.
    pub(crate) fn complete(&mut self, domain: &str) {
        for (host, _) in &mut self.hosts {
            if !host.contains(['.', ':']) && host != "localhost" {
                *host = format!("{host}.{domain}");
            }
        }
    }

    /// Checks the hosts as far as their names go; the addresses behind them are checked when they are connected to.
    pub(crate) fn check(&self, rules: &HostRules) -> Result<(), String> {
        for (host, port) in &self.hosts {
            let url = Url::parse(&format!("http://{}:{port}/", bracketed(host)));
            let url = url.map_err(|error| {
                AddressFault::new(format!("a host is not a valid name: {error}")).to_string()
            })?;
            rules.check(&url).map_err(|denied| denied_host(&denied))?;
        }
        Ok(())
    }

    /// The hosts as `host:port,host:port`, for messages.
    pub(crate) fn servers(&self) -> String {
        let server = |(host, port): &(String, u16)| format!("{}:{port}", bracketed(host));
        let servers: Vec<String> = self.hosts.iter().map(server).collect();
        servers.join(",")
    }
}

/// Why a host may not be asked.
pub(crate) fn denied_host(denied: &DeniedHost) -> String {
    format!("{HOST_DENIED}: {denied}")
}

/// A host as it stands before a port.
pub(crate) fn bracketed(host: &str) -> String {
    match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    }
}

fn host_and_port(text: &str, default: u16) -> Result<(String, u16), AddressFault> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest
                .split_once(']')
                .ok_or_else(|| AddressFault::new("a host begins with `[` and has no `]`"))?;
            (host, rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(AddressFault::new("the address names no host"));
    }
    let port = match port {
        None => default,
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(AddressFault::new("a port is a number from 1 to 65535")),
        },
    };
    Ok((decoded(host)?, port))
}

fn params(query: &str, known: &[(&str, &str)]) -> Result<BTreeMap<String, String>, AddressFault> {
    let mut params = BTreeMap::new();
    for pair in query.split('&').filter(|it| !it.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        if !COMMON.iter().chain(known).any(|it| it.0 == name) {
            let names: Vec<&str> = COMMON.iter().chain(known).map(|it| it.0).collect();
            return Err(AddressFault::new(format!(
                "there is no parameter `{name}`; there are {}",
                names.join(", ")
            )));
        }
        if value.is_empty() {
            return Err(AddressFault::new(format!("`{name}` has no value")));
        }
        if params.insert(name.clone(), value).is_some() {
            return Err(AddressFault::new(format!("`{name}` is there twice")));
        }
    }
    Ok(params)
}

/// A text whose `%XX` are bytes.
fn decoded(text: &str) -> Result<String, AddressFault> {
    let wrong = || AddressFault::new("a `%` must be followed by two hexadecimal digits of UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|it| char::from(it).to_digit(16));
        let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
        // Two hexadecimal digits are at most 255.
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// The parameters that say where messages of a broker go: they tell two sinks of one server apart.
const PLACES: [&str; 5] = ["queue", "exchange", "key", "stream", "prefix"];

/// An address without what may be a secret: name and password before the host, and everything after the path but the place at a
/// broker.
#[must_use]
pub fn shown_address(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let rest = rest.split('#').next().unwrap_or_default();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let is_broker = !matches!(scheme, "" | "http" | "https") && !scheme.contains(':');
    let is_place = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        is_broker && PLACES.contains(&name)
    };
    let places: Vec<&str> = query.split('&').filter(is_place).collect();
    let places = match places.is_empty() {
        true => String::new(),
        false => format!("?{}", places.join("&")),
    };
    let (host, path) = rest
        .split_once('/')
        .map_or((rest, None), |(host, path)| (host, Some(path)));
    let host = host.rsplit('@').next().unwrap_or_default();
    let path = path.map_or_else(String::new, |path| format!("/{path}"));
    match scheme {
        "" => format!("{host}{path}{places}"),
        _ => format!("{scheme}://{host}{path}{places}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BrokerAddress, AddressFault> {
        BrokerAddress::read(text, 4222, &[("subject", "")])
    }

    #[test]
    fn an_address_has_hosts_a_path_and_parameters() {
        let it =
            read("nats://me%40x@a,b:1,[::1]:2/EVENTS%2F1?subject=a.b&auth=env%3A%2F%2FX").unwrap();
        assert_eq!(it.user.as_deref(), Some("me@x"));
        let hosts = [("a", 4222), ("b", 1), ("::1", 2)];
        assert_eq!(it.hosts, hosts.map(|(host, port)| (host.to_owned(), port)));
        assert_eq!(it.path, "EVENTS/1");
        assert_eq!(it.param("subject"), Some("a.b"));
        assert_eq!(it.param("auth"), Some("env://X"));
        assert_eq!(it.servers(), "a:4222,b:1,[::1]:2");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_address() {
        for (text, says) in [
            ("nats:a", "://"),
            ("nats://u:secret@a", "auth=NAME"),
            ("nats://", "no host"),
            ("nats://a:0", "port"),
            ("nats://a:x", "port"),
            ("nats://[::1", "]"),
            ("nats://a?secret=x", "there are auth"),
            ("nats://a?subject=", "no value"),
            ("nats://a?subject=a&subject=b", "twice"),
            ("nats://a/%zz", "hexadecimal"),
            ("nats://a b", "spaces"),
        ] {
            let fault = read(text).unwrap_err().to_string();
            assert!(fault.starts_with("BROKER_ADDRESS_INVALID"), "{fault}");
            assert!(fault.contains(says), "{text}: {fault}");
            assert!(!fault.contains("secret@"), "{fault}");
        }
    }

    #[test]
    fn what_is_shown_has_no_secret() {
        for (address, shown) in [
            ("webhook:https://u:p@h/x?token=1#2", "webhook:https://h/x"),
            ("nats://u@h:1/S?auth=a", "nats://h:1/S"),
            ("amqp://u@h?auth=a&queue=q", "amqp://h?queue=q"),
            ("webhook:https://h/x?queue=1", "webhook:https://h/x"),
            ("odd", "odd"),
        ] {
            assert_eq!(shown_address(address), shown);
        }
    }
}
