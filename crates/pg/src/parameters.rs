//! The parameters of a connection, as libpq names and documents them, and where their values come from:
//! first the address, then the service file, then the `PG*` variables, then the defaults.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::{conninfo, files};

/// A parameter is unknown, has an invalid value, or names a file that cannot be used. The message says
/// what to write instead and never contains a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParameterError(pub String);

impl ParameterError {
    pub(crate) fn new(message: impl Into<String>) -> ParameterError {
        ParameterError(message.into())
    }
}

/// How a parameter is handled.
enum Support {
    /// The parameter has its documented effect.
    Used,
    /// The parameter is accepted without an effect, which does no harm.
    Ignored,
    /// The parameter asks for something that is not supported; the text says what to do.
    Refused(&'static str),
}

struct Parameter {
    name: &'static str,
    variable: Option<&'static str>,
    support: Support,
}

const fn used(name: &'static str, variable: &'static str) -> Parameter {
    Parameter {
        name,
        variable: if variable.is_empty() {
            None
        } else {
            Some(variable)
        },
        support: Support::Used,
    }
}

const fn refused(name: &'static str, variable: &'static str, help: &'static str) -> Parameter {
    Parameter {
        support: Support::Refused(help),
        ..used(name, variable)
    }
}

const fn ignored(name: &'static str, variable: &'static str) -> Parameter {
    Parameter {
        support: Support::Ignored,
        ..used(name, variable)
    }
}

const PARAMETERS: &[Parameter] = &[
    used("host", "PGHOST"),
    used("hostaddr", "PGHOSTADDR"),
    used("port", "PGPORT"),
    used("dbname", "PGDATABASE"),
    used("user", "PGUSER"),
    used("password", "PGPASSWORD"),
    used("passfile", "PGPASSFILE"),
    used("service", "PGSERVICE"),
    used("servicefile", "PGSERVICEFILE"),
    used("options", "PGOPTIONS"),
    used("application_name", "PGAPPNAME"),
    used("fallback_application_name", ""),
    used("connect_timeout", "PGCONNECT_TIMEOUT"),
    used("client_encoding", "PGCLIENTENCODING"),
    used("target_session_attrs", "PGTARGETSESSIONATTRS"),
    used("load_balance_hosts", "PGLOADBALANCEHOSTS"),
    used("channel_binding", "PGCHANNELBINDING"),
    used("sslmode", "PGSSLMODE"),
    used("sslnegotiation", "PGSSLNEGOTIATION"),
    used("sslrootcert", "PGSSLROOTCERT"),
    used("sslcert", "PGSSLCERT"),
    used("sslkey", "PGSSLKEY"),
    used("sslcertmode", "PGSSLCERTMODE"),
    used("sslsni", "PGSSLSNI"),
    used("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    used("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    used("keepalives", ""),
    used("keepalives_idle", ""),
    used("keepalives_interval", ""),
    used("keepalives_count", ""),
    used("tcp_user_timeout", ""),
    used("gssencmode", "PGGSSENCMODE"),
    ignored("sslcompression", "PGSSLCOMPRESSION"),
    ignored("krbsrvname", "PGKRBSRVNAME"),
    ignored("gsslib", "PGGSSLIB"),
    ignored("gssdelegation", "PGGSSDELEGATION"),
    refused(
        "sslpassword",
        "",
        "encrypted private keys are not supported; decrypt the key, as with `openssl pkey`, and protect \
         the file by its permissions",
    ),
    refused(
        "sslcrl",
        "PGSSLCRL",
        "revocation lists are not supported; leave it out",
    ),
    refused(
        "sslcrldir",
        "PGSSLCRLDIR",
        "revocation lists are not supported; leave it out",
    ),
    refused(
        "requirepeer",
        "PGREQUIREPEER",
        "it is not supported; use TLS with sslmode=verify-full",
    ),
    refused(
        "require_auth",
        "PGREQUIREAUTH",
        "it is not supported; channel_binding=require asks for SCRAM over TLS",
    ),
    refused(
        "replication",
        "",
        "a replication connection runs no statements; leave it out",
    ),
];

/// The names of all parameters that have an effect.
pub const NAMES: &[&str] = &[
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "passfile",
    "service",
    "servicefile",
    "options",
    "application_name",
    "fallback_application_name",
    "connect_timeout",
    "client_encoding",
    "target_session_attrs",
    "load_balance_hosts",
    "channel_binding",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslcertmode",
    "sslsni",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "gssencmode",
];

fn known(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().find(|it| it.name == name)
}

/// Where values come from that the address does not give.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    home: Option<PathBuf>,
    user: Option<String>,
}

impl Environment {
    /// Nothing but the address counts: no variables, no files in the home directory.
    #[must_use]
    pub fn none() -> Environment {
        Environment::default()
    }

