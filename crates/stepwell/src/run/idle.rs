//! `stepwell run --idle`: waits for the trigger of a definition, and starts a run at each due time of its schedule or for
//! each event that fits. The id of a run follows from the definition and what triggered it, so no due time and no event
//! starts two runs, however many processes wait and however often they are restarted.

mod under_way;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value as Json;
use stepwell_dialects::document;
use stepwell_dialects::trigger::Trigger;
use stepwell_engine::service::Idle;
use stepwell_engine::{Error, Limits, StartRequest, run_id_of_trigger};
use stepwell_kernel::command::Actor;
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::time::Time;

use super::args::RunArgs;
use super::engine_kind::EngineKind;
use super::local_engine::{LocalEngine, Update};
use super::{EMPTYING, RunStore, engine, interrupts, stop};
use crate::exit::Exit;
use crate::{actor, log, outbox, usage};
use stepwell_server::triggers::{
    Cause, Causes, PutOff, Tried, needs_slot, params_with, source_word,
};
use stepwell_views::stuck::End;
use under_way::{Orphans, UnderWay};

/// How long the loop sleeps at most before it looks up.
const NAP: Duration = Duration::from_millis(50);
/// How often the store is asked for events.
const LOOK: Duration = Duration::from_millis(250);
/// How often a store that many processes share is asked for runs whose process has died.
const SWEEP: Duration = Duration::from_secs(2);
/// How long the engine may try again at the least, however impatient the user is.
const ENGINE_PATIENCE: Duration = Duration::from_secs(3);

/// Refuses what cannot be waited for.
pub(super) fn check(args: &RunArgs, plan: &Plan, params: &Json, is_kept: bool) -> Result<()> {
    let Some(trigger) = document::trigger(plan) else {
        return usage(
            "--idle waits for the trigger of the definition, and this definition has none; leave out --idle, or add \
             `spec.trigger` to a workflow (docs/languages/dag.md)",
        );
    };
    if matches!(trigger, Trigger::Event(_)) && !is_kept {
        return usage(
            "nobody can send an event to a store in memory; leave out --virtual-time, and use a store that is kept",
        );
    }
    if args.virtual_time && args.idle.starts.is_none() {
        return usage(
            "a schedule in virtual time has no end; say how many runs are started: --starts N",
        );
    }
    for key in ["event", "trigger"] {
        if params.get(key).is_some() {
            return usage(format!(
                "the input {key} says what has triggered a run; give the input another name"
            ));
        }
    }
    args.idle.look_back().map(drop)
}

/// Says that this run was asked for, where the definition has a trigger that nothing here waits for.
pub(super) fn note_trigger(args: &RunArgs, plan: &Plan) {
    if document::trigger(plan).is_some() {
        log::line(&format!(
            "the run starts now, because it was asked for; the trigger of the definition starts runs only while \
             `stepwell run {} --idle` waits for it",
            args.definition_words()
        ));
    }
}

