//! A run under test: sends commands and checks every law after each.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_kernel::command::{Claimed, Command, Env, Reply, TimerKind};
use stepwell_kernel::contract::Recorder;
use stepwell_kernel::decide::{decide, next_wake};
use stepwell_kernel::effect::{Effect, Target};
use stepwell_kernel::event::{Body, Event, Loss, SkipReason};
use stepwell_kernel::evolve::{evolve, replay};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::{
    EdgeNo, EntryPoint, Join, Net, Plan, Route, RunPolicy, StepNo, StepRef,
};
use stepwell_kernel::state::{FORMAT, Phase, State, Status, StepRun, Tally};
use stepwell_kernel::time::Time;

use super::commands::{Dice, lawful, wild};

const RUN: &str = "run_law";

pub(super) struct World {
    plan: Plan,
    state: State,
    log: Vec<Event>,
    /// Each command that was decided, with the time and where the log was before it.
    history: Vec<(Command, Time, usize)>,
    keys: BTreeSet<Vec<u8>>,
    claims: Claims,
    now: Time,
    proceed: bool,
}

/// What the outside was told about executions.
#[derive(Default)]
struct Claims {
    /// The fence of the last claim.
    fence: u64,
    /// Who has an idempotency key: a step-run or an undo, and its logical attempt.
    keys: BTreeMap<String, (Target, u32)>,
    /// The last attempt and execution of each.
    last: BTreeMap<(Target, u32), (u32, u32)>,
}

impl Claims {
    /// Fences rise whatever clocks do; a key belongs to one piece of work, and never changes; attempts count from 1 and
    /// never outrun executions.
    fn see(&mut self, claimed: &Claimed) {
        assert!(claimed.fence > self.fence, "a fence does not rise");
        self.fence = claimed.fence;
        let claim = &claimed.claim;
        // There is one undo of a step, whatever the logical attempt was.
        let logical = match claim.target {
            Target::Step(_) => claimed.logical,
            Target::Undo(_) => 0,
        };
        let owner = (claim.target, logical);
        let known = self.keys.entry(claimed.idempotency_key.clone());
        assert_eq!(
            *known.or_insert(owner),
            owner,
            "two pieces of work share a key"
        );
        let mut keys = self.keys.values().filter(|it| **it == owner);
        assert!(
            keys.next().is_some() && keys.next().is_none(),
            "a key changed"
        );
        let (attempt, execution) = self.last.entry(owner).or_default();
        assert!(
            claim.execution > *execution,
            "an execution number does not rise"
        );
        assert!((*attempt..=*attempt + 1).contains(&claimed.attempt));
        assert!((1..=claim.execution).contains(&claimed.attempt));
        (*attempt, *execution) = (claimed.attempt, claim.execution);
    }
}

impl World {
    pub(super) fn new(net: Net) -> World {
        let plan = Plan::new(net).expect("random nets are sound in form");
        let state = State::new(RUN, &plan);
        World {
            plan,
            state,
            log: Vec::new(),
            history: Vec::new(),
            keys: BTreeSet::new(),
            claims: Claims::default(),
            now: Time(1_000_000),
            proceed: false,
        }
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = &'static str> {
        self.log.iter().map(|event| event.body.kind())
    }

    pub(super) fn plan_and_log(&self) -> (&Plan, &[Event]) {
        (&self.plan, &self.log)
    }

    pub(super) fn decisions(&self) -> usize {
        self.history.len()
    }

    fn env(&self) -> Env {
        Env {
            now: self.now,
            key: TokenKey([7; 32]),
        }
    }

    pub(super) fn step(&mut self, choice: u64) {
        let mut dice = Dice::new(choice);
        // Clocks jump, also backwards.
        match dice.roll(1 << 20) % 8 {
            0 => self.now = Time(self.now.0 - 5_000),
            1 | 2 => self.now = self.now.plus(dice.roll(1 << 16)),
            3 => self.now = next_wake(&self.state).unwrap_or(self.now),
            _ => {}
        }
        let key = TokenKey([7; 32]);
        let command = match dice.one_in(4) {
            true => Some(wild(&self.plan, &self.state, self.now, &mut dice)),
            false => lawful(&self.plan, &self.state, self.now, &key, &mut dice),
        };
        if let Some(command) = command {
            self.send(command);
        }
    }

