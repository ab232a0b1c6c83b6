//! Makes and migrates the tables. Many servers may start at once: one migrates, the others wait.

use std::cmp::Ordering;

use stepwell_engine::chunk::templates;
use stepwell_engine::store::{Result, StoreError, StoreErrorKind};

use super::access::quoted;
use super::connection::Connection;
use super::connections::Connections;
use super::errors::DbError;
use super::unsigned;

/// All migrations, in order; the number of the last is the version of the schema.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/postgres/0001_tables.sql"),
    include_str!("../../migrations/postgres/0002_views.sql"),
    include_str!("../../migrations/postgres/0003_unique_keys_and_view_rows.sql"),
    include_str!("../../migrations/postgres/0004_quarantine.sql"),
    include_str!("../../migrations/postgres/0005_nul_in_views.sql"),
    include_str!("../../migrations/postgres/0006_step_answered.sql"),
    include_str!("../../migrations/postgres/0007_sinks.sql"),
    include_str!("../../migrations/postgres/0008_priority.sql"),
    include_str!("../../migrations/postgres/0009_linear_columns.sql"),
    include_str!("../../migrations/postgres/0010_ranges.sql"),
    include_str!("../../migrations/postgres/0011_documents_and_audit_log.sql"),
    include_str!("../../migrations/postgres/0012_run_list.sql"),
    include_str!("../../migrations/postgres/0013_changes.sql"),
    include_str!("../../migrations/postgres/0014_keys_of_a_tenant.sql"),
    include_str!("../../migrations/postgres/0015_changes_in_place.sql"),
];

/// The version that this program reads and writes.
pub(super) const VERSION: i32 = MIGRATIONS.len() as i32;

const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('stepwell/' || $1, 0))";

const HAS_SCHEMA: &str = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)";

const HAS_MIGRATIONS: &str = "SELECT EXISTS (
    SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = $1 AND relname = 'migrations')";

const KEPT_VERSION: &str = "SELECT COALESCE(max(version), 0) FROM migrations";

const APPLIED: &str = "INSERT INTO migrations (version) VALUES ($1)";

const KEEP_TEMPLATES: &str = "
INSERT INTO event_templates (codec, event_type, json)
SELECT * FROM unnest($1::smallint[], $2::text[], $3::text[]) ON CONFLICT DO NOTHING";

const MIGRATIONS_TABLE: &str = "CREATE TABLE IF NOT EXISTS migrations (
    version    integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);";

/// Says why the tables cannot be used as they are; nothing is created or migrated.
pub(super) fn must_be_current(connections: &Connections) -> Result<()> {
    let schema = connections.schema();
    let mut connection = connections.get()?;
    // Behind a pooler the schema is that of a transaction.
    let kept = connection.wait(async |connection| {
        connection.begin("BEGIN READ ONLY").await?;
        let kept = kept_version(connection, schema).await;
        connection.script("ROLLBACK").await?;
        kept
    });
    let kept: i32 = kept.map_err(DbError::of_read)?;
    match kept.cmp(&VERSION) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(newer(schema, kept)),
        Ordering::Less if kept == 0 => Err(StoreError::new(
            StoreErrorKind::Unusable,
            format!(
                "the database has no store in the schema {schema}; start a run, or name the right schema"
            ),
        )),
        Ordering::Less => Err(StoreError::new(
            StoreErrorKind::Older,
            format!(
                "the schema {schema} has version {kept}, and this program needs {VERSION}; stop the servers of \
                 the earlier version and run `stepwell db migrate`"
            ),
        )),
    }
}

/// The version of the tables; zero if there are none.
async fn kept_version(connection: &Connection, schema: &str) -> std::result::Result<i32, DbError> {
    let there = connection.query(HAS_MIGRATIONS, &[&schema]).await?;
    if !there.first().is_some_and(|row| row.get(0)) {
        return Ok(0);
    }
    let kept = connection.query(KEPT_VERSION, &[]).await?;
    Ok(kept.first().map_or(0, |row| row.get(0)))
}

fn newer(schema: &str, kept: i32) -> StoreError {
    StoreError::new(
        StoreErrorKind::Newer,
        format!(
            "the schema {schema} has version {kept}, and this program knows {VERSION}: a newer \
             Stepwell has migrated it; use that one, or another schema"
        ),
    )
}

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
    // Those who come while another one migrates wait for it, however long it takes.
    connection.script("SET LOCAL lock_timeout = 0").await?;
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
        return Err(DbError::Other(newer(schema, kept)));
    }
    let known = unsigned(kept);
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
