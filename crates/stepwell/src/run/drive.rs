//! Lets things happen until a run has ended, cannot go on by itself, or someone presses Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use stepwell_engine::coordinator::HotRun;
use stepwell_engine::engine::engine_actor;
use stepwell_engine::outbox::Notify;
use stepwell_engine::port::Clock as _;
use stepwell_kernel::command::Command;
use stepwell_kernel::event::Patch;
use stepwell_kernel::explain::{WakeSource, wake_sources};

use super::RunEngine;
use super::doer::Doer;
use super::follow::family;
use super::report::End;
use super::view::View;

/// How long a real-time run sleeps at most before it looks up: for Ctrl-C, for the tree, for messages.
const NAP: Duration = Duration::from_millis(50);

/// How often others are looked after who may have moved the run.
const LOOK: Duration = Duration::from_millis(250);

/// How a run is driven.
pub(super) struct Drive<'a> {
    pub(super) run_id: &'a str,
    pub(super) is_virtual: bool,
    /// Other processes can reach the run.
    pub(super) durable: bool,
    pub(super) max_events: u64,
    pub(super) patch: Patch,
    pub(super) stop: Arc<AtomicBool>,
    /// Who publishes what was committed.
    pub(super) outbox: Option<Notify>,
}

pub(crate) fn interrupts() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let listen = move || {
        // The second time somebody does not want to wait for the store any longer.
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    };
    ctrlc::set_handler(listen).context("cannot listen for Ctrl-C")?;
    Ok(stop)
}

impl Drive<'_> {
    pub(super) fn run(mut self, doer: &mut Doer, view: &mut View) -> Result<End> {
        view.changed(doer.seen())?;
        let mut looked = Instant::now();
        let mut changes = 0;
        for round in 0_u64.. {
            if self.stop.load(Ordering::SeqCst) {
                return Ok(End::Interrupted);
            }
            let Some(live) = doer.seen().run(self.run_id) else {
                // It was given up to be read anew.
                doer.engine().recover(self.run_id)?;
                continue;
            };
            if live.state.phase.is_ended() {
                break;
            }
            if round.is_multiple_of(256) && self.events(doer.seen()) > self.max_events {
                return Ok(End::GaveUp(self.max_events));
            }
            if let Some(outbox) = &self.outbox
                && changes != doer.seen().changes
            {
                changes = doer.seen().changes;
                outbox.notify();
            }
            // Before anything is done: see `Mock::step`.
            let now = doer.seen().now();
            // What a step says is shown before its end is.
            hear(doer, view)?;
            if doer.act()? {
                view.changed(doer.seen())?;
                continue;
            }
            let stalled = |live: &HotRun| live.state.stalled.is_some();
            if doer.seen().run(self.run_id).is_some_and(stalled) {
                if self.revive(doer)? {
                    continue;
                }
                // Only someone who changes ctx can revive it.
                break;
            }
            if doer.seen().store().kind() == "postgres" && looked.elapsed() > LOOK {
                looked = Instant::now();
                if self.catch_up(doer)? {
                    view.changed(doer.seen())?;
                    continue;
                }
            }
            let due = doer.due().filter(|due| *due > now);
            if self.is_virtual {
                match due {
                    None => break,
                    Some(due) => doer.engine().clock().wait_until(due),
                }
                continue;
            }
            if self.is_stuck(doer) {
                break;
            }
            view.waiting(doer.seen())?;
            let now = doer.seen().now();
            let wait = due.map(|due| Duration::from_millis(due.since(now)));
            doer.rest(wait.unwrap_or(NAP).min(NAP));
        }
        hear(doer, view)?;
        Ok(End::Over)
    }

    /// Where many processes share a store, others may have moved what waits for them.
    fn catch_up(&self, doer: &mut Doer) -> Result<bool> {
        let family = family(doer.seen(), self.run_id).into_iter();
        let open = family.filter(|live| !live.state.phase.is_ended());
        let ids: Vec<String> = open.map(|live| live.run_id.to_string()).collect();
        let mut moved = false;
        for id in ids {
            moved |= doer.engine().catch_up(&id)?;
        }
        Ok(moved)
    }

    /// Changes ctx as it was asked for, once. Says whether that was asked for.
    fn revive(&mut self, doer: &mut Doer) -> Result<bool> {
        let ctx = std::mem::take(&mut self.patch);
        if ctx.is_empty() {
            return Ok(false);
        }
        let actor = engine_actor();
        doer.engine()
            .submit(self.run_id, Command::PatchCtx { actor, ctx })
            .context("--patch was refused")?;
        Ok(true)
    }

    /// Whether neither time nor anyone here will make the run move. A pause that others can end, and
    /// people and events that are real, are waited for.
    fn is_stuck(&self, doer: &Doer) -> bool {
        if !doer.is_idle() || (self.durable && doer.waits_for_people()) {
            return false;
        }
        let engine = doer.seen();
        !family(engine, self.run_id).into_iter().any(|live| {
            let paused = self.durable && live.state.pause.is_some();
            paused || moves_by_itself(live)
        })
    }

    fn events(&self, engine: &RunEngine) -> u64 {
        let family = family(engine, self.run_id).into_iter();
        family.map(|live| live.state.seq).sum()
    }
}

/// Shows what steps have said.
fn hear(doer: &mut Doer, view: &mut View) -> Result<()> {
    while let Some(entry) = doer.said() {
        let line = &entry.line;
        view.say(&entry.run_id, &entry.step_id, line.stream, &line.text)?;
    }
    Ok(())
}

fn moves_by_itself(live: &HotRun) -> bool {
    let approved = live.state.approved || !live.plan.policy().needs_approval;
    let moves = |source: &WakeSource| match source {
        WakeSource::Queue => approved,
        WakeSource::Task { .. }
        | WakeSource::Lease { .. }
        | WakeSource::Timer { .. }
        | WakeSource::Proceed => true,
        // A child moves by itself or not at all; people, operators and ctx come from elsewhere.
        WakeSource::Child { .. }
        | WakeSource::Outside { .. }
        | WakeSource::Operator
        | WakeSource::Ctx { .. } => false,
    };
    wake_sources(&live.plan, &live.state).iter().any(moves)
}