    /// The variables, the home directory and the user of this process. The user is the one that the operating
    /// system knows, whatever the variable `USER` says.
    #[must_use]
    pub fn of_process() -> Environment {
        let named = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
        Environment {
            variables: std::env::vars()
                .filter(|(name, _)| name.starts_with("PG"))
                .collect(),
            home: named("HOME")
                .or_else(|| named("USERPROFILE"))
                .map(PathBuf::from),
            user: whoami::username().ok(),
        }
    }

    /// These variables and this home directory, for tests.
    #[must_use]
    pub fn of(variables: &[(&str, &str)], home: Option<&Path>) -> Environment {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Environment {
            variables: variables.iter().map(own).collect(),
            home: home.map(Path::to_owned),
            user: None,
        }
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name).map(String::as_str);
        value.filter(|it| !it.is_empty())
    }

    /// A file of `~/.postgresql`, if it is there.
    fn own_file(&self, name: &str) -> Option<String> {
        let path = self.home.as_ref()?.join(".postgresql").join(name);
        path.is_file().then(|| path.display().to_string())
    }
}

/// The values of the parameters of a connection.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    values: BTreeMap<String, String>,
}

impl std::fmt::Debug for Parameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = self.values.iter().map(|(name, value)| match name.as_str() {
            "password" => (name, "***"),
            _ => (name, value.as_str()),
        });
        f.debug_map().entries(shown).finish()
    }
}

impl Parameters {
    /// Reads an address: `postgresql://user:password@host:port/database?name=value`, or `name=value`
    /// pairs. Names are not checked yet: a program may have parameters of its own (`take`).
    pub fn parse(text: &str) -> Result<Parameters, ParameterError> {
        let values = conninfo::parse(text)?;
        Ok(Parameters { values })
    }

    /// Sets a parameter, and replaces its old value. The name is not checked.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// The value of a parameter; an empty value is none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.values.get(name).map(String::as_str);
        value.filter(|it| !it.is_empty())
    }

    /// Removes a parameter that is the program's own.
    pub fn take(&mut self, name: &str) -> Option<String> {
        self.values.remove(name).filter(|it| !it.is_empty())
    }

    /// Sets a parameter that has no value.
    pub fn set_default(&mut self, name: &str, value: &str) {
        if self.get(name).is_none() {
            self.set(name, value);
        }
    }

    /// Checks the names, and adds what the service file, the variables and the files of the home
    /// directory say about parameters that have no value.
    pub fn with_defaults(
        mut self,
        environment: &Environment,
    ) -> Result<Parameters, ParameterError> {
        for name in self.values.keys() {
            check_name(name, "the address")?;
        }
        self.add_service(environment)?;
        for parameter in PARAMETERS {
            let Some(variable) = parameter.variable else {
                continue;
            };
            if let Some(value) = environment.variable(variable)
                && self.get(parameter.name).is_none()
            {
                check_name(parameter.name, variable)?;
                self.set(parameter.name, value);
            }
        }
        if let Some(name) = self.get("fallback_application_name").map(str::to_owned) {
            self.set_default("application_name", &name);
        }
        if let Some(user) = &environment.user {
            self.set_default("user", user);
        }
        self.add_own_files(environment);
        Ok(self)
    }

    fn add_service(&mut self, environment: &Environment) -> Result<(), ParameterError> {
        let service = self
            .get("service")
            .or_else(|| environment.variable("PGSERVICE"));
        let Some(service) = service.map(str::to_owned) else {
            return Ok(());
        };
        let file = self
            .get("servicefile")
            .or_else(|| environment.variable("PGSERVICEFILE"));
        let own = environment
            .home
            .as_ref()
            .map(|home| home.join(".pg_service.conf"));
        let system = environment.variable("PGSYSCONFDIR");
        let system = Path::new(system.unwrap_or("/etc/postgresql-common")).join("pg_service.conf");
        let places = match file {
            Some(file) => vec![PathBuf::from(file)],
            None => own.into_iter().chain([system]).collect(),
        };
        for (name, value) in files::service(&service, &places)? {
            check_name(&name, "the service file")?;
            self.set_default(&name, &value);
        }
        Ok(())
    }

    fn add_own_files(&mut self, environment: &Environment) {
        if let Some(home) = &environment.home {
            self.set_default("passfile", &home.join(".pgpass").display().to_string());
        }
        if let Some(file) = environment.own_file("root.crt") {
            self.set_default("sslrootcert", &file);
        }
        if let Some(file) = environment.own_file("postgresql.crt")
            && self.get("sslcert").is_none()
        {
            self.set("sslcert", file);
        }
        if let Some(file) = environment.own_file("postgresql.key") {
            self.set_default("sslkey", &file);
        }
    }
}

