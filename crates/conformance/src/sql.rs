//! SQL of a scenario, on the database of the store that it runs on, and the schema of a scenario on PostgreSQL.

use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Map, Value as Json};
use stepwell_pg::{Connector, Environment, Parameters};
use tokio_postgres::Client;

const PATIENCE: Duration = Duration::from_secs(10);

/// The rows of a query on a SQLite file, which is opened for reading only.
pub(crate) fn sqlite_rows(path: &Path, sql: &str) -> Result<Vec<Json>, String> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read = || -> rusqlite::Result<Vec<Json>> {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(PATIENCE)?;
        let mut statement = connection.prepare(sql)?;
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let mut fields = Map::new();
            for (at, name) in names.iter().enumerate() {
                let value = match row.get_ref(at)? {
                    ValueRef::Null => Json::Null,
                    ValueRef::Integer(number) => Json::from(number),
                    ValueRef::Real(number) => Json::from(number),
                    ValueRef::Text(text) => Json::from(String::from_utf8_lossy(text)),
                    ValueRef::Blob(bytes) => {
                        let hex: String = bytes.iter().map(|it| format!("{it:02x}")).collect();
                        Json::from(hex)
                    }
                };
                fields.insert(name.clone(), value);
            }
            found.push(Json::Object(fields));
        }
        Ok(found)
    };
    read().map_err(|error| error.to_string())
}

/// Changes a SQLite file behind the program's back.
pub(crate) fn sqlite_change(path: &Path, sql: &str) -> Result<(), String> {
    let change = || -> rusqlite::Result<()> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(PATIENCE)?;
        connection.execute_batch(sql)
    };
    change().map_err(|error| error.to_string())
}

/// Keeps others from writing a SQLite file for a time; calls `held` when that begins.
pub(crate) fn sqlite_hold(path: &Path, time: Duration, held: impl FnOnce()) -> Result<(), String> {
    let hold = || -> rusqlite::Result<()> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(PATIENCE)?;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        held();
        std::thread::sleep(time);
        connection.execute_batch("ROLLBACK")
    };
    hold().map_err(|error| error.to_string())
}

/// Keeps others from writing the log on PostgreSQL for a time; calls `held` when that begins.
pub(crate) fn postgres_hold(
    url: &str,
    schema: &str,
    time: Duration,
    held: impl FnOnce(),
) -> Result<(), String> {
    with_client(url, schema, async move |client| {
        let lock = "BEGIN; LOCK TABLE log IN EXCLUSIVE MODE";
        client.batch_execute(lock).await.map_err(|it| tell(&it))?;
        held();
        tokio::time::sleep(time).await;
        client
            .batch_execute("ROLLBACK")
            .await
            .map_err(|it| tell(&it))
    })
}

/// The rows of a query on PostgreSQL, in the schema of the scenario.
pub(crate) fn postgres_rows(url: &str, schema: &str, sql: &str) -> Result<Vec<Json>, String> {
    let sql = sql.trim().trim_end_matches(';');
    // The server makes JSON of every type.
    let sql = format!("SELECT coalesce(json_agg(row_to_json(t)), '[]')::text FROM ({sql}) t");
    with_client(url, schema, async move |client| {
        let row = client.query_one(&sql, &[]).await.map_err(|it| tell(&it))?;
        let text: String = row.get(0);
        serde_json::from_str(&text).map_err(|error| error.to_string())
    })
}

/// Changes the tables of a scenario on PostgreSQL behind the program's back.
pub(crate) fn postgres_change(url: &str, schema: &str, sql: &str) -> Result<(), String> {
    with_client(url, schema, async move |client| {
        client.batch_execute(sql).await.map_err(|it| tell(&it))
    })
}

/// Removes the schema of a scenario.
pub(crate) fn drop_schema(url: &str, schema: &str) -> Result<(), String> {
    let sql = format!("DROP SCHEMA IF EXISTS \"{schema}\" CASCADE");
    with_client(url, schema, async move |client| {
        client.batch_execute(&sql).await.map_err(|it| tell(&it))
    })
}

fn tell(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{}: {}", error.code().code(), error.message()),
        None => error.to_string(),
    }
}

fn with_client<T>(
    url: &str,
    schema: &str,
    work: impl AsyncFnOnce(&Client) -> Result<T, String>,
) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut parameters = Parameters::parse(url).map_err(|error| error.to_string())?;
        for own in ["schema", "pool_mode", "prepared_statements"] {
            parameters.take(own);
        }
        let parameters = parameters
            .with_defaults(&Environment::of_process())
            .map_err(|error| error.to_string())?;
        let connector = Connector::new(&parameters).map_err(|error| error.to_string())?;
        let connected = connector.with_timeout(PATIENCE).connect().await;
        let mut connected = connected.map_err(|error| error.to_string())?;
        let mut messages = connected.messages;
        let driver = tokio::spawn(async move { while messages.next().await.is_some() {} });
        let client = &mut connected.client;
        let path = format!("SET search_path TO \"{schema}\", public");
        client.batch_execute(&path).await.map_err(|it| tell(&it))?;
        let done = work(client).await;
        driver.abort();
        done
    })
}
