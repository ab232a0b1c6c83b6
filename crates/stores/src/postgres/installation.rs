//! Documents of the installation, and the audit log.

use stepwell_engine::store::{
    AuditFilter, AuditLog, AuditRow, DocumentFilter, Documents, NewDocument, Result,
    StoredAuditRow, StoredDocument,
};
use stepwell_kernel::time::Time;
use tokio_postgres::Row;

use super::outbox::readable;
use super::query::Query;
use super::{PostgresStore, Values, limit, unsigned};

const DOCUMENT: &str = "
SELECT kind, tenant, key, version, body, changed_at FROM documents
WHERE kind = $1 AND tenant = $2 AND key = $3";

/// The columns have the collation "C": order and comparison are those of the bytes.
const DOCUMENTS: &str = "
SELECT kind, tenant, key, version, body, changed_at FROM documents
WHERE kind = $1 AND ($2::text IS NULL OR tenant = $2) AND starts_with(key, $3)
  AND ($4::text IS NULL OR (tenant, key) > ($4, $5::text))
ORDER BY tenant, key LIMIT $6";

/// Servers that act on documents are told, as they are of messages.
const CREATE_DOCUMENT: &str = "
INSERT INTO documents (kind, tenant, key, version, body, changed_at)
VALUES ($1, $2, $3, 1, $4, clock($5)) ON CONFLICT DO NOTHING
RETURNING version, pg_notify('stepwell/' || current_schema(), '')::text";

const CHANGE_DOCUMENT: &str = "
UPDATE documents SET version = version + 1, body = $4, changed_at = clock($5)
WHERE kind = $1 AND tenant = $2 AND key = $3 AND version = $6
RETURNING version, pg_notify('stepwell/' || current_schema(), '')::text";

const DELETE_DOCUMENT: &str = "
DELETE FROM documents WHERE kind = $1 AND tenant = $2 AND key = $3 AND version = $4
RETURNING version, pg_notify('stepwell/' || current_schema(), '')::text";

const RECORD: &str = "
INSERT INTO audit_log (at, tenant, actor, token, source, action, target, accepted, code, reason)
SELECT u.at, u.tenant, u.actor, u.token, u.source, u.action, u.target, u.accepted, u.code, u.reason
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::boolean[], $9::text[], $10::text[])
    WITH ORDINALITY AS u (at, tenant, actor, token, source, action, target, accepted, code, reason, place)
ORDER BY u.place";

/// Plans are made once for a statement: each index that can find rows has a statement.
macro_rules! audit_rows {
    ($found_by:literal) => {
        concat!(
            "SELECT audit_no, at, tenant, actor, token, source, action, target, accepted, code, reason
FROM audit_log
WHERE audit_no < $1 AND ",
            $found_by,
            " AND ($2::text IS NULL OR tenant = $2) AND ($3::text IS NULL OR actor = $3)
  AND ($4::text IS NULL OR action = $4) AND ($5::text IS NULL OR target = $5)
  AND ($6::boolean IS NULL OR accepted = $6)
ORDER BY audit_no DESC LIMIT $7"
        )
    };
}

const ALL_ROWS: &str = audit_rows!("true");
const ROWS_OF_TENANT: &str = audit_rows!("tenant = $2");
const ROWS_OF_ACTOR: &str = audit_rows!("actor = $3");
const ROWS_OF_TARGET: &str = audit_rows!("target = $5");

/// The trigger of the table lets rows before this time go.
const ALLOW_PRUNING: &str = "
INSERT INTO settings (name, value) VALUES ('audit_pruned_before', $1)
ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value";

const PRUNE: &str = "
WITH gone AS (
    DELETE FROM audit_log WHERE audit_no IN (
        SELECT a.audit_no FROM audit_log a WHERE a.at < $1 ORDER BY a.at, a.audit_no LIMIT $2)
    RETURNING 1
) SELECT count(*) FROM gone";

const END_PRUNING: &str = "DELETE FROM settings WHERE name = 'audit_pruned_before'";

#[cfg(feature = "suite")]
const EVERY_DOCUMENT: &str = "SELECT kind, tenant, key, version, body, changed_at FROM documents";

/// No text of the database has a NUL, so nothing is found by one.
fn has_nul<'a>(texts: impl IntoIterator<Item = &'a str>) -> bool {
    texts.into_iter().any(|text| text.contains('\0'))
}

fn version(expected: u64) -> i64 {
    i64::try_from(expected).unwrap_or(i64::MAX)
}

impl Documents for PostgresStore {
    fn document(&self, kind: &str, tenant: &str, key: &str) -> Result<Option<StoredDocument>> {
        if has_nul([kind, tenant, key]) {
            return Ok(None);
        }
        let rows = self.connections.read(DOCUMENT, &[&kind, &tenant, &key])?;
        Ok(rows.first().map(document))
    }

