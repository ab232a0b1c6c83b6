//! Calls that belong to no run under way: documents, the audit log, and runs that are deleted.

use super::{Driver, shown};
use crate::store::{AuditRow, DeleteFilter, DocumentFilter, NewDocument};

impl Driver<'_> {
    /// Documents, the audit log, and runs that are deleted.
    pub(super) fn administer(&mut self) -> String {
        let (kind, tenant) = (self.chance.name("kind", 2), self.chance.name("tenant", 2));
        let key = self.chance.name("key", 3);
        let version = self.chance.below(4) as u64;
        match self.chance.below(9) {
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
            6 => shown("prune_audit", &self.store.prune_audit(self.now, 2)),
            _ => {
                let filter = DeleteFilter {
                    ended_before: self.soon(),
                    statuses: (0..self.chance.below(3))
                        .map(|it| format!("STATUS{it}"))
                        .collect(),
                    tenant: self.chance.once_in(2).then_some(tenant),
                };
                let gone = self.store.delete_ended(&filter, 2, self.now).unwrap();
                self.runs
                    .retain(|(no, _)| gone.iter().all(|it| it.run != *no));
                let show = gone
                    .into_iter()
                    .map(|it| (it.run_id, it.status, it.ended_at));
                shown("delete_ended", &show.collect::<Vec<_>>())
            }
        }
    }
}
