//! Single places inside that may be connected to although the inside is closed: `db.internal:5432`, `10.8.0.0/16`.

use std::net::IpAddr;

use serde::Deserialize;

use super::HostRule;

/// A host, a range or a word, on one port or on all.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct Opening {
    host: HostRule,
    /// The only port that is open; none: every port is.
    pub(super) port: Option<u16>,
}

impl TryFrom<String> for Opening {
    type Error = String;

    fn try_from(text: String) -> Result<Opening, String> {
        let whole = |text: &str| {
            Ok(Opening {
                host: HostRule::try_from(text.to_owned())?,
                port: None,
            })
        };
        let text = text.trim();
        // An IPv6 address has colons of its own; with a port it is in brackets.
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
            Some(_) | None => return whole(text),
        };
        let wrong = || format!("{text:?}: the port is a number from 1 to 65535");
        let port = port.parse::<u16>().ok().filter(|it| *it > 0);
        Ok(Opening {
            port: Some(port.ok_or_else(wrong)?),
            ..whole(host)?
        })
    }
}

impl Opening {
    /// Whether it opens an address of a host, whose name is as the lists have it.
    pub(super) fn has(&self, name: &str, address: IpAddr, port: Option<u16>) -> bool {
        let is_port = self.port.is_none() || self.port == port;
        is_port && (self.host.has_name(name) || self.host.has_address(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opens(text: &str, name: &str, address: &str, port: u16) -> bool {
        let opening = Opening::try_from(text.to_owned()).unwrap();
        opening.has(name, address.parse().unwrap(), Some(port))
    }

    #[test]
    fn a_port_is_all_ports_or_one() {
        assert!(opens("10.0.0.0/8", "a", "10.1.1.1", 5));
        assert!(opens("10.0.0.0/8:5432", "a", "10.1.1.1", 5432));
        assert!(!opens("10.0.0.0/8:5432", "a", "10.1.1.1", 5433));
        assert!(opens("db.internal:5432", "db.internal", "10.1.1.1", 5432));
        assert!(!opens(
            "db.internal:5432",
            "x.db.internal",
            "10.1.1.1",
            5432
        ));
        assert!(opens("::1", "a", "::1", 1));
        assert!(opens("fd00::/8", "a", "fd01::1", 1));
        assert!(opens("[::1]:80", "a", "::1", 80));
        assert!(!opens("[::1]:80", "a", "::1", 81));
        assert!(opens("loopback:80", "a", "127.0.0.1", 80));
        assert!(opens("inside", "a", "192.168.0.1", 80));
        for wrong in ["", "a:0", "a:x", "a:65536", "[::1]:", "http://a", ":80"] {
            assert!(Opening::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
