//! Makes and migrates the tables. Many servers may start at once: one migrates, the others wait.

use stepwell_engine::chunk::templates;
use stepwell_engine::store::{Result, StoreError, StoreErrorKind};

use super::access::quoted;
use super::connection::Connection;
use super::connections::Connections;
use super::errors::DbError;

/// All migrations, in order; the number of the last is the version of the schema.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/postgres/0001_tables.sql"),
    include_str!("../../migrations/postgres/0002_views.sql"),
];

/// The version that this program reads and writes.
pub(super) const VERSION: i32 = MIGRATIONS.len() as i32;

const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('stepwell/' || $1, 0))";

const HAS_SCHEMA: &str = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)";

const KEPT_VERSION: &str = "SELECT COALESCE(max(version), 0) FROM migrations";

const APPLIED: &str = "INSERT INTO migrations (version) VALUES ($1)";

const KEEP_TEMPLATES: &str = "
INSERT INTO event_templates (codec, event_type, json)
SELECT * FROM unnest($1::smallint[], $2::text[], $3::text[]) ON CONFLICT DO NOTHING";

const MIGRATIONS_TABLE: &str = "CREATE TABLE IF NOT EXISTS migrations (
    version    integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);";

/// Brings the schema to this program's version, or says why not.
pub(super) fn migrate(connections: &Connections) -> Result<()> {
    let schema = connections.schema();
    let mut connection = connections.get()?;
    let done = connection.wait(async |connection| {
        connection.begin("BEGIN").await?;
        let done = inside(connection, schema).await;
        let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
        connection.script(end).await?;
        done
    });
    done.map_err(DbError::of_read)
}

async fn inside(connection: &Connection, schema: &str) -> std::result::Result<(), DbError> {
    connection.query(LOCK, &[&schema]).await?;
    let there = connection.query(HAS_SCHEMA, &[&schema]).await?;
    if !there.first().is_some_and(|row| row.get(0)) {
        connection
            .script(&format!("CREATE SCHEMA {}", quoted(schema)))
            .await?;
    }
    connection.script(MIGRATIONS_TABLE).await?;
    let kept = connection.query(KEPT_VERSION, &[]).await?;
    let kept: i32 = kept.first().map_or(0, |row| row.get(0));
    if kept > VERSION {
        return Err(DbError::Other(StoreError::new(
            StoreErrorKind::Newer,
            format!(
                "the schema {schema} has version {kept}, and this program knows {VERSION}: a newer \
                 Stepwell has migrated it; use that one, or another schema"
            ),
        )));
    }
    let known = usize::try_from(kept).unwrap_or(0);
    for (index, sql) in MIGRATIONS.iter().enumerate().skip(known) {
        connection.script(sql).await?;
        let version = i32::try_from(index + 1).unwrap_or(VERSION);
        connection.query(APPLIED, &[&version]).await?;
    }
    keep_templates(connection).await
}

/// The view of events reads them. Templates never change, so those that are there stay.
async fn keep_templates(connection: &Connection) -> std::result::Result<(), DbError> {
    let all = templates();
    let codecs: Vec<i16> = all.iter().map(|it| it.codec).collect();
    let types: Vec<&str> = all.iter().map(|it| it.event_type).collect();
    let texts: Vec<&str> = all.iter().map(|it| it.json.as_str()).collect();
    connection
        .query(KEEP_TEMPLATES, &[&codecs, &types, &texts])
        .await?;
    Ok(())
}
