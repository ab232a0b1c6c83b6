//! The second half of a commit: the rows that follow once every append has won.

use std::collections::BTreeMap;

use stepwell_engine::store::{Append, Batch, WaitChange};
use stepwell_kernel::effect::Priority;

use super::append_checks::{Found, Put, puts, unique_key_step};
use super::columns::task_updates;
use super::commit::Part;
use super::query::Query;
use super::sql;

/// The statements, in the order in which every commit writes its tables.
pub(super) fn steps<'a>(
    batch: &'a Batch,
    given: Option<i64>,
    wave: &[Part<'a>],
    found: &Found,
) -> Vec<Query<'a>> {
    let appends: Vec<&'a Append> = wave.iter().map(|(_, it)| *it).collect();
    let mut steps = tasks(batch, given, &appends);
    steps.extend(waits(given, &appends, &puts(wave), found));
    steps.extend(unique_keys(&appends));
    steps.extend(view_rows(&appends));
    steps.extend(labels(&appends));
    steps.extend(markers(given, &appends));
    steps.extend(registered(given, &appends));
    steps.extend(snapshots(&appends));
    steps.extend(alerts(given, &appends));
    if !found.slots.is_empty() {
        let (keys, taken): (Vec<String>, Vec<i32>) = found
            .slots
            .iter()
            .map(|(key, taken)| (key.clone(), super::seq(u64::from(*taken))))
            .unzip();
        steps.push(Query::new(sql::SET_SLOTS).with(keys).with(taken));
    }
    steps
}

/// Mail comes last: it may be for a run that a later part of the batch creates.
pub(super) fn mail<'a>(parts: &[Part<'a>], kept_events: bool) -> Vec<Query<'a>> {
    let mail = parts.iter().flat_map(|(_, it)| &it.mail);
    let (to, body): (Vec<&'a str>, Vec<&'a str>) =
        mail.map(|it| (it.to.as_str(), it.body.as_str())).unzip();
    let mut steps = Vec::new();
    if !to.is_empty() || kept_events {
        steps.push(Query::new(sql::NOTIFY));
    }
    if !to.is_empty() {
        steps.push(Query::new(sql::POST_BY_ID).with(to).with(body));
    }
    steps
}

fn tasks<'a>(batch: &'a Batch, given: Option<i64>, appends: &[&'a Append]) -> Vec<Query<'a>> {
    let (mut gone_run, mut gone) = (Vec::new(), Vec::new());
    let (mut run, mut target, mut queue, mut op) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut priority, mut visible, mut stopping) = (Vec::new(), Vec::new(), Vec::new());
    let (mut worker, mut until): (Vec<Option<&str>>, Vec<Option<i64>>) = Default::default();
    let (mut old_run, mut old, mut old_stop) = (Vec::new(), Vec::new(), Vec::new());
    let (mut old_worker, mut old_until): (Vec<Option<&str>>, Vec<Option<i64>>) = Default::default();
    for append in appends.iter().filter(|it| !it.tasks.is_empty()) {
        for (name, update) in task_updates(&append.tasks) {
            if update.deleted {
                gone_run.push(append.run.0);
                gone.push(name);
            } else if let Some((its_queue, its_op, its_priority, visible_at)) = update.put {
                run.push(append.run.0);
                target.push(name);
                queue.push(its_queue);
                op.push(its_op);
                priority.push(its_priority);
                visible.push(visible_at);
                worker.push(update.lease.map(|it| it.0));
                until.push(update.lease.map(|it| it.1));
                stopping.push(update.stopped);
            } else {
                old_run.push(append.run.0);
                old.push(name);
                old_worker.push(update.lease.map(|it| it.0));
                old_until.push(update.lease.map(|it| it.1));
                old_stop.push(update.stopped);
            }
        }
    }
    let now = batch.now.0;
    let mut steps = Vec::new();
    if !gone.is_empty() {
        steps.push(Query::new(sql::DELETE_TASKS).with(gone_run).with(gone));
    }
    if !run.is_empty() {
        let step = Query::new(sql::PUT_TASKS).with(given).with(now);
        let step = step.with(run).with(target).with(queue).with(op);
        let step = step.with(priority).with(visible).with(worker);
        steps.push(step.with(until).with(stopping));
    }
    if !old.is_empty() {
        let step = Query::new(sql::CHANGE_TASKS).with(given).with(now);
        let step = step.with(old_run).with(old).with(old_worker);
        steps.push(step.with(old_until).with(old_stop));
    }
    steps
}

