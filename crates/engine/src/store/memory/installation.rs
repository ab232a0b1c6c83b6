//! Documents of the installation, and the audit log.

use stepwell_kernel::time::Time;

use super::MemoryStore;
use crate::store::{
    AuditFilter, AuditLog, AuditRow, DocumentFilter, Documents, NewDocument, Result,
    StoredAuditRow, StoredDocument,
};

impl Documents for MemoryStore {
    fn document(&self, kind: &str, tenant: &str, key: &str) -> Result<Option<StoredDocument>> {
        Ok(self
            .tables()
            .documents
            .get(&place(kind, tenant, key))
            .cloned())
    }

    fn documents(&self, filter: &DocumentFilter) -> Result<Vec<StoredDocument>> {
        let tables = self.tables();
        let of_kind = tables.documents.values().filter(|it| {
            let tenant = filter.tenant.as_ref();
            it.kind == filter.kind && tenant.is_none_or(|tenant| *tenant == it.tenant)
        });
        let named = of_kind.filter(|it| it.key.starts_with(&filter.prefix));
        let later = named.filter(|it| {
            let after = filter.after.as_ref();
            after.is_none_or(|(tenant, key)| (&it.tenant, &it.key) > (tenant, key))
        });
        Ok(later.take(filter.limit).cloned().collect())
    }

    fn put_document(
        &self,
        document: &NewDocument,
        expected: Option<u64>,
        now: Time,
    ) -> Result<Option<u64>> {
        let mut tables = self.tables();
        let place = place(&document.kind, &document.tenant, &document.key);
        let kept = tables.documents.get(&place).map(|it| it.version);
        if kept != expected {
            return Ok(None);
        }
        let version = kept.unwrap_or(0) + 1;
        let document = document.clone();
        let stored = StoredDocument {
            kind: document.kind,
            tenant: document.tenant,
            key: document.key,
            version,
            body: document.body,
            changed_at: now,
        };
        tables.documents.insert(place, stored);
        Ok(Some(version))
    }

    fn delete_document(&self, kind: &str, tenant: &str, key: &str, expected: u64) -> Result<bool> {
        let mut tables = self.tables();
        let place = place(kind, tenant, key);
        let found = tables.documents.get(&place);
        let is_expected = found.is_some_and(|it| it.version == expected);
        if is_expected {
            tables.documents.remove(&place);
        }
        Ok(is_expected)
    }
}

fn place(kind: &str, tenant: &str, key: &str) -> (String, String, String) {
    (kind.to_owned(), tenant.to_owned(), key.to_owned())
}

impl AuditLog for MemoryStore {
    fn record(&self, rows: &[AuditRow]) -> Result<()> {
        let mut tables = self.tables();
        for row in rows {
            tables.last_audit += 1;
            let no = tables.last_audit;
            tables.audit.insert(no, row.clone());
        }
        Ok(())
    }

    fn audit_rows(&self, filter: &AuditFilter) -> Result<Vec<StoredAuditRow>> {
        let tables = self.tables();
        let end = filter.before.unwrap_or(i64::MAX);
        let newest_first = tables.audit.range(..end).rev();
        let fits = |row: &AuditRow| {
            let says =
                |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|it| it == is);
            (filter.tenant.is_none() || filter.tenant == row.tenant)
                && says(&filter.actor, &row.actor)
                && says(&filter.action, &row.action)
                && says(&filter.target, &row.target)
                && filter.accepted.is_none_or(|it| it == row.accepted)
        };
        let found = newest_first.filter(|(_, row)| fits(row));
        let found = found.map(|(no, row)| StoredAuditRow {
            no: *no,
            row: row.clone(),
        });
        Ok(found.take(filter.limit).collect())
    }

    fn prune_audit(&self, before: Time, limit: usize) -> Result<usize> {
        let mut tables = self.tables();
        let old = tables.audit.iter().filter(|(_, row)| row.at < before);
        let mut old: Vec<(Time, i64)> = old.map(|(no, row)| (row.at, *no)).collect();
        old.sort_unstable();
        old.truncate(limit);
        for (_, no) in &old {
            tables.audit.remove(no);
        }
        Ok(old.len())
    }
}