    pub(super) fn send(&mut self, command: Command) -> bool {
        let before = self.state.clone();
        let mut twin = before.clone();
        let env = self.env();
        let result = decide(&self.plan, &mut self.state, command.clone(), &env);
        let again = decide(&self.plan, &mut twin, command.clone(), &env);
        assert_eq!(result, again, "the same input gives the same output");
        assert_eq!(self.state, twin);
        match result {
            Err(_) => {
                assert_eq!(
                    self.state, before,
                    "a rejection changes nothing: {command:?}"
                );
                false
            }
            Ok(decision) => {
                if before.phase().is_ended() {
                    assert!(
                        decision.events.is_empty(),
                        "nothing follows the end: {command:?}"
                    );
                }
                for event in &decision.events {
                    let last = self.log.last();
                    assert_eq!(event.seq, last.map_or(1, |last| last.seq + 1));
                    assert!(
                        last.is_none_or(|last| last.at <= event.at),
                        "time never runs back in the log"
                    );
                    assert!(
                        self.keys.insert(event.key(&self.plan).to_bytes()),
                        "two events share a key: {event:?}"
                    );
                    self.log.push(event.clone());
                }
                if let Reply::Claimed(claimed) = &decision.reply {
                    self.claims.see(claimed);
                }
                self.proceed = decision.effects.contains(&Effect::Proceed);
                self.history
                    .push((command, self.now, self.log.len() - decision.events.len()));
                self.check();
                true
            }
        }
    }

    fn check(&self) {
        assert_eq!(
            replay(&self.plan, RUN, None, &self.log).unwrap(),
            self.state,
            "folding the log gives the state"
        );
        assert_eq!(*self.state.tally(), self.recount(), "the tally is right");
        let terminal = self.log.iter().position(|event| event.body.is_terminal());
        if let Some(index) = terminal {
            assert_eq!(index + 1, self.log.len(), "the terminal event is the last");
        }
        if !matches!(self.state.phase(), Phase::Void | Phase::Ended(_)) {
            // Also where a decision was cut short, since a crash forgets that it was.
            let sources = wake_sources(&self.plan, &self.state);
            assert!(
                !sources.is_empty(),
                "an open run can always move: {:#?}",
                self.state
            );
            assert!(
                self.proceed || !sources.contains(&WakeSource::Proceed),
                "a decision that is not cut short draws every consequence"
            );
        }
        self.check_indexes();
        self.check_counts();
        let marked = self.state.marked().iter().map(|at| self.state.run(*at));
        assert!(
            marked
                .flatten()
                .all(|run| run.status() == Status::Succeeded || run.unknown()),
            "only what succeeded left a mark"
        );
        let armed: BTreeSet<_> = self.state.timers().iter().collect();
        let mut owned: BTreeSet<_> = [TimerKind::Run, TimerKind::Drain, TimerKind::Stall]
            .iter()
            .filter_map(|kind| self.state.timers().own(*kind))
            .collect();
        for step in self.state.steps() {
            for visit in step.visits() {
                owned.extend(visit.run().timer());
                owned.extend(
                    visit
                        .each()
                        .into_iter()
                        .flat_map(|each| each.active().values())
                        .filter_map(|run| run.timer()),
                );
            }
        }
        owned.extend(
            self.state
                .undoing()
                .iter()
                .filter_map(|undoing| undoing.run().timer()),
        );
        if !self.state.phase().is_ended() {
            assert_eq!(
                armed, owned,
                "every armed timer belongs to someone, and the other way round"
            );
        }
    }