fn waits<'a>(
    now: Option<i64>,
    appends: &[&'a Append],
    puts: &[Put<'a>],
    found: &Found,
) -> Vec<Query<'a>> {
    // What a commit says last about a step counts; each begin of a wait still gets its event.
    let mut last: BTreeMap<(i64, &'a str), Option<usize>> = BTreeMap::new();
    let mut place = 0;
    for append in appends {
        for change in &append.waits {
            match change {
                WaitChange::Delete { step } => {
                    last.insert((append.run.0, step), None);
                }
                WaitChange::Put { step, .. } => {
                    last.insert((append.run.0, step), Some(place));
                    place += 1;
                }
            }
        }
    }
    let mut steps = Vec::new();
    let gone = last.iter().filter(|(_, put)| put.is_none());
    let (run, step): (Vec<i64>, Vec<&str>) = gone.map(|(key, _)| *key).unzip();
    if !run.is_empty() {
        steps.push(Query::new(sql::DELETE_WAITS).with(run).with(step));
    }
    let mut kept: Vec<usize> = last.values().filter_map(|it| *it).collect();
    kept.sort_unstable();
    if !kept.is_empty() {
        let kept_puts = || kept.iter().map(|place| &puts[*place]);
        let given = kept.iter().map(|it| found.kept_events.contains_key(it));
        steps.push(
            Query::new(sql::PUT_WAITS)
                .with(now)
                .with(kept_puts().map(|it| it.run).collect::<Vec<_>>())
                .with(given.collect::<Vec<_>>())
                .with(kept_puts().map(|it| it.step).collect::<Vec<_>>())
                .with(kept_puts().map(|it| it.event_type).collect::<Vec<_>>()),
        );
    }
    let mut kept_events: Vec<_> = found.kept_events.iter().collect();
    kept_events.sort_unstable_by_key(|(place, _)| **place);
    if !kept_events.is_empty() {
        let events = kept_events.iter().map(|(_, (event, _))| event.clone());
        steps.push(Query::new(sql::GIVE_EVENTS).with(events.collect::<Vec<_>>()));
        let runs = kept_events.iter().map(|(place, _)| puts[**place].run);
        let mail = kept_events.iter().map(|(_, (_, mail))| mail.clone());
        steps.push(
            Query::new(sql::POST_BY_NUMBER)
                .with(runs.collect::<Vec<_>>())
                .with(mail.collect::<Vec<_>>()),
        );
    }
    steps
}

fn unique_keys<'a>(appends: &[&'a Append]) -> impl Iterator<Item = Query<'a>> {
    let changes = || {
        let change = |it: &&'a Append| Some((it.run.0, it.unique_key.as_deref()?));
        appends.iter().filter_map(change)
    };
    let taken = changes().filter_map(|(run, change)| Some((run, change.taken()?)));
    let freed = changes().filter(|(_, change)| change.taken().is_none());
    let freed = freed.map(|(run, change)| (run, change.key()));
    [
        unique_key_step(sql::FREE_UNIQUE_KEYS, freed),
        unique_key_step(sql::TAKE_UNIQUE_KEYS, taken),
    ]
    .into_iter()
    .flatten()
}

