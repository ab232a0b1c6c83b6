//! The liveness invariant: for everything that a run waits for there is a row that will make someone
//! look. A run without one would be stuck, and no log would say so.

use std::collections::BTreeMap;

use stepwell_engine::limits::Limits;
use stepwell_engine::rows::{parse_target, target_name};
use stepwell_engine::run_id_for;
use stepwell_engine::store::{RunSummary, StoredRun};
use stepwell_kernel::event::WaitKind;
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::state::{Phase, Status};

use crate::oracle::{KeptEvent, ObservedRun, Oracle};
use crate::sim_store::SimStore;

/// Checks every open run, and the slots.
pub(crate) fn check(
    oracle: &Oracle,
    sim_store: &SimStore,
    list: &[RunSummary],
    limits: &Limits,
) -> Result<(), String> {
    let mut waiting = Vec::new();
    for row in list {
        let Some(observed) = oracle.runs.get(&row.run) else {
            continue;
        };
        let ended = observed.state.phase().is_ended();
        if ended != row.head.ended_at.is_some() {
            return Err(format!(
                "{}: the head and the log disagree on whether it has ended",
                row.run_id
            ));
        }
        let stored = sim_store.rows(row.run).ok_or("a listed run is gone")?;
        tasks(observed, &stored).map_err(|what| format!("{}: {what}", row.run_id))?;
        if ended {
            if !stored.tasks.is_empty() || !stored.waits.is_empty() {
                let (tasks, waits) = (&stored.tasks, &stored.waits);
                return Err(format!(
                    "{}: ended, with {tasks:?} and {waits:?}",
                    row.run_id
                ));
            }
            if !row.head.slots.is_empty() || row.head.session.is_some() || row.head.queued {
                return Err(format!("{}: ended, but {:?}", row.run_id, row.head));
            }
            continue;
        }
        is_live(oracle, sim_store, observed, &stored)
            .map_err(|what| format!("{}: {what}; its head is {:?}", row.run_id, row.head))?;
        waiting.push((observed, stored));
    }
    events(oracle, &waiting)?;
    slots(sim_store, list, limits)
}

/// No step waits for an event that the store has said to keep.
fn events(oracle: &Oracle, open: &[(&ObservedRun, StoredRun)]) -> Result<(), String> {
    let came = |id: &str| {
        let in_log = oracle.runs.values().any(|it| it.marks.contains(id));
        let mut mail = open.iter().flat_map(|(_, stored)| &stored.mail);
        in_log || mail.any(|it| it.body.contains(id))
    };
    // A run with a message may be about to get another event of the same type: its wait ends when it reads the message.
    for (observed, stored) in open.iter().filter(|(_, stored)| stored.mail.is_empty()) {
        for source in wake_sources(&observed.plan, &observed.state) {
            let WakeSource::Outside {
                step,
                wait: WaitKind::Event { event_type, .. },
            } = source
            else {
                continue;
            };
            if !stored.waits.contains(&observed.plan.step_id(step)) {
                continue;
            }
            let tenant = &observed.state.context().tenant_id;
            let wanted = |it: &&KeptEvent| {
                it.event_type == event_type && it.key == stored.event_key && it.tenant == *tenant
            };
            let mut kept = oracle.kept.iter().filter(wanted);
            if let Some(lost) = kept.find(|it| !came(&it.id)) {
                return Err(format!(
                    "{}: waits for {event_type}, and {} was kept for it",
                    observed.run_id, lost.id
                ));
            }
        }
    }
    Ok(())
}

/// No task row exists for work that must not be done: workers would request it without end.
fn tasks(observed: &ObservedRun, stored: &StoredRun) -> Result<(), String> {
    for task in &stored.tasks {
        let target = parse_target(&observed.plan, &task.target);
        let run = target.and_then(|target| observed.state.target(target));
        let status = run.map(|it| it.status());
        let wanted = match status {
            Some(Status::Ready | Status::Waiting) => !task.leased,
            Some(Status::Running) => task.leased,
            _ => false,
        };
        if !wanted {
            return Err(format!(
                "a task row for {}, which is {status:?}",
                task.target
            ));
        }
    }
    Ok(())
}

fn is_live(
    oracle: &Oracle,
    sim_store: &SimStore,
    observed: &ObservedRun,
    stored: &StoredRun,
) -> Result<(), String> {
    let head = &stored.head;
    if let Some(session) = head.session
        && sim_store.session(session).is_none()
    {
        return Err(format!("session {} is forgotten", session.0));
    }
    let owned = head.session.is_some();
    let mail = !stored.mail.is_empty();
    // A process that reads a message also handles everything else of the run.
    let alive = owned || mail;
    let sources = wake_sources(&observed.plan, &observed.state);
    if sources.is_empty() {
        return Err("nothing can make it move".into());
    }
    for source in sources {
        let missing = match &source {
            WakeSource::Queue => {
                let waits = observed.state.approved() || !observed.plan.policy().needs_approval;
                observed.state.phase() == Phase::Queued && waits && !head.queued && !alive
            }
            WakeSource::Task { target, .. } => {
                let name = target_name(&observed.plan, *target);
                let offered = stored
                    .tasks
                    .iter()
                    .any(|task| task.target == name && !task.leased);
                !offered && !alive && head.wake_at.is_none()
            }
            WakeSource::Lease { target, .. } => {
                let it = observed.state.target(*target);
                let worker = it.and_then(|it| it.lease()).map(|it| &it.worker);
                let own = head.session.map(|session| format!("@{}", session.0));
                let name = target_name(&observed.plan, *target);
                let leased = stored.tasks.iter().any(|task| {
                    task.target == name && task.leased && task.worker.as_ref() == worker
                });
                worker != own.as_ref() && !leased
            }
            WakeSource::Timer { due, .. } => !alive && head.wake_at.is_none_or(|at| at > *due),
            WakeSource::Proceed => !alive,
            WakeSource::Child { request_key, .. } => {
                let child = oracle.by_id(&run_id_for(request_key));
                let open = child.is_some_and(|it| !it.state.phase().is_ended());
                !open && !mail
            }
            WakeSource::Outside {
                step,
                wait: WaitKind::Event { .. },
            } => {
                let id = observed.plan.step_id(*step);
                !stored.waits.contains(&id) && !mail
            }
            WakeSource::Outside { .. } | WakeSource::Operator | WakeSource::Ctx { .. } => false,
        };
        if missing {
            return Err(format!("no row stands for {source:?}"));
        }
    }
    Ok(())
}

/// The slots that are taken are those that open runs hold, and not too many.
fn slots(sim_store: &SimStore, list: &[RunSummary], limits: &Limits) -> Result<(), String> {
    let mut held: BTreeMap<&str, u32> = BTreeMap::new();
    let mut keys = vec!["all"];
    for row in list {
        for key in &row.head.slots {
            *held.entry(key).or_default() += 1;
            keys.push(key);
        }
    }
    for key in keys {
        let taken = sim_store.store().slots_taken(key).unwrap_or(0);
        let held = held.get(key).copied().unwrap_or(0);
        if taken != held {
            return Err(format!("{taken} slots of {key} are taken, {held} are held"));
        }
        let limit = match key.split('/').next() {
            Some("all") => limits.total,
            Some("tenant") => limits.per_tenant,
            Some("plan") => limits.per_plan,
            _ => None,
        };
        if limit.is_some_and(|limit| taken > limit) {
            return Err(format!("{taken} slots of {key} are taken, of {limit:?}"));
        }
    }
    Ok(())
}
