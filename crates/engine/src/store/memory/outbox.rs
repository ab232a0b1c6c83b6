//! The outbox, dead letters, alerts and projections.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};

use stepwell_kernel::time::Time;

use super::{DeadLetter, MarkerState, MemoryStore, NewRun, Run, Tables};
use crate::store::{
    AlertRow, Alerts, DeadLetters, DeliveryFailure, Marker, NewAlert, NewProjection, NoticeFilter,
    Outbox, Projections, Result, RunNo, SinkRow, SinkStart,
};

impl Tables {
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

    fn backlog(&self, sink: &str) -> Result<(u64, Option<Time>)> {
        let tables = self.tables();
        let its = tables.outbox.iter().filter(|(key, _)| key.0 == sink);
        let since: Vec<Time> = its.map(|(_, state)| state.since).collect();
        Ok((since.len() as u64, since.into_iter().min()))
    }

    fn delivery_failure(&self, sink: &str) -> Result<Option<DeliveryFailure>> {
        let tables = self.tables();
        let its = tables.outbox.iter().filter(|(key, _)| key.0 == sink);
        let failed = its.filter_map(|(key, state)| {
            let failure = DeliveryFailure {
                attempts: state.attempts,
                why: state.why.clone()?,
                due_at: state.due_at,
            };
            Some(((state.attempts, Reverse((key.1, key.2))), failure))
        });
        Ok(failed.max_by_key(|it| it.0).map(|it| it.1))
    }

    fn waiting_sinks(&self) -> Result<Vec<String>> {
        let tables = self.tables();
        let sinks: BTreeSet<&String> = tables.outbox.keys().map(|key| &key.0).collect();
        Ok(sinks.into_iter().cloned().collect())
    }

    fn add_sink(&self, sink: &SinkRow, start: SinkStart, now: Time) -> Result<u64> {
        let mut tables = self.tables();
        tables.sinks.insert(sink.name.clone(), sink.clone());
        if start == SinkStart::Now {
            return Ok(0);
        }
        let chunks = tables.runs.iter();
        let chunks: Vec<(RunNo, u64)> = chunks
            .flat_map(|(no, run)| run.chunks.keys().map(|first| (*no, *first)))
            .collect();
        let before = tables.outbox.len();
        for (run, first) in chunks {
            let key = (sink.name.clone(), run, first);
            tables.outbox.entry(key).or_insert(MarkerState::due(now));
        }
        Ok((tables.outbox.len() - before) as u64)
    }

    fn sinks(&self) -> Result<Vec<SinkRow>> {
        Ok(self.tables().sinks.values().cloned().collect())
    }

    fn remove_sink(&self, name: &str) -> Result<Option<u64>> {
        let mut tables = self.tables();
        if tables.sinks.remove(name).is_none() {
            return Ok(None);
        }
        let before = tables.outbox.len();
        tables.outbox.retain(|key, _| key.0 != name);
        Ok(Some((before - tables.outbox.len()) as u64))
    }
}

impl DeadLetters for MemoryStore {
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

    fn list_dead_letters(&self, filter: &NoticeFilter) -> Result<Vec<DeadLetter>> {
        let tables = self.tables();
        let found = tables.letters.values().filter(|it| {
            filter.past.is_none_or(|past| match filter.newest_first {
                true => it.no < past,
                false => it.no > past,
            }) && filter
                .word
                .as_ref()
                .is_none_or(|sink| *sink == it.marker.sink)
                && tables.is_about(filter, &it.marker.run_id)
        });
        Ok(match filter.newest_first {
            true => found.rev().take(filter.limit).cloned().collect(),
            false => found.take(filter.limit).cloned().collect(),
        })
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
}

impl Alerts for MemoryStore {
    fn alert(&self, run: Option<RunNo>, alert: &NewAlert, now: Time) -> Result<()> {
        self.tables().raise(run, alert, now);
        Ok(())
    }

    fn list_alerts(&self, filter: &NoticeFilter) -> Result<Vec<AlertRow>> {
        let tables = self.tables();
        let found = tables.alerts.iter().rev().filter(|it| {
            filter.past.is_none_or(|past| it.no < past)
                && filter.word.as_ref().is_none_or(|code| *code == it.code)
                && match &it.run_id {
                    Some(run_id) => tables.is_about(filter, run_id),
                    None => filter.about_store,
                }
        });
        Ok(found.take(filter.limit).cloned().collect())
    }
}

impl Tables {
    /// Whether a run is one that the filter asks for.
    fn is_about(&self, filter: &NoticeFilter, run_id: &str) -> bool {
        let run = self.ids.get(run_id).and_then(|no| self.runs.get(no));
        let of = |wanted: &Option<String>, own: fn(&NewRun) -> &String| {
            wanted
                .as_ref()
                .is_none_or(|it| run.is_some_and(|run| own(&run.row) == it))
        };
        of(&filter.tenant, |row| &row.tenant)
            && of(&filter.project, |row| &row.project)
            && of(&filter.run_id, |row| &row.run_id)
    }
}

impl Projections for MemoryStore {
    fn put_projections(&self, all: &[NewProjection], _now: Time) -> Result<()> {
        let mut tables = self.tables();
        for new in all {
            let run = tables.runs.get_mut(&new.run);
            let is_behind = |run: &&mut Run| {
                let kept = run.projection.as_ref();
                kept.is_none_or(|(kept, _)| *kept <= new.seq)
            };
            if let Some(run) = run.filter(is_behind) {
                run.projection = Some((new.seq, new.snapshot.clone()));
            }
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
