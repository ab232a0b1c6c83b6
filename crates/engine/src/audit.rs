//! Looks for damage in the runs of a store: the hash chain of each log, its plan, and the rows that follow
//! from it. `stepwell db check` uses this for all runs at once, the scrub (`scrub`) for one run after the
//! other. Rows that differ from the log can be made anew from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stepwell_dialects::{RunChange, ViewRow, document};
use stepwell_kernel::decide::next_wake;
use stepwell_kernel::event::{Body, Event, WaitKind};
use stepwell_kernel::evolve::evolve;
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::{Phase, State};
use stepwell_kernel::time::Time;

use crate::chain_check::ChainCheck;
use crate::chunk;
use crate::coordinator::is_whole;
use crate::engine_routes::{LATE_MS, engine_outside};
use crate::error::Error;
use crate::read;
use crate::store::{DerivedRows, Head, KeptRows, RunColumns, RunNo, Store, StoreError, StoredRun};

/// How many chunks are read at a time.
const PAGE: usize = 64;

/// A run that is due is offered again after a while; no server waits for longer. Milliseconds.
const LONGEST_OFFER: u64 = 3_600_000;

/// Damage of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDamage {
    pub run_id: String,
    /// The table that has the damage.
    pub table: &'static str,
    /// What is wrong, and what it means.
    pub what: String,
    /// The rows follow from the log and can be made anew.
    pub derivable: bool,
}

/// A run that was audited.
#[derive(Clone, Debug, Default)]
pub struct Audited {
    pub findings: Vec<RunDamage>,
    /// The rows that follow from the log; none if the log itself is damaged.
    pub derived: Option<DerivedRows>,
    /// How many bytes of the log were read.
    pub bytes: u64,
    /// What a newer version wrote and this version does not know, in words. Rows that follow from such a log are not
    /// compared, since this version cannot tell what they must be.
    pub unknown: Vec<String>,
}

impl Audited {
    /// The log or the plan is damaged: the run must not be served.
    #[must_use]
    pub fn log_damage(&self) -> Option<&RunDamage> {
        self.findings.iter().find(|it| !it.derivable)
    }
}

/// Audits a run. Runs that are not there have no damage. On `Err` the store could not be read, which for a
/// store that is otherwise there means damage too: see `StoreErrorKind::Corrupt`.
pub fn audit(store: &dyn Store, run: RunNo, now: Time) -> Result<Audited, StoreError> {
    // One view of the run: others may append meanwhile.
    let Some(stored) = store.load(run)? else {
        return Ok(Audited::default());
    };
    let mut audited = Audited::default();
    let log = match read_log(store, &stored, &mut audited.bytes) {
        Ok(log) => log,
        Err(Error::Store(error)) => return Err(error),
        Err(error) => {
            audited.findings.push(RunDamage {
                run_id: stored.run_id.clone(),
                table: if matches!(error, Error::Plan { .. }) {
                    "plans"
                } else {
                    "log"
                },
                what: format!("{error}; the run is not served"),
                derivable: false,
            });
            return Ok(audited);
        }
    };
    // A second view: rows of a run that another process changes meanwhile are compared by the next audit.
    let kept = store.kept_rows(run)?;
    let again = store.load(run)?;
    let is_same = again.is_some_and(|it| {
        it.head_version == stored.head_version
            && it.chunks.last().map(|chunk| chunk.last) == stored.chunks.last().map(|it| it.last)
    });
    let derived = log.derived(&stored, now);
    let is_known = log.unknown.is_empty();
    audited.unknown = log.unknown.clone();
    if is_known {
        audited.findings = log.compare(&stored);
    }
    if let Some(kept) = kept.filter(|_| is_same) {
        if let Some(lost) = lost_events(&kept, &derived, log.opaque) {
            audited.findings = vec![RunDamage {
                run_id: stored.run_id.clone(),
                table: "log",
                what: format!(
                    "the end of the log is lost: the store has the keys of {lost} more events than the log; the run is \
                     not served"
                ),
                derivable: false,
            }];
            return Ok(audited);
        }
        let differing = match is_known {
            true => log.compare_rows(&stored, &kept, &derived, now),
            false => Vec::new(),
        };
        let found = differing.into_iter().map(|(table, what)| RunDamage {
            run_id: stored.run_id.clone(),
            table,
            what,
            derivable: true,
        });
        audited.findings.extend(found);
    }
    audited.derived = is_known.then_some(derived);
    Ok(audited)
}