fn view_rows<'a>(appends: &[&'a Append]) -> Option<Query<'a>> {
    // A statement may not write a row twice; the last word counts.
    let mut last: BTreeMap<(i64, &'a str, u32), &'a str> = BTreeMap::new();
    for append in appends {
        for row in &append.view_rows {
            last.insert((append.run.0, row.view, row.row_no), &row.body);
        }
    }
    let rows = last.keys();
    let step = || {
        Query::new(sql::VIEW_ROWS)
            .with(rows.clone().map(|it| it.0).collect::<Vec<_>>())
            .with(rows.clone().map(|it| i64::from(it.2)).collect::<Vec<_>>())
            .with(rows.clone().map(|it| it.1).collect::<Vec<_>>())
            .with(last.values().copied().collect::<Vec<_>>())
    };
    (!last.is_empty()).then(step)
}

fn labels<'a>(appends: &[&'a Append]) -> Option<Query<'a>> {
    let (mut runs, mut names, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for append in appends {
        for (name, value) in append.create.iter().flat_map(|new| &new.labels) {
            runs.push(append.run.0);
            names.push(name.as_str());
            values.push(value.as_str());
        }
    }
    let step = Query::new(sql::LABELS);
    (!runs.is_empty()).then(|| step.with(runs).with(names).with(values))
}

fn markers<'a>(given: Option<i64>, appends: &[&'a Append]) -> Option<Query<'a>> {
    let (mut sinks, mut runs, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
    for append in appends {
        let Some(chunk) = &append.chunk else {
            continue;
        };
        for sink in &append.sinks {
            sinks.push(sink.as_str());
            runs.push(append.run.0);
            firsts.push(super::seq(chunk.first));
        }
    }
    let step = Query::new(sql::MARK).with(given);
    (!sinks.is_empty()).then(|| step.with(sinks).with(runs).with(firsts))
}

fn registered<'a>(given: Option<i64>, appends: &[&'a Append]) -> Option<Query<'a>> {
    let chunks = || {
        let with_chunk = appends.iter();
        with_chunk.filter_map(|it| it.chunk.as_ref().map(|chunk| (it.run.0, chunk.first)))
    };
    let step = || {
        Query::new(sql::MARK_REGISTERED)
            .with(given)
            .with(chunks().map(|(run, _)| run).collect::<Vec<_>>())
            .with(
                chunks()
                    .map(|(_, first)| super::seq(first))
                    .collect::<Vec<_>>(),
            )
    };
    (chunks().count() > 0).then(step)
}

fn snapshots<'a>(appends: &[&'a Append]) -> Option<Query<'a>> {
    let all: Vec<_> = appends
        .iter()
        .filter_map(|it| Some((it.run.0, it.snapshot.as_ref()?)))
        .collect();
    let step = || {
        Query::new(sql::SNAPSHOTS)
            .with(all.iter().map(|(run, _)| *run).collect::<Vec<_>>())
            .with(
                all.iter()
                    .map(|(_, it)| super::seq(it.seq))
                    .collect::<Vec<_>>(),
            )
            .with(all.iter().map(|(_, it)| it.version).collect::<Vec<_>>())
            .with(
                all.iter()
                    .map(|(_, it)| it.body.as_slice())
                    .collect::<Vec<_>>(),
            )
    };
    (!all.is_empty()).then(step)
}

fn alerts<'a>(given: Option<i64>, appends: &[&'a Append]) -> Option<Query<'a>> {
    let (mut runs, mut ranks) = (Vec::new(), Vec::new());
    let (mut codes, mut messages) = (Vec::new(), Vec::new());
    for append in appends {
        for alert in &append.alerts {
            runs.push(append.run.0);
            ranks.push(rank(alert.priority));
            codes.push(alert.code.as_str());
            messages.push(alert.message.as_str());
        }
    }
    let step = Query::new(sql::ALERTS).with(given);
    let some = !runs.is_empty();
    some.then(|| step.with(runs).with(ranks).with(codes).with(messages))
}

/// A priority as the tables have it.
pub(super) fn rank(priority: Priority) -> i16 {
    match priority {
        Priority::P1 => 1,
        Priority::P2 => 2,
        Priority::P3 => 3,
    }
}

/// The priority for a number of the tables; an unknown number is the lowest priority.
pub(super) fn priority(rank: i16) -> Priority {
    match rank {
        1 => Priority::P1,
        2 => Priority::P2,
        _ => Priority::P3,
    }
}
