//! Watches a run that an engine drives until the run has ended, cannot go on by itself, or someone presses
//! Ctrl-C. Everything that is known of the run here comes from its log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use stepwell_engine::outbox::Notify;
use stepwell_engine::service::Idle;
use stepwell_engine::store::{Patience, StoreError};
use stepwell_kernel::command::{Actor, Command};
use stepwell_kernel::event::Patch;
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::state::Phase;
use stepwell_kernel::time::Time;

use super::follow::{Followed, Follower};
use super::local_engine::{LocalEngine, Update};
use super::view::View;
use crate::log;
use stepwell_views::stuck::End;

/// How long the loop sleeps at most before it looks up: for Ctrl-C, for the tree, for lines of steps.
const NAP: Duration = Duration::from_millis(50);
/// How often a store that many processes share is looked at for what others have done.
const LOOK: Duration = Duration::from_millis(250);

/// How long the engine of this command may try again at the least, however impatient the user is: it replaces a
/// broken connection in less.
const ENGINE_PATIENCE: Duration = Duration::from_secs(3);

/// How a run is watched.
pub(super) struct Supervisor<'a> {
    pub(super) engine: &'a mut LocalEngine,
    pub(super) follower: &'a mut Follower,
    pub(super) view: &'a mut View,
    /// Other processes can reach the run.
    pub(super) durable: bool,
    /// Other processes may move the run.
    pub(super) shared: bool,
    pub(super) max_events: u64,
    pub(super) patch: Patch,
    /// The person or system that changes ctx with `--patch`.
    pub(super) actor: &'a Actor,
    pub(super) stop: Arc<AtomicBool>,
    /// Publishes what was committed.
    pub(super) outbox: Option<Notify>,
    pub(super) patience: &'a Patience,
    /// The engine has done what it was asked to do first: what it waits for counts from now on.
    pub(super) ready: bool,
    /// What the engine waits for, if it is at rest and everything before is shown.
    pub(super) idle: Option<Idle>,
}

/// How long a second Ctrl-C leaves the process to stop its steps and to write down that it has: then these steps are
/// given back, and nobody is charged with a loss.
const LAST_WORDS: Duration = Duration::from_secs(6);

/// What a person has asked for with Ctrl-C.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupts {
    /// Start nothing new, and stop when the running steps have ended.
    pub(crate) stop: Arc<AtomicBool>,
    /// Stop the running steps too.
    pub(crate) hurry: Arc<AtomicBool>,
}

/// Sets a flag at the first Ctrl-C and another one at the second; the third one ends the process. Without an engine, or
/// while the command waits for its store, the process ends sooner. It shows the command that continues the run, where
/// the run is kept.
pub(crate) fn interrupts(waiting: Option<(Arc<Patience>, Option<String>)>) -> Result<Interrupts> {
    let interrupts = Interrupts::default();
    let flags = interrupts.clone();
    let listen = move || {
        if let Some((patience, Some(go_on))) = &waiting
            && patience.is_waiting()
        {
            log::line(&format!(
                "interrupted while the store does not answer; continue with: {go_on}"
            ));
            std::process::exit(130);
        }
        if !flags.stop.swap(true, Ordering::SeqCst) {
            return;
        }
        let Some((_, go_on)) = &waiting else {
            std::process::exit(130);
        };
        if flags.hurry.swap(true, Ordering::SeqCst) {
            leave(go_on.as_deref());
        }
        // After a second interrupt the command does not wait for long, neither for a step nor for the store.
        let go_on = go_on.clone();
        std::thread::spawn(move || {
            std::thread::sleep(LAST_WORDS);
            leave(go_on.as_deref());
        });
    };
    ctrlc::set_handler(listen).context("cannot listen for Ctrl-C")?;
    Ok(interrupts)
}

/// Ends the process at once. Steps that still run are taken over by the process that continues the run.
fn leave(go_on: Option<&str>) -> ! {
    let mut said = "interrupted before the running steps had ended".to_owned();
    if let Some(go_on) = go_on {
        said.push_str(&format!("; continue with: {go_on}"));
    }
    log::line(&said);
    std::process::exit(130);
}

