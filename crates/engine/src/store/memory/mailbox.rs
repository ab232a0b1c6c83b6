//! Messages to runs, and events from outside.

use stepwell_kernel::time::Time;

use super::{Kept, MemoryStore, Tables};
use crate::store::{
    Delivered, Inbox, InboxEvent, Mailbox, MessageNo, MessageState, OutsideEvent, Result, RunNo,
    SessionNo, StoredMessage,
};

impl Tables {
    /// The run that has waited longest for the event, by its step that has.
    fn waiting_for(&self, event: &OutsideEvent) -> Option<(RunNo, String)> {
        let runs = self.runs.iter();
        let runs = runs
            .filter(|(_, run)| run.row.event_key == event.key && run.row.tenant == event.tenant);
        let waits = runs.flat_map(|(no, run)| run.waits.iter().map(|it| (*no, it)));
        let fitting =
            waits.filter(|(_, (_, wait))| !wait.given && wait.event_type == event.event_type);
        let longest = fitting.min_by_key(|(no, (step, wait))| (wait.since, *no, *step));
        longest.map(|(no, (step, _))| (no, step.clone()))
    }
}

impl Mailbox for MemoryStore {
    fn post(&self, to: RunNo, body: &str, _now: Time) -> Result<MessageNo> {
        Ok(self.tables().post(to, body))
    }

    fn mail(&self, session: SessionNo, limit: usize) -> Result<Vec<StoredMessage>> {
        let tables = self.tables();
        let reachable = tables.mail_where(|row| {
            let run = tables.runs.get(&row.run);
            run.is_some_and(|run| run.head.session.is_none_or(|it| it == session))
        });
        Ok(reachable.take(limit).collect())
    }

    fn answer(&self, mail: MessageNo, answer: &str) -> Result<()> {
        if let Some(row) = self.tables().mail.get_mut(&mail) {
            // The first answer stays: its sender may be reading it already.
            row.answer.get_or_insert_with(|| answer.into());
        }
        Ok(())
    }

    fn take_answer(&self, mail: MessageNo) -> Result<MessageState> {
        let mut tables = self.tables();
        let waits = tables.mail.get(&mail).is_some_and(|it| it.answer.is_none());
        if waits {
            return Ok(MessageState::Waiting);
        }
        let answer = tables.mail.remove(&mail).and_then(|it| it.answer);
        Ok(answer.map_or(MessageState::Taken, MessageState::Answered))
    }

    fn news(&self) -> Result<i64> {
        Ok(self.tables().last_mail)
    }
}

impl Inbox for MemoryStore {
    fn deliver_all(&self, events: &[OutsideEvent], now: Time) -> Result<Vec<Delivered>> {
        let mut tables = self.tables();
        let deliver = |event| deliver(&mut tables, event, now);
        Ok(events.iter().map(deliver).collect())
    }

    fn give_back(&self, message: MessageNo, event: &OutsideEvent, now: Time) -> Result<Delivered> {
        let mut tables = self.tables();
        let lies_there = tables
            .mail
            .get(&message)
            .is_some_and(|it| it.answer.is_none());
        if !lies_there {
            return Ok(Delivered::Again);
        }
        tables.mail.remove(&message);
        tables
            .inbox
            .remove(&(event.tenant.clone(), event.id.clone()));
        Ok(deliver(&mut tables, event, now))
    }

    fn kept(
        &self,
        tenant: &str,
        event_type: &str,
        key: &str,
        after: (Time, &str),
        limit: usize,
    ) -> Result<Vec<InboxEvent>> {
        let tables = self.tables();
        let kept = tables.inbox.values().filter(|it| !it.given);
        let fits = kept.filter(|it| {
            let event = &it.event;
            event.tenant == tenant && event.event_type == event_type && event.key == key
        });
        let mut found: Vec<InboxEvent> = fits
            .filter(|it| (it.since, it.event.id.as_str()) > after)
            .map(|it| InboxEvent {
                id: it.event.id.clone(),
                since: it.since,
                payload: it.event.payload.clone(),
            })
            .collect();
        found.sort_by(|a, b| (a.since, &a.id).cmp(&(b.since, &b.id)));
        found.truncate(limit);
        Ok(found)
    }
}

fn deliver(tables: &mut Tables, event: &OutsideEvent, now: Time) -> Delivered {
    let id = (event.tenant.clone(), event.id.clone());
    if tables.inbox.contains_key(&id) {
        return Delivered::Again;
    }
    let goes_to = tables.waiting_for(event);
    let kept = Kept {
        event: event.clone(),
        since: now,
        given: goes_to.is_some(),
    };
    tables.inbox.insert(id, kept);
    let Some((no, step)) = goes_to else {
        return Delivered::Kept;
    };
    let run = tables.runs.get_mut(&no);
    if let Some(wait) = run.and_then(|run| run.waits.get_mut(&step)) {
        wait.given = true;
    }
    tables.post(no, &event.mail);
    Delivered::ToRun(no)
}