    /// Attempts and losses keep to their limits, each to its own, and what runs at most once is never repeated.
    fn check_counts(&self) {
        #[derive(Default)]
        struct Counts {
            claims: u32,
            waits: u32,
            failed: u32,
            lost: u32,
        }
        let mut counts: BTreeMap<(StepRef, u32), Counts> = BTreeMap::new();
        let counted = self.plan.policy().losses_are_attempts;
        for event in &self.log {
            match &event.body {
                Body::StepStarted { step, logical, .. }
                | Body::StepExecutionStarted { step, logical, .. } => {
                    counts.entry((*step, *logical)).or_default().claims += 1;
                }
                Body::StepWaiting { step, logical, .. } => {
                    counts.entry((*step, *logical)).or_default().waits += 1;
                }
                Body::StepExecutionFailed {
                    step,
                    logical,
                    loss,
                    ..
                } => {
                    let it = counts.entry((*step, *logical)).or_default();
                    match loss {
                        None => it.failed += 1,
                        Some(Loss::Lost) => it.lost += 1,
                        Some(Loss::Released) => {}
                    }
                    let step = self.plan.step(step.step);
                    assert!(it.failed < step.retry.max_executions, "too many attempts");
                    let most = step.max_losses.unwrap_or(RunPolicy::MAX_LOSSES);
                    assert!(it.lost < most.max(1), "too many losses");
                    assert!(!counted || it.lost == 0, "a loss is an attempt here");
                    assert!(!step.at_most_once, "it runs at most once");
                }
                _ => {}
            }
        }
        for ((at, _), it) in counts {
            if self.plan.step(at.step).at_most_once {
                assert!(it.claims <= 1 + it.waits, "it was executed twice");
            }
        }
    }

    /// What is kept so that nothing has to be searched is what a search would find.
    fn check_indexes(&self) {
        let mut open = BTreeSet::new();
        let mut listening: BTreeMap<String, BTreeSet<StepRef>> = BTreeMap::new();
        let mut see = |at: StepRef, run: &StepRun| {
            if !run.status().is_terminal() {
                open.insert(at);
            }
            if let Some(event_type) = run.listens_for() {
                listening
                    .entry(event_type.to_owned())
                    .or_default()
                    .insert(at);
            }
        };
        for (no, step) in self.state.steps().iter().enumerate() {
            for (index, visit) in step.visits().iter().enumerate() {
                let at = StepRef {
                    visit: index as u32 + 1,
                    ..StepRef::first(StepNo(no as u32))
                };
                see(at, visit.run());
                if let Some(each) = visit.each() {
                    let ended = each.results().iter().flatten().count();
                    assert_eq!(each.ended() as usize, ended, "ended items are counted");
                }
                for (item, run) in visit.each().into_iter().flat_map(|each| each.active()) {
                    see(at.with_item(*item), run);
                }
            }
        }
        assert_eq!(*self.state.open(), open, "every open step-run is known");
        let known = self.state.listening().iter();
        let known: BTreeMap<String, BTreeSet<StepRef>> = known
            .map(|(event_type, line)| (event_type.clone(), line.iter().copied().collect()))
            .collect();
        assert_eq!(known, listening, "everyone who waits for an event is known");
    }

    fn recount(&self) -> Tally {
        let (mut succeeded, mut failed, mut skipped, mut starved) = (0, 0, 0, 0);
        let mut runs = Vec::new();
        for (no, step) in self.state.steps().iter().enumerate() {
            for visit in step.visits() {
                runs.push(visit.run());
                if let Some(each) = visit.each() {
                    runs.extend(each.active().values());
                    use stepwell_kernel::state::ItemResult;
                    for result in each.results().iter().flatten() {
                        match result {
                            ItemResult::Succeeded(_) => succeeded += 1,
                            ItemResult::Failed(_) => failed += 1,
                            ItemResult::Skipped => skipped += 1,
                            ItemResult::Cancelled => {}
                        }
                    }
                }
            }
            let no = StepNo(no as u32);
            let incoming = self.plan.incoming(no).len() as u32;
            let joins = self.plan.step(no).join == Join::All && incoming > 0;
            if joins && step.missing() < incoming {
                starved += 1;
            }
        }
        let open = Tally::of(runs);
        let known = self.state.tally();
        let mut tally = serde_json::to_value(open).unwrap();
        tally["starved"] = starved.into();
        // What a retried loop had counted in earlier attempts is not in the state any more.
        tally["succeeded"] = known.succeeded().max(open.succeeded() + succeeded).into();
        tally["failed"] = known.failed().max(open.failed() + failed).into();
        tally["skipped"] = known.skipped().max(open.skipped() + skipped).into();
        serde_json::from_value(tally).unwrap()
    }

