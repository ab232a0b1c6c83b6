//! Where a PostgreSQL server is and who asks: read from what `auth` stands for. No connection is
//! made here.

use std::time::Duration;

use serde_json::{Map, Value as Json};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use super::tls::{Tls, Verify};
use crate::outcome::ToolError;
use crate::tools::sql::codes;

/// A server, a user and how to talk to it. It has the password, and so it is never shown.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: Tls,
    /// For messages: `host:port`.
    pub(super) place: String,
}

impl PartialEq for Address {
    fn eq(&self, other: &Address) -> bool {
        self.config == other.config && self.tls.is_like(&other.tls)
    }
}

/// Something about the address is wrong.
pub(super) fn wrong(message: impl Into<String>) -> ToolError {
    ToolError::invalid(codes::PG_ADDRESS, message)
}

/// What an address says that the driver does not read by itself.
#[derive(Default)]
struct Extra {
    sslmode: Option<String>,
    sslrootcert: Option<String>,
    schema: Option<String>,
}

impl Extra {
    /// Keeps a setting if it is one of these.
    fn take(&mut self, name: &str, value: &str) -> bool {
        let place = match name {
            "sslmode" => &mut self.sslmode,
            "sslrootcert" => &mut self.sslrootcert,
            "schema" | "search_path" => &mut self.schema,
            _ => return false,
        };
        *place = Some(value.to_owned());
        true
    }
}

impl Address {
    /// Reads it.
    pub(super) fn read(auth: Option<&Map<String, Json>>) -> Result<Address, ToolError> {
        let auth = auth.ok_or_else(|| {
            wrong(
                "the task names no server; give `auth` with host, user and database, or with a dsn",
            )
        })?;
        let mut extra = Extra::default();
        let dsn = text(auth, &["dsn", "url", "connection_string"])?;
        let mut config = match dsn {
            Some(dsn) => parse(&dsn, &mut extra)?,
            None => Config::new(),
        };
        if let Some(host) = text(auth, &["host", "db_host", "hostname"])? {
            config.host(host);
        }
        if let Some(port) = text(auth, &["port", "db_port"])? {
            let port = port.trim().parse();
            config.port(port.map_err(|_| wrong("the port must be a number up to 65535"))?);
        }
        if let Some(user) = text(auth, &["user", "username", "db_user"])? {
            config.user(user);
        }
        if let Some(password) = text(auth, &["password", "db_password"])? {
            config.password(password);
        }
        if let Some(name) = text(auth, &["database", "dbname", "db_name"])? {
            config.dbname(name);
        }
        for name in ["sslmode", "sslrootcert", "schema", "search_path"] {
            if let Some(value) = text(auth, &[name])? {
                extra.take(name, &value);
            }
        }
        finish(config, extra)
    }

    /// With a bound on how long connecting may take.
    pub(super) fn within(&self, time: Duration) -> Config {
        let mut config = self.config.clone();
        config.connect_timeout(time.max(Duration::from_millis(1)));
        config
    }
}

fn finish(mut config: Config, extra: Extra) -> Result<Address, ToolError> {
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(wrong("`auth` names no host"));
    }
    if config.get_user().is_none() {
        return Err(wrong("`auth` names no user"));
    }
    if config.get_application_name().is_none() {
        config.application_name("stepwell");
    }
    if let Some(schema) = extra.schema {
        let escaped = schema.replace('\\', "\\\\");
        let escaped = escaped.replace(char::is_whitespace, "\\ ");
        let before = config.get_options().map(|it| format!("{it} "));
        config.options(format!(
            "{}-c search_path={escaped}",
            before.unwrap_or_default()
        ));
    }
    let roots = extra.sslrootcert.as_deref();
    let mode = extra.sslmode.as_deref().unwrap_or("prefer");
    let (ssl, verify) = match (mode, roots) {
        ("disable", _) => (SslMode::Disable, None),
        ("allow" | "prefer", _) => (SslMode::Prefer, Some(Verify::Nothing)),
        ("require", None) => (SslMode::Require, Some(Verify::Nothing)),
        // As everywhere: whoever names a root with it wants it looked at.
        ("require", Some(_)) | ("verify-ca", _) => (SslMode::Require, Some(Verify::Issuer)),
        ("verify-full", _) => (SslMode::Require, Some(Verify::Everything)),
        (other, _) => {
            return Err(wrong(format!(
                "sslmode `{other}` is unknown; it is disable, prefer, require, verify-ca or verify-full"
            )));
        }
    };
    config.ssl_mode(ssl);
    Ok(Address {
        place: place(&config),
        config,
        tls: match verify {
            Some(verify) => Tls::new(verify, roots)?,
            None => Tls::Off,
        },
    })
}