/// Waits for the trigger until Ctrl-C, or until so many runs have been started and have ended.
pub(super) fn wait(
    args: &RunArgs,
    who: &Actor,
    kind: EngineKind,
    plan: &Arc<Plan>,
    params: Json,
    place: &RunStore,
) -> Result<Exit> {
    let Some(trigger) = document::trigger(plan) else {
        return Ok(Exit::Usage);
    };
    let mut engine = engine(&args.go, kind, plan, place, HashSet::new())?;
    let context = RunContext {
        priority: args.start.priority,
        labels: args.start.labels()?,
        trigger_source: Some(source_word(&trigger).to_owned()),
        ..actor::context_of(who)
    };
    let outlet = match place.is_virtual {
        true => None,
        false => Some(
            place
                .open
                .start(|store| args.go.sinks.publish_all(&store))?,
        ),
    };
    let go_on = place.durable.then(|| args.idle_command());
    let interrupted = interrupts(Some((Arc::clone(&place.open.patience), go_on.clone())))?;
    let now = engine.clock.now();
    let causes = Causes::new(trigger, &context.tenant_id, args.idle.look_back()?, now);
    log::line(&format!(
        "waiting for {}; Ctrl-C ends the wait",
        causes.what()
    ));
    let mut waiter = Waiter {
        plan,
        params,
        context: context.clone(),
        place,
        under_way: UnderWay::new(&args.go, place),
        orphans: Orphans::new(who, plan, &context),
        causes,
        put_off: PutOff::default(),
        limits: args.go.limits.limits(args.go.config.path())?,
        starts_left: args.idle.starts.map_or(u64::MAX, |it| it.get().into()),
        ready: true,
        idle: None,
    };
    let missed = waiter.causes.catch_up(now, &|cause| {
        let run_id = run_id_of_trigger(plan, &context, cause);
        anyhow::Ok(place.store.find(&run_id)?.is_some())
    })?;
    if missed > 0 {
        log::line(&format!(
            "due times that passed while nobody waited: {missed}; their runs start now"
        ));
    }
    let waited = waiter.run(&mut engine, &interrupted.stop, &|| {
        if let Some(outlet) = &outlet {
            outlet.notify().notify();
        }
    });
    let stopped = stop(&mut engine, &waited, &interrupted.hurry);
    let end = waited?;
    for note in stopped?.into_iter().chain(engine.notes()) {
        log::line(&format!("note: {note}"));
    }
    waiter.under_way.show_ends()?;
    if let Some(outlet) = outlet {
        let patience = match end {
            End::Interrupted => EMPTYING.1,
            End::Over | End::GaveUp(_) => EMPTYING.0,
        };
        let left = outlet.empty(&*place.store, patience, &AtomicBool::new(false))?;
        for note in outbox::left(&left, args.go.store.store(), place.durable) {
            log::line(&format!("note: {note}"));
        }
    }
    place.store.still_there()?;
    Ok(waiter.exit(end, go_on.as_deref()))
}

/// What is known while the trigger is waited for.
struct Waiter<'a> {
    plan: &'a Arc<Plan>,
    params: Json,
    context: RunContext,
    place: &'a RunStore,
    under_way: UnderWay<'a>,
    orphans: Orphans<'a>,
    causes: Causes,
    put_off: PutOff,
    limits: Limits,
    starts_left: u64,
    /// The engine has done what it was asked to do: what it waits for counts.
    ready: bool,
    /// What the engine waits for, if it is at rest.
    idle: Option<Idle>,
}

