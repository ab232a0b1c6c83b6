//! Everything the store holds, for comparing stores. Reads all rows: for tests.

use stepwell_engine::store::{
    AuditFilter, AuditLog as _, DeadLetters as _, DumpRows, MarkerState, NewRun, OutsideEvent,
    Result, StateSnapshot, StoreDump, tenant_and_name,
};
use stepwell_kernel::time::Time;
use tokio_postgres::Row;

use super::{PostgresStore, outbox, reads, run_list, tasks, unsigned};

const RUNS: &str = "
SELECT r.run_id, r.request_key, r.tenant, r.project, r.environment, r.parent, r.event_key,
       r.created_at, p.hash, r.priority,
       ARRAY(SELECT l.name FROM run_labels l WHERE l.run_no = r.run_no ORDER BY l.name),
       ARRAY(SELECT l.value FROM run_labels l WHERE l.run_no = r.run_no ORDER BY l.name)
FROM runs r JOIN plans p ON p.plan_no = r.plan_no";

const HEADS: &str = "
SELECT h.status, h.substatus, h.session_no, h.wake_at, h.queued, h.ended_at, h.version, r.run_id,
       CASE WHEN h.session_no IS NOT NULL THEN COALESCE(s.name, '?') END, h.due_at, h.slots
FROM heads h JOIN runs r ON r.run_no = h.run_no
LEFT JOIN sessions s ON s.session_no = h.session_no";

const LOG: &str = "
SELECT l.first_seq, l.last_seq, l.commit_session, l.commit_number, l.codec, l.body, l.digests,
       r.run_id FROM log l JOIN runs r ON r.run_no = l.run_no";

const KEYS: &str = "
SELECT r.run_id, k.key FROM event_keys k JOIN runs r ON r.run_no = k.run_no";

const TASKS: &str = "
SELECT t.run_no, t.target, t.queue, t.op, t.priority, t.visible_at, t.worker, t.until, t.leased,
       t.stopping, r.run_id FROM tasks t JOIN runs r ON r.run_no = t.run_no";

const WAITS: &str = "
SELECT r.run_id, w.step, w.event_type, w.given FROM waits w JOIN runs r ON r.run_no = w.run_no";

const INBOX: &str = "SELECT event_id, event_type, event_key, payload, mail, given FROM inbox";

const MAIL: &str = "
SELECT r.run_id, m.body, m.answer FROM mailbox m JOIN runs r ON r.run_no = m.run_no
ORDER BY m.mail_no";

const OUTBOX: &str = "
SELECT o.sink, r.run_id, o.first_seq, o.attempts, o.due_at, o.publisher, o.until, o.why, o.since
FROM outbox o JOIN runs r ON r.run_no = o.run_no";

const SLOTS: &str = "SELECT key, taken FROM slots";

const UNIQUE_KEYS: &str = "
SELECT k.tenant, k.key, r.run_id FROM unique_keys k JOIN runs r ON r.run_no = k.run_no";

const VIEW_ROWS: &str = "
SELECT r.run_id, v.view_name, v.row_no, v.body FROM view_rows v JOIN runs r ON r.run_no = v.run_no";

const SNAPSHOTS: &str = "
SELECT r.run_id, s.seq, s.version, s.body FROM snapshots s JOIN runs r ON r.run_no = s.run_no";

const ALERTS: &str = "
SELECT a.alert_no, r.run_id, a.code, a.priority, a.message, a.at, a.run_no
FROM alerts a LEFT JOIN runs r ON r.run_no = a.run_no ORDER BY a.alert_no";

const PROJECTIONS: &str = "
SELECT r.run_id, p.seq, p.snapshot FROM projections p JOIN runs r ON r.run_no = p.run_no";

const SESSIONS: &str = "SELECT name, ends_at, dead FROM sessions";

fn time(row: &Row, column: usize) -> Option<Time> {
    row.get::<_, Option<i64>>(column).map(Time)
}

impl PostgresStore {
    fn all(&self, sql: &'static str) -> Result<Vec<Row>> {
        self.connections.read(sql, &[])
    }

