//! What can happen in a simulation, and how often.

use stepwell_engine::coordinator::Assignment;
use stepwell_engine::service::Turned;
use stepwell_engine::store::{Batch, RunNo};
use stepwell_kernel::command::{Claim, Claimed, Command, WaitFor};
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{Patch, StepError, TaskKind};
use stepwell_kernel::plan::{ErrorClass, Plan};
use stepwell_kernel::time::Time;

use crate::pipelines::{self, Chance, Pipelines};
use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::simulation::{Simulation, say};

/// How long a calm moment lasts, in milliseconds: less than a session lasts without being renewed.
const CALM_MS: u64 = 4_000;

/// During the first steps runs are started often.
const BUSY_STEPS: u64 = 80;

impl Simulation {
    /// Draws one action and performs it.
    pub(crate) fn act(&mut self) -> Result<(), String> {
        let no = self.rng.index(self.servers.len());
        // Most runs are there from the beginning, so that much happens to them.
        if self.step < BUSY_STEPS && self.rng.one_in(6) {
            return self.start_run(no);
        }
        match self.rng.below(1_000) {
            0..320 => self.turn(no),
            320..360 => self.renew(no),
            360..600 => self.step_actor(no),
            600..710 => self.work(no),
            710..795 => self.pass(),
            795..807 => self.process(no),
            807..817 => self.partition(no),
            817..827 => self.arrive(),
            827..830 => self.checkpoint(),
            830..867 => self.start_run(no),
            867..900 => self.command(no),
            900..950 => self.remote(no),
            950..970 => self.outside_event(no),
            970..988 => self.publish(no),
            988..992 => self.freeze(no),
            992..996 => self.slow_down(no),
            _ => self.skew(no),
        }
    }

    /// One turn of one of a server's loops.
    pub(crate) fn turn(&mut self, no: usize) -> Result<(), String> {
        let shard = self.rng.index(8);
        let before = self.records.then(|| self.servers[no].sessions());
        if !self.servers[no].can_move(self.now) {
            return Ok(());
        }
        let Some(engine) = &mut self.servers[no].engine else {
            return Ok(());
        };
        let turned = engine.turn(shard);
        let shard = shard % engine.shards();
        if turned == Turned::Ended {
            return Err(format!(
                "loop {shard} of s{no} ended, and nobody asked for it"
            ));
        }
        let after = self.records.then(|| self.servers[no].sessions());
        if before != after {
            say!(self, "s{no} lost a session: {before:?}, now {after:?}");
        }
        if !self.quiet {
            say!(self, "s{no} turns loop {shard}: {turned:?}");
        }
        self.listen(no)
    }

    /// One of a server's actors takes work to the store, or an answer comes back.
    fn step_actor(&mut self, no: usize) -> Result<(), String> {
        let (actor, answer) = (self.rng.index(8), self.rng.index(4));
        if !self.servers[no].store_answers(self.now) {
            return Ok(());
        }
        let delivers = self.rng.one_in(2);
        let Some(engine) = &mut self.servers[no].engine else {
            return Ok(());
        };
        if delivers && self.sabotage == Some(Sabotage::LoseAnswers) && self.rng.one_in(6) {
            engine.lose(answer % engine.answers().max(1));
        } else if delivers {
            if engine.deliver(answer % engine.answers().max(1)) {
                say!(self, "s{no} gets an answer of its store");
            }
        } else if engine.step(actor) {
            let actor = actor % engine.actors();
            say!(self, "s{no} steps actor {actor}");
        }
        self.listen(no)
    }

    /// The write-ahead log of a store on a disk is copied, unless the disk fails.
    fn checkpoint(&mut self) -> Result<(), String> {
        if let Err(error) = self.sim_store.checkpoint() {
            say!(self, "a checkpoint meets a fault: {error}");
        }
        Ok(())
    }

    /// One of a server's renewers looks after its session.
    fn renew(&mut self, no: usize) -> Result<(), String> {
        let renewer = self.rng.index(8);
        if !self.servers[no].store_answers(self.now) {
            return Ok(());
        }
        let engine = self.servers[no].engine.as_mut();
        if engine.is_some_and(|it| it.renew(renewer)) {
            say!(self, "s{no} looks after a session");
        }
        self.listen(no)
    }

    /// A batch that was given up arrives after all.
    pub(crate) fn arrive(&mut self) -> Result<(), String> {
        match self.sim_store.take_late(&mut self.rng) {
            Some(batch) => self.arrives_late(&batch),
            None => Ok(()),
        }
    }

    pub(crate) fn arrives_late(&mut self, batch: &Batch) -> Result<(), String> {
        let outcomes = match self.sim_store.commit(batch) {
            Ok(outcomes) => outcomes,
            Err(error) if self.quiet => return Err(error.to_string()),
            Err(error) => {
                say!(self, "a late batch meets a fault: {error}");
                return Ok(());
            }
        };
        let (session, number) = (batch.id.session, batch.id.number);
        say!(self, "{session}/{number} arrives late: {outcomes:?}");
        Ok(())
    }

