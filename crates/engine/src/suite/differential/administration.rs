//! Calls that belong to no run under way: documents and the audit log.

use super::{Driver, shown};
use crate::store::{AuditRow, DocumentFilter, NewDocument};

impl Driver<'_> {
    /// Documents and the audit log.
    pub(super) fn administer(&mut self) -> String {
        let (kind, tenant) = (self.chance.name("kind", 2), self.chance.name("tenant", 2));
        let key = self.chance.name("key", 3);
        let version = self.chance.below(4) as u64;
        match self.chance.below(7) {
            0..=2 => {
                let document = NewDocument {
                    kind,
                    tenant,
                    key,
                    body: format!("{{\"step\":{}}}", self.steps),
                };
                let expected = (version > 0).then_some(version);
                shown(
                    "put_document",
                    &self.store.put_document(&document, expected, self.now),
                )
            }
            3 => shown(
                "delete_document",
                &self.store.delete_document(&kind, &tenant, &key, version),
            ),
            4 => {
                let filter = DocumentFilter {
                    kind,
                    tenant: self.chance.once_in(2).then_some(tenant),
                    after: self.chance.once_in(2).then(|| ("tenant0".into(), key)),
                    limit: 1 + self.chance.below(9),
                    ..DocumentFilter::default()
                };
                shown("documents", &self.store.documents(&filter))
            }
            5 => {
                let row = AuditRow {
                    at: self.soon(),
                    tenant: self.chance.once_in(2).then_some(tenant),
                    action: key,
                    accepted: self.chance.once_in(2),
                    ..AuditRow::default()
                };
                shown("record", &self.store.record(&[row]))
            }
            _ => shown("prune_audit", &self.store.prune_audit(self.now, 2)),
        }
    }
}
