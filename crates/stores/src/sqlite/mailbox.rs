//! Messages to runs, and events from outside that look for one.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use stepwell_engine::store::{
    Delivered, Inbox, InboxEvent, Mailbox, MessageNo, MessageState, OutsideEvent, Result, RunNo,
    SessionNo, StoredMessage, WaitChange, name_of_tenant, tenant_and_name,
};
use stepwell_kernel::time::Time;

use super::SqliteStore;
use super::tasks::limit_of;

/// Puts a message into the mailbox of a run that is there.
pub(super) fn put(
    conn: &Connection,
    run: RunNo,
    body: &str,
    now: Time,
) -> rusqlite::Result<MessageNo> {
    conn.prepare_cached("INSERT INTO mailbox (run_no, body, at) VALUES (?1, ?2, ?3)")?
        .execute(params![run.0, body, now.0])?;
    Ok(MessageNo(conn.last_insert_rowid()))
}

/// Whether a message of the run can be taken.
pub(super) fn lies_there(conn: &Connection, run: RunNo, no: MessageNo) -> rusqlite::Result<bool> {
    conn.prepare_cached(
        "SELECT 1 FROM mailbox WHERE mail_no = ?1 AND run_no = ?2 AND answer IS NULL",
    )?
    .exists([no.0, run.0])
}

/// Takes a message out.
pub(super) fn remove(conn: &Connection, no: MessageNo) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM mailbox WHERE mail_no = ?1")?
        .execute([no.0])?;
    Ok(())
}

/// A run's unanswered messages, oldest first.
pub(super) fn of(conn: &Connection, run: RunNo) -> rusqlite::Result<Vec<StoredMessage>> {
    conn.prepare_cached(
        "SELECT mail_no, run_no, body FROM mailbox WHERE run_no = ?1 AND answer IS NULL
         ORDER BY mail_no",
    )?
    .query_map([run.0], mail)?
    .collect()
}

fn mail(row: &Row<'_>) -> rusqlite::Result<StoredMessage> {
    Ok(StoredMessage {
        no: MessageNo(row.get(0)?),
        run: RunNo(row.get(1)?),
        body: row.get(2)?,
    })
}