    fn documents(&self, filter: &DocumentFilter) -> Result<Vec<StoredDocument>> {
        let (after_tenant, after_key) = filter.after.clone().unzip();
        let tenant = filter.tenant.as_deref();
        let asked = [filter.kind.as_str(), &filter.prefix];
        if has_nul(asked.into_iter().chain(tenant)) {
            return Ok(Vec::new());
        }
        let values: Values<'_> = &[
            &filter.kind,
            &tenant,
            &filter.prefix,
            &after_tenant,
            &after_key,
            &limit(filter.limit),
        ];
        let rows = self.connections.read(DOCUMENTS, values)?;
        Ok(rows.iter().map(document).collect())
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
        let given = self.given(now);
        let rows = match expected {
            None => {
                let values: Values<'_> = &[kind, tenant, key, body, &given];
                self.connections.write(CREATE_DOCUMENT, values)?
            }
            Some(expected) => {
                let expected = version(expected);
                let values: Values<'_> = &[kind, tenant, key, body, &given, &expected];
                self.connections.write(CHANGE_DOCUMENT, values)?
            }
        };
        Ok(rows.first().map(|row| unsigned(row.get::<_, i64>(0))))
    }

    fn delete_document(&self, kind: &str, tenant: &str, key: &str, expected: u64) -> Result<bool> {
        if has_nul([kind, tenant, key]) {
            return Ok(false);
        }
        let values: Values<'_> = &[&kind, &tenant, &key, &version(expected)];
        let rows = self.connections.write(DELETE_DOCUMENT, values)?;
        Ok(!rows.is_empty())
    }
}

impl PostgresStore {
    /// All documents, for comparing stores.
    #[cfg(feature = "suite")]
    pub(super) fn all_documents(&self) -> Result<Vec<StoredDocument>> {
        let rows = self.connections.read(EVERY_DOCUMENT, &[])?;
        Ok(rows.iter().map(document).collect())
    }
}

fn document(row: &Row) -> StoredDocument {
    StoredDocument {
        kind: row.get(0),
        tenant: row.get(1),
        key: row.get(2),
        version: unsigned(row.get::<_, i64>(3)),
        body: row.get(4),
        changed_at: Time(row.get(5)),
    }
}

impl AuditLog for PostgresStore {
    fn record(&self, rows: &[AuditRow]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let text = |of: fn(&AuditRow) -> &str| -> Vec<String> {
            rows.iter().map(|row| readable(of(row))).collect()
        };
        let some = |of: fn(&AuditRow) -> &Option<String>| -> Vec<Option<String>> {
            rows.iter()
                .map(|row| of(row).as_deref().map(readable))
                .collect()
        };
        let values: Values<'_> = &[
            &rows.iter().map(|row| row.at.0).collect::<Vec<_>>(),
            &some(|row| &row.tenant),
            &text(|row| &row.actor),
            &some(|row| &row.token),
            &text(|row| &row.source),
            &text(|row| &row.action),
            &text(|row| &row.target),
            &rows.iter().map(|row| row.accepted).collect::<Vec<_>>(),
            &some(|row| &row.code),
            &some(|row| &row.reason),
        ];
        self.connections.write(RECORD, values).map(|_| ())
    }

    fn audit_rows(&self, filter: &AuditFilter) -> Result<Vec<StoredAuditRow>> {
        let AuditFilter {
            tenant,
            actor,
            action,
            target,
            ..
        } = filter;
        // As the rows were written.
        let written = |text: &Option<String>| text.as_deref().map(readable);
        let sql = match (target, actor, tenant) {
            (Some(_), _, _) => ROWS_OF_TARGET,
            (None, Some(_), _) => ROWS_OF_ACTOR,
            (None, None, Some(_)) => ROWS_OF_TENANT,
            (None, None, None) => ALL_ROWS,
        };
        let values: Values<'_> = &[
            &filter.before.unwrap_or(i64::MAX),
            &written(tenant),
            &written(actor),
            &written(action),
            &written(target),
            &filter.accepted,
            &limit(filter.limit),
        ];
        let rows = self.connections.read(sql, values)?;
        Ok(rows.iter().map(audit_row).collect())
    }

    fn prune_audit(&self, before: Time, most: usize) -> Result<usize> {
        let time = before.0.to_string().into_bytes();
        let rows = self.connections.transact(vec![
            Query::new(ALLOW_PRUNING).with(time),
            Query::new(PRUNE).with(before.0).with(limit(most)),
            Query::new(END_PRUNING),
        ])?;
        let counted = rows.get(1).and_then(|rows| rows.first());
        Ok(counted.map_or(0, |row| unsigned(row.get::<_, i64>(0))))
    }
}

fn audit_row(row: &Row) -> StoredAuditRow {
    StoredAuditRow {
        no: row.get(0),
        row: AuditRow {
            at: Time(row.get(1)),
            tenant: row.get(2),
            actor: row.get(3),
            token: row.get(4),
            source: row.get(5),
            action: row.get(6),
            target: row.get(7),
            accepted: row.get(8),
            code: row.get(9),
            reason: row.get(10),
        },
    }
}
