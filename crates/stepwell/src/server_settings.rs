//! The section `[server]` of the configuration file: where a server listens, who may use it, TLS and rates.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use stepwell_server::{Access, OidcSettings, Rate, RateSettings, ServerSettings, TlsFiles};

/// The section `[server]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, try_from = "ServerTable")]
pub struct ServerSection {
    /// Address and port; absent: 127.0.0.1:7117.
    pub listen: Option<SocketAddr>,
    /// Who may use the server; absent: nobody has said.
    pub access: Option<AccessWord>,
    pub tls: Option<TlsFiles>,
    pub oidc: Option<OidcSettings>,
    /// How long a server that is told to stop serves on and says that it is not ready.
    pub stop_notice: Duration,
    rate: RateTable,
    limits: LimitTable,
}

/// An address to listen on. A name can stand for several addresses, so only `localhost` is understood.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| {
        "write an IP address and a port, such as 127.0.0.1:7117, [::1]:7117 or 0.0.0.0:7117"
            .to_owned()
    })
}

/// Who may use a server, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessWord {
    /// Everyone on this machine.
    Open,
    /// Holders of API tokens, and of tokens of the OIDC issuer.
    Tokens,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ServerTable {
    listen: Option<String>,
    access: Option<AccessWord>,
    tls: Option<TlsTable>,
    oidc: Option<OidcTable>,
    rate: RateTable,
    limits: LimitTable,
    stop_notice_seconds: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsTable {
    cert: PathBuf,
    key: PathBuf,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OidcTable {
    issuer: String,
    audience: String,
    jwks_url: Option<String>,
    roles_claim: Option<String>,
    tenant_claim: Option<String>,
    name_claim: Option<String>,
}

/// Requests for each second, and at once. 0: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RateTable {
    per_token: Option<f64>,
    per_token_burst: Option<f64>,
    per_source: Option<f64>,
    per_source_burst: Option<f64>,
}

/// What a request and a server may have at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitTable {
    body_bytes: Option<u64>,
    connections: Option<u64>,
    head_seconds: Option<u64>,
    body_seconds: Option<u64>,
}

impl LimitTable {
    fn check(self) -> Result<(), String> {
        let numbers = [
            ("body_bytes", self.body_bytes, 1_024, 1 << 30),
            ("connections", self.connections, 1, 1_000_000),
            ("head_seconds", self.head_seconds, 1, 600),
            // All of a request has 60 seconds.
            ("body_seconds", self.body_seconds, 1, 60),
        ];
        for (name, number, least, most) in numbers {
            if number.is_some_and(|it| !(least..=most).contains(&it)) {
                return Err(format!(
                    "limits.{name}: a number from {least} to {most} is needed"
                ));
            }
        }
        Ok(())
    }
}

impl TryFrom<ServerTable> for ServerSection {
    type Error = String;

    fn try_from(table: ServerTable) -> Result<ServerSection, String> {
        let oidc = table.oidc.map(oidc).transpose()?;
        if oidc.is_some() && table.access != Some(AccessWord::Tokens) {
            return Err("oidc needs access = \"tokens\"".to_owned());
        }
        let rate = table.rate;
        let numbers = [
            ("per_token", rate.per_token, 0.0),
            ("per_token_burst", rate.per_token_burst, 1.0),
            ("per_source", rate.per_source, 0.0),
            ("per_source_burst", rate.per_source_burst, 1.0),
        ];
        for (name, number, least) in numbers {
            if number.is_some_and(|it| !(least..=1e9).contains(&it)) {
                return Err(format!("rate.{name}: a number from {least} on is needed"));
            }
        }
        table.limits.check()?;
        let listen = table.listen.map(|text| {
            listen_address(&text).map_err(|help| format!("listen: {text:?} is no address; {help}"))
        });
        let stop_notice = table.stop_notice_seconds.unwrap_or(0);
        if stop_notice > 300 {
            return Err("stop_notice_seconds: a number from 0 to 300 is needed".to_owned());
        }
        Ok(ServerSection {
            limits: table.limits,
            stop_notice: Duration::from_secs(stop_notice),
            listen: listen.transpose()?,
            access: table.access,
            tls: table.tls.map(|it| TlsFiles {
                cert: it.cert,
                key: it.key,
            }),
            oidc,
            rate,
        })
    }
}