    /// An event from elsewhere in the log either can follow too, or changes nothing.
    fn misplace(&self, state: &State, event: &Event) {
        // Each try copies the state. Where tokens multiply, logs and states are long, and 200 places say as much as
        // thousands that are alike.
        let stride = 1 + self.log.len() as u64 / 200;
        if !event.seq.is_multiple_of(stride) {
            return;
        }
        let other = (event.seq as usize * 7) % self.log.len();
        let wrong = Event {
            body: self.log[other].body.clone(),
            ..event.clone()
        };
        let (mut after, mut effects) = (state.clone(), Vec::new());
        if evolve(&self.plan, &mut after, &wrong, &mut effects).is_err() {
            assert_eq!(after, *state, "{wrong:?}");
            assert!(effects.is_empty(), "{wrong:?}");
        }
    }

    /// Every token that arrived was produced by an event, and every one produced has arrived.
    pub(super) fn check_tokens(&self) {
        let mut produced: BTreeMap<EdgeNo, u32> = BTreeMap::new();
        let mut moving = false;
        for event in &self.log {
            match &event.body {
                Body::RunStarted { .. } => moving = true,
                Body::RunStopping { .. } => moving = false,
                Body::StepCompleted { step, routing, .. } if step.item.is_none() && moving => {
                    match (self.plan.step(step.step).route, routing) {
                        (Route::Edges, _) => {
                            for edge in self.plan.outgoing(step.step) {
                                *produced.entry(*edge).or_default() += 1;
                            }
                        }
                        (_, Some(routing)) => {
                            for taken in &routing.taken {
                                *produced.entry(taken.edge).or_default() += 1;
                            }
                        }
                        (_, None) => {}
                    }
                }
                Body::StepRouted { routing, .. } => {
                    for taken in &routing.taken {
                        *produced.entry(taken.edge).or_default() += 1;
                    }
                }
                Body::StepSkipped {
                    step,
                    reason: SkipReason::OnFailure | SkipReason::Operator,
                    ..
                } if self.plan.step(step.step).route == Route::Edges
                    && moving
                    && step.item.is_none() =>
                {
                    for edge in self.plan.outgoing(step.step) {
                        *produced.entry(*edge).or_default() += 1;
                    }
                }
                _ => {}
            }
        }
        let started = self
            .log
            .iter()
            .any(|event| matches!(event.body, Body::RunStarted { .. }));
        for no in self.plan.numbers() {
            let step = &self.state.steps()[no.0 as usize];
            if step.absorbed() || step.passes() {
                continue;
            }
            let incoming = self.plan.incoming(no);
            let tokens = |edge: &EdgeNo| produced.get(edge).copied().unwrap_or(0);
            let entry = started
                && match self.plan.policy().entry {
                    EntryPoint::Step(entry) => entry == no,
                    EntryPoint::Roots => {
                        incoming.is_empty() && self.plan.policy().final_step != Some(no)
                    }
                };
            let finals = self.log.iter().filter(|event| {
                matches!(event.body, Body::RunFinalizing { .. })
                    && self.plan.policy().final_step == Some(no)
            });
            let given = u32::from(entry) + finals.count() as u32;
            let expected = match self.plan.step(no).join {
                Join::Each => given + incoming.iter().map(tokens).sum::<u32>(),
                Join::All => given + incoming.iter().map(tokens).min().unwrap_or(0),
            };
            assert_eq!(
                step.visits().len() as u32,
                expected,
                "visits of {}",
                self.plan.step(no).name
            );
            if self.plan.step(no).join == Join::All {
                let fired = step.visits().len() as u32 - given;
                for edge in incoming {
                    assert_eq!(
                        self.state.marks()[edge.0 as usize],
                        tokens(edge) - fired,
                        "tokens left on an edge"
                    );
                }
            }
        }
    }

