//! What can happen in a simulation, and how often.

use stepwell_engine::chunk;
use stepwell_engine::coordinator::Retry;
use stepwell_engine::store::{Batch, StoreError, StoreErrorKind};
use stepwell_kernel::command::{Claim, Claimed, Command, WaitFor};
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{Body, Patch, StepError, TaskKind};
use stepwell_kernel::plan::{ErrorClass, Plan};
use stepwell_kernel::time::Time;

use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::server::{BatchInFlight, BatchStage};
use crate::sim_store::unavailable;
use crate::simulation::Simulation;

/// How many batches of a server are under way at a time.
const COMMITTERS: usize = 2;

impl Simulation {
    /// Draws one action and performs it.
    pub(crate) fn act(&mut self) -> Result<(), String> {
        let no = self.rng.index(self.servers.len());
        match self.rng.below(1_000) {
            0..200 => self.tick(no),
            200..360 => self.send(no),
            360..600 => self.fly(no),
            600..710 => self.work(no),
            710..800 => self.pass(),
            800..812 => self.process(no),
            812..822 => self.partition(no),
            822..832 => self.arrive(),
            832..872 => self.start_run(no),
            872..905 => self.command(no),
            905..955 => self.remote(no),
            955..975 => self.outside_event(no),
            975..995 => self.publish(no),
            _ => {
                let skew = i64::try_from(self.rng.below(600)).unwrap_or(0) - 300;
                self.servers[no].skew = skew;
                self.say(&format!("s{no} has a clock that is off by {skew} ms"));
                Ok(())
            }
        }
    }

    pub(crate) fn tick(&mut self, no: usize) -> Result<(), String> {
        let server = &mut self.servers[no];
        let now = server.clock(self.now);
        let Some(coordinator) = &mut server.coordinator else {
            return Ok(());
        };
        let before = coordinator.session();
        let failed = coordinator.tick(now).err();
        if failed.is_some() {
            coordinator.rest(now);
        }
        let after = coordinator.session();
        if before != after {
            self.say(&format!(
                "s{no} lost session {}, opened {}",
                before.0, after.0
            ));
        }
        match failed {
            Some(error) if self.quiet => return Err(format!("s{no} could not tick: {error}")),
            Some(error) => self.say(&format!("s{no} ticks without success: {error}")),
            None if self.quiet => {}
            None => self.say(&format!("s{no} ticks")),
        }
        self.listen(no)
    }

    /// Takes the next batch of a coordinator; it is now on its way.
    pub(crate) fn send(&mut self, no: usize) -> Result<(), String> {
        let server = &mut self.servers[no];
        let now = server.clock(self.now);
        if server.flying() >= COMMITTERS {
            return Ok(());
        }
        let Some(coordinator) = &mut server.coordinator else {
            return Ok(());
        };
        let Some(batch) = coordinator.next_batch(now) else {
            return self.listen(no);
        };
        let runs: Vec<String> = { batch.appends.iter() }
            .map(|it| match &it.chunk {
                Some(chunk) => format!("{}@{}..{}", it.run.0, chunk.first, chunk.last),
                None => format!("{}@head", it.run.0),
            })
            .collect();
        let (session, number) = (batch.id.session, batch.id.number);
        if self.sabotage == Some(Sabotage::StartEarly) {
            self.start_early(&batch)?;
        }
        let stage = BatchStage::Sent;
        self.servers[no]
            .flights
            .push(BatchInFlight { batch, stage });
        let runs = runs.join(" ");
        self.say(&format!("s{no} sends {session}/{number}: {runs}"));
        self.listen(no)
    }

    /// Sabotage: begins what a batch claims, though the batch has not arrived.
    fn start_early(&mut self, batch: &Batch) -> Result<(), String> {
        for append in &batch.appends {
            let Some(it) = &append.chunk else { continue };
            let events = chunk::decode(it.first, it.codec, &it.body);
            for event in events.unwrap_or_default() {
                if let Body::StepStarted {
                    step,
                    execution,
                    lease: Some(lease),
                    ..
                } = event.body
                {
                    let target = Target::Step(step);
                    self.oracle
                        .begins(append.run, target, execution, &lease.worker)?;
                }
            }
        }
        Ok(())
    }

    /// Moves one of a server's batches along.
    pub(crate) fn fly(&mut self, no: usize) -> Result<(), String> {
        let index = self.rng.index(self.servers[no].flights.len());
        let Some(flight) = self.servers[no].flights.get(index) else {
            return Ok(());
        };
        let id = format!("{}/{}", flight.batch.id.session, flight.batch.id.number);
        match flight.stage.clone() {
            BatchStage::Sent => {
                let answer = self.arrives(no, index);
                self.say(&format!("s{no} {id} arrives: {answer:?}"));
                self.servers[no].flights[index].stage = BatchStage::Answered(answer);
                Ok(())
            }
            BatchStage::Answered(answer) => {
                let flight = self.servers[no].flights.remove(index);
                let server = &mut self.servers[no];
                let now = server.clock(self.now);
                let Some(coordinator) = &mut server.coordinator else {
                    return Ok(());
                };
                match answer {
                    Ok(outcomes) => {
                        coordinator.committed(&flight.batch, outcomes, now);
                        self.say(&format!("s{no} {id} is answered"));
                    }
                    Err(error) => {
                        let retry = coordinator.failed(&flight.batch, &error, now);
                        self.say(&format!("s{no} {id} failed: {retry:?}"));
                        if retry == Retry::Same {
                            let at = self.now.plus(self.rng.between(5, 1_000));
                            let batch = flight.batch;
                            let stage = BatchStage::Again(at);
                            self.servers[no]
                                .flights
                                .push(BatchInFlight { batch, stage });
                        }
                    }
                }
                self.listen(no)
            }
            BatchStage::Again(at) => {
                if at <= self.now && self.servers[no].flying() < COMMITTERS {
                    self.servers[no].flights[index].stage = BatchStage::Sent;
                    self.say(&format!("s{no} {id} is sent again"));
                }
                Ok(())
            }
        }
    }