/// How many events were recorded that a log no longer has: the keys of events outlive the end of a log. A log that was
/// cut must not be what other rows are made from. The keys of opaque events are only counted.
fn lost_events(kept: &KeptRows, derived: &DerivedRows, opaque: usize) -> Option<usize> {
    let kept: BTreeSet<&Vec<u8>> = kept.keys.iter().collect();
    let has_all = derived.keys.iter().all(|key| kept.contains(key));
    let lost = kept.len().saturating_sub(derived.keys.len() + opaque);
    (has_all && lost > 0).then_some(lost)
}

/// A log that is whole, and what follows from it.
struct WholeLog {
    plan: Arc<Plan>,
    state: State,
    events: Vec<Event>,
    /// By the name of the view and the place in it.
    view_rows: BTreeMap<(&'static str, u32), String>,
    /// What this version does not know, in words.
    unknown: Vec<String>,
    /// How many events this version cannot read.
    opaque: usize,
}

fn read_log(store: &dyn Store, stored: &StoredRun, bytes: &mut u64) -> Result<WholeLog, Error> {
    let plan = read::plan(store, stored.plan, &stored.run_id)?;
    let last = stored.chunks.last().map_or(0, |it| it.last);
    let mut chain = ChainCheck::new(&stored.run_id);
    let mut state = State::new(&stored.run_id, &plan);
    let mut all: Vec<Event> = Vec::new();
    let mut view_rows = BTreeMap::new();
    let (mut unknown, mut opaque, mut is_lost) = (Vec::new(), 0, false);
    while chain.seq() < last {
        let before = chain.seq();
        for chunk in store.chunks(stored.run, before, PAGE)? {
            if chunk.first > last {
                break;
            }
            *bytes += (chunk.body.len() + chunk.digests.len()) as u64;
            let parts = chain.verify_parts(&plan.net().plan_version, &chunk)?;
            let events = chunk::decode(chunk.first, chunk.codec, &chunk.body);
            let events = events.map_err(|source| Error::Unreadable {
                run_id: stored.run_id.clone(),
                source,
            })?;
            chain.is_pinned(&plan, &events)?;
            for (event, (contract, ext)) in events.iter().zip(&parts) {
                let found = chunk::unknown_parts(event, contract, ext);
                opaque += found.iter().filter(|it| it.opaque).count();
                unknown.extend(
                    found
                        .iter()
                        .map(|it| format!("event {} ({}): {}", it.seq, it.event_type, it.what)),
                );
                if is_lost {
                    continue;
                }
                match evolve(&plan, &mut state, event, &mut Vec::new()) {
                    Ok(()) => {}
                    Err(source) if unknown.is_empty() => {
                        return Err(Error::LogInvalid {
                            run_id: stored.run_id.clone(),
                            source,
                        });
                    }
                    Err(source) => {
                        is_lost = true;
                        unknown.push(format!(
                            "{source}: this version cannot tell the state of the run"
                        ));
                    }
                }
            }
            // As the commit of this chunk made them: the last one of a place counts.
            let rows = document::view_rows(RunChange {
                plan: &plan,
                state: &state,
                events: &events,
                event_key: &stored.event_key,
            });
            let placed = |it: ViewRow| ((it.view, it.row_no), it.body);
            view_rows.extend(rows.into_iter().map(placed));
            all.extend(events);
        }
        if chain.seq() == before {
            // Chunks that were there a moment ago are not.
            return Err(chain.missing());
        }
    }
    if last == 0 {
        return Err(chain.missing());
    }
    Ok(WholeLog {
        plan,
        state,
        events: all,
        view_rows,
        unknown,
        opaque,
    })
}

impl WholeLog {
    fn compare(&self, stored: &StoredRun) -> Vec<RunDamage> {
        let mut findings = Vec::new();
        let mut find = |table, what: String| {
            findings.push(RunDamage {
                run_id: stored.run_id.clone(),
                table,
                what,
                derivable: true,
            });
        };
        let (status, substatus) = document::contract_words(&self.state);
        let head = &stored.head;
        let ended_at = self
            .state
            .phase()
            .is_ended()
            .then(|| self.state.ended_at())
            .flatten();
        if head.status != status
            || head.substatus.as_deref() != substatus
            || head.ended_at != ended_at
        {
            let what = format!(
                "the head says {}, the log says {status}; lists show the run with a wrong state",
                head.status
            );
            find("heads", what);
        }
        let waits: BTreeSet<&str> = stored.waits.iter().map(String::as_str).collect();
        let due = self.waits();
        for (step, _) in due
            .iter()
            .filter(|(step, _)| !waits.contains(step.as_str()))
        {
            find(
                "waits",
                format!("step {step} waits for an event and has no row; no event reaches it"),
            );
        }
        for step in waits
            .iter()
            .filter(|step| !due.iter().any(|(due, _)| due == *step))
        {
            find(
                "waits",
                format!(
                    "step {step} has a row and does not wait; an event can be given to it without effect"
                ),
            );
        }
        if let Some(frozen) = &stored.snapshot
            && !is_whole(frozen, &stored.run_id, &self.plan)
        {
            let what = "the snapshot is not what was sealed; it is not used, and the whole log is read instead";
            find("snapshots", what.to_owned());
        }
        findings
    }