impl Waiter<'_> {
    fn run(
        &mut self,
        engine: &mut LocalEngine,
        stop: &AtomicBool,
        publish: &dyn Fn(),
    ) -> Result<End> {
        self.orphans.take_over(&mut self.under_way, engine)?;
        let (mut looked, mut swept) = (None::<Instant>, Instant::now());
        loop {
            if stop.load(Ordering::SeqCst) {
                return Ok(End::Interrupted);
            }
            if let Some(error) = self.place.open.patience.given_up(ENGINE_PATIENCE) {
                return Err(error.into());
            }
            if self.starts_left > 0
                && looked.is_none_or(|it| it.elapsed() > LOOK || self.place.is_virtual)
            {
                looked = Some(Instant::now());
                self.start_due(engine)?;
            }
            if self.hear(engine)? {
                publish();
            }
            if self.place.store.is_shared() && swept.elapsed() > SWEEP {
                swept = Instant::now();
                self.orphans.take_over(&mut self.under_way, engine)?;
                self.under_way.look(engine)?;
            }
            self.under_way.show_ends()?;
            if self.starts_left == 0 && self.under_way.is_empty() {
                return Ok(End::Over);
            }
            if self.place.is_virtual && !self.pass_time(engine) {
                return Ok(End::Over);
            }
        }
    }

    /// Takes what the engine and the steps have said. Says whether anything was committed.
    fn hear(&mut self, engine: &mut LocalEngine) -> Result<bool> {
        let first = engine.updates.recv_timeout(NAP).ok();
        let rest: Vec<Update> = first.into_iter().chain(engine.updates.try_iter()).collect();
        while engine.said().is_some() {
            // The log of the step has it.
        }
        let mut changed = false;
        for update in rest {
            match update {
                Update::Changed(run, seq) => {
                    (self.idle, changed) = (None, true);
                    self.under_way.follow(run, seq)?;
                }
                Update::Idle(idle) => self.idle = Some(idle),
                Update::StoreFailed(error) if error.kind.may_pass() => {}
                Update::StoreFailed(error) => return Err(error.into()),
                Update::Ready => self.ready = true,
            }
        }
        Ok(changed)
    }

    /// Starts a run for everything that has happened and that no run was started for: first for what found no free slot
    /// before.
    fn start_due(&mut self, engine: &LocalEngine) -> Result<()> {
        let now = engine.clock.now();
        let store = &*self.place.store;
        let new = self.causes.due(store, now, &mut |note| log::line(note))?;
        let mut put_off = std::mem::take(&mut self.put_off);
        let (limits, plan, params) = (self.limits.clone(), self.plan, self.params.clone());
        let needs = |slots: &str, cause: &Cause| {
            needs_slot(&limits, plan, slots, &params_with(&params, &cause.params))
        };
        let tried = put_off.try_all(new, now, &needs, &mut |cause, has_waited| {
            if self.starts_left == 0 {
                return Ok(Tried::NotStarted);
            }
            let answer = self.start(engine, cause, has_waited);
            if matches!(answer, Ok(Tried::Started)) {
                self.starts_left -= 1;
            }
            answer
        });
        self.put_off = put_off;
        tried
    }

    /// Starts the run of a cause, unless that was done before: here, by another process, or before a crash.
    fn start(&mut self, engine: &LocalEngine, cause: &Cause, has_waited: bool) -> Result<Tried> {
        let run_id = run_id_of_trigger(self.plan, &self.context, &cause.id);
        let store = &self.place.store;
        if store.find(&run_id)?.is_some() {
            return Ok(Tried::NotStarted);
        }
        let request = StartRequest {
            run_id: run_id.clone(),
            params: params_with(&self.params, &cause.params),
            context: self.context.clone(),
            ..StartRequest::default()
        };
        let mut asked = 0;
        let started = self.place.open.patience.keep_engine(|| {
            asked += 1;
            match engine.handle.start(self.plan, request.clone()) {
                Ok(_) => Ok(true),
                // The second time it may be the run that the first request made, whose answer was lost.
                Err(Error::Rejected(why)) if why.code == Code::RunExists => Ok(asked > 1),
                Err(error) => Err(error),
            }
        });
        match started {
            Ok(true) => {
                (self.idle, self.ready) = (None, false);
                self.under_way.add(&run_id, Some(&cause.what))?;
                engine.when_ready()?;
                Ok(Tried::Started)
            }
            Ok(false) => Ok(Tried::NotStarted),
            Err(Error::Busy {
                key,
                retry_after_ms,
            }) => {
                // Nobody is there who could be told to ask again.
                if !has_waited {
                    let error = Error::Busy {
                        key: key.clone(),
                        retry_after_ms,
                    };
                    log::line(&format!(
                        "{}: no run is started yet: {error}; the trigger itself tries again until a slot is free",
                        cause.what
                    ));
                }
                Ok(Tried::NoSlot {
                    slots: key,
                    retry_after_ms,
                })
            }
            // What is wrong with one cause is no reason to miss the others.
            Err(error @ (Error::Rejected(_) | Error::Refused { .. } | Error::Schema { .. })) => {
                log::line(&format!("{}: no run was started: {error}", cause.what));
                Ok(Tried::NotStarted)
            }
            Err(error) => Err(error).context("the run cannot be started"),
        }
    }

    /// Lets virtual time pass until something happens. Says whether something will.
    fn pass_time(&mut self, engine: &LocalEngine) -> bool {
        let Some(idle) = self.idle.filter(|_| self.ready) else {
            return true;
        };
        if idle.in_flight > 0 && idle.worker_due.is_none() {
            // Real work takes its own time.
            return true;
        }
        let now = engine.clock.now();
        let causes = self.causes.next().into_iter().chain(self.put_off.next());
        let cause = causes.min().filter(|_| self.starts_left > 0);
        let engine_due = if idle.has_more {
            Some(now)
        } else {
            idle.next_due
        };
        let due: Option<Time> = engine_due.into_iter().chain(cause).min();
        if let Some(due) = due {
            self.idle = None;
            engine.handle.advance_to(due);
        }
        due.is_some()
    }

    fn exit(&self, end: End, go_on: Option<&str>) -> Exit {
        let open = self.under_way.open();
        if end == End::Interrupted {
            let kept = match open {
                0 => "no run is under way".to_owned(),
                1 => "1 run is under way".to_owned(),
                many => format!("{many} runs are under way"),
            };
            log::line(&match go_on {
                Some(go_on) => format!("interrupted; {kept}; continue with: {go_on}"),
                None => format!("interrupted; {kept}, and the store was in memory"),
            });
            return Exit::Interrupted;
        }
        self.under_way.worst()
    }
}
