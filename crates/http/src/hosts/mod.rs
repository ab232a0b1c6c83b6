//! Which hosts may be connected to: lists of names and ranges of addresses, and the inside, which a server keeps closed.
//! Checked before each request, also after a redirect, and again for the address that a connection is made to. A name
//! whose address changes between two lookups does not get around the rules, because the address that was checked is the
//! one that is connected to.

mod address;
mod opening;

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde::Deserialize;

use address::{in_range, is_inside, real};
pub use opening::Opening;

/// The rules for one kind of connections. What is in both lists is denied.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct HostRules {
    /// If it has any, only these hosts may be asked.
    #[serde(default)]
    pub allow: Vec<HostRule>,
    /// These hosts may not be asked.
    #[serde(default)]
    pub deny: Vec<HostRule>,
    /// Whether addresses inside may be connected to. Not a part of the lists: it holds for all kinds of connections.
    #[serde(skip)]
    pub inside: Inside,
}

/// Whether addresses inside may be connected to: of this machine, of its network, and of the cloud around it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Inside {
    /// They may be connected to as all others.
    #[default]
    Open,
    /// Only these places of them may be connected to.
    Closed(Vec<Opening>),
}

/// One entry of a list.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub enum HostRule {
    /// A host of exactly this name.
    Name(String),
    /// All hosts below this name: `*.example.org`.
    Below(String),
    /// Addresses whose first bits are those of this address: `10.0.0.0/8`.
    Range(IpAddr, u8),
    /// This machine: 127.0.0.0/8, ::1, and addresses that stand for it.
    Loopback,
    /// The network of this machine, where clouds serve credentials: 169.254.0.0/16, fe80::/10.
    LinkLocal,
    /// Networks that are not the Internet: 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, fc00::/7.
    Private,
    /// All of these, multicast, and what is reserved.
    Inside,
}

impl TryFrom<String> for HostRule {
    type Error = String;

    fn try_from(text: String) -> Result<HostRule, String> {
        let text = text.trim().to_ascii_lowercase();
        match text.as_str() {
            "loopback" => return Ok(HostRule::Loopback),
            "link-local" => return Ok(HostRule::LinkLocal),
            "private" => return Ok(HostRule::Private),
            "inside" => return Ok(HostRule::Inside),
            _ => {}
        }
        let wrong = || {
            format!(
                "{text:?} is no host: write a name (api.example.com), names below one (*.example.com), an \
                 address or a range (10.0.0.0/8), or loopback, link-local, private or inside"
            )
        };
        let address = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        if let Some((start, bits)) = text.split_once('/') {
            let start = address(start).ok_or_else(wrong)?;
            let most = if start.is_ipv4() { 32 } else { 128 };
            let bits = bits.parse::<u8>().ok().filter(|it| *it <= most);
            return Ok(HostRule::Range(start, bits.ok_or_else(wrong)?));
        }
        if let Some(address) = address(&text) {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            return Ok(HostRule::Range(address, bits));
        }
        let (name, is_below) = match text.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (text.as_str(), false),
        };
        let is_name = |c: char| c.is_alphanumeric() || "-_.".contains(c);
        let name = plain_name(name);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(wrong());
        }
        Ok(match is_below {
            true => HostRule::Below(format!(".{name}")),
            false => HostRule::Name(name.to_owned()),
        })
    }
}

impl HostRule {
    fn has_name(&self, name: &str) -> bool {
        match self {
            HostRule::Name(own) => name == own,
            HostRule::Below(ending) => name.ends_with(ending.as_str()),
            HostRule::Range(..)
            | HostRule::Loopback
            | HostRule::LinkLocal
            | HostRule::Private
            | HostRule::Inside => false,
        }
    }

    fn has_address(&self, address: IpAddr) -> bool {
        let address = real(address);
        match self {
            HostRule::Name(_) | HostRule::Below(_) => false,
            HostRule::Range(start, bits) => in_range(address, real(*start), *bits),
            HostRule::Loopback => match address {
                // On Linux a connection to 0.0.0.0 or :: is one to this machine.
                IpAddr::V4(it) => it.is_loopback() || it.octets()[0] == 0,
                IpAddr::V6(it) => it.is_loopback() || it.is_unspecified(),
            },
            HostRule::LinkLocal => match address {
                IpAddr::V4(it) => it.is_link_local(),
                IpAddr::V6(it) => it.is_unicast_link_local(),
            },
            HostRule::Private => match address {
                IpAddr::V4(it) => {
                    let shared = in_range(address, Ipv4Addr::new(100, 64, 0, 0).into(), 10);
                    it.is_private() || shared
                }
                IpAddr::V6(it) => it.is_unique_local(),
            },
            HostRule::Inside => is_inside(address),
        }
    }
}

/// A name as the lists have it: a final dot means the same host.
fn plain_name(name: &str) -> &str {
    name.trim_end_matches('.')
}

/// A host that may not be connected to: why, and which setting says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedHost(pub String);

impl fmt::Display for DeniedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for DeniedHost {}

