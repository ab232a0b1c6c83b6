//! The end of a simulation: the faults stop, time goes on, and then people answer. Every run must end, or
//! name what it waits for.

use serde_json::{Value as Json, json};
use stepwell_engine::service::Turned;
use stepwell_engine::store::RunNo;
use stepwell_kernel::decide::next_wake;
use stepwell_kernel::event::WaitKind;
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::state::Status;
use stepwell_kernel::time::Time;

use crate::server::Server;
use crate::simulation::{Simulation, say};

/// How many rounds a simulation may take until it is idle.
const ROUNDS: u32 = 3_000;
/// How often people look after the runs.
const VISITS: u32 = 60;
/// Longer than any session or reservation lasts without being renewed, in milliseconds.
const LONG: u64 = 40_000;

impl Simulation {
    /// The faults stop. A server that is down may stay down, but at least one server runs.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        self.quiet = true;
        self.sink_down = false;
        self.sim_store.set_fault_rate(0, 0);
        say!(self, "the faults are over");
        for no in 0..self.servers.len() {
            self.servers[no].connection.set_down(false);
            self.servers[no].frozen_until = None;
            self.servers[no].slow_until = None;
            // Servers whose clocks agree, as a time service keeps them.
            self.servers[no].set_skew(0, self.now);
            let last = no + 1 == self.servers.len();
            let alone = last && !self.servers.iter().any(|it| it.is_up());
            if !self.servers[no].is_up() && (alone || self.rng.one_in(2)) {
                self.servers[no].boot(&self.workload);
                say!(self, "s{no} starts");
            }
        }
        while let Some(batch) = self.sim_store.take_late(&mut self.rng) {
            if self.rng.one_in(2) {
                self.arrives_late(&batch)?;
            }
            self.check()?;
        }
        for no in 0..self.servers.len() {
            self.drain(no)?;
        }
        self.healed = true;
        self.rest()?;
        self.explained()?;
        for _ in 0..VISITS {
            if self.oracle.open().next().is_none() {
                break;
            }
            self.people()?;
            self.rest()?;
        }
        self.over()
    }

    /// Goes on until nothing happens by itself any more.
    fn rest(&mut self) -> Result<(), String> {
        let mut idle = 0;
        for _ in 0..ROUNDS {
            let before = self.progress();
            self.round()?;
            if self.progress() != before {
                idle = 0;
                self.set_now(self.now.plus(600));
                continue;
            }
            match self.next_instant() {
                Some(at) => {
                    idle = 0;
                    self.set_now(at.plus(600).max(self.now.plus(600)));
                }
                None if idle >= 2 => return Ok(()),
                None => {
                    idle += 1;
                    self.set_now(self.now.plus(LONG));
                }
            }
        }
        let open: Vec<String> = { self.oracle.open() }
            .flat_map(|it| {
                let sources = wake_sources(&it.plan, &it.state);
                let due = sources.into_iter().filter(|it| is_due(it, self.now));
                due.map(|source| self.stuck(it.run, &source))
                    .collect::<Vec<_>>()
            })
            .collect();
        Err(format!("the simulation does not become idle: {open:?}"))
    }

    fn progress(&self) -> (u64, usize, usize) {
        let commits = self.sim_store.commits();
        let sent = self.oracle.delivered.values().sum();
        (commits, self.oracle.effects.len(), sent)
    }

    /// Everyone does everything that can be done now.
    fn round(&mut self) -> Result<(), String> {
        for no in 0..self.servers.len() {
            if !self.servers[no].is_up() {
                continue;
            }
            self.step += 1;
            self.drain(no)?;
            while !self.servers[no].tasks.is_empty() {
                self.work(no)?;
            }
            self.drain(no)?;
            for worker in 0..self.remotes.len() {
                self.poll(no, worker)?;
                self.drain(no)?;
                while !self.remotes[worker].tasks.is_empty() {
                    self.report(no, worker, 0)?;
                }
            }
            self.drain(no)?;
            for _ in 0..8 {
                self.publish(no)?;
            }
            self.check()?;
        }
        Ok(())
    }

    /// Lets the loops and actors of a server take steps until there is nothing to do.
    fn drain(&mut self, no: usize) -> Result<(), String> {
        for _ in 0..2_000 {
            let Some(engine) = &mut self.servers[no].engine else {
                return Ok(());
            };
            let mut moved = false;
            for renewer in 0..engine.shards() {
                engine.renew(renewer);
            }
            for shard in 0..engine.shards() {
                moved |= match engine.turn(shard) {
                    Turned::Busy => true,
                    Turned::Idle(nap) => nap.is_zero(),
                    Turned::Ended => {
                        return Err(format!(
                            "loop {shard} of s{no} ended, and nobody asked for it"
                        ));
                    }
                };
            }
            for actor in 0..engine.actors() {
                moved |= engine.step(actor);
            }
            while engine.deliver(0) {
                moved = true;
            }
            self.listen(no)?;
            self.check()?;
            if !moved {
                return Ok(());
            }
        }
        Err(format!("s{no} has always something to do"))
    }

    /// When something happens next by itself.
    fn next_instant(&self) -> Option<Time> {
        let mut instants: Vec<Time> = Vec::new();
        for observed in self.oracle.open() {
            instants.extend(next_wake(&observed.state));
            let Some(stored) = self.sim_store.rows(observed.run) else {
                continue;
            };
            instants.extend(stored.head.wake_at);
            // Work of a paused run stays offered, and every claim of it is refused: that is no reason to go on.
            let offered = stored
                .tasks
                .iter()
                .filter(|_| observed.state.pause().is_none());
            for task in offered {
                instants.push(task.visible_at);
                instants.extend(task.until.map(|until| until.plus(1)));
            }
        }
        instants.extend(self.sim_store.store().next_due().ok().flatten());
        let sessions = self.sim_store.sessions();
        instants.extend(sessions.iter().map(|(_, seen)| seen.until.plus(1)));
        let own: Vec<_> = { self.servers.iter() }.flat_map(Server::sessions).collect();
        // A live server renews its session.
        for (no, seen) in sessions {
            if own.contains(&no) {
                instants.retain(|at| *at != seen.until.plus(1));
            }
        }
        instants.into_iter().filter(|at| *at > self.now).min()
    }

    /// Every run that has not ended says what outside of it is missing.
    fn explained(&self) -> Result<(), String> {
        for observed in self.oracle.open() {
            let mut reason = false;
            for source in wake_sources(&observed.plan, &observed.state) {
                let queues = source == WakeSource::Queue;
                let free = self.limits.are_none() && !observed.plan.policy().needs_approval;
                reason |= matches!(
                    source,
                    WakeSource::Queue
                        | WakeSource::Outside { .. }
                        | WakeSource::Child { .. }
                        | WakeSource::Operator
                        | WakeSource::Ctx { .. }
                );
                if is_due(&source, self.now) || (queues && free) {
                    return Err(self.stuck(observed.run, &source));
                }
            }
            if !reason {
                return Err(format!("{}: nobody knows why it waits", observed.run_id));
            }
        }
        Ok(())
    }

    fn stuck(&self, run: RunNo, source: &WakeSource) -> String {
        let stored = self.sim_store.rows(run);
        let head = stored.map(|it| it.head);
        let sessions: Vec<String> = { self.servers.iter() }
            .map(|server| format!("{}: {:?}", server.name, server.sessions()))
            .collect();
        format!(
            "run {} is stuck: nobody sees to {source:?}; its head is {head:?}, the servers are {sessions:?}",
            run.0
        )
    }

    /// People come and do what the runs wait for.
    fn people(&mut self) -> Result<(), String> {
        let up: Vec<usize> = (0..self.servers.len())
            .filter(|no| self.servers[*no].is_up())
            .collect();
        let open: Vec<RunNo> = self.oracle.open().map(|it| it.run).collect();
        for run in open {
            let no = self.rng.pick(&up).copied().unwrap_or(0);
            let Some(observed) = self.oracle.runs.get(&run) else {
                continue;
            };
            let id = format!("quiet-{}", self.tickets);
            if observed.state.pause().is_some() {
                self.signal(no, run, id, "RESUME", Json::Null)?;
                continue;
            }
            let held = observed.state.open().iter().find(|at| {
                let it = observed.state.run(**at);
                it.is_some_and(|it| it.status() == Status::Held)
            });
            if let Some(at) = held {
                let payload = json!({ "stepId": observed.plan.step_id(*at) });
                self.signal(no, run, id, "RETRY_STEP", payload)?;
                continue;
            }
            let sources = wake_sources(&observed.plan, &observed.state);
            let tenant = observed.state.context().tenant_id.clone();
            let event = sources.into_iter().find_map(|source| match source {
                WakeSource::Outside {
                    wait: WaitKind::Event { event_type, .. },
                    ..
                } => Some(event_type),
                _ => None,
            });
            match event {
                Some(event_type) => {
                    let stored = self.sim_store.rows(run);
                    let key = stored.map(|it| it.event_key).unwrap_or_default();
                    self.deliver(no, &id, &event_type, &tenant, key)?;
                }
                None => self.person(no, run)?,
            }
        }
        Ok(())
    }

    /// What must be true once everything is over.
    fn over(&mut self) -> Result<(), String> {
        let list = self.oracle.read(&self.sim_store)?;
        if let Some(observed) = self.oracle.open().next() {
            let source = wake_sources(&observed.plan, &observed.state);
            let stuck = { source.first() }.map(|source| self.stuck(observed.run, source));
            return Err(format!("it never ends: {}", stuck.unwrap_or_default()));
        }
        for row in &list {
            let stored = self.sim_store.store().load(row.run).ok().flatten();
            let stored = stored.ok_or("a listed run is gone")?;
            if let Some(mail) = stored.mail.first() {
                return Err(format!("{}: nobody reads {}", row.run_id, mail.body));
            }
            if let Some(task) = stored.tasks.first() {
                return Err(format!(
                    "{}: ended, with the task {}",
                    row.run_id, task.target
                ));
            }
        }
        for sink in &self.sinks {
            for (run, observed) in &self.oracle.runs {
                let got = self.oracle.delivered.get(&(sink.clone(), *run));
                if got.copied().unwrap_or(0) != observed.chunks.len() {
                    return Err(format!("{}: {sink} has not got all of it", observed.run_id));
                }
            }
            if self
                .sim_store
                .store()
                .backlog(sink)
                .is_ok_and(|(left, _)| left > 0)
            {
                return Err(format!("markers of {sink} are left"));
            }
        }
        for server in self.servers.iter().filter(|it| it.is_up()) {
            if let Some((ticket, asked)) = server.asked.first_key_value() {
                return Err(format!(
                    "{} never answered {ticket}: {asked:?}",
                    server.name
                ));
            }
            if server.busy() > 0 {
                return Err(format!("{} believes that it is busy", server.name));
            }
        }
        self.oracle.read_again(&self.sim_store)
    }
}

/// Whether someone should have seen to it by now.
fn is_due(source: &WakeSource, now: Time) -> bool {
    match source {
        WakeSource::Task { visible_at, .. } => *visible_at <= now,
        WakeSource::Timer { due, .. } => *due <= now,
        WakeSource::Lease { .. } | WakeSource::Proceed => true,
        _ => false,
    }
}
