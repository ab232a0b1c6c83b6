//! Addresses of stores: one text says which database and where, on the command line and in settings.

use std::path::PathBuf;
use std::sync::Arc;

use stepwell_engine::store::{MemoryStore, Result, Store, StoreError, StoreErrorKind};

use crate::postgres::{PostgresOptions, PostgresStore};
use crate::sqlite::{Mode, SqliteOptions, SqliteStore};

/// The forms of an address, for messages.
pub const FORMS: &str = "sqlite:PATH (or only PATH), \
     postgresql://USER:PASSWORD@HOST:PORT/DATABASE[?schema=NAME&sslmode=…], or memory:";

/// The words before the colon of an address.
const KINDS: [&str; 4] = ["memory", "sqlite", "postgres", "postgresql"];

/// How a process uses a store. PostgreSQL serves any number of processes, so there a mode only says whether the tables
/// may be created and migrated; the memory store always belongs to its own process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenMode {
    /// Reads and writes everything. A SQLite database has one such process at a time; a missing database is created.
    #[default]
    Own,
    /// Reads, and sends messages to the process that owns the store.
    Guest,
    ReadOnly,
}

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The file of a SQLite database.
    Sqlite(PathBuf),
    /// A PostgreSQL database and the schema in it that has the tables.
    Postgres {
        /// The address in the form of libpq.
        url: String,
        /// The schema; absent means the default schema.
        schema: Option<String>,
    },
    /// The memory of this process: the data is gone when the process ends.
    Memory,
}

impl Address {
    /// Reads an address in one of the `FORMS`. Does not open the store.
    pub fn parse(text: &str) -> Result<Address> {
        let bad = |why: String| {
            let what = format!("{why}; a store is written as {FORMS}");
            StoreError::new(StoreErrorKind::Unusable, what)
        };
        let (scheme, rest) = match text.split_once(':') {
            // A drive letter is no scheme.
            Some((scheme, rest)) if scheme.len() > 1 && !scheme.contains(['/', '\\', '.']) => {
                (scheme, rest)
            }
            _ => ("", text),
        };
        match scheme {
            // Who writes this rarely means a file; one of this name is written as ./memory.
            "" if KINDS.contains(&text) => Err(bad(format!(
                "{text:?} is a kind of store without its address, and a file of that name is written as ./{text}"
            ))),
            "" | "sqlite" => {
                // `sqlite://PATH`, as others write it, means the same.
                let path = rest.strip_prefix("//").filter(|_| scheme == "sqlite");
                match path.unwrap_or(rest) {
                    "" => Err(bad(format!("{text:?} names no file"))),
                    path => Ok(Address::Sqlite(path.into())),
                }
            }
            "memory" if rest.is_empty() => Ok(Address::Memory),
            "memory" => Err(bad(format!("{text:?}: memory has no places in it"))),
            "postgres" | "postgresql" if rest.starts_with("//") => Ok(postgres(text)),
            "postgres" | "postgresql" => Err(bad(format!("{scheme}: is not followed by //"))),
            other => Err(bad(format!("there are no stores of the kind {other:?}"))),
        }
    }

    /// Opens what is there.
    pub fn open(&self, mode: OpenMode) -> Result<Arc<dyn Store>> {
        Ok(match self {
            Address::Sqlite(path) => Arc::new(sqlite(path, mode)?),
            Address::Postgres { url, schema } => Arc::new(connect(url, schema.as_deref(), mode)?),
            Address::Memory => Arc::new(MemoryStore::default()),
        })
    }
}

/// Opens the store at an address.
pub fn open(url: &str, mode: OpenMode) -> Result<Arc<dyn Store>> {
    Address::parse(url)?.open(mode)
}

fn sqlite(path: &PathBuf, mode: OpenMode) -> Result<SqliteStore> {
    let mode = match mode {
        OpenMode::Own => Mode::Own,
        OpenMode::Guest => Mode::Guest,
        OpenMode::ReadOnly => Mode::ReadOnly,
    };
    SqliteStore::open(path, SqliteOptions::with_mode(mode))
}

fn connect(url: &str, schema: Option<&str>, mode: OpenMode) -> Result<PostgresStore> {
    let mut options = PostgresOptions {
        migrates: mode != OpenMode::ReadOnly,
        ..PostgresOptions::default()
    };
    if let Some(schema) = schema {
        schema.clone_into(&mut options.schema);
    }
    PostgresStore::connect(url, options).map_err(|mut error| {
        if error.kind == StoreErrorKind::Unavailable {
            let place = without_password(url);
            error.message = format!("{}; is there a server at {place}?", error.message);
        }
        error
    })
}

/// An address for people: what is between the user and the `@` never shows up in a terminal or a log.
#[must_use]
pub fn without_password(url: &str) -> String {
    let hidden = || {
        let (scheme, rest) = url.split_once("://")?;
        let (login, place) = rest.rsplit_once('@')?;
        let (user, _) = login.split_once(':')?;
        Some(format!("{scheme}://{user}:***@{place}"))
    };
    hidden().unwrap_or_else(|| url.to_owned())
}

/// Takes `schema=` out of the options: the driver knows no such one.
fn postgres(text: &str) -> Address {
    let (place, query) = text.split_once('?').unwrap_or((text, ""));
    let mut schema = None;
    let mut rest: Vec<&str> = Vec::new();
    for option in query.split('&').filter(|option| !option.is_empty()) {
        match option.strip_prefix("schema=") {
            Some(name) => schema = Some(name.to_owned()),
            None => rest.push(option),
        }
    }
    let url = match rest[..] {
        [] => place.to_owned(),
        _ => format!("{place}?{}", rest.join("&")),
    };
    Address::Postgres { url, schema }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_few_forms() {
        let sqlite = |path: &str| Address::Sqlite(path.into());
        assert_eq!(Address::parse("sqlite:a/b.db").unwrap(), sqlite("a/b.db"));
        assert_eq!(Address::parse("sqlite:///a.db").unwrap(), sqlite("/a.db"));
        assert_eq!(Address::parse("./a:b.db").unwrap(), sqlite("./a:b.db"));
        assert_eq!(Address::parse("a.db").unwrap(), sqlite("a.db"));
        assert_eq!(Address::parse("./memory").unwrap(), sqlite("./memory"));
        assert_eq!(Address::parse("memory:").unwrap(), Address::Memory);
        let postgres = Address::Postgres {
            url: "postgres://u@h/d?connect_timeout=3".into(),
            schema: Some("x".into()),
        };
        let text = "postgres://u@h/d?connect_timeout=3&schema=x";
        assert_eq!(Address::parse(text).unwrap(), postgres);
    }

    #[test]
    fn passwords_are_not_shown() {
        let shown = without_password("postgres://me:secr@t@host/db");
        assert_eq!(shown, "postgres://me:***@host/db");
        assert_eq!(without_password("postgres://me@host"), "postgres://me@host");
        assert_eq!(without_password("sqlite:a.db"), "sqlite:a.db");
    }

    #[test]
    fn a_wrong_address_says_what_the_forms_are() {
        for wrong in [
            "",
            "sqlite:",
            "mysql://x",
            "memory:x",
            "memory",
            "postgres",
            "postgres:x",
        ] {
            let error = Address::parse(wrong).unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Unusable, "{wrong}");
            assert!(error.message.contains("sqlite:PATH"), "{error}");
        }
    }
}