    fn draw_runs(&self, dump: &mut StoreDump) -> Result<()> {
        for row in self.all(RUNS)? {
            let new = NewRun {
                run_id: row.get(0),
                request_key: row.get(1),
                plan: None,
                tenant: row.get(2),
                project: row.get(3),
                environment: row.get(4),
                parent: row.get(5),
                event_key: row.get(6),
                created_at: Time(row.get(7)),
                priority: row.get(9),
                labels: run_list::labels(&row, 10),
            };
            dump.run(&new, row.get(8));
        }
        for row in self.all(HEADS)? {
            let due_at = time(&row, 9);
            dump.head(
                row.get(7),
                &reads::head(&row)?,
                row.get(6),
                row.get(8),
                due_at,
            );
        }
        for row in self.all(LOG)? {
            dump.chunk(row.get(7), &reads::chunk(&row));
        }
        for row in self.all(KEYS)? {
            dump.key(row.get(0), row.get(1));
        }
        for row in self.all(TASKS)? {
            dump.task(row.get(10), &tasks::task(&row));
        }
        for row in self.all(UNIQUE_KEYS)? {
            dump.unique_key(row.get(0), row.get(1), row.get(2));
        }
        for row in self.all(VIEW_ROWS)? {
            let row_no = unsigned(row.get::<_, i64>(2));
            dump.view_row(row.get(0), row.get(1), row_no, row.get(3));
        }
        for row in self.all(SNAPSHOTS)? {
            let snapshot = StateSnapshot {
                seq: unsigned(row.get::<_, i32>(1)),
                version: row.get(2),
                body: row.get(3),
            };
            dump.snapshot(row.get(0), &snapshot);
        }
        for row in self.all(PROJECTIONS)? {
            dump.projection(row.get(0), unsigned(row.get::<_, i32>(1)), row.get(2));
        }
        Ok(())
    }

    fn draw_post(&self, dump: &mut StoreDump) -> Result<()> {
        for row in self.all(WAITS)? {
            dump.wait(row.get(0), row.get(1), row.get(2), row.get(3));
        }
        for row in self.all(INBOX)? {
            let (id, key): (String, String) = (row.get(0), row.get(2));
            let (tenant, id) = tenant_and_name(&id);
            let event = OutsideEvent {
                tenant: tenant.into(),
                id: id.into(),
                event_type: row.get(1),
                key: tenant_and_name(&key).1.into(),
                payload: row.get(3),
                mail: row.get(4),
            };
            dump.inbox(&event, row.get(5));
        }
        for row in self.all(MAIL)? {
            dump.mail(row.get(0), row.get(1), row.get(2));
        }
        for row in self.all(OUTBOX)? {
            let state = MarkerState {
                attempts: unsigned(row.get::<_, i32>(3)),
                due_at: Time(row.get(4)),
                publisher: row.get(5),
                until: time(&row, 6),
                why: row.get(7),
                since: Time(row.get(8)),
            };
            dump.marker(
                row.get(0),
                row.get(1),
                unsigned(row.get::<_, i32>(2)),
                &state,
            );
        }
        Ok(())
    }
}

impl DumpRows for PostgresStore {
    fn rows(&self) -> Result<StoreDump> {
        let mut dump = StoreDump::default();
        self.draw_runs(&mut dump)?;
        self.draw_post(&mut dump)?;
        for letter in self.dead_letters(usize::MAX)? {
            dump.letter(&letter);
        }
        for row in self.all(ALERTS)? {
            dump.alert(&outbox::alert(&row));
        }
        for row in self.all(SLOTS)? {
            let taken: i32 = row.get(1);
            dump.slots(row.get(0), unsigned(taken));
        }
        for row in self.all(SESSIONS)? {
            dump.session(row.get(0), Time(row.get(1)), row.get(2));
        }
        for document in self.all_documents()? {
            dump.document(&document);
        }
        let everything = AuditFilter {
            limit: usize::MAX,
            ..AuditFilter::default()
        };
        for row in self.audit_rows(&everything)?.iter().rev() {
            dump.audit(&row.row);
        }
        Ok(dump)
    }
}