    /// Does everything that can be done, with time passing, until the run has ended.
    pub(super) fn drive_to_the_end(&mut self, seed: u64) {
        let mut dice = Dice::new(seed);
        let key = TokenKey([7; 32]);
        for _ in 0..3_000 {
            if self.state.phase().is_ended() {
                return;
            }
            if self.proceed {
                self.proceed = false;
                self.send(Command::Proceed);
                continue;
            }
            let command = lawful(&self.plan, &self.state, self.now, &key, &mut dice)
                .expect("an open run can always move");
            let refused = !self.send(command);
            if refused {
                self.now = next_wake(&self.state)
                    .unwrap_or(self.now)
                    .max(self.now.plus(1_000));
            }
            if self.log.len() > 600 {
                // A cycle without an end is lawful; it must still be possible to stop it.
                self.send(Command::CancelRun {
                    actor: super::commands::operator(),
                    reason: None,
                    compensate: false,
                    keep_undo: false,
                });
            }
        }
        panic!("the run did not end: {:#?}", self.state);
    }

    /// Cuts the log before decision `cut`, folds what is left, and decides the rest again.
    pub(super) fn replay_from(&self, cut: usize) {
        let from = self
            .history
            .get(cut)
            .map_or(self.log.len(), |(_, _, at)| *at);
        let mut state = replay(&self.plan, RUN, None, &self.log[..from]).unwrap();
        let mut log = self.log[..from].to_vec();
        for (command, now, _) in self.history.iter().skip(cut) {
            let env = Env {
                now: *now,
                key: TokenKey([7; 32]),
            };
            let decision = decide(&self.plan, &mut state, command.clone(), &env)
                .expect("it was decided before");
            log.extend(decision.events);
        }
        assert_eq!(log, self.log, "the continuation writes the same log");
        // Folding twice what was folded once is no different from folding it in one go.
        let mut effects = Vec::new();
        let mut stepwise = State::new(RUN, &self.plan);
        for event in &log {
            self.misplace(&stepwise, event);
            evolve(&self.plan, &mut stepwise, event, &mut effects).unwrap();
        }
        assert_eq!(stepwise, self.state);
    }

    /// Writes the state down after every event, and every command, and goes on with what was read back.
    pub(super) fn freeze_everywhere(&self) {
        let mut state = State::new(RUN, &self.plan);
        let mut recorder = Recorder::new(RUN);
        for event in &self.log {
            let decoded = State::decode(FORMAT, &state.encode(), &self.plan);
            let decoded = decoded.expect("an encoded state can be decoded");
            assert_eq!(decoded, state, "a decoded state is the same state");
            let mut resumed = Recorder::resume(&self.plan, &decoded, recorder.head());
            let expected = recorder.record(&self.plan, event).expect("it fits");
            let record = resumed.record(&self.plan, event).expect("it fits");
            assert_eq!(record, expected, "recording goes on where it stopped");
            evolve(&self.plan, &mut state, event, &mut Vec::new()).unwrap();
        }
        let decoded = State::decode(FORMAT, &state.encode(), &self.plan);
        assert_eq!(decoded.as_ref(), Some(&self.state));
        for (command, _, _) in &self.history {
            let text = serde_json::to_string(command).expect("a command has a JSON form");
            let read: Command = serde_json::from_str(&text).expect("a command can be read");
            assert_eq!(read, *command, "a command is the same command: {text}");
        }
    }
}
