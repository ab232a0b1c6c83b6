//! The engine in line: a coordinator whose batches are committed right here, one after the other, on the
//! caller's thread. Everything a call leads to is done when it returns. For the mock, for tests, and
//! for commands that do one thing; `service` is the engine that runs by itself.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::Value as Json;
use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::effect::{Priority, Target};
use stepwell_kernel::event::{Event, WaitKind};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::keys::TokenKey;
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::time::Time;

use crate::chunk;
pub use crate::coordinator::engine_actor;
use crate::coordinator::{Answer, Assignment, Config, Coordinator, HotRun, Notice, Retry, Ticket};
pub use crate::error::Error;
use crate::port::{Catalog, Clock};
use crate::start::StartRequest;
use crate::store::{MessageNo, PlanNo, RunNo, Store, StoreError};

/// How often a commit is sent again before the caller is told that the store is not there.
const TRIES: u32 = 3;

/// Someone must be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// About which run.
    pub run_id: String,
    /// Which alert.
    pub code: String,
    /// How urgent.
    pub priority: Priority,
    /// For people.
    pub message: String,
}

/// Work that can be claimed: sorted as it is to be offered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task {
    /// Not before.
    pub visible_at: Time,
    /// The plan's order.
    pub order: u32,
    /// The step's name.
    pub name: String,
    /// The run.
    pub run_id: String,
    /// What to claim.
    pub target: Target,
}

/// Someone or something outside is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Work in flight is no longer wanted.
    Stop {
        /// Which.
        target: Target,
        /// Which execution.
        execution: u32,
    },
    /// A person must answer.
    Person(StepRef),
    /// A child's definition was not found.
    MissingChild {
        /// The step that waits.
        step: StepRef,
        /// The child's key.
        request_key: String,
        /// What was looked for.
        path: String,
        /// The message that asks for it.
        mail: MessageNo,
    },
}

/// The engine in line.
#[derive(Debug)]
pub struct Engine<C> {
    coordinator: Coordinator,
    clock: C,
    tickets: u64,
    answers: HashMap<Ticket, Result<Answer, Error>>,
    /// Work that nobody here serves and that can be claimed.
    pub tasks: BTreeSet<Task>,
    /// Work of this process whose claim is committed, oldest first.
    pub jobs: VecDeque<Assignment>,
    /// What the outside is asked for, oldest first.
    pub asks: VecDeque<(String, Ask)>,
    /// What someone must be told, oldest first.
    pub alerts: Vec<Alert>,
    /// Events that steps sent to the outside, oldest first.
    pub published: Vec<(String, Json)>,
    /// How many commits had events in them.
    pub changes: u64,
}

impl<C: Clock> Engine<C> {
    /// An engine over a store.
    pub fn new(
        store: Arc<dyn Store>,
        clock: C,
        catalog: impl Catalog + Send + 'static,
        config: Config,
    ) -> Result<Engine<C>, StoreError> {
        let config = Config {
            keeps_ended: true,
            ..config
        };
        let coordinator = Coordinator::open(store, Box::new(catalog), config, clock.now())?;
        Ok(Engine {
            coordinator,
            clock,
            tickets: 0,
            answers: HashMap::new(),
            tasks: BTreeSet::new(),
            jobs: VecDeque::new(),
            asks: VecDeque::new(),
            alerts: Vec::new(),
            published: Vec::new(),
            changes: 0,
        })
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.coordinator.store()
    }

    /// How it works.
    pub fn config(&mut self) -> &mut Config {
        self.coordinator.config()
    }

    /// Does from now on all work in this process.
    pub fn serve_everything(&mut self, capacity: usize) -> Result<(), Error> {
        let config = self.coordinator.config();
        config.serves = crate::coordinator::Serves::Everything;
        config.capacity = capacity;
        let now = self.now();
        self.coordinator.attend_all(now);
        self.tasks.clear();
        self.drive()
    }

