//! Sees to it that the server has what runs want: an attempt for each piece of work, and a driver that is awake in time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::api::{Api, ApiError, ConductorTask, Execution};
use super::definitions::{ATTEMPT, RUN, TURN, VERSION, register};
use crate::bell::{Ring, RunNews};
use crate::driver::Driver;
use crate::turn::{Turn, WorkItem};

/// How long an attempt may lie at the server, while this process has room for it, before it is started once more: the server may
/// have lost it.
const LOST: Duration = Duration::from_secs(60);
/// How long an attempt that this process has started may lie at the server before the server is asked where it is: a request
/// for tasks of a process that was killed may have taken it.
const DOUBTED: Duration = Duration::from_secs(8);
/// How long a worker of another process may say nothing of a task before this process takes its place.
const SILENT: Duration = Duration::from_secs(15);
/// How often a driver that is in a turn is looked at, and how many times.
const LOOKS: (Duration, usize) = (Duration::from_millis(50), 40);

/// What this process knows of a run at the server. All of it is a hint.
#[derive(Default)]
struct Watched {
    /// The id of the workflow that drives the run.
    workflow: Option<String>,
    /// When the driver wakes by itself.
    wakes_at: Option<Instant>,
    /// Attempts that this process has started or seen, and since when.
    started: BTreeMap<String, Instant>,
    /// Wakes a turn that waits in this process.
    hold: Arc<Notify>,
}

/// Work that may have to be started, and how long it has lain at the server if this process has started it.
type Wanted<'a> = (&'a WorkItem, Option<Duration>);

/// What this process has at a Conductor server.
pub(super) struct Tender {
    pub(super) api: Api,
    pub(super) driver: Arc<Driver>,
    /// What the correlation ids begin with.
    place: String,
    /// The name of this process at the server.
    pub(super) worker: String,
    /// The task domain: what belongs to the store.
    pub(super) domain: String,
    /// Attempts at a time, and how many there are.
    parallel: usize,
    working: AtomicUsize,
    /// An attempt has ended.
    pub(super) freed: Notify,
    runs: Mutex<HashMap<String, Watched>>,
    /// Tasks that this process works on.
    tasks: Mutex<BTreeSet<String>>,
    /// Runs that must be looked at again, since the server did not answer.
    again: mpsc::UnboundedSender<String>,
    starting: tokio::sync::Mutex<()>,
    /// This process takes no more attempts.
    pub(super) closing: CancellationToken,
    /// This process stops: attempts end, and are given back; no more turns are taken.
    pub(super) stopping: CancellationToken,
}

impl Tender {
    pub(super) fn new(
        api: Api,
        driver: Arc<Driver>,
        (place, worker): (String, String),
        parallel: usize,
        again: mpsc::UnboundedSender<String>,
    ) -> Tender {
        let is_plain = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
        Tender {
            api,
            driver,
            domain: place.trim_end_matches('/').to_owned(),
            place,
            worker: worker
                .chars()
                .map(|it| if is_plain(it) { it } else { '-' })
                .collect(),
            parallel: parallel.max(1),
            working: AtomicUsize::new(0),
            freed: Notify::new(),
            runs: Mutex::default(),
            tasks: Mutex::default(),
            again,
            starting: tokio::sync::Mutex::default(),
            closing: CancellationToken::new(),
            stopping: CancellationToken::new(),
        }
    }

    /// For how many more attempts there is room.
    pub(super) fn free(&self) -> usize {
        self.parallel
            .saturating_sub(self.working.load(Ordering::SeqCst))
    }