    /// Some work of a server ends, or says once more that it has.
    pub(crate) fn work(&mut self, no: usize) -> Result<(), String> {
        if !self.servers[no].can_move(self.now) {
            return Ok(());
        }
        let index = self.rng.index(self.servers[no].tasks.len());
        let Some(work) = self.servers[no].tasks.get(index).cloned() else {
            return Ok(());
        };
        if work.reported || self.quiet || !self.rng.one_in(4) {
            self.servers[no].tasks.remove(index);
        } else {
            self.servers[no].tasks[index].reported = true;
            self.sim_store.count("a result is reported twice");
        }
        let claimed = &work.job.claimed;
        let mut claim = Claim {
            lease_until: Some(self.servers[no].now()),
            ..claimed.claim.clone()
        };
        if self.sabotage == Some(Sabotage::WrongExecution) {
            claim.execution += 1;
        }
        let fails = self.fails_in(work.job.run);
        let command = if work.stopped && self.rng.one_in(2) {
            Command::ConfirmKill { claim }
        } else if work.job.plan.net().plan_id == pipelines::PLAN_ID {
            self.run_pipeline(no, &work.job, claim, fails)?
        } else {
            result(&work.job.plan, claimed, claim, fails, &mut self.rng)
        };
        let what = word(&command);
        work.reporter.report(&work.job, command);
        let (step, execution) = (&claimed.step_id, claimed.claim.execution);
        let run = work.job.run.0;
        say!(self, "s{no} {what} {step} ({execution}) of {run}");
        Ok(())
    }

    /// The product's own worker runs the tasks of a step.
    fn run_pipeline(
        &mut self,
        no: usize,
        job: &Assignment,
        claim: Claim,
        fails: u64,
    ) -> Result<Command, String> {
        let workers = match &mut self.pipelines {
            Some(workers) => workers,
            none => none.insert(Pipelines::new()?),
        };
        let observed = self.oracle.runs.get(&job.run);
        let waited = observed.map(|it| it.waited(claim.target.step_ref()));
        let chance = Chance {
            rng: Rng::new(self.rng.below(u64::MAX)),
            fails,
            sabotage: self.sabotage,
        };
        workers.run(no, job, claim, (waited.unwrap_or_default(), chance))
    }

    /// One piece of work in so many fails in a run; none with zero. Every third run fails so often that attempts run out,
    /// also when the faults are over: work that fails is no fault.
    pub(crate) fn fails_in(&self, run: RunNo) -> u64 {
        match (run.0 % 3, self.quiet) {
            (0, _) => 2,
            (_, true) => 0,
            (_, false) => self.fails,
        }
    }

    /// Time passes, mostly forward.
    fn pass(&mut self) -> Result<(), String> {
        let by = match self.rng.below(100) {
            0..40 => self.rng.between(1, 100),
            40..75 => self.rng.between(100, 2_000),
            75..88 => self.rng.between(2_000, 9_000),
            88..93 => self.rng.between(9_000, 40_000),
            93..95 => self.rng.between(60_000, 7_200_000),
            95 => self.rng.between(7_200_000, 100_000_000),
            96 => return self.calm(),
            _ => {
                let back = self.rng.between(1, 900);
                let earlier = Time(self.now.0 - i64::try_from(back).unwrap_or(0));
                self.set_now(earlier);
                self.sim_store.count("the clock jumps back");
                say!(self, "the clock jumps back by {back} ms");
                return Ok(());
            }
        };
        self.set_now(self.now.plus(by));
        say!(self, "{by} ms pass");
        Ok(())
    }

    /// Time passes in which the servers are well: they keep their sessions, look at their timers and commit. Everything else
    /// that takes long happens to servers that were suspended.
    fn calm(&mut self) -> Result<(), String> {
        let hops = self.rng.between(10, 400);
        say!(self, "{hops} calm moments");
        for _ in 0..hops {
            self.set_now(self.now.plus(CALM_MS));
            for no in 0..self.servers.len() {
                if self.servers[no].store_answers(self.now) {
                    self.breathe(no)?;
                }
            }
            self.check()?;
        }
        Ok(())
    }

