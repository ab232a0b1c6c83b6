//! All rows of the memory store, for comparing stores.

use super::MemoryStore;
use crate::store::{DumpRows, Result, StoreDump};

impl DumpRows for MemoryStore {
    fn rows(&self) -> Result<StoreDump> {
        let tables = self.tables();
        let mut dump = StoreDump::default();
        for run in tables.runs.values() {
            let id = run.row.run_id.as_str();
            let hash = tables.plan(run.plan).map_or("", |it| it.hash.as_str());
            dump.run(&run.row, hash);
            let session = run.head.session.map(|no| {
                let session = tables.sessions.get(&no);
                session.map_or("?", |it| it.name.as_str())
            });
            dump.head(id, &run.head, run.version, session, run.due_at);
            run.chunks.values().for_each(|it| dump.chunk(id, it));
            run.keys.iter().for_each(|it| dump.key(id, it));
            run.tasks.values().for_each(|it| dump.task(id, it));
            for (step, wait) in &run.waits {
                dump.wait(id, step, &wait.event_type, wait.given);
            }
            for ((view, row_no), body) in &run.view_rows {
                dump.view_row(id, view, *row_no, body);
            }
            run.snapshot.iter().for_each(|it| dump.snapshot(id, it));
            if let Some((seq, snapshot)) = &run.projection {
                dump.projection(id, *seq, snapshot);
            }
        }
        for (unique, run) in &tables.unique_keys {
            dump.unique_key(&unique.tenant, &unique.key, &tables.run_id(*run));
        }
        for kept in tables.inbox.values() {
            dump.inbox(&kept.event, kept.given);
        }
        for row in tables.mail.values() {
            dump.mail(&tables.run_id(row.run), &row.body, row.answer.as_deref());
        }
        for ((sink, run, first), state) in &tables.outbox {
            dump.marker(sink, &tables.run_id(*run), *first, state);
        }
        tables.letters.values().for_each(|it| dump.letter(it));
        tables.alerts.iter().for_each(|it| dump.alert(it));
        for (key, taken) in &tables.slots {
            dump.slots(key, *taken);
        }
        tables.documents.values().for_each(|it| dump.document(it));
        tables.audit.values().for_each(|it| dump.audit(it));
        for session in tables.sessions.values() {
            dump.session(&session.name, session.until, session.dead);
        }
        Ok(dump)
    }
}