    pub(super) fn begin_attempt(&self) {
        self.working.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn end_attempt(&self) {
        self.working.fetch_sub(1, Ordering::SeqCst);
        self.freed.notify_one();
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<String, Watched>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a task of this process; false if it has the task already.
    pub(super) fn take(&self, task: &str) -> bool {
        self.tasks().insert(task.to_owned())
    }

    pub(super) fn leave(&self, task: &str) {
        self.tasks().remove(task);
    }

    /// Ends when this process has no task any more.
    pub(super) async fn until_idle(&self) {
        while !self.tasks().is_empty() {
            tokio::time::sleep(LOOKS.0).await;
        }
    }

    /// What wakes a turn of a run that waits in this process.
    pub(super) fn hold(&self, run_id: &str) -> Arc<Notify> {
        self.runs()
            .entry(run_id.to_owned())
            .or_default()
            .hold
            .clone()
    }

    /// Notes which workflow drives a run and when it wakes by itself.
    pub(super) fn note_driver(&self, run_id: &str, workflow: &str, wakes_at: Instant) {
        let mut runs = self.runs();
        let run = runs.entry(run_id.to_owned()).or_default();
        run.workflow = Some(workflow.to_owned());
        run.wakes_at = Some(wakes_at);
    }

    /// Whether the driver wakes by itself at this time or before.
    pub(super) fn wakes_by(&self, run_id: &str, at: Instant) -> bool {
        self.runs()
            .get(run_id)
            .and_then(|it| it.wakes_at)
            .is_some_and(|wakes_at| wakes_at <= at)
    }

    /// The run is to be looked at again soon.
    pub(super) fn look_again(&self, run_id: &str) {
        let _ = self.again.send(run_id.to_owned());
    }

    /// Forgets a run that has ended and whose driver has ended.
    pub(super) fn forget(&self, run_id: &str) {
        self.runs().remove(run_id);
    }

    fn correlation(&self, run_id: &str, item: Option<&WorkItem>) -> String {
        match item {
            Some(item) => format!("{}{run_id}/{}", self.place, item.key()),
            None => format!("{}{run_id}", self.place),
        }
    }

    /// Starts the attempts that a turn lists and that the server does not have. `own`: this process has just made the work ready, so
    /// that the server cannot have it yet.
    pub(super) async fn follow(
        self: &Arc<Tender>,
        run_id: &str,
        turn: &Turn,
        own: bool,
    ) -> Result<(), ApiError> {
        let ready = turn
            .work
            .iter()
            .filter(|it| !it.held && !it.stop && it.start_in_ms == 0);
        let mut wanted = self.unstarted(run_id, ready);
        let is_doubted = wanted.iter().any(|it| it.1.is_some());
        if (!own || is_doubted) && !wanted.is_empty() {
            let ids: Vec<String> = wanted
                .iter()
                .map(|it| self.correlation(run_id, Some(it.0)))
                .collect();
            match self.api.open_workflows(ATTEMPT, &ids).await {
                Ok(open) => self.drop_known(run_id, &mut wanted, &open),
                Err(error) => {
                    self.unmark(run_id, &wanted);
                    return Err(error);
                }
            }
        }
        for (index, &(item, _)) in wanted.iter().enumerate() {
            self.mark(run_id, item);
            let mut work = json!(item);
            // What the log had when the work became ready: a process with an older store notices.
            work["seen"] = json!(turn.seen);
            let input = json!({"runId": run_id, "work": work});
            if let Err(error) = self
                .start(ATTEMPT, self.correlation(run_id, Some(item)), input)
                .await
            {
                self.unmark(run_id, &wanted[index..]);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The work that this process has not started, which counts as started from now on; and work that it has started and that has
    /// lain at the server for so long that the server must be asked.
    fn unstarted<'a>(
        &self,
        run_id: &str,
        ready: impl Iterator<Item = &'a WorkItem> + Clone,
    ) -> Vec<Wanted<'a>> {
        let has_room = self.free() > 0;
        let mut runs = self.runs();
        let started = &mut runs.entry(run_id.to_owned()).or_default().started;
        started.retain(|key, _| ready.clone().any(|it| it.key() == *key));
        let mut found = Vec::new();
        for item in ready {
            let lain = started.get(&item.key()).map(Instant::elapsed);
            match lain {
                None => {
                    started.insert(item.key(), Instant::now());
                    found.push((item, None));
                }
                Some(it) if it < DOUBTED => {}
                Some(_) if has_room && !self.driver.has_attempts(run_id) => {
                    found.push((item, lain))
                }
                Some(_) => {}
            }
        }
        found
    }

    fn mark(&self, run_id: &str, item: &WorkItem) {
        let mut runs = self.runs();
        let started = &mut runs.entry(run_id.to_owned()).or_default().started;
        started.insert(item.key(), Instant::now());
    }

    fn unmark(&self, run_id: &str, items: &[Wanted<'_>]) {
        if let Some(run) = self.runs().get_mut(run_id) {
            for (item, _) in items {
                run.started.remove(&item.key());
            }
        }
    }

    /// Drops the work that the server has an attempt for: another process, or this one before it was killed, has started it.
    fn drop_known(
        self: &Arc<Tender>,
        run_id: &str,
        wanted: &mut Vec<Wanted<'_>>,
        open: &[(String, Execution)],
    ) {
        let mut of_others = Vec::new();
        wanted.retain(|&(item, lain)| {
            let may_be_lost = lain.is_some_and(|it| it >= LOST);
            let id = self.correlation(run_id, Some(item));
            let tasks = open
                .iter()
                .filter(|it| it.0 == id)
                .flat_map(|it| &it.1.tasks);
            let cared = tasks.filter(|it| !it.is_over() && self.is_cared_for(it, may_be_lost));
            let (mut is_known, mut is_of_others) = (false, false);
            for task in cared {
                is_known = true;
                is_of_others |=
                    task.status == "IN_PROGRESS" && !self.tasks().contains(&task.task_id);
            }
            if is_of_others {
                of_others.push((item, None));
            }
            !is_known
        });
        if !of_others.is_empty() {
            // A worker that is gone is noticed when it has been silent for long enough.
            self.unmark(run_id, &of_others);
            let (tender, run_id) = (self.clone(), run_id.to_owned());
            tokio::spawn(async move {
                tokio::time::sleep(SILENT).await;
                tender.look_again(&run_id);
            });
        }
    }

    /// Whether a process does a task of an attempt that is open at the server, or will.
    fn is_cared_for(&self, task: &ConductorTask, may_be_lost: bool) -> bool {
        match &*task.status {
            // The workflow brings what the attempt could not write.
            _ if task.task_type == TURN => true,
            // With a report it is the last sign of life of a worker: the task is handed out again if there are no more.
            "SCHEDULED" => {
                !may_be_lost
                    || task
                        .output_data
                        .get("report")
                        .is_some_and(|it| !it.is_null())
            }
            _ => !self.is_lost(task),
        }
    }

    /// Whether the worker that has a task seems to be gone.
    fn is_lost(&self, task: &ConductorTask) -> bool {
        if task.status != "IN_PROGRESS" || self.tasks().contains(&task.task_id) {
            return false;
        }
        // Nobody else can work for a store that is not shared.
        let now = u64::try_from(self.driver.setup.clock.now().0).unwrap_or_default();
        !self.driver.setup.store.is_shared() || task.silent_for(now) >= SILENT
    }

    /// Starts a workflow. A server that has lost its definitions gets them again.
    async fn start(
        &self,
        name: &str,
        correlation: String,
        input: Json,
    ) -> Result<String, ApiError> {
        let request = json!({
            "name": name,
            "version": VERSION,
            "correlationId": correlation,
            "input": input,
            "taskToDomain": {TURN: self.domain, ATTEMPT: self.domain},
        });
        match self.api.start(&request).await {
            Err(ApiError::Unknown(_)) => {
                register(&self.api).await?;
                self.api.start(&request).await
            }
            answer => answer,
        }
    }

    /// Makes the driver of a run ask for a turn. Starts one if the run is open and has none.
    pub(super) async fn ring(
        self: &Arc<Tender>,
        run_id: &str,
        ended: bool,
    ) -> Result<(), ApiError> {
        self.hold(run_id).notify_waiters();
        let known = self.runs().get(run_id).and_then(|it| it.workflow.clone());
        if let Some(id) = known
            && !ended
            && self.ring_driver(&id).await?
        {
            return Ok(());
        }
        let _one = self.starting.lock().await;
        let open = self
            .api
            .open_workflows(RUN, &[self.correlation(run_id, None)])
            .await?;
        if open.is_empty() && !ended {
            let id = self
                .start(
                    RUN,
                    self.correlation(run_id, None),
                    json!({"runId": run_id}),
                )
                .await?;
            self.runs().entry(run_id.to_owned()).or_default().workflow = Some(id);
        }
        // Two processes may have started one each.
        for (_, driver) in open {
            self.ring_driver(&driver.workflow_id).await?;
        }
        Ok(())
    }

    /// Makes a driver ask for a turn; false if it has ended.
    async fn ring_driver(self: &Arc<Tender>, id: &str) -> Result<bool, ApiError> {
        for _ in 0..LOOKS.1 {
            let driver = match self.api.workflow(id).await {
                Ok(driver) => driver,
                Err(ApiError::Unknown(_)) => return Ok(false),
                Err(error) => return Err(error),
            };
            match &*driver.status {
                "RUNNING" => {}
                "PAUSED" => {
                    tracing::warn!(
                        workflow = id,
                        "the workflow was paused at the Conductor server, which holds back its timers, too; it goes on: use \
                         `stepwell runs pause`"
                    );
                    self.api.resume(id).await?;
                }
                _ => return Ok(false),
            }
            let is_step = |it: &&ConductorTask| {
                !it.is_over() && (it.task_type == "WAIT" || it.task_type == TURN)
            };
            match driver.tasks.iter().rfind(is_step) {
                Some(task) if task.task_type == "WAIT" => {
                    self.api
                        .update(&task.result("COMPLETED", &self.worker, json!({})))
                        .await?;
                    return Ok(true);
                }
                // The process that gets it looks at the run then.
                Some(task) if task.status == "SCHEDULED" => return Ok(true),
                Some(task) if self.is_lost(task) && self.take(&task.task_id) => {
                    let (tender, task) = (self.clone(), task.clone());
                    tokio::spawn(async move { tender.serve_turn(task).await });
                    return Ok(true);
                }
                Some(_) => {}
                None => self.api.decide(id).await?,
            }
            tokio::time::sleep(LOOKS.0).await;
        }
        Err(ApiError::Away(
            "the workflow of the run is in a turn for long".to_owned(),
        ))
    }

    /// Whether the driver of a run has ended.
    pub(super) async fn is_closed(&self, run_id: &str) -> Result<bool, ApiError> {
        let open = self
            .api
            .open_workflows(RUN, &[self.correlation(run_id, None)])
            .await?;
        Ok(open.is_empty())
    }
}

/// The bell of the runs at a Conductor server.
pub(super) struct Doorbell(pub(super) Arc<Tender>);

impl Ring for Doorbell {
    async fn ring(&self, news: &RunNews) -> Result<(), String> {
        let rung = self.0.ring(&news.run_id, news.ended).await;
        rung.map_err(|error| error.to_string())
    }
}
