//! Messages to runs, events from outside, and the outbox.

use std::collections::HashSet;

use stepwell_kernel::time::Time;

use super::{DeadLetter, Kept, MarkerState, MemoryStore, Run, Tables};
use crate::store::{
    AlertRow, Delivered, Mailbox, Marker, MessageNo, NewAlert, Outbox, OutsideEvent, Result, RunNo,
    SessionNo, StoredMessage,
};

impl Tables {
    /// The run that has waited longest for the event, by its step that has.
    fn waiting_for(&self, event: &OutsideEvent) -> Option<(RunNo, String)> {
        let runs = self.runs.iter();
        let runs = runs.filter(|(_, run)| run.row.event_key == event.key);
        let waits = runs.flat_map(|(no, run)| run.waits.iter().map(|it| (*no, it)));
        let fitting =
            waits.filter(|(_, (_, wait))| !wait.given && wait.event_type == event.event_type);
        let longest = fitting.min_by_key(|(no, (step, wait))| (wait.since, *no, *step));
        longest.map(|(no, (step, _))| (no, step.clone()))
    }

    fn marker(&self, key: &(String, RunNo, u64), state: &MarkerState) -> Marker {
        Marker {
            sink: key.0.clone(),
            run: key.1,
            run_id: self.run_id(key.1),
            first: key.2,
            attempts: state.attempts,
        }
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

    fn answered(&self, mail: MessageNo) -> Result<Option<Option<String>>> {
        let mut tables = self.tables();
        let lies_there = tables.mail.get(&mail).is_some_and(|it| it.answer.is_none());
        if lies_there {
            return Ok(None);
        }
        Ok(Some(tables.mail.remove(&mail).and_then(|it| it.answer)))
    }

    fn deliver(&self, event: &OutsideEvent, now: Time) -> Result<Delivered> {
        let mut tables = self.tables();
        if tables.inbox.contains_key(&event.id) {
            return Ok(Delivered::Again);
        }
        let goes_to = tables.waiting_for(event);
        let kept = Kept {
            event: event.clone(),
            since: now,
            given: goes_to.is_some(),
        };
        tables.inbox.insert(event.id.clone(), kept);
        let Some((no, step)) = goes_to else {
            return Ok(Delivered::Kept);
        };
        let run = tables.runs.get_mut(&no);
        if let Some(wait) = run.and_then(|run| run.waits.get_mut(&step)) {
            wait.given = true;
        }
        tables.post(no, &event.mail);
        Ok(Delivered::ToRun(no))
    }

    fn news(&self) -> Result<i64> {
        Ok(self.tables().last_mail)
    }
}

impl Outbox for MemoryStore {
    fn take(
        &self,
        sink: &str,
        publisher: &str,
        now: Time,
        until: Time,
        limit: usize,
    ) -> Result<Vec<Marker>> {
        let mut tables = self.tables();
        let mut seen = HashSet::new();
        let its = tables.outbox.iter().filter(|(key, _)| key.0 == sink);
        // Only a run's oldest marker is looked at: one that is not due, or that someone has, holds up
        // those after it. That is what keeps the order.
        let oldest = its.filter(|(key, _)| seen.insert(key.1));
        let free = oldest.filter(|(_, state)| {
            state.due_at <= now && state.until.is_none_or(|until| until < now)
        });
        let mut free: Vec<_> = free
            .map(|(key, state)| (state.due_at, key.1, key.clone()))
            .collect();
        free.sort_unstable();
        free.truncate(limit);
        let mut taken = Vec::with_capacity(free.len());
        for (_, _, key) in free {
            if let Some(state) = tables.outbox.get_mut(&key) {
                state.publisher = Some(publisher.into());
                state.until = Some(until);
                let state = state.clone();
                taken.push(tables.marker(&key, &state));
            }
        }
        Ok(taken)
    }

    fn sent(&self, marker: &Marker) -> Result<()> {
        self.tables().outbox.remove(&key(marker));
        Ok(())
    }

    fn failed(&self, marker: &Marker, at: Time, why: &str) -> Result<()> {
        if let Some(state) = self.tables().outbox.get_mut(&key(marker)) {
            state.attempts += 1;
            state.due_at = at;
            state.publisher = None;
            state.until = None;
            state.why = Some(why.into());
        }
        Ok(())
    }

    fn bury(&self, marker: &Marker, now: Time, why: &str, alert: &NewAlert) -> Result<()> {
        let mut tables = self.tables();
        let key = key(marker);
        // Someone else may have delivered or buried it since: then there is nothing to tell.
        let Some(mut state) = tables.outbox.remove(&key) else {
            return Ok(());
        };
        state.attempts += 1;
        tables.last_letter += 1;
        let letter = DeadLetter {
            no: tables.last_letter,
            marker: tables.marker(&key, &state),
            why: why.into(),
            at: now,
        };
        tables.letters.insert(letter.no, letter);
        tables.raise(Some(marker.run), alert, now);
        Ok(())
    }

    fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>> {
        let tables = self.tables();
        Ok(tables.letters.values().take(limit).cloned().collect())
    }

    fn redrive(&self, letter: i64) -> Result<bool> {
        let mut tables = self.tables();
        let Some(letter) = tables.letters.remove(&letter) else {
            return Ok(false);
        };
        // A new beginning: all attempts again, and due since it was given up.
        let state = MarkerState {
            attempts: 0,
            due_at: letter.at,
            publisher: None,
            until: None,
            why: None,
            since: letter.at,
        };
        tables.outbox.insert(key(&letter.marker), state);
        Ok(true)
    }

    fn backlog(&self, sink: &str) -> Result<(u64, Option<Time>)> {
        let tables = self.tables();
        let its = tables.outbox.iter().filter(|(key, _)| key.0 == sink);
        let since: Vec<Time> = its.map(|(_, state)| state.since).collect();
        Ok((since.len() as u64, since.into_iter().min()))
    }

    fn alert(&self, run: Option<RunNo>, alert: &NewAlert, now: Time) -> Result<()> {
        self.tables().raise(run, alert, now);
        Ok(())
    }

    fn alerts(&self, limit: usize) -> Result<Vec<AlertRow>> {
        let tables = self.tables();
        Ok(tables.alerts.iter().rev().take(limit).cloned().collect())
    }

    fn put_projection(&self, run: RunNo, seq: u64, snapshot: &str, _now: Time) -> Result<()> {
        let mut tables = self.tables();
        let run = tables.runs.get_mut(&run);
        let behind = |run: &&mut Run| run.projection.as_ref().is_none_or(|(kept, _)| *kept <= seq);
        if let Some(run) = run.filter(behind) {
            run.projection = Some((seq, snapshot.into()));
        }
        Ok(())
    }

    fn projection(&self, run: RunNo) -> Result<Option<(u64, String)>> {
        let tables = self.tables();
        Ok(tables.runs.get(&run).and_then(|run| run.projection.clone()))
    }
}

fn key(marker: &Marker) -> (String, RunNo, u64) {
    (marker.sink.clone(), marker.run, marker.first)
}