impl Supervisor<'_> {
    pub(super) fn run(mut self) -> Result<End> {
        self.follower.follow_all(self.view)?;
        self.engine.when_ready()?;
        let (mut looked, mut told) = (Instant::now(), false);
        while !self.follower.root()?.state.phase().is_ended() {
            if self.stop.load(Ordering::SeqCst) {
                return Ok(End::Interrupted);
            }
            self.hear()?;
            if self.ready && !told {
                told = true;
                tell_queued(self.follower.root()?, self.engine.clock.now());
            }
            if let Some(error) = self.patience.given_up(ENGINE_PATIENCE) {
                return Err(error.into());
            }
            if self.shared && looked.elapsed() > LOOK {
                looked = Instant::now();
                self.look()?;
            }
            self.view.update(self.follower, self.engine.clock.now())?;
            if self.follower.events() > self.max_events {
                return Ok(End::GaveUp(self.max_events));
            }
            if !self.goes_on()? {
                break;
            }
        }
        Ok(End::Over)
    }

    /// Takes what the engine and the steps have said, and shows it.
    fn hear(&mut self) -> Result<()> {
        let first = self.engine.updates.recv_timeout(NAP).ok();
        let rest = self.engine.updates.try_iter();
        let updates: Vec<Update> = first.into_iter().chain(rest).collect();
        // After the updates: a step has said everything before its end is committed.
        while let Some(entry) = self.engine.said() {
            self.view.say(entry);
        }
        let mut changed = false;
        for update in updates {
            match update {
                Update::Changed(run, seq) => {
                    (self.idle, changed) = (None, true);
                    self.follower.follow(run, seq, self.view)?;
                }
                Update::Idle(idle) => self.idle = Some(idle),
                Update::StoreFailed(error) => Self::store_failed(error)?,
                Update::Ready => self.ready = true,
            }
        }
        if changed && let Some(outbox) = &self.outbox {
            outbox.notify();
        }
        Ok(())
    }

    /// The engine continues to try what may pass, and `patience` counts for how long; the rest will not pass.
    fn store_failed(error: StoreError) -> Result<()> {
        match error.kind.may_pass() {
            true => Ok(()),
            false => Err(error.into()),
        }
    }

    /// Where many processes share a store, others may have moved what waits for them.
    fn look(&mut self) -> Result<()> {
        let open = |run: &&Followed| !run.state.phase().is_ended();
        for run in self.follower.all().filter(open) {
            self.engine.handle.catch_up(run.state.run_id());
        }
        self.follower.follow_all(self.view)
    }

    /// Does what this command has to do so that the run goes on. Says whether the run can.
    fn goes_on(&mut self) -> Result<bool> {
        let is_virtual = self.engine.clock.is_virtual();
        let idle = self.idle.filter(|_| self.ready);
        // At one instant of virtual time more may happen until the engine is at rest.
        if is_virtual && idle.is_none() {
            return Ok(true);
        }
        if self.follower.root()?.state.stalled().is_some() {
            // Only someone who changes ctx can revive it; virtual time goes on to the end of the stall.
            let is_revived = self.revive()?;
            if is_revived || !is_virtual {
                return Ok(is_revived);
            }
        }
        let Some(idle) = idle else {
            return Ok(true);
        };
        if is_virtual {
            return Ok(self.pass_time(idle));
        }
        Ok(!self.is_stuck(idle))
    }

    /// Lets virtual time pass until something happens. Says whether something will.
    fn pass_time(&mut self, idle: Idle) -> bool {
        if idle.in_flight > 0 && idle.worker_due.is_none() {
            // Real work takes its own time.
            return true;
        }
        let due = match idle.has_more {
            true => Some(self.engine.clock.now()),
            false => idle.next_due,
        };
        if let Some(due) = due {
            self.idle = None;
            self.engine.handle.advance_to(due);
        }
        due.is_some()
    }

    /// Changes ctx as it was asked for, once. Says whether that was asked for.
    fn revive(&mut self) -> Result<bool> {
        let ctx = std::mem::take(&mut self.patch);
        if ctx.is_empty() {
            return Ok(false);
        }
        let actor = self.actor.clone();
        let run_id = &self.follower.root()?.state.run_id();
        let patch = Command::PatchCtx { actor, ctx };
        self.patience
            .keep_engine(|| self.engine.handle.submit(run_id, patch.clone()))
            .context("--patch was refused")?;
        self.idle = None;
        self.follower.follow_all(self.view)?;
        Ok(true)
    }

    /// Whether neither time nor anyone here will make the run move. A pause that others can end, and
    /// people and events that are real, are waited for.
    fn is_stuck(&self, idle: Idle) -> bool {
        if !idle.is_worker_idle() || (self.durable && self.engine.waits_for_people()) {
            return false;
        }
        !self.follower.all().any(|run| {
            let paused = self.durable && run.state.pause().is_some();
            paused || moves_by_itself(run)
        })
    }
}

/// Says why a run has not started that will start by itself.
pub(super) fn tell_queued(root: &Followed, now: Time) {
    let waits = root.plan.policy().needs_approval && !root.state.approved();
    if root.state.phase() != Phase::Queued || waits {
        return;
    }
    let later = root.state.start_after().filter(|at| *at > now);
    log::line(&match later {
        Some(at) => starts_later(at),
        None => "queued: no slot is free; the run starts when another run ends".to_owned(),
    });
}

/// Says that a run waits for its time.
pub(super) fn starts_later(at: Time) -> String {
    format!("queued: the run starts at {} or later", at.to_rfc3339())
}

fn moves_by_itself(run: &Followed) -> bool {
    let approved = run.state.approved() || !run.plan.policy().needs_approval;
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
    wake_sources(&run.plan, &run.state).iter().any(moves)
}