    /// A server does what it does when little happens.
    fn breathe(&mut self, no: usize) -> Result<(), String> {
        for _ in 0..4 {
            let Some(engine) = &mut self.servers[no].engine else {
                return Ok(());
            };
            let mut moved = false;
            for shard in 0..engine.shards() {
                engine.renew(shard);
                moved |= engine.turn(shard) == Turned::Busy;
            }
            for actor in 0..engine.actors() {
                moved |= engine.step(actor);
            }
            while engine.deliver(0) {
                moved = true;
            }
            self.listen(no)?;
            if !moved {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A process dies, or comes back.
    fn process(&mut self, no: usize) -> Result<(), String> {
        if self.servers[no].is_up() {
            // What it had sent may have been on its way, or not yet.
            let arrives = self.rng.one_in(2) && !self.sim_store.is_on_disk();
            if self.sim_store.is_on_disk() && self.rng.one_in(2) {
                // The end comes in the middle of a transaction.
                self.sim_store.power_off_after(self.rng.below(24));
                for _ in 0..6 {
                    self.turn(no)?;
                    self.step_actor(no)?;
                }
            }
            self.servers[no].crash(arrives);
            if let Some(workers) = &mut self.pipelines {
                workers.crash(no);
            }
            let loses = self.sim_store.is_on_disk() && self.rng.one_in(2);
            self.sim_store.count(match loses {
                true => "the power is lost",
                false => "a server crashes",
            });
            let ages = self.sim_store.is_on_disk() && self.rng.one_in(5);
            let ages = ages.then_some(&mut self.rng);
            for run in self.sim_store.crash(loses, ages)? {
                // An earlier release has written its log, so what was read of it is gone.
                self.oracle.runs.remove(&run);
                say!(self, "an earlier release wrote the log of {}", run.0);
            }
            say!(self, "s{no} crashes");
            if self.rng.one_in(3) {
                return Ok(());
            }
        }
        let up = self.servers[no].boot(&self.workload);
        let name = self.servers[no].name.clone();
        say!(self, "{name} starts: {up}");
        Ok(())
    }

    /// A process stands still for a while, as in a debugger or a suspended machine.
    fn freeze(&mut self, no: usize) -> Result<(), String> {
        let for_ms = self.rng.between(1_000, 60_000);
        self.sim_store.count("a server stands still");
        self.servers[no].frozen_until = Some(self.now.plus(for_ms));
        say!(self, "s{no} stands still for {for_ms} ms");
        Ok(())
    }

    /// The store takes its time to answer a server.
    fn slow_down(&mut self, no: usize) -> Result<(), String> {
        let for_ms = self.rng.between(100, 30_000);
        self.sim_store.count("the store is slow");
        self.servers[no].slow_until = Some(self.now.plus(for_ms));
        say!(self, "the store of s{no} is slow for {for_ms} ms");
        Ok(())
    }

    /// The clock of a server is off by a little.
    fn skew(&mut self, no: usize) -> Result<(), String> {
        let skew = i64::try_from(self.rng.below(600)).unwrap_or(0) - 300;
        self.sim_store.count("the clock of a server is off");
        self.servers[no].set_skew(skew, self.now);
        say!(self, "s{no} has a clock that is off by {skew} ms");
        Ok(())
    }

    /// A server cannot reach the store, or can again.
    fn partition(&mut self, no: usize) -> Result<(), String> {
        let down = !self.servers[no].connection.is_down() && self.rng.one_in(3);
        self.servers[no].connection.set_down(down);
        if down {
            self.sim_store.count("a server cannot reach the store");
        }
        let how = if down { "cannot" } else { "can" };
        say!(self, "s{no} {how} reach the store");
        Ok(())
    }
}

/// The result of work; one in `fails` fails, none with zero.
pub(crate) fn result(
    plan: &Plan,
    claimed: &Claimed,
    claim: Claim,
    fails: u64,
    rng: &mut Rng,
) -> Command {
    // Few runs are undone, so their undos fail more often.
    let fails = match claim.target {
        Target::Undo(_) => fails.min(3),
        Target::Step(_) => fails,
    };
    if fails > 0 && rng.one_in(fails) {
        let classes = [
            ErrorClass::Transient,
            ErrorClass::Timeout,
            ErrorClass::Validation,
            ErrorClass::Unknown,
            ErrorClass::External,
        ];
        let class = classes[rng.index(classes.len())];
        let code = class.name().to_uppercase();
        return Command::FailStep {
            claim,
            error: StepError::new(class, code, "simulated"),
            retryable: None,
            delay_ms: None,
            ctx: Default::default(),
        };
    }
    let handles = plan.step(claimed.step).name == "RECEIPT";
    if handles && claimed.payload.is_none() && claimed.task != TaskKind::WaitingTimeout {
        return Command::WaitStep {
            claim,
            wait: WaitFor::Event {
                event_type: "bank.receipt".into(),
            },
            timeout_ms: Some(3_600_000),
            outbound: Vec::new(),
            memo: None,
        };
    }
    Command::CompleteStep {
        claim,
        output: serde_json::json!({ "by": claimed.step_id, "v": rng.below(5) }),
        ctx: Patch::new(),
        artifacts: Vec::new(),
    }
}

pub(crate) fn word(command: &Command) -> &'static str {
    match command {
        Command::ConfirmKill { .. } => "stops",
        Command::FailStep { .. } => "fails",
        Command::WaitStep { .. } => "lets wait",
        _ => "completes",
    }
}