fn oidc(table: OidcTable) -> Result<OidcSettings, String> {
    let addresses = [
        ("issuer", Some(&table.issuer)),
        ("jwks_url", table.jwks_url.as_ref()),
    ];
    for (name, address) in addresses {
        let safe = |it: &String| {
            // On this machine nobody listens in between: for tests and for proxies.
            it.starts_with("https://")
                || it.starts_with("http://127.0.0.1:")
                || it.starts_with("http://localhost:")
        };
        if address.is_some_and(|it| !safe(it)) {
            return Err(format!("oidc.{name}: an address with https:// is needed"));
        }
    }
    if table.audience.is_empty() {
        return Err("oidc.audience: a text is needed".to_owned());
    }
    Ok(OidcSettings {
        issuer: table.issuer,
        audience: table.audience,
        jwks_url: table.jwks_url,
        roles_claim: table.roles_claim.unwrap_or_else(|| "roles".to_owned()),
        tenant_claim: table.tenant_claim,
        name_claim: table.name_claim.unwrap_or_else(|| "sub".to_owned()),
    })
}

impl ServerSection {
    /// Who may use the server.
    #[must_use]
    pub fn access(&self, word: Option<AccessWord>) -> Access {
        match word.or(self.access) {
            None | Some(AccessWord::Open) => Access::Open,
            Some(AccessWord::Tokens) => Access::Controlled {
                oidc: self.oidc.clone(),
            },
        }
    }

    /// The settings with the limits that were set.
    #[must_use]
    pub fn limited(&self, settings: ServerSettings) -> ServerSettings {
        let table = self.limits;
        let count = |number: Option<u64>, default: usize| {
            number.map_or(default, |it| usize::try_from(it).unwrap_or(default))
        };
        let time = |seconds: Option<u64>, default| seconds.map_or(default, Duration::from_secs);
        ServerSettings {
            max_body: count(table.body_bytes, settings.max_body),
            max_connections: count(table.connections, settings.max_connections),
            head_timeout: time(table.head_seconds, settings.head_timeout),
            body_timeout: time(table.body_seconds, settings.body_timeout),
            ..settings
        }
    }

    /// How many requests a caller may make. A server without access control has no limit that nobody asked for.
    #[must_use]
    pub fn rates(&self, access: &Access) -> RateSettings {
        let default = match access {
            Access::Open => RateSettings::default(),
            Access::Controlled { .. } => RateSettings::CONTROLLED,
        };
        let of = |per_second: Option<f64>, burst: Option<f64>, default: Option<Rate>| {
            let per_second = per_second.or(default.map(|it| it.per_second))?;
            let burst = burst.or(default.map(|it| it.burst));
            // If the burst is missing, what two seconds bring may come at once.
            let burst = burst.unwrap_or(per_second * 2.0).max(1.0);
            (per_second > 0.0).then_some(Rate { per_second, burst })
        };
        let table = self.rate;
        RateSettings {
            per_token: of(table.per_token, table.per_token_burst, default.per_token),
            per_source: of(table.per_source, table.per_source_burst, default.per_source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ServerSection, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_section_is_read_and_slips_are_errors() {
        let all = "listen = '0.0.0.0:1'\naccess = 'tokens'\n[tls]\ncert = 'c'\nkey = 'k'\n\
                   [oidc]\nissuer = 'https://i'\naudience = 'a'\n[rate]\nper_token = 5\nper_source = 0";
        let all = read(all).unwrap();
        let access = all.access(None);
        let Access::Controlled { oidc: Some(oidc) } = &access else {
            panic!("{access:?}");
        };
        assert_eq!(
            (oidc.roles_claim.as_str(), oidc.name_claim.as_str()),
            ("roles", "sub")
        );
        let rates = all.rates(&access);
        assert_eq!(rates.per_source, None);
        assert_eq!(rates.per_token.map(|it| it.per_second), Some(5.0));
        let none = read("").unwrap();
        assert_eq!(none.rates(&none.access(None)), RateSettings::default());
        for wrong in [
            "access = 'none'",
            "listen = 'here'",
            "stop_notice_seconds = 301",
            "[tls]\ncert = 'c'",
            "[oidc]\nissuer = 'https://i'\naudience = 'a'",
            "access = 'tokens'\n[oidc]\nissuer = 'http://i'\naudience = 'a'",
            "access = 'tokens'\n[oidc]\nissuer = 'https://i'\naudience = ''",
            "[rate]\nper_token = -1",
            "[rate]\nper_token_burst = 0",
            "[limits]\nbody_seconds = 0",
            "[limits]\nbody = 1",
            "[rates]",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
