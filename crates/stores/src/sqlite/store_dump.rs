//! Everything the database holds, to compare it with another store.

use rusqlite::{Connection, OptionalExtension as _, params};
use stepwell_engine::store::{
    AuditFilter, DumpRows, MarkerState, NewRun, NoticeFilter, OutsideEvent, Result, RunNo,
    StateSnapshot, StoreDump, tenant_and_name,
};
use stepwell_kernel::time::Time;

use super::log::{HEAD, chunks, head};
use super::{SqliteStore, installation, outbox, run_list, tasks};

impl DumpRows for SqliteStore {
    fn rows(&self) -> Result<StoreDump> {
        self.look(rows, None::<fn() -> bool>)
    }
}

fn rows(conn: &Connection) -> rusqlite::Result<StoreDump> {
    let mut dump = StoreDump::default();
    let all = usize::MAX;
    let runs: Vec<(i64, String)> = conn
        .prepare("SELECT run_no, run_id FROM runs")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (no, id) in &runs {
        let no = RunNo(*no);
        of_run(conn, &mut dump, no, id)?;
        view_rows(conn, &mut dump, no, id)?;
        for chunk in chunks(conn, no, 0, all)? {
            dump.chunk(id, &chunk);
        }
        for task in tasks::of(conn, no)? {
            dump.task(id, &task);
        }
        if let Some(snapshot) = snapshot(conn, no)? {
            dump.snapshot(id, &snapshot);
        }
    }
    of_all(conn, &mut dump)?;
    for letter in outbox::letters(conn, &NoticeFilter::all(all))? {
        dump.letter(&letter);
    }
    for alert in outbox::alerts(conn, &NoticeFilter::all(all))?.iter().rev() {
        dump.alert(alert);
    }
    for document in installation::all_documents(conn)? {
        dump.document(&document);
    }
    let everything = AuditFilter {
        limit: all,
        ..AuditFilter::default()
    };
    for row in installation::audit_rows(conn, &everything)?.iter().rev() {
        dump.audit(&row.row);
    }
    Ok(dump)
}

fn time(at: Option<i64>) -> Option<Time> {
    at.map(Time)
}

fn of_run(conn: &Connection, dump: &mut StoreDump, no: RunNo, id: &str) -> rusqlite::Result<()> {
    conn.query_row(
        "SELECT request_key, tenant, project, environment, parent, event_key, created_at, hash, priority
         FROM runs JOIN plans USING (plan_no) WHERE run_no = ?1",
        [no.0],
        |row| {
            let new = NewRun {
                run_id: id.into(),
                request_key: row.get(0)?,
                plan: None,
                tenant: row.get(1)?,
                project: row.get(2)?,
                environment: row.get(3)?,
                parent: row.get(4)?,
                event_key: row.get(5)?,
                created_at: Time(row.get(6)?),
                priority: row.get(8)?,
                labels: run_list::labels(conn, no.0)?,
            };
            dump.run(&new, &row.get::<_, String>(7)?);
            Ok(())
        },
    )?;
    conn.query_row(
        &format!(
            "SELECT version, due_at,
               CASE WHEN session IS NOT NULL THEN coalesce(name, '?') END, {HEAD}
             FROM heads LEFT JOIN sessions ON session_no = session WHERE run_no = ?1"
        ),
        [no.0],
        |row| {
            let session: Option<String> = row.get(2)?;
            let due_at = time(row.get(1)?);
            dump.head(id, &head(row, 3)?, row.get(0)?, session.as_deref(), due_at);
            Ok(())
        },
    )?;
    let mut keys = conn.prepare_cached("SELECT key FROM event_keys WHERE run_no = ?1")?;
    let mut rows = keys.query([no.0])?;
    while let Some(row) = rows.next()? {
        dump.key(id, &row.get::<_, Vec<u8>>(0)?);
    }
    let mut waits =
        conn.prepare_cached("SELECT step, event_type, given FROM waits WHERE run_no = ?1")?;
    let mut rows = waits.query([no.0])?;
    while let Some(row) = rows.next()? {
        let (step, event_type): (String, String) = (row.get(0)?, row.get(1)?);
        dump.wait(id, &step, &event_type, row.get(2)?);
    }
    let mut projections =
        conn.prepare_cached("SELECT seq, snapshot FROM projections WHERE run_no = ?1")?;
    let mut rows = projections.query([no.0])?;
    while let Some(row) = rows.next()? {
        dump.projection(id, row.get(0)?, &row.get::<_, String>(1)?);
    }
    Ok(())
}