fn check_name(name: &str, place: &str) -> Result<(), ParameterError> {
    match known(name).map(|it| &it.support) {
        Some(Support::Used | Support::Ignored) => Ok(()),
        Some(Support::Refused(help)) => Err(ParameterError(format!(
            "the parameter {name} of {place} has no effect here: {help}"
        ))),
        None => Err(ParameterError(format!(
            "{place} has the unknown parameter {name:?}; known are {}",
            NAMES.join(", ")
        ))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_and_table_say_the_same() {
        let used = PARAMETERS
            .iter()
            .filter(|it| matches!(it.support, Support::Used));
        let used: Vec<&str> = used.map(|it| it.name).collect();
        assert_eq!(used, NAMES);
    }

    #[test]
    fn the_address_comes_before_the_service_file_and_that_before_variables() {
        let home = tempfile::tempdir().unwrap();
        let services =
            "# all\n[shop]\nhost=from-service\nport=7000\ndbname=orders\n[other]\nport=1\n";
        std::fs::write(home.path().join(".pg_service.conf"), services).unwrap();
        let variables = [
            ("PGSERVICE", "shop"),
            ("PGPORT", "7001"),
            ("PGUSER", "me"),
            ("PGDATABASE", "elsewhere"),
        ];
        let environment = Environment::of(&variables, Some(home.path()));
        let all = Parameters::parse("postgresql://db/").unwrap();
        let all = all.with_defaults(&environment).unwrap();
        let seen = ["host", "port", "dbname", "user"].map(|it| all.get(it).unwrap());
        assert_eq!(seen, ["db", "7000", "orders", "me"]);
        let missing = Environment::of(&[("PGSERVICE", "none")], Some(home.path()));
        let error = Parameters::parse("postgresql:///").unwrap();
        let error = error.with_defaults(&missing).unwrap_err();
        assert!(error.0.contains("\"none\""), "{error}");
    }

    #[test]
    fn unknown_parameters_are_refused_with_help() {
        let read = |text: &str| {
            Parameters::parse(text)
                .unwrap()
                .with_defaults(&Environment::none())
        };
        let error = read("postgresql://h/d?sslmod=require").unwrap_err();
        assert!(
            error.0.contains("\"sslmod\"") && error.0.contains("sslmode"),
            "{error}"
        );
        let error = read("postgresql://h/d?sslcrl=x").unwrap_err();
        assert!(error.0.contains("revocation"), "{error}");
    }

    #[test]
    fn passwords_are_not_shown() {
        let all = Parameters::parse("postgresql://u:hunter2@h/d").unwrap();
        assert!(!format!("{all:?}").contains("hunter2"));
    }
}