fn place(config: &Config) -> String {
    use tokio_postgres::config::Host;
    let port = config.get_ports().first().copied().unwrap_or(5432);
    match config.get_hosts().first() {
        Some(Host::Tcp(host)) => format!("{host}:{port}"),
        #[cfg(unix)]
        Some(Host::Unix(path)) => format!("{} (port {port})", path.display()),
        None => format!("port {port}"),
    }
}

/// The first of these that is given; numbers are taken as text.
fn text(auth: &Map<String, Json>, names: &[&str]) -> Result<Option<String>, ToolError> {
    for name in names {
        match auth.get(*name) {
            None | Some(Json::Null) => {}
            Some(Json::String(text)) if text.is_empty() => {}
            Some(Json::String(text)) => return Ok(Some(text.clone())),
            Some(Json::Number(number)) => return Ok(Some(number.to_string())),
            Some(_) => return Err(wrong(format!("`{name}` of `auth` must be text"))),
        }
    }
    Ok(None)
}

/// Reads a URL, or `name=value` pairs.
fn parse(dsn: &str, extra: &mut Extra) -> Result<Config, ToolError> {
    let dsn = dsn.trim();
    let kept = match dsn.split_once("://") {
        Some((scheme, rest)) => {
            // `postgresql+psycopg2` and the like name a driver of Python's too.
            let scheme = scheme.split('+').next().unwrap_or_default();
            format!("{scheme}://{}", without_extra_query(rest, extra))
        }
        None => without_extra_pairs(dsn, extra),
    };
    // The driver's own words may repeat the password.
    kept.parse().map_err(|_| {
        wrong(
            "the address of the server cannot be read; it is like \
             postgresql://user:password@host:5432/database",
        )
    })
}

fn without_extra_query(rest: &str, extra: &mut Extra) -> String {
    let Some((base, query)) = rest.split_once('?') else {
        return rest.to_owned();
    };
    let kept = query.split('&').filter(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        !extra.take(name, &decoded(value))
    });
    let kept: Vec<&str> = kept.collect();
    match kept.is_empty() {
        true => base.to_owned(),
        false => format!("{base}?{}", kept.join("&")),
    }
}

fn without_extra_pairs(dsn: &str, extra: &mut Extra) -> String {
    let kept = dsn.split(' ').filter(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        !extra.take(name, value.trim_matches('\''))
    });
    kept.collect::<Vec<_>>().join(" ")
}

/// `%2F` and the like, in a value of a query.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = hex.and_then(|two| u8::from_str_radix(two, 16).ok());
        match byte.filter(|_| first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(auth: Json) -> Result<Address, ToolError> {
        Address::read(auth.as_object())
    }

    #[test]
    fn a_mapping_and_an_address_say_the_same() {
        let mapping = json!({"db_host": "h", "db_port": "5433", "db_user": "u",
            "db_password": "p w", "db_name": "d", "sslmode": "disable"});
        let url = json!({"dsn": "postgresql+psycopg2://u:p%20w@h:5433/d?sslmode=disable"});
        let pairs =
            json!({"url": "host=h port=5433 user=u password='p w' dbname=d sslmode=disable"});
        let mapping = read(mapping).unwrap();
        assert_eq!(mapping.place, "h:5433");
        assert!(mapping == read(url).unwrap());
        assert!(mapping == read(pairs).unwrap());
    }

    #[test]
    fn a_schema_is_found_first() {
        let address = read(json!({"host": "h", "user": "u", "schema": "a b"})).unwrap();
        assert_eq!(address.config.get_options(), Some("-c search_path=a\\ b"));
    }

    #[test]
    fn what_is_missing_or_wrong_is_told_without_the_password() {
        let wrong = [
            json!({"user": "u", "password": "secret"}),
            json!({"host": "h", "password": "secret"}),
            json!({"host": "h", "user": "u", "port": "secret"}),
            json!({"host": "h", "user": "u", "sslmode": "maybe"}),
            json!({"dsn": "postgresql://u:secret@h:port/d"}),
            json!({"host": {"a": "secret"}}),
        ];
        for auth in wrong {
            let error = read(auth).map(|_| ()).unwrap_err();
            assert_eq!(error.code, "PG_ADDRESS");
            assert!(!error.message.contains("secret"), "{error}");
        }
        assert!(Address::read(None).is_err());
    }
}