fn view_rows(conn: &Connection, dump: &mut StoreDump, no: RunNo, id: &str) -> rusqlite::Result<()> {
    let mut statement =
        conn.prepare_cached("SELECT view_name, row_no, body FROM view_rows WHERE run_no = ?1")?;
    let mut rows = statement.query([no.0])?;
    while let Some(row) = rows.next()? {
        let (view, body): (String, String) = (row.get(0)?, row.get(2)?);
        dump.view_row(id, &view, row.get(1)?, &body);
    }
    Ok(())
}

/// Rows that do not belong to one run, or whose order counts.
fn of_all(conn: &Connection, dump: &mut StoreDump) -> rusqlite::Result<()> {
    let mut unique = conn.prepare(
        "SELECT unique_keys.tenant, key, run_id FROM unique_keys JOIN runs USING (run_no)",
    )?;
    let mut rows = unique.query([])?;
    while let Some(row) = rows.next()? {
        let (tenant, key): (String, String) = (row.get(0)?, row.get(1)?);
        dump.unique_key(&tenant, &key, &row.get::<_, String>(2)?);
    }
    let mut inbox = conn.prepare(
        "SELECT event_id, coalesce(event_type, ''), coalesce(event_key, ''),
           coalesce(payload, ''), coalesce(mail, ''), given FROM inbox",
    )?;
    let mut rows = inbox.query([])?;
    while let Some(row) = rows.next()? {
        let (id, key): (String, String) = (row.get(0)?, row.get(2)?);
        let (tenant, id) = tenant_and_name(&id);
        let event = OutsideEvent {
            tenant: tenant.into(),
            id: id.into(),
            event_type: row.get(1)?,
            key: tenant_and_name(&key).1.into(),
            payload: row.get(3)?,
            mail: row.get(4)?,
        };
        dump.inbox(&event, row.get(5)?);
    }
    let mut mail = conn.prepare(
        "SELECT run_id, body, answer FROM mailbox JOIN runs USING (run_no) ORDER BY mail_no",
    )?;
    let mut rows = mail.query([])?;
    while let Some(row) = rows.next()? {
        let (id, body): (String, String) = (row.get(0)?, row.get(1)?);
        dump.mail(&id, &body, row.get::<_, Option<String>>(2)?.as_deref());
    }
    let mut markers = conn.prepare(
        "SELECT sink, run_id, first_seq, attempts, due_at, publisher, until, why, since
         FROM outbox JOIN runs USING (run_no)",
    )?;
    let mut rows = markers.query([])?;
    while let Some(row) = rows.next()? {
        let (sink, id): (String, String) = (row.get(0)?, row.get(1)?);
        let state = MarkerState {
            attempts: row.get(3)?,
            due_at: Time(row.get(4)?),
            publisher: row.get(5)?,
            until: time(row.get(6)?),
            why: row.get(7)?,
            since: Time(row.get(8)?),
        };
        dump.marker(&sink, &id, row.get(2)?, &state);
    }
    let mut slots = conn.prepare("SELECT slot_key, taken FROM slots")?;
    let mut rows = slots.query([])?;
    while let Some(row) = rows.next()? {
        dump.slots(&row.get::<_, String>(0)?, row.get(1)?);
    }
    let mut sessions = conn.prepare("SELECT name, until, dead FROM sessions")?;
    let mut rows = sessions.query(params![])?;
    while let Some(row) = rows.next()? {
        let until = Time(row.get(1)?);
        dump.session(&row.get::<_, String>(0)?, until, row.get(2)?);
    }
    Ok(())
}

/// The state of a run that was written down last.
fn snapshot(conn: &Connection, run: RunNo) -> rusqlite::Result<Option<StateSnapshot>> {
    conn.prepare_cached("SELECT seq, version, body FROM snapshots WHERE run_no = ?1")?
        .query_row([run.0], |row| {
            Ok(StateSnapshot {
                seq: row.get(0)?,
                version: row.get(1)?,
                body: row.get(2)?,
            })
        })
        .optional()
}
