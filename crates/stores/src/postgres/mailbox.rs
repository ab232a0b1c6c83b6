//! Messages to runs, and events from outside.

use stepwell_engine::store::{
    Delivered, Inbox, InboxEvent, Mailbox, MessageNo, MessageState, OutsideEvent, Result, RunNo,
    SessionNo, StoredMessage, name_of_tenant, tenant_and_name,
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

/// The id and the key of the inbox have the tenant in them.
const DELIVER: &str = "
WITH waiter AS MATERIALIZED (
    SELECT w.run_no, w.step FROM waits w JOIN runs r ON r.run_no = w.run_no
    WHERE w.event_key = $3 AND w.event_type = $2 AND NOT w.given AND r.tenant = $7
    ORDER BY w.since, w.run_no, w.step LIMIT 1 FOR UPDATE OF w
), kept AS (
    INSERT INTO inbox (since, event_id, event_type, event_key, payload, mail, given)
    VALUES (clock($6), $1, $2, $8, $4, $5, EXISTS (SELECT FROM waiter))
    ON CONFLICT DO NOTHING RETURNING event_id
), gave AS (
    UPDATE waits w SET given = true FROM waiter
    WHERE w.run_no = waiter.run_no AND w.step = waiter.step AND EXISTS (SELECT FROM kept)
), posted AS (
    INSERT INTO mailbox (run_no, body)
    SELECT run_no, $5 FROM waiter WHERE EXISTS (SELECT FROM kept)
)
SELECT EXISTS (SELECT FROM kept), (SELECT run_no FROM waiter)";

/// An event whose message was taken before stays as it is, and `DELIVER` then finds it.
const TAKE_BACK: &str = "
WITH taken AS (
    DELETE FROM mailbox WHERE mail_no = $1 AND answer IS NULL RETURNING mail_no
)
DELETE FROM inbox WHERE event_id = $2 AND EXISTS (SELECT FROM taken)";

const KEPT: &str = "
SELECT event_id, since, payload FROM inbox
WHERE event_key = $2 AND event_type = $1 AND NOT given AND (since, event_id) > ($3, $4)
ORDER BY since, event_id LIMIT $5";

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
        let mut steps = vec![lock_keys(events)];
        steps.extend(events.iter().map(|event| self.deliver_step(event, now)));
        steps.push(Query::new(sql::NOTIFY));
        let answers = self.connections.transact(steps)?;
        let delivered = answers.iter().skip(1).take(events.len());
        delivered.map(|rows| delivered_to(rows)).collect()
    }

    fn give_back(&self, message: MessageNo, event: &OutsideEvent, now: Time) -> Result<Delivered> {
        let id = name_of_tenant(&event.tenant, &event.id).into_owned();
        let steps = vec![
            lock_keys(std::slice::from_ref(event)),
            Query::new(TAKE_BACK).with(message.0).with(id),
            self.deliver_step(event, now),
            Query::new(sql::NOTIFY),
        ];
        let answers = self.connections.transact(steps)?;
        delivered_to(answers.get(2).map_or(&[], |rows| rows))
    }

    fn kept(
        &self,
        tenant: &str,
        event_type: &str,
        key: &str,
        after: (Time, &str),
        most: usize,
    ) -> Result<Vec<InboxEvent>> {
        let (since, id) = (after.0.0, name_of_tenant(tenant, after.1));
        let key = name_of_tenant(tenant, key);
        let rows = self
            .connections
            .read(KEPT, &[&event_type, &&*key, &since, &&*id, &limit(most)])?;
        let kept = |row: &Row| InboxEvent {
            id: tenant_and_name(row.get(0)).1.to_owned(),
            since: Time(row.get(1)),
            payload: row.get(2),
        };
        Ok(rows.iter().map(kept).collect())
    }
}

/// A commit that begins to wait takes the same locks, so neither misses the other.
fn lock_keys(events: &[OutsideEvent]) -> Query<'_> {
    let keys: Vec<&String> = events.iter().map(|event| &event.key).collect();
    let types: Vec<&String> = events.iter().map(|event| &event.event_type).collect();
    Query::new(LOCK_KEYS).with(keys).with(types)
}

impl PostgresStore {
    fn deliver_step<'a>(&self, event: &'a OutsideEvent, now: Time) -> Query<'a> {
        Query::new(DELIVER)
            .with(name_of_tenant(&event.tenant, &event.id).into_owned())
            .with(&event.event_type)
            .with(&event.key)
            .with(&event.payload)
            .with(&event.mail)
            .with(self.given(now))
            .with(&event.tenant)
            .with(name_of_tenant(&event.tenant, &event.key).into_owned())
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
