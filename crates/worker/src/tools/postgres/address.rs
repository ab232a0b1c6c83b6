//! Where a PostgreSQL server is and who asks: read from what `auth` stands for. No connection is
//! made here.

use std::path::Path;

use serde_json::{Map, Value as Json};
use stepwell_pg::{Connector, Environment, Parameters};

use super::pool::Unconnected;
use crate::file_rules::FileRules;
use crate::hosts::{DeniedHost, HostRules};
use crate::outcome::ToolError;
use crate::tools::sql::codes;

/// Parameters that `auth` may have beside the address, under their own names.
const OWN_NAMES: [&str; 10] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "channel_binding",
    "application_name",
    "options",
    "target_session_attrs",
    "schema",
    "search_path",
];

/// A server, a user and the connection settings. It contains the password, so it is never printed.
#[derive(Clone)]
pub(super) struct Address {
    parameters: Parameters,
    connector: Connector,
    /// The server as messages name it: `host:port`.
    pub(super) place: String,
}

impl PartialEq for Address {
    fn eq(&self, other: &Address) -> bool {
        self.parameters == other.parameters
    }
}

/// Something about the address is wrong.
pub(super) fn wrong(message: impl Into<String>) -> ToolError {
    ToolError::invalid(codes::PG_ADDRESS, message)
}

impl Address {
    /// Reads it. Nothing but `auth` counts: variables and files of the worker are no business of a task.
    pub(super) fn read(
        auth: Option<&Map<String, Json>>,
        files: &FileRules,
    ) -> Result<Address, ToolError> {
        let auth = auth.ok_or_else(|| {
            wrong(
                "the task names no server; give `auth` with host, user and database, or with a dsn",
            )
        })?;
        let mut parameters = match text(auth, &["dsn", "url", "connection_string"])? {
            // The reader's own words may repeat a part of the password.
            Some(dsn) => Parameters::parse(&dsn).map_err(|_| {
                wrong(
                    "the address of the server cannot be read; it is like \
                     postgresql://user:password@host:5432/database",
                )
            })?,
            None => Parameters::default(),
        };
        for (name, names) in [
            ("host", &["host", "db_host", "hostname"][..]),
            ("port", &["port", "db_port"]),
            ("user", &["user", "username", "db_user"]),
            ("password", &["password", "db_password"]),
            ("dbname", &["database", "dbname", "db_name"]),
        ] {
            if let Some(value) = text(auth, names)? {
                parameters.set(name, value);
            }
        }
        for name in OWN_NAMES {
            if let Some(value) = text(auth, &[name])? {
                parameters.set(name, value);
            }
        }
        check_files(&parameters, files)?;
        finish(parameters)
    }

    /// Makes connections to those of its servers that may be connected to. Names are looked up here, and a connection goes
    /// to an address that was checked.
    pub(super) async fn connector(&self, hosts: &HostRules) -> Result<Connector, Unconnected> {
        if hosts.is_empty() {
            return Ok(self.connector.clone());
        }
        let list = |name: &str| -> Vec<String> {
            let text = self.parameters.get(name).unwrap_or_default();
            text.split(',').map(|it| it.trim().to_owned()).collect()
        };
        let (names, addresses, ports) = (list("host"), list("hostaddr"), list("port"));
        let (mut open, mut denied) = (Vec::new(), None);
        for at in 0..names.len().max(addresses.len()) {
            let of = |list: &[String]| list.get(at).cloned().unwrap_or_default();
            let (name, address) = (of(&names), of(&addresses));
            // One port is for all hosts. A port that is no number was refused before.
            let port = ports.get(at).unwrap_or(&ports[0]).parse().unwrap_or(5432);
            let target = if address.is_empty() { &name } else { &address };
            match resolve(hosts, target, port).await {
                Ok(found) => open.extend(found.into_iter().map(|it| (name.clone(), it, port))),
                Err(why) => denied = denied.or(Some(why)),
            }
        }
        match (open.is_empty(), denied) {
            (true, Some(why)) => return Err(why),
            (true, None) => return Ok(self.connector.clone()),
            (false, _) => {}
        }
        let joined = |part: &dyn Fn(&(String, String, u16)) -> String| {
            open.iter().map(part).collect::<Vec<_>>().join(",")
        };
        let mut parameters = self.parameters.clone();
        parameters.set("host", joined(&|it| it.0.clone()));
        parameters.set("hostaddr", joined(&|it| it.1.clone()));
        parameters.set("port", joined(&|it| it.2.to_string()));
        // The same values were good a moment ago.
        Connector::new(&parameters).map_err(|error| Unconnected::Denied(DeniedHost(error.0)))
    }
}

/// The addresses of a host that may be connected to. A socket in the file system has none.
async fn resolve(hosts: &HostRules, host: &str, port: u16) -> Result<Vec<String>, Unconnected> {
    if host.starts_with(['/', '@']) {
        hosts.check_socket_file().map_err(Unconnected::Denied)?;
        return Ok(vec![String::new()]);
    }
    match hosts.lookup(host, port).await {
        Ok(found) => Ok(found.iter().map(|it| it.ip().to_string()).collect()),
        Err(error) => match DeniedHost::behind(&*error) {
            Some(denied) => Err(Unconnected::Denied(denied.clone())),
            None => Err(Unconnected::Unknown(format!("{host}: {error}"))),
        },
    }
}

/// Parameters that name files of this machine.
fn check_files(parameters: &Parameters, files: &FileRules) -> Result<(), ToolError> {
    for name in [
        "sslrootcert",
        "sslcert",
        "sslkey",
        "passfile",
        "servicefile",
    ] {
        match parameters.get(name) {
            None | Some("" | "system") => {}
            Some(path) => drop(files.check(Path::new(path))?),
        }
    }
    // The file of services is where the machine has it.
    match parameters.get("service") {
        Some(_) if parameters.get("servicefile").is_none() => {
            files.check(Path::new("/etc/pg_service.conf")).map(drop)
        }
        _ => Ok(()),
    }
}

fn finish(mut parameters: Parameters) -> Result<Address, ToolError> {
    if parameters
        .get("host")
        .or(parameters.get("hostaddr"))
        .is_none()
    {
        return Err(wrong("`auth` names no host"));
    }
    if parameters.get("user").is_none() {
        return Err(wrong("`auth` names no user"));
    }
    let (schema, path) = (parameters.take("schema"), parameters.take("search_path"));
    if let Some(schema) = path.or(schema) {
        let escaped = schema.replace('\\', "\\\\");
        let escaped = escaped.replace(char::is_whitespace, "\\ ");
        let before = parameters.get("options").map(|it| format!("{it} "));
        let before = before.unwrap_or_default();
        parameters.set("options", format!("{before}-c search_path={escaped}"));
    }
    let parameters = parameters.with_defaults(&Environment::none());
    let parameters = parameters.map_err(|error| wrong(error.to_string()))?;
    let connector = Connector::new(&parameters).map_err(|error| wrong(error.to_string()))?;
    Ok(Address {
        place: connector
            .hosts()
            .first()
            .copied()
            .unwrap_or_default()
            .to_owned(),
        parameters,
        connector,
    })
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(auth: Json) -> Result<Address, ToolError> {
        Address::read(auth.as_object(), &FileRules::Everywhere)
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
        assert_eq!(
            address.parameters.get("options"),
            Some("-c search_path=a\\ b")
        );
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
        assert!(Address::read(None, &FileRules::Everywhere).is_err());
    }
}
