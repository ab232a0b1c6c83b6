//! Messages to runs, and events from outside.

use stepwell_engine::store::{
    Delivered, Inbox, Mailbox, MessageNo, MessageState, OutsideEvent, Result, RunNo, SessionNo,
    StoredMessage,
};
use stepwell_kernel::time::Time;
use tokio_postgres::Row;

use super::query::Query;
use super::{PostgresStore, limit, reads, sql};

/// A message to a run that is not there gets a number and is not kept.
const POST: &str = "
WITH posted AS (
    INSERT INTO mailbox (run_no, body)
    SELECT $1, $2 WHERE EXISTS (SELECT FROM runs WHERE run_no = $1) RETURNING mail_no
)
SELECT COALESCE((SELECT mail_no FROM posted),
                nextval(pg_get_serial_sequence('mailbox', 'mail_no'))),
       pg_notify('stepwell/' || current_schema(), '')";

const MAIL: &str = "
SELECT m.mail_no, m.run_no, m.body FROM mailbox m JOIN heads h ON h.run_no = m.run_no
WHERE m.answer IS NULL AND (h.session_no IS NULL OR h.session_no = $1)
ORDER BY m.mail_no LIMIT $2";

/// The first answer stays: its sender may be reading it already.
const ANSWER: &str = "
UPDATE mailbox SET answer = $2 WHERE mail_no = $1 AND answer IS NULL";

const TAKE_ANSWER: &str = "
WITH read AS (
    DELETE FROM mailbox WHERE mail_no = $1 AND answer IS NOT NULL RETURNING answer
)
SELECT EXISTS (SELECT FROM mailbox WHERE mail_no = $1 AND answer IS NULL), (SELECT answer FROM read)";

/// One lock for each key and type, in the order in which commits take them.
const LOCK_KEYS: &str = "
SELECT pg_advisory_xact_lock(x.lock) FROM (
    SELECT DISTINCT hashtextextended(u.event_key, hashtextextended(u.event_type, 0)) AS lock
    FROM unnest($1::text[], $2::text[]) AS u (event_key, event_type)
    ORDER BY 1
) x";

const DELIVER: &str = "
WITH waiter AS MATERIALIZED (
    SELECT w.run_no, w.step FROM waits w
    WHERE w.event_key = $3 AND w.event_type = $2 AND NOT w.given
    ORDER BY w.since, w.run_no, w.step LIMIT 1 FOR UPDATE
), kept AS (
    INSERT INTO inbox (since, event_id, event_type, event_key, payload, mail, given)
    VALUES (clock($6), $1, $2, $3, $4, $5, EXISTS (SELECT FROM waiter))
    ON CONFLICT DO NOTHING RETURNING event_id
), gave AS (
    UPDATE waits w SET given = true FROM waiter
    WHERE w.run_no = waiter.run_no AND w.step = waiter.step AND EXISTS (SELECT FROM kept)
), posted AS (
    INSERT INTO mailbox (run_no, body)
    SELECT run_no, $5 FROM waiter WHERE EXISTS (SELECT FROM kept)
)
SELECT EXISTS (SELECT FROM kept), (SELECT run_no FROM waiter)";

impl Mailbox for PostgresStore {
    fn post(&self, to: RunNo, body: &str, _now: Time) -> Result<MessageNo> {
        let rows = self.connections.write(POST, &[&to.0, &body])?;
        Ok(MessageNo(reads::first(&rows)?.get(0)))
    }

    fn mail(&self, session: SessionNo, most: usize) -> Result<Vec<StoredMessage>> {
        let rows = self.connections.read(MAIL, &[&session.0, &limit(most)])?;
        Ok(rows.iter().map(reads::letter).collect())
    }

    fn answer(&self, mail: MessageNo, answer: &str) -> Result<()> {
        self.connections.write(ANSWER, &[&mail.0, &answer])?;
        Ok(())
    }

    fn take_answer(&self, mail: MessageNo) -> Result<MessageState> {
        let rows = self.connections.write(TAKE_ANSWER, &[&mail.0])?;
        let row = reads::first(&rows)?;
        let (waits, answer): (bool, Option<String>) = (row.get(0), row.get(1));
        Ok(match (waits, answer) {
            (true, _) => MessageState::Waiting,
            (false, None) => MessageState::Taken,
            (false, Some(answer)) => MessageState::Answered(answer),
        })
    }

    fn news(&self) -> Result<i64> {
        self.connections.news()
    }
}

impl Inbox for PostgresStore {
    fn deliver_all(&self, events: &[OutsideEvent], now: Time) -> Result<Vec<Delivered>> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<&String> = events.iter().map(|event| &event.key).collect();
        let types: Vec<&String> = events.iter().map(|event| &event.event_type).collect();
        // A commit that begins to wait takes the same locks, so neither misses the other.
        let mut steps = vec![Query::new(LOCK_KEYS).with(keys).with(types)];
        for event in events {
            steps.push(
                Query::new(DELIVER)
                    .with(&event.id)
                    .with(&event.event_type)
                    .with(&event.key)
                    .with(&event.payload)
                    .with(&event.mail)
                    .with(self.given(now)),
            );
        }
        steps.push(Query::new(sql::NOTIFY));
        let answers = self.connections.transact(steps)?;
        let delivered = answers.iter().skip(1).take(events.len());
        delivered.map(|rows| delivered_to(rows)).collect()
    }
}

fn delivered_to(rows: &[Row]) -> Result<Delivered> {
    let row = reads::first(rows)?;
    let (new, to): (bool, Option<i64>) = (row.get(0), row.get(1));
    Ok(match (new, to) {
        (false, _) => Delivered::Again,
        (true, Some(run)) => Delivered::ToRun(RunNo(run)),
        (true, None) => Delivered::Kept,
    })
}
