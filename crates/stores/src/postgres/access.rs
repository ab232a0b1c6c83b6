//! How a store gets to its database: the address with the parameters of its own, and what every
//! connection, or behind a pooler every transaction, is told first.

use std::time::Duration;

use stepwell_engine::store::{Result, StoreError, StoreErrorKind};
use stepwell_pg::{Connector, Environment, ParameterError, Parameters};

use super::PostgresOptions;
use super::query::Query;

/// How to get to the database.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) connector: Connector,
    pub(super) connect_timeout: Duration,
    pub(super) schema: String,
    statement_timeout: Duration,
    /// A session lasts: settings, prepared statements and listening stay with a connection. Not so behind
    /// a pooler that gives every transaction another server connection.
    pub(super) keeps_session: bool,
    /// Statements are prepared once for each connection.
    pub(super) prepared: bool,
}

fn unusable(message: impl std::fmt::Display) -> StoreError {
    StoreError::new(StoreErrorKind::Unusable, message)
}

impl Access {
    /// Reads the address. Values that it does not give come from a service file and the `PG*` variables.
    pub(super) fn read(url: &str, options: &PostgresOptions) -> Result<Access> {
        let wrong = |error: ParameterError| unusable(format!("the address of PostgreSQL: {error}"));
        let mut parameters = Parameters::parse(url).map_err(wrong)?;
        let schema = parameters
            .take("schema")
            .unwrap_or_else(|| options.schema.clone());
        let keeps_session = match parameters.take("pool_mode").as_deref() {
            None | Some("session") => true,
            Some("transaction") => false,
            Some(other) => {
                return Err(unusable(format!(
                    "pool_mode `{other}` is unknown; it is session, or transaction behind a pooler like \
                     pgbouncer in that mode"
                )));
            }
        };
        let prepared = match parameters.take("prepared_statements").as_deref() {
            None => keeps_session,
            Some("true" | "on" | "1") => true,
            Some("false" | "off" | "0") => false,
            Some(other) => {
                return Err(unusable(format!(
                    "prepared_statements `{other}` is unknown; it is true or false"
                )));
            }
        };
        // The channel's name must fit into a name of PostgreSQL too.
        if schema.is_empty() || schema.len() > 50 {
            return Err(unusable("the name of a schema has 1 to 50 bytes"));
        }
        let mut parameters = parameters
            .with_defaults(&Environment::of_process())
            .map_err(wrong)?;
        for (name, value) in DEAD_PEERS {
            parameters.set_default(name, value);
        }
        let mut connector = Connector::new(&parameters).map_err(wrong)?;
        if parameters.get("connect_timeout").is_none() {
            connector = connector.with_timeout(options.connect_timeout);
        }
        Ok(Access {
            connector,
            connect_timeout: options.connect_timeout,
            schema,
            statement_timeout: options.statement_timeout,
            keeps_session,
            prepared,
        })
    }

    /// The channel of the notifications that a message was posted.
    pub(super) fn channel(&self) -> String {
        quoted(&format!("stepwell/{}", self.schema))
    }

    fn timeout(&self) -> String {
        self.statement_timeout.as_millis().max(1).to_string()
    }

    /// What a connection is told first, if it keeps it.
    pub(super) fn session_settings(&self) -> Option<String> {
        let settings = SETTINGS
            .iter()
            .map(|(name, value)| format!("SET {name} = {value};"));
        let own = format!(
            "SET search_path TO {}; SET statement_timeout = {};",
            quoted(&self.schema),
            self.timeout()
        );
        self.keeps_session
            .then(|| settings.fold(own, |all, it| all + &it))
    }

    /// What a transaction is told first where a connection keeps nothing.
    pub(super) fn transaction_settings(&self) -> Query<'static> {
        Query::new(SET_LOCAL)
            .with(quoted(&self.schema))
            .with(self.timeout())
    }
}

/// How a peer that is gone without closing the connection is noticed, where the address does not say: the system's own default
/// is hours, and many networks forget a silent connection after minutes.
const DEAD_PEERS: &[(&str, &str)] = &[
    ("keepalives_idle", "10"),
    ("keepalives_interval", "5"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "20000"),
];

/// Plans are made once, for arrays of any length: looking up each element by an index is always right for
/// them, whatever the statistics say.
const SETTINGS: &[(&str, &str)] = &[
    ("timezone", "'UTC'"),
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_bitmapscan", "off"),
    ("synchronous_commit", "on"),
    ("client_min_messages", "warning"),
    ("default_transaction_isolation", "'read committed'"),
    // A lock that someone else holds is waited for by trying again, longer than PostgreSQL looks for deadlocks: a
    // statement that was given up is known to have done nothing.
    ("lock_timeout", "'2s'"),
];

/// The same for one transaction, in one statement.
const SET_LOCAL: &str = "
SELECT set_config('search_path', $1, true), set_config('statement_timeout', $2, true),
       set_config('timezone', 'UTC', true), set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('synchronous_commit', 'on', true),
       set_config('client_min_messages', 'warning', true), set_config('lock_timeout', '2s', true)";

/// A name as SQL has it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_set_say_the_same() {
        for (name, value) in SETTINGS {
            // The isolation is part of every BEGIN that wants another.
            if *name != "default_transaction_isolation" {
                let wanted = format!("set_config('{name}', '{}', true)", value.trim_matches('\''));
                assert!(SET_LOCAL.contains(&wanted), "{wanted}");
            }
        }
    }

    #[test]
    fn own_parameters_are_read_and_others_are_refused() {
        let read = |url: &str| Access::read(url, &PostgresOptions::default());
        let access = read("postgresql://u@h/d?schema=x&pool_mode=transaction").unwrap();
        assert_eq!(
            (
                access.schema.as_str(),
                access.keeps_session,
                access.prepared
            ),
            ("x", false, false)
        );
        assert!(
            read("postgresql://u@h/d?prepared_statements=false")
                .unwrap()
                .keeps_session
        );
        for (wrong, help) in [
            ("postgresql://u@h/d?pool_mode=statement", "pgbouncer"),
            (
                "postgresql://u@h/d?prepared_statements=maybe",
                "true or false",
            ),
            (
                "postgresql://u@h/d?poolmode=transaction",
                "unknown parameter",
            ),
        ] {
            let error = read(wrong).unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Unusable);
            assert!(error.message.contains(help), "{error}");
        }
    }
}