    /// What a batch meets at the store.
    fn arrives(
        &mut self,
        no: usize,
        index: usize,
    ) -> Result<Vec<stepwell_engine::store::AppendResult>, StoreError> {
        let batch = self.servers[no].flights[index].batch.clone();
        let lost = || StoreError::new(StoreErrorKind::AnswerLost, "simulated: the answer was lost");
        if self.servers[no].connection.is_down() {
            if self.rng.one_in(2) {
                return Err(unavailable());
            }
            self.late_batches.push(batch);
            return Err(lost());
        }
        match if self.quiet { 99 } else { self.rng.below(40) } {
            0 => Err(unavailable()),
            1 => Err(StoreError::new(StoreErrorKind::Full, "simulated: no room")),
            2 => {
                self.late_batches.push(batch);
                Err(lost())
            }
            3 | 4 => {
                self.sim_store.commit(&batch)?;
                Err(lost())
            }
            _ => self.sim_store.commit(&batch),
        }
    }

    /// A batch that was given up arrives after all.
    pub(crate) fn arrive(&mut self) -> Result<(), String> {
        if self.late_batches.is_empty() {
            return Ok(());
        }
        let index = self.rng.index(self.late_batches.len());
        let batch = self.late_batches.remove(index);
        let outcomes = self.sim_store.commit(&batch).map_err(|it| it.to_string())?;
        let (session, number) = (batch.id.session, batch.id.number);
        self.say(&format!("{session}/{number} arrives late: {outcomes:?}"));
        Ok(())
    }

    /// Some work of a server ends, or says once more that it has.
    pub(crate) fn work(&mut self, no: usize) -> Result<(), String> {
        let index = self.rng.index(self.servers[no].tasks.len());
        let Some(work) = self.servers[no].tasks.get(index).cloned() else {
            return Ok(());
        };
        if work.reported || self.quiet || !self.rng.one_in(4) {
            self.servers[no].tasks.remove(index);
        } else {
            self.servers[no].tasks[index].reported = true;
        }
        let server = &mut self.servers[no];
        let now = server.clock(self.now);
        let claimed = &work.job.claimed;
        let claim = Claim {
            lease_until: Some(now),
            ..claimed.claim.clone()
        };
        let fails = if self.quiet { 0 } else { self.fails };
        let command = if work.stopped && self.rng.one_in(2) {
            Command::ConfirmKill { claim }
        } else {
            result(&work.job.plan, claimed, claim, fails, &mut self.rng)
        };
        let (run, target) = (work.job.run, claimed.claim.target);
        let execution = claimed.claim.execution;
        let what = word(&command);
        if let Some(coordinator) = &mut server.coordinator {
            coordinator.finished(run, target, execution, command, now);
        }
        let step = &claimed.step_id;
        self.say(&format!("s{no} {what} {step} ({execution}) of {}", run.0));
        self.listen(no)
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
            _ => {
                let back = self.rng.between(1, 900);
                let earlier = Time(self.now.0 - i64::try_from(back).unwrap_or(0));
                self.set_now(earlier);
                self.say(&format!("the clock jumps back by {back} ms"));
                return Ok(());
            }
        };
        self.set_now(self.now.plus(by));
        self.say(&format!("{by} ms pass"));
        Ok(())
    }

    /// A process dies, or comes back.
    fn process(&mut self, no: usize) -> Result<(), String> {
        if self.servers[no].is_up() {
            for batch in self.servers[no].crash() {
                // It may have been on its way, or not yet.
                if self.rng.one_in(2) {
                    self.late_batches.push(batch);
                }
            }
            self.say(&format!("s{no} crashes"));
            if self.rng.one_in(3) {
                return Ok(());
            }
        }
        let up = self.servers[no].boot(&self.workload, self.now);
        let name = self.servers[no].name.clone();
        self.say(&format!("{name} starts: {up}"));
        Ok(())
    }

    /// A server cannot reach the store, or can again.
    fn partition(&mut self, no: usize) -> Result<(), String> {
        let down = !self.servers[no].connection.is_down() && self.rng.one_in(3);
        self.servers[no].connection.set_down(down);
        let how = if down { "cannot" } else { "can" };
        self.say(&format!("s{no} {how} reach the store"));
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
        output: serde_json::json!({ "by": claimed.step_id }),
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
