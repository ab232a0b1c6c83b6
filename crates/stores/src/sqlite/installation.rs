//! Documents of the installation, and the audit log.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension as _, Row, params, params_from_iter};
use stepwell_engine::store::{
    AuditFilter, AuditLog, AuditRow, DocumentFilter, Documents, NewDocument, Result,
    StoredAuditRow, StoredDocument,
};
use stepwell_kernel::time::Time;

use super::SqliteStore;
use super::commit::seq;
use super::tasks::limit_of;

impl Documents for SqliteStore {
    fn document(&self, kind: &str, tenant: &str, key: &str) -> Result<Option<StoredDocument>> {
        self.read(|conn| {
            conn.prepare_cached(
                "SELECT kind, tenant, key, version, body, changed_at FROM documents
                 WHERE kind = ?1 AND tenant = ?2 AND key = ?3",
            )?
            .query_row([kind, tenant, key], document)
            .optional()
        })
    }

    fn documents(&self, filter: &DocumentFilter) -> Result<Vec<StoredDocument>> {
        self.read(|conn| documents(conn, filter))
    }

    fn put_document(
        &self,
        document: &NewDocument,
        expected: Option<u64>,
        now: Time,
    ) -> Result<Option<u64>> {
        let NewDocument {
            kind,
            tenant,
            key,
            body,
        } = document;
        self.send(|conn| match expected {
            None => conn
                .prepare_cached(
                    "INSERT INTO documents (kind, tenant, key, version, body, changed_at)
                     VALUES (?1, ?2, ?3, 1, ?4, ?5) ON CONFLICT DO NOTHING RETURNING version",
                )?
                .query_row(params![kind, tenant, key, body, now.0], |row| row.get(0))
                .optional(),
            Some(version) => conn
                .prepare_cached(
                    "UPDATE documents SET version = version + 1, body = ?4, changed_at = ?5
                     WHERE kind = ?1 AND tenant = ?2 AND key = ?3 AND version = ?6 RETURNING version",
                )?
                .query_row(
                    params![kind, tenant, key, body, now.0, seq(version)],
                    |row| row.get(0),
                )
                .optional(),
        })
    }

    fn delete_document(&self, kind: &str, tenant: &str, key: &str, expected: u64) -> Result<bool> {
        self.send(|conn| {
            let gone = conn
                .prepare_cached(
                    "DELETE FROM documents
                     WHERE kind = ?1 AND tenant = ?2 AND key = ?3 AND version = ?4",
                )?
                .execute(params![kind, tenant, key, seq(expected)])?;
            Ok(gone > 0)
        })
    }
}

/// Documents of a kind, by tenant and key: texts are compared by their bytes.
fn documents(conn: &Connection, filter: &DocumentFilter) -> rusqlite::Result<Vec<StoredDocument>> {
    let (after_tenant, after_key) = filter.after.clone().unzip();
    // Characters are counted, as SQLite counts them.
    let prefix = i64::try_from(filter.prefix.chars().count()).unwrap_or(i64::MAX);
    conn.prepare_cached(
        "SELECT kind, tenant, key, version, body, changed_at FROM documents
         WHERE kind = ?1 AND (?2 IS NULL OR tenant = ?2) AND substr(key, 1, ?4) = ?3
           AND (?5 IS NULL OR (tenant, key) > (?5, ?6))
         ORDER BY tenant, key LIMIT ?7",
    )?
    .query_map(
        params![
            filter.kind,
            filter.tenant,
            filter.prefix,
            prefix,
            after_tenant,
            after_key,
            limit_of(filter.limit)
        ],
        document,
    )?
    .collect()
}

/// All documents, for comparing stores.
#[cfg(feature = "suite")]
pub(super) fn all_documents(conn: &Connection) -> rusqlite::Result<Vec<StoredDocument>> {
    conn.prepare("SELECT kind, tenant, key, version, body, changed_at FROM documents")?
        .query_map([], document)?
        .collect()
}

fn document(row: &Row<'_>) -> rusqlite::Result<StoredDocument> {
    Ok(StoredDocument {
        kind: row.get(0)?,
        tenant: row.get(1)?,
        key: row.get(2)?,
        version: row.get(3)?,
        body: row.get(4)?,
        changed_at: Time(row.get(5)?),
    })
}

impl AuditLog for SqliteStore {
    fn record(&self, rows: &[AuditRow]) -> Result<()> {
        self.send(|conn| {
            let mut put = conn.prepare_cached(
                "INSERT INTO audit_log
                   (at, tenant, actor, token, source, action, target, accepted, code, reason)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?;
            for row in rows {
                put.execute(params![
                    row.at.0,
                    row.tenant,
                    row.actor,
                    row.token,
                    row.source,
                    row.action,
                    row.target,
                    row.accepted,
                    row.code,
                    row.reason,
                ])?;
            }
            Ok(())
        })
    }

    fn audit_rows(&self, filter: &AuditFilter) -> Result<Vec<StoredAuditRow>> {
        self.read(|conn| audit_rows(conn, filter))
    }

    fn prune_audit(&self, before: Time, limit: usize) -> Result<usize> {
        self.write(|conn| {
            // The trigger of the table lets rows before this time go.
            conn.execute(
                "INSERT OR REPLACE INTO settings (name, value) VALUES ('audit_pruned_before', ?1)",
                [before.0],
            )?;
            let gone = conn.execute(
                "DELETE FROM audit_log WHERE audit_no IN (
                   SELECT audit_no FROM audit_log WHERE at < ?1 ORDER BY at, audit_no LIMIT ?2)",
                params![before.0, limit_of(limit)],
            )?;
            conn.execute(
                "DELETE FROM settings WHERE name = 'audit_pruned_before'",
                [],
            )?;
            Ok(gone)
        })
    }
}

/// Rows, newest first. The statement has only the conditions that are asked for, so that SQLite finds their index.
pub(super) fn audit_rows(
    conn: &Connection,
    filter: &AuditFilter,
) -> rusqlite::Result<Vec<StoredAuditRow>> {
    let mut wanted = String::new();
    let mut values: Vec<Value> = Vec::new();
    let mut want = |condition: &str, value: Option<Value>| {
        if let Some(value) = value {
            values.push(value);
            wanted.push_str(&format!(" AND {condition} ?{}", values.len()));
        }
    };
    let text = |wanted: &Option<String>| wanted.clone().map(Value::from);
    want("audit_no <", filter.before.map(Value::from));
    want("tenant =", text(&filter.tenant));
    want("actor =", text(&filter.actor));
    want("action =", text(&filter.action));
    want("target =", text(&filter.target));
    want("accepted =", filter.accepted.map(|it| i64::from(it).into()));
    let limit = limit_of(filter.limit);
    conn.prepare_cached(&format!(
        "SELECT audit_no, at, tenant, actor, token, source, action, target, accepted, code, reason
         FROM audit_log WHERE true{wanted} ORDER BY audit_no DESC LIMIT {limit}"
    ))?
    .query_map(params_from_iter(values), |row| {
        Ok(StoredAuditRow {
            no: row.get(0)?,
            row: AuditRow {
                at: Time(row.get(1)?),
                tenant: row.get(2)?,
                actor: row.get(3)?,
                token: row.get(4)?,
                source: row.get(5)?,
                action: row.get(6)?,
                target: row.get(7)?,
                accepted: row.get(8)?,
                code: row.get(9)?,
                reason: row.get(10)?,
            },
        })
    })?
    .collect()
}