/// Changes a row of `waits` in a commit; an event that is kept for it becomes mail at once.
pub(super) fn change_wait(
    conn: &Connection,
    run: RunNo,
    change: &WaitChange,
    now: Time,
) -> rusqlite::Result<()> {
    let (step, event_type) = match change {
        WaitChange::Delete { step } => {
            conn.prepare_cached("DELETE FROM waits WHERE run_no = ?1 AND step = ?2")?
                .execute(params![run.0, step])?;
            return Ok(());
        }
        WaitChange::Put { step, event_type } => (step, event_type),
    };
    let (tenant, event_key): (String, String) = conn
        .prepare_cached("SELECT tenant, event_key FROM runs WHERE run_no = ?1")?
        .query_row([run.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let kept: Option<(i64, String)> = conn
        .prepare_cached(
            "SELECT event_no, mail FROM inbox
             WHERE event_type = ?1 AND event_key = ?2 AND given = 0 ORDER BY at, event_id LIMIT 1",
        )?
        .query_row(
            params![event_type, name_of_tenant(&tenant, &event_key)],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    // A step that waits anew waits behind the others.
    conn.prepare_cached(
        "INSERT OR REPLACE INTO waits (run_no, step, event_type, event_key, since, given)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        run.0,
        step,
        event_type,
        event_key,
        now.0,
        kept.is_some()
    ])?;
    if let Some((event_no, body)) = kept {
        conn.prepare_cached(
            "UPDATE inbox SET given = 1, event_type = NULL, event_key = NULL, payload = NULL,
               mail = NULL
             WHERE event_no = ?1",
        )?
        .execute([event_no])?;
        put(conn, run, &body, now)?;
    }
    Ok(())
}

fn deliver(conn: &Connection, event: &OutsideEvent, now: Time) -> rusqlite::Result<Delivered> {
    let id = name_of_tenant(&event.tenant, &event.id);
    let known = conn
        .prepare_cached("SELECT 1 FROM inbox WHERE event_id = ?1")?
        .exists([&id])?;
    if known {
        return Ok(Delivered::Again);
    }
    let waiting: Option<(i64, String)> = conn
        .prepare_cached(
            "SELECT run_no, step FROM waits CROSS JOIN runs USING (run_no)
             WHERE event_type = ?1 AND waits.event_key = ?2 AND given = 0 AND tenant = ?3
             ORDER BY since, run_no, step LIMIT 1",
        )?
        .query_row([&event.event_type, &event.key, &event.tenant], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let Some((run, step)) = waiting else {
        conn.prepare_cached(
            "INSERT INTO inbox (event_id, event_type, event_key, payload, mail, at, given)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)",
        )?
        .execute(params![
            id,
            event.event_type,
            name_of_tenant(&event.tenant, &event.key),
            event.payload,
            event.mail,
            now.0
        ])?;
        return Ok(Delivered::Kept);
    };
    conn.prepare_cached("INSERT INTO inbox (event_id, at, given) VALUES (?1, ?2, 1)")?
        .execute(params![id, now.0])?;
    conn.prepare_cached("UPDATE waits SET given = 1 WHERE run_no = ?1 AND step = ?2")?
        .execute(params![run, step])?;
    put(conn, RunNo(run), &event.mail, now)?;
    Ok(Delivered::ToRun(RunNo(run)))
}

impl Mailbox for SqliteStore {
    fn post(&self, to: RunNo, body: &str, now: Time) -> Result<MessageNo> {
        self.send(|conn| {
            let no = put(conn, to, body, now)?;
            let there = conn
                .prepare_cached("SELECT 1 FROM runs WHERE run_no = ?1")?
                .exists([to.0])?;
            if !there {
                // Its number is used up, so that asking for an answer says that it is gone.
                remove(conn, no)?;
            }
            Ok(no)
        })
    }

    fn mail(&self, session: SessionNo, limit: usize) -> Result<Vec<StoredMessage>> {
        self.read(|conn| {
            conn.prepare_cached(
                "SELECT mail_no, run_no, body
                 FROM mailbox INDEXED BY mailbox_unanswered CROSS JOIN heads USING (run_no)
                 WHERE answer IS NULL AND (session IS NULL OR session = ?1)
                 ORDER BY mail_no LIMIT ?2",
            )?
            .query_map(params![session.0, limit_of(limit)], mail)?
            .collect()
        })
    }

    fn answer(&self, mail: MessageNo, answer: &str) -> Result<()> {
        self.write(|conn| {
            // The first answer stays: its sender may be reading it already.
            conn.prepare_cached(
                "UPDATE mailbox SET answer = ?2 WHERE mail_no = ?1 AND answer IS NULL",
            )?
            .execute(params![mail.0, answer])?;
            Ok(())
        })
    }

    fn take_answer(&self, mail: MessageNo) -> Result<MessageState> {
        let look = |conn: &Connection| -> rusqlite::Result<Option<Option<String>>> {
            conn.prepare_cached("SELECT answer FROM mailbox WHERE mail_no = ?1")?
                .query_row([mail.0], |row| row.get(0))
                .optional()
        };
        match self.read(look)? {
            None => Ok(MessageState::Taken),
            Some(None) => Ok(MessageState::Waiting),
            Some(Some(_)) => self.send(|conn| {
                // Between the two someone else may have read it.
                let answer = look(conn)?.flatten();
                remove(conn, mail)?;
                Ok(answer.map_or(MessageState::Taken, MessageState::Answered))
            }),
        }
    }

    fn news(&self) -> Result<i64> {
        self.data_version()
    }
}

impl Inbox for SqliteStore {
    fn deliver_all(&self, events: &[OutsideEvent], now: Time) -> Result<Vec<Delivered>> {
        self.send(|conn| events.iter().map(|it| deliver(conn, it, now)).collect())
    }

    fn give_back(&self, message: MessageNo, event: &OutsideEvent, now: Time) -> Result<Delivered> {
        self.send(|conn| {
            let taken = conn
                .prepare_cached("DELETE FROM mailbox WHERE mail_no = ?1 AND answer IS NULL")?
                .execute([message.0])?;
            if taken == 0 {
                return Ok(Delivered::Again);
            }
            conn.prepare_cached("DELETE FROM inbox WHERE event_id = ?1")?
                .execute([name_of_tenant(&event.tenant, &event.id)])?;
            deliver(conn, event, now)
        })
    }

    fn kept(
        &self,
        tenant: &str,
        event_type: &str,
        key: &str,
        after: (Time, &str),
        limit: usize,
    ) -> Result<Vec<InboxEvent>> {
        self.read(|conn| {
            conn.prepare_cached(
                "SELECT event_id, at, payload FROM inbox
                 WHERE event_type = ?1 AND event_key = ?2 AND given = 0 AND (at, event_id) > (?3, ?4)
                 ORDER BY at, event_id LIMIT ?5",
            )?
            .query_map(
                params![
                    event_type,
                    name_of_tenant(tenant, key),
                    after.0.0,
                    name_of_tenant(tenant, after.1),
                    limit_of(limit)
                ],
                |row| {
                    let id: String = row.get(0)?;
                    Ok(InboxEvent {
                        id: tenant_and_name(&id).1.to_owned(),
                        since: Time(row.get(1)?),
                        payload: row.get(2)?,
                    })
                },
            )?
            .collect()
        })
    }
}