    /// The coordinator.
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// The clock.
    pub fn clock(&mut self) -> &mut C {
        &mut self.clock
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The secret for completion tokens.
    pub fn key(&self) -> &TokenKey {
        self.coordinator.key()
    }

    /// A run that is in memory.
    pub fn run(&self, run_id: &str) -> Option<&HotRun> {
        self.coordinator
            .all_hot()
            .find(|hot| *hot.run_id == *run_id)
    }

    /// All runs in memory, by id.
    pub fn runs(&self) -> Vec<(&str, &HotRun)> {
        let mut runs: Vec<(&str, &HotRun)> = self
            .coordinator
            .all_hot()
            .map(|hot| (&*hot.run_id, hot))
            .collect();
        runs.sort_unstable_by_key(|(run_id, _)| *run_id);
        runs
    }

    /// Decides a command, commits what came of it, and does what follows.
    pub fn submit(&mut self, run_id: &str, command: Command) -> Result<Reply, Error> {
        let (ticket, now) = (self.ticket(), self.now());
        self.coordinator.submit(run_id, command, ticket, now);
        match self.answer(ticket)? {
            Answer::Reply(reply) => Ok(reply),
            Answer::Run(_) => Ok(Reply::Done),
        }
    }

    /// Creates a run and puts it into the queue; it starts when a slot is free. Two requests with the
    /// same request id create one run, whose id both get.
    pub fn trigger(&mut self, plan: &Arc<Plan>, request: StartRequest) -> Result<String, Error> {
        self.start(plan, request, true)
    }

    /// Creates a run; it stays as it is.
    pub fn create(&mut self, plan: &Arc<Plan>, request: StartRequest) -> Result<String, Error> {
        self.start(plan, request, false)
    }

    fn start(
        &mut self,
        plan: &Arc<Plan>,
        request: StartRequest,
        enqueue: bool,
    ) -> Result<String, Error> {
        let (ticket, now) = (self.ticket(), self.now());
        let run_id = request.run_id.clone();
        self.coordinator.start(plan, request, enqueue, ticket, now);
        match self.answer(ticket)? {
            Answer::Run(run_id) => Ok(run_id),
            Answer::Reply(_) => Ok(run_id),
        }
    }

    /// Reports what became of work of this process.
    pub fn finish(&mut self, job: &Assignment, command: Command) -> Result<(), Error> {
        let claim = &job.claimed.claim;
        let now = self.now();
        self.coordinator
            .finished(job.run, claim.target, claim.execution, command, now);
        self.drive()
    }

    /// Ends the wait for a child whose definition was not found.
    pub fn pretend_child(
        &mut self,
        run_id: &str,
        mail: MessageNo,
        end: Command,
    ) -> Result<(), Error> {
        let now = self.now();
        if let Some(run) = self.run(run_id).map(|hot| hot.run) {
            self.coordinator.pretend_child(run, mail, end, now);
        }
        self.drive()
    }

    /// Starts queued runs while slots are free, first come first served.
    pub fn dequeue_and_start(&mut self) -> Result<(), Error> {
        let now = self.now();
        self.coordinator.dequeue(now)?;
        self.drive()
    }

    /// Does everything that is due. Says whether anything happened.
    pub fn fire_due(&mut self) -> Result<bool, Error> {
        let before = self.changes;
        let now = self.now();
        self.coordinator.tick(now)?;
        self.drive()?;
        Ok(self.changes != before)
    }

    /// When something happens next by itself.
    pub fn next_wake(&self) -> Option<Time> {
        let task = self.tasks.first().map(|task| task.visible_at);
        self.coordinator.next_due().into_iter().chain(task).min()
    }

    /// Reads a run, and asks again for the people that it waits for and offers its work again: after a
    /// crash nobody else knows.
    pub fn recover(&mut self, run_id: &str) -> Result<(), Error> {
        self.coordinator.recover(run_id, self.clock.now())?;
        self.coordinator.look();
        self.drive()?;
        let Some(hot) = self.run(run_id) else {
            return Ok(());
        };
        let (mut asks, mut tasks) = (Vec::new(), Vec::new());
        for source in wake_sources(&hot.plan, &hot.state) {
            match source {
                WakeSource::Outside {
                    step,
                    wait: WaitKind::Gate | WaitKind::Approval | WaitKind::Manual,
                } => asks.push((run_id.to_owned(), Ask::Person(step))),
                WakeSource::Task {
                    target, visible_at, ..
                } if self.coordinator.offers(hot, target) => {
                    tasks.push(task(hot, target, visible_at))
                }
                _ => {}
            }
        }
        self.asks.extend(asks);
        self.tasks.extend(tasks);
        Ok(())
    }

    /// Reads a run anew that other processes have moved. Says whether they have.
    pub fn catch_up(&mut self, run_id: &str) -> Result<bool, Error> {
        let moved = self.coordinator.forget_if_moved(run_id)?;
        if moved {
            self.recover(run_id)?;
        }
        Ok(moved)
    }

    /// The events of a run after `after`, as they are in the store.
    pub fn events(&self, run_id: &str, after: u64) -> Result<Vec<Event>, Error> {
        read_events(&**self.store(), run_id, after)
    }

    /// Takes no new work; what was claimed may still be reported.
    pub fn stop(&mut self) {
        self.coordinator.stop();
    }

    /// Gives everything back: the leases end, and whoever comes next takes the runs over at once.
    pub fn close(&mut self) -> Result<(), StoreError> {
        self.coordinator.stop();
        self.coordinator.close()
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn answer(&mut self, ticket: Ticket) -> Result<Answer, Error> {
        self.drive()?;
        // Another server may have the run; it answers when it has looked.
        let stopped = Err(Error::Stopping);
        self.answers.remove(&ticket).unwrap_or(stopped)
    }

    /// Commits until nothing follows any more.
    fn drive(&mut self) -> Result<(), Error> {
        loop {
            let now = self.clock.now();
            while let Some(batch) = self.coordinator.next_batch(now) {
                let mut tries = 1;
                loop {
                    match self.coordinator.store().commit(&batch) {
                        Ok(outcomes) => {
                            self.coordinator.committed(&batch, outcomes, now);
                            break;
                        }
                        Err(error) if tries < TRIES => {
                            tries += 1;
                            if self.coordinator.failed(&batch, &error, now) == Retry::Never {
                                break;
                            }
                        }
                        Err(error) => {
                            self.coordinator.abandon(&batch, &error);
                            self.collect();
                            return Err(error.into());
                        }
                    }
                }
                self.collect();
            }
            self.collect();
            if !self.coordinator.is_pressed() {
                return Ok(());
            }
            self.coordinator.tick(now)?;
        }
    }

    fn collect(&mut self) {
        let notices: Vec<Notice> = self.coordinator.notices().collect();
        for notice in notices {
            match notice {
                Notice::Answer(ticket, answer) => {
                    self.answers.insert(ticket, answer);
                }
                Notice::Start(job) => self.jobs.push_back(*job),
                Notice::Stop {
                    run,
                    target,
                    execution,
                } => self.ask(run, Ask::Stop { target, execution }),
                Notice::Offer {
                    run,
                    target,
                    visible_at,
                } => {
                    if let Some(hot) = self.coordinator.hot(run) {
                        self.tasks.insert(task(hot, target, visible_at));
                    }
                }
                Notice::Person { run, step } => self.ask(run, Ask::Person(step)),
                Notice::MissingChild {
                    run,
                    step,
                    request_key,
                    path,
                    mail,
                } => self.ask(
                    run,
                    Ask::MissingChild {
                        step,
                        request_key,
                        path,
                        mail,
                    },
                ),
                Notice::Published(run, event) => {
                    let run_id = self.run_id(run);
                    self.published.push((run_id, event));
                }
                Notice::Alert(run, alert) => {
                    let run_id = self.run_id(run);
                    let (code, priority) = (&alert.code, alert.priority);
                    tracing::warn!(run = run_id, code, ?priority, "{}", alert.message);
                    self.alerts.push(Alert {
                        run_id,
                        code: alert.code,
                        priority: alert.priority,
                        message: alert.message,
                    });
                }
                Notice::Changed { .. } => self.changes += 1,
                Notice::Ended(_, run_id, _) => {
                    self.tasks.retain(|task| *task.run_id != *run_id);
                }
            }
        }
    }

    fn run_id(&self, run: RunNo) -> String {
        let hot = self.coordinator.hot(run);
        hot.map(|hot| hot.run_id.to_string()).unwrap_or_default()
    }

    fn ask(&mut self, run: RunNo, ask: Ask) {
        let run_id = self.run_id(run);
        self.asks.push_back((run_id, ask));
    }
}

fn task(hot: &HotRun, target: Target, visible_at: Time) -> Task {
    let step = hot.plan.step(target.step_ref().step);
    Task {
        visible_at,
        order: step.order,
        name: step.name.clone(),
        run_id: hot.run_id.to_string(),
        target,
    }
}

/// The events of a run after `after`, as they are in a store.
pub fn read_events(store: &dyn Store, run_id: &str, after: u64) -> Result<Vec<Event>, Error> {
    let run = store.find(run_id)?;
    let run = run.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))?;
    let mut events = Vec::new();
    for chunk in store.chunks(run, after, usize::MAX)? {
        let decoded = chunk::decode(chunk.first, chunk.codec, &chunk.body);
        let decoded = decoded.map_err(|source| Error::Unreadable {
            run_id: run_id.to_owned(),
            source,
        })?;
        events.extend(decoded.into_iter().filter(|event| event.seq > after));
    }
    Ok(events)
}

/// The plan of a run, as it is in a store.
pub fn read_plan(store: &dyn Store, no: PlanNo, run_id: &str) -> Result<Arc<Plan>, Error> {
    let fault = |why: String| Error::Plan {
        run_id: run_id.to_owned(),
        why,
    };
    let row = store.plan(no)?;
    let row = row.ok_or_else(|| fault(format!("there is no plan number {}", no.0)))?;
    let net = serde_json::from_str(&row.net).map_err(|error| fault(error.to_string()))?;
    let plan = Plan::new(net).map_err(|error| fault(error.to_string()))?;
    Ok(Arc::new(plan))
}