    /// Rows that are not what the log says, with their tables.
    fn compare_rows(
        &self,
        stored: &StoredRun,
        kept: &KeptRows,
        derived: &DerivedRows,
        now: Time,
    ) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut differs = |is: bool, table: &'static str, what: &str| {
            if is {
                found.push((table, what.to_owned()));
            }
        };
        differs(
            kept.columns != derived.columns,
            "runs",
            "tenant, project, environment, parent, key, time, priority or labels of the run are not those of the log",
        );
        differs(
            kept.head_tenant != derived.columns.tenant,
            "heads",
            "the head says another tenant than the log; lists of runs would show the run to the wrong one",
        );
        let keys: BTreeSet<&Vec<u8>> = kept.keys.iter().collect();
        differs(
            keys != derived.keys.iter().collect(),
            "event_keys",
            "the keys are not those of the events; an event could be recorded twice",
        );
        let waits = kept.waits.iter();
        let mut waits: Vec<(String, String)> = waits
            .map(|(step, event_type, _)| (step.clone(), event_type.clone()))
            .collect();
        waits.sort();
        let other_key = |it: &(String, String, String)| it.2 != derived.columns.event_key;
        differs(
            waits != derived.waits || kept.waits.iter().any(other_key),
            "waits",
            "a step waits for another event than the log says",
        );
        let unique: Vec<_> = derived.unique_key.iter().collect();
        differs(
            kept.unique_keys.iter().collect::<Vec<_>>() != unique,
            "unique_keys",
            "the unique key is not the one of the run; a second run with the key could start",
        );
        let views: BTreeMap<(&str, i64), &str> = kept
            .view_rows
            .iter()
            .map(|(view, row, body)| ((view.as_str(), *row), body.as_str()))
            .collect();
        let expected = self.view_rows.iter();
        let expected: BTreeMap<(&str, i64), &str> = expected
            .map(|((view, row), body)| ((*view, i64::from(*row)), body.as_str()))
            .collect();
        differs(
            views != expected,
            "view_rows",
            "the rows of the views for SQL are not what the log says",
        );
        differs(
            stored.head.queued != (derived.head.queued && stored.head.session.is_none()),
            "heads",
            "the head says wrongly whether the run waits for a slot",
        );
        differs(
            !self.wakes(stored, kept, now),
            "heads",
            "the head says wrongly who has the run, or when the run is looked at",
        );
        found
    }

    /// Whether the head says who has the run, and when a server looks at it, as the log demands.
    fn wakes(&self, stored: &StoredRun, kept: &KeptRows, now: Time) -> bool {
        let head = &stored.head;
        if self.state.phase().is_ended() {
            return head.session.is_none() && head.wake_at.is_none() && kept.due_at.is_none();
        }
        if head.session.is_some() {
            // Its owner looks at it, or who takes it over.
            return head.wake_at.is_none() && kept.due_at.is_none();
        }
        let waits = matches!(self.state.phase(), Phase::Created | Phase::Queued);
        let due = next_wake(&self.state);
        let woken = match (waits, self.has_work()) {
            // The engine outside that moves the run has its timers; a server looks whether that engine is late.
            (false, _) if engine_outside(&self.state).is_some() => due.is_none_or(|due| {
                let latest = due.max(now).plus(LATE_MS);
                head.wake_at.is_some_and(|at| at <= latest)
            }),
            // Without a time that is to come the run waits for a slot or an approval.
            (true, _) => head.wake_at == due || (head.wake_at.is_none() && due <= Some(now)),
            (false, false) => head.wake_at == due,
            // Work can be due before any timer.
            (false, true) => {
                due.is_none_or(|due| head.wake_at.is_some_and(|at| at <= due.max(now)))
            }
        };
        let offered = match (head.wake_at, kept.due_at) {
            (Some(wake), Some(due)) => due >= wake && due <= wake.max(now).plus(LONGEST_OFFER),
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
        };
        woken && offered
    }

    /// Whether there is something to do that no timer stands for.
    fn has_work(&self) -> bool {
        wake_sources(&self.plan, &self.state)
            .iter()
            .any(|source| match source {
                WakeSource::Task { .. } | WakeSource::Lease { .. } | WakeSource::Proceed => true,
                WakeSource::Queue
                | WakeSource::Timer { .. }
                | WakeSource::Child { .. }
                | WakeSource::Outside { .. }
                | WakeSource::Operator
                | WakeSource::Ctx { .. } => false,
            })
    }

    fn waits(&self) -> Vec<(String, String)> {
        let sources = wake_sources(&self.plan, &self.state).into_iter();
        let mut waits: Vec<(String, String)> = sources
            .filter_map(|source| {
                let WakeSource::Outside { step, wait } = source else {
                    return None;
                };
                let WaitKind::Event { event_type, .. } = wait else {
                    return None;
                };
                Some((self.plan.step_id(step), event_type))
            })
            .collect();
        waits.sort();
        waits
    }

    fn derived(&self, stored: &StoredRun, now: Time) -> DerivedRows {
        let (status, substatus) = document::contract_words(&self.state);
        let ended = self.state.phase().is_ended();
        let waiting = matches!(self.state.phase(), Phase::Created | Phase::Queued);
        let head = Head {
            status: status.to_owned(),
            substatus: substatus.map(str::to_owned),
            // Where there is work, a server wakes the run and sees what is to be done.
            wake_at: match (waiting, self.has_work()) {
                _ if ended => None,
                (true, _) => next_wake(&self.state).filter(|due| *due > now),
                (false, true) => Some(now),
                (false, false) => next_wake(&self.state),
            },
            queued: self.state.phase() == Phase::Queued
                && (self.state.approved() || !self.plan.policy().needs_approval),
            ended_at: ended.then(|| self.state.ended_at()).flatten(),
            // Slots are counted for all runs together; what the run holds is only in its head.
            slots: stored.head.slots.clone(),
            session: None,
        };
        let key = self.plan.event_key(&self.first_params());
        let event_key = key.unwrap_or_else(|| stored.run_id.clone());
        let context = self.state.context();
        let unique_key = self
            .plan
            .unique_key(&context.tenant_id, &stored.run_id, &event_key);
        let view_rows = self.view_rows.iter();
        DerivedRows {
            columns: RunColumns {
                tenant: context.tenant_id.clone(),
                project: context.project_id.clone(),
                environment: context.environment_id.clone(),
                parent: self.state.parent().map(|it| it.run_id.clone()),
                event_key,
                created_at: self.events.first().map_or(Time(0), |it| it.at),
                priority: context.priority,
                labels: context.labels.clone(),
            },
            head,
            keys: self
                .events
                .iter()
                .filter(|it| !matches!(it.body, Body::Opaque(_)))
                .map(|it| it.key(&self.plan).to_bytes())
                .collect(),
            waits: self.waits(),
            unique_key: unique_key.filter(|_| !ended),
            view_rows: view_rows
                .map(|((view, row_no), body)| ViewRow {
                    view,
                    row_no: *row_no,
                    body: body.clone(),
                })
                .collect(),
        }
    }

    /// The parameters that the run was created with.
    fn first_params(&self) -> Arc<serde_json::Value> {
        self.state.params().first().cloned().unwrap_or_default()
    }
}