impl DeniedHost {
    /// The refusal behind an error, which may be the cause of its cause.
    #[must_use]
    pub fn behind<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a DeniedHost> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(denied) = error.downcast_ref::<DeniedHost>() {
                return Some(denied);
            }
            cause = error.source();
        }
        None
    }
}

impl HostRules {
    /// Rules without lists: only the inside counts.
    #[must_use]
    pub fn only(inside: Inside) -> HostRules {
        HostRules {
            inside,
            ..HostRules::default()
        }
    }

    /// Whether there is any rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty() && self.inside == Inside::Open
    }

    /// Checks the host of an address before it is asked: an address completely, a name as far as the name
    /// goes. What the name resolves to is checked by [`CheckedResolver`].
    pub fn check(&self, url: &Url) -> Result<(), DeniedHost> {
        if self.is_empty() {
            return Ok(());
        }
        let host = url.host_str().unwrap_or_default();
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => self.address(host, address, url.port_or_known_default(), false),
            Err(_) => self.name(host).map(|_| ()),
        }
    }

    /// Whether the list of allowed names has this name, so that its address need not be in the list.
    fn name(&self, host: &str) -> Result<bool, DeniedHost> {
        let name = plain_name(host).to_ascii_lowercase();
        if self.deny.iter().any(|rule| rule.has_name(&name)) {
            return Err(DeniedHost(format!(
                "the host {host} is in the list `deny` of [security.http]"
            )));
        }
        let is_named = |rule: &HostRule| matches!(rule, HostRule::Name(_) | HostRule::Below(_));
        let is_allowed = self.allow.iter().any(|rule| rule.has_name(&name));
        // Without ranges in the list no address can make up for the name.
        if !self.allow.is_empty() && !is_allowed && self.allow.iter().all(is_named) {
            return Err(DeniedHost(format!(
                "the host {host} is not in the list `allow` of [security.http]"
            )));
        }
        Ok(is_allowed)
    }

    fn address(
        &self,
        host: &str,
        address: IpAddr,
        port: Option<u16>,
        is_allowed: bool,
    ) -> Result<(), DeniedHost> {
        if self.deny.iter().any(|rule| rule.has_address(address)) {
            return Err(DeniedHost(format!(
                "the address {address} of {host} is in the list `deny` of [security.http]"
            )));
        }
        let in_list = || self.allow.iter().any(|rule| rule.has_address(address));
        if !self.allow.is_empty() && !is_allowed && !in_list() {
            return Err(DeniedHost(format!(
                "the address {address} of {host} is not in the list `allow` of [security.http]"
            )));
        }
        match self.is_open(host, address, port) {
            true => Ok(()),
            false => Err(DeniedHost(format!(
                "the address {address} of {host} is inside this machine or its network, and `open` of \
                 [security.network] does not have it"
            ))),
        }
    }

    fn is_open(&self, host: &str, address: IpAddr, port: Option<u16>) -> bool {
        let Inside::Closed(openings) = &self.inside else {
            return true;
        };
        let name = plain_name(host).to_ascii_lowercase();
        !is_inside(address) || openings.iter().any(|it| it.has(&name, address, port))
    }

    /// Those of the addresses of a host that may be connected to on a port.
    fn addresses(
        &self,
        host: &str,
        found: Vec<SocketAddr>,
        port: Option<u16>,
    ) -> Result<Vec<SocketAddr>, DeniedHost> {
        let is_allowed = self.name(host)?;
        let mut denied = None;
        let mut good = Vec::new();
        for address in found {
            match self.address(host, address.ip(), port, is_allowed) {
                Ok(()) => good.push(address),
                Err(error) => denied = Some(error),
            }
        }
        match (good.is_empty(), denied) {
            (true, Some(error)) => Err(error),
            _ => Ok(good),
        }
    }

    /// The addresses of a host that may be connected to on a port, for connections that are not HTTP. `host` is a name or
    /// an address.
    pub async fn lookup(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
        let host = host.trim_matches(['[', ']']);
        let found = tokio::net::lookup_host((host, port)).await?;
        Ok(self.addresses(host, found.collect(), Some(port))?)
    }

    /// Checks a socket in the file system, which leads to this machine.
    pub fn check_socket_file(&self) -> Result<(), DeniedHost> {
        match self.is_open("localhost", Ipv4Addr::LOCALHOST.into(), None) {
            true => Ok(()),
            false => Err(DeniedHost(
                "a socket in the file system is inside this machine, and `open` of [security.network] does not have \
                 `loopback`"
                    .to_owned(),
            )),
        }
    }

    /// The port, if a rule names it: connections to it need a resolver of their own ([`CheckedResolver`]).
    #[must_use]
    pub fn named_port(&self, port: Option<u16>) -> Option<u16> {
        let Inside::Closed(openings) = &self.inside else {
            return None;
        };
        let is_named = openings
            .iter()
            .any(|it| it.port.is_some() && it.port == port);
        port.filter(|_| is_named)
    }
}

/// Looks names up as the system does, and gives only addresses that may be connected to.
#[derive(Clone, Debug)]
pub struct CheckedResolver {
    pub rules: Arc<HostRules>,
    /// The port that is connected to; none: one that no rule names.
    pub port: Option<u16>,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (rules, port) = (Arc::clone(&self.rules), self.port);
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            let good = rules.addresses(&host, found.collect(), port)?;
            let good: Addrs = Box::new(good.into_iter());
            Ok(good)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> HostRules {
        let list = |texts: &[&str]| {
            let rules = texts
                .iter()
                .map(|it| HostRule::try_from((*it).to_owned()).unwrap());
            rules.collect()
        };
        HostRules {
            allow: list(allow),
            deny: list(deny),
            inside: Inside::Open,
        }
    }

    fn asks(rules: &HostRules, url: &str) -> bool {
        rules.check(&Url::parse(url).unwrap()).is_ok()
    }

    #[test]
    fn addresses_are_denied_however_they_are_written() {
        let inside = rules(&[], &["loopback", "link-local", "private"]);
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://0.0.0.0/",
            "http://[::1]/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:a9fe:a9fe]/",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://[2002:a9fe:a9fe::1]/",
            "http://169.254.169.254/latest/meta-data",
            "http://[fe80::1]/",
            "http://10.1.2.3/",
            "http://172.31.0.1/",
            "http://192.168.0.1/",
            "http://100.64.0.1/",
            "http://[fd00::1]/",
        ] {
            assert!(!asks(&inside, url), "{url}");
        }
        for url in [
            "http://93.184.216.34/",
            "http://172.32.0.1/",
            "http://[2606:2800::1]/",
        ] {
            assert!(asks(&inside, url), "{url}");
        }
        assert!(asks(&HostRules::default(), "http://127.0.0.1/"));
    }

    #[test]
    fn names_are_compared_as_a_whole() {
        let some = rules(&["api.example.com", "*.example.org"], &["bad.example.org"]);
        for url in [
            "https://api.example.com/",
            "https://API.example.com./",
            "https://a.b.example.org/",
        ] {
            assert!(asks(&some, url), "{url}");
        }
        for url in [
            "https://example.org/",
            "https://bad.example.org./",
            "https://api.example.com.evil.org/",
            "https://evilexample.org/",
            "https://10.0.0.1/",
        ] {
            assert!(!asks(&some, url), "{url}");
        }
    }

    #[test]
    fn only_checked_addresses_of_a_name_are_connected_to() {
        let both = vec![
            "10.0.0.1:0".parse().unwrap(),
            "93.184.216.34:0".parse().unwrap(),
        ];
        let good = rules(&[], &["private"]).addresses("a.example", both.clone(), None);
        assert_eq!(good, Ok(vec![both[1]]));
        let none = rules(&[], &["0.0.0.0/0"]).addresses("a.example", both.clone(), None);
        assert!(none.unwrap_err().0.contains("a.example"));
        let ranges = rules(&["10.0.0.0/8"], &[]);
        assert_eq!(
            ranges.addresses("a.example", both.clone(), None),
            Ok(vec![both[0]])
        );
        let named = rules(&["a.example"], &["private"]);
        assert_eq!(
            named.addresses("a.example", both.clone(), None),
            Ok(vec![both[1]])
        );
        assert!(named.addresses("b.example", both, None).is_err());
    }

    fn closed(open: &[&str]) -> HostRules {
        let open = open.iter().map(|it| Opening::try_from((*it).to_owned()));
        HostRules::only(Inside::Closed(open.map(Result::unwrap).collect()))
    }

    #[test]
    fn the_inside_is_closed_but_for_its_openings() {
        let rules = closed(&["10.0.0.5:8080", "hook.internal"]);
        for (url, may) in [
            ("http://127.0.0.1/", false),
            ("http://017700000001/", false),
            ("http://0x7f.1/", false),
            ("http://user:x@127.0.0.1:80/", false),
            ("http://[::127.0.0.1]/", false),
            ("http://10.0.0.5:8080/", true),
            ("http://10.0.0.5:8081/", false),
            ("http://10.0.0.5/", false),
            ("http://93.184.216.34/", true),
        ] {
            assert_eq!(asks(&rules, url), may, "{url}");
        }
        let at = |host: &str, address: &str, port: u16| {
            let found = vec![format!("{address}:0").parse().unwrap()];
            rules.addresses(host, found, Some(port)).is_ok()
        };
        assert!(at("hook.internal.", "192.168.0.7", 9));
        assert!(!at("evil.example", "192.168.0.7", 9));
        assert!(at("evil.example", "10.0.0.5", 8080));
        assert!(!at("evil.example", "10.0.0.5", 9));
        assert_eq!(rules.named_port(Some(8080)), Some(8080));
        assert_eq!(rules.named_port(Some(80)), None);
        assert!(rules.check_socket_file().is_err());
        assert!(closed(&["loopback"]).check_socket_file().is_ok());
    }

    #[test]
    fn wrong_rules_say_what_to_write() {
        for wrong in ["", "*.", "http://a", "10.0.0.0/33", "a b", "::1/129", "*"] {
            let error = HostRule::try_from(wrong.to_owned()).unwrap_err();
            assert!(error.contains("write a name"), "{wrong}: {error}");
        }
    }
}
