//! The tasks that this process does for the server: turns and attempts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use super::api::{ApiError, ConductorTask};
use super::tender::Tender;
use crate::attempt::{AttemptEnd, AttemptWatch};
use crate::driver::TurnError;
use crate::turn::{EndedAs, KeptReport, Seen, Turn, WorkItem};

/// How long a turn may take before its task is given back to the server.
const TURN_LIMIT: Duration = Duration::from_secs(20);
/// After how many seconds a task that was given back is handed out again.
const LATER_S: u64 = 2;
/// A wake-up within this time is waited for here: the server's timers count in seconds.
const SHORT: Duration = Duration::from_secs(1);
/// The longest that a turn is kept here for wake-ups that are near.
const KEPT: Duration = Duration::from_secs(2);
/// How much later than wanted the server may wake a driver before this process does.
const LATE: Duration = Duration::from_millis(300);
/// The longest wait of a driver with and without work at hand, in seconds: after that it looks by itself, whatever got lost.
const LONGEST_S: (u64, u64) = (60, 3600);
/// How often the server is told that an attempt is alive.
const BEAT: Duration = Duration::from_secs(20);
/// After how many seconds without a sign of life an attempt is handed out again.
const SILENT_S: u64 = 60;
/// How long the server is left alone after it did not answer, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

impl ConductorTask {
    pub(super) fn is_over(&self) -> bool {
        !matches!(&*self.status, "SCHEDULED" | "IN_PROGRESS")
    }

    /// How long the worker has said nothing.
    pub(super) fn silent_for(&self, now_ms: u64) -> Duration {
        Duration::from_millis(now_ms.saturating_sub(self.update_time))
    }

    /// What is said of the task.
    pub(super) fn result(&self, status: &str, worker: &str, output: Json) -> Json {
        json!({
            "workflowInstanceId": self.workflow_instance_id,
            "taskId": self.task_id,
            "status": status,
            "workerId": worker,
            "outputData": output,
        })
    }

    /// Gives the task back: it is handed out again after some seconds.
    fn later(&self, worker: &str, seconds: u64, output: Json) -> Json {
        let mut result = self.result("IN_PROGRESS", worker, output);
        result["callbackAfterSeconds"] = json!(seconds);
        result
    }

    fn failed(&self, worker: &str, why: &str) -> Json {
        let mut result = self.result("FAILED_WITH_TERMINAL_ERROR", worker, json!({}));
        result["reasonForIncompletion"] = json!(why);
        result
    }

    fn input<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, String> {
        read(&self.input_data, name)
    }
}

/// A value of a task; none if it is absent or null.
fn read<T: DeserializeOwned>(data: &Json, name: &str) -> Result<Option<T>, String> {
    match data.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => {
            let read = serde_json::from_value(value.clone());
            read.map(Some)
                .map_err(|error| format!("the field {name:?} of the task cannot be read: {error}"))
        }
    }
}

impl Tender {
    /// Does a turn. The caller has noted the task.
    pub(super) async fn serve_turn(self: &Arc<Tender>, task: ConductorTask) {
        let result = match self.turn(&task).await {
            Ok(result) => result,
            Err(why) => {
                tracing::error!(
                    task = task.task_id,
                    why,
                    "a turn that Conductor asked for cannot be done"
                );
                task.failed(&self.worker, &why)
            }
        };
        self.tell(&result).await;
        self.leave(&task.task_id);
    }

    /// Gives a task back that this process has not begun.
    pub(super) async fn give_back(&self, task: &ConductorTask) {
        let untouched = task.later(&self.worker, 0, task.output_data.clone());
        self.tell(&untouched).await;
    }

    async fn turn(self: &Arc<Tender>, task: &ConductorTask) -> Result<Json, String> {
        let run_id: String = task.input("runId")?.ok_or("the task has no runId")?;
        let (seen, report) = (
            task.input::<Seen>("seen")?,
            task.input::<KeptReport>("report")?,
        );
        // What an attempt left behind is brought by a workflow that does not drive the run.
        let is_driver = task.input_data.get("report").is_none();
        let (hold, begun) = (self.hold(&run_id), Instant::now());
        loop {
            let rung = hold.notified();
            let asked = self.driver.turn(&run_id, seen.as_ref(), report.clone());
            let turn = match tokio::time::timeout(TURN_LIMIT, asked).await {
                Ok(Ok(turn)) => turn,
                Ok(Err(TurnError::Later(_))) | Err(_) => {
                    return Ok(task.later(&self.worker, LATER_S, task.output_data.clone()));
                }
                Ok(Err(error @ (TurnError::Fatal(_) | TurnError::Diverged(_)))) => {
                    return Err(error.to_string());
                }
            };
            self.seen_to(&run_id, &turn, false).await;
            if !is_driver {
                self.wake_sooner(&run_id, &turn);
                return Ok(task.result("COMPLETED", &self.worker, json!({})));
            }
            if let Some(ended) = turn.ended {
                self.forget(&run_id);
                return Ok(task.result("COMPLETED", &self.worker, end_output(ended, &turn)));
            }
            match next_wake(&turn).filter(|wait| *wait < SHORT && begun.elapsed() < KEPT) {
                Some(wait) => drop(tokio::time::timeout(wait, rung).await),
                None => return Ok(self.wait_for_next(&run_id, task, &turn)),
            }
        }
    }

    /// The answer to a turn of a driver: how long it waits.
    fn wait_for_next(self: &Arc<Tender>, run_id: &str, task: &ConductorTask, turn: &Turn) -> Json {
        let longest = match turn.work.is_empty() {
            true => LONGEST_S.1,
            false => LONGEST_S.0,
        };
        // The rest of a second is waited for in the turn that follows.
        let wait = next_wake(turn)
            .map_or(longest, |wait| wait.as_secs())
            .clamp(1, longest);
        self.note_driver(
            run_id,
            &task.workflow_instance_id,
            Instant::now() + Duration::from_secs(wait),
        );
        // A longer wait is over sooner, and then counted again.
        if let Some(next) = next_wake(turn).filter(|next| next.as_secs() <= longest) {
            self.guard_timer(run_id, next);
        }
        let output = json!({
            "go": "on",
            "wait": format!("{wait} seconds"),
            "seen": turn.seen,
            "status": turn.status,
            "work": turn.work.iter().map(WorkItem::key).collect::<Vec<_>>(),
        });
        task.result("COMPLETED", &self.worker, output)
    }

    /// Starts what a turn lists; if the server does not answer, later.
    async fn seen_to(self: &Arc<Tender>, run_id: &str, turn: &Turn, own: bool) {
        if let Err(error) = self.follow(run_id, turn, own).await {
            tracing::warn!(run = run_id, %error, "attempts could not be started yet");
            self.look_again(run_id);
        }
    }

    /// Makes the driver wake sooner, if it has been told a later time than the run wants now.
    fn wake_sooner(&self, run_id: &str, turn: &Turn) {
        let next = next_wake(turn).filter(|_| turn.ended.is_none());
        if next.is_some_and(|wait| !self.wakes_by(run_id, Instant::now() + wait + LATE)) {
            self.look_again(run_id);
        }
    }

    /// Rings when the next wake-up is due and the driver has not woken by itself: the server's timers may be seconds late.
    fn guard_timer(self: &Arc<Tender>, run_id: &str, wait: Duration) {
        let due = Instant::now() + wait + LATE;
        let (tender, run_id) = (self.clone(), run_id.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep_until(due).await;
            // A driver that has woken since then has been told another time.
            if tender.wakes_by(&run_id, due) {
                tender.look_again(&run_id);
            }
        });
    }

    /// Moves a run whose attempts could not be started, or whose driver is to wake sooner. False if the server does not answer.
    pub(super) async fn tend(self: &Arc<Tender>, run_id: &str) -> bool {
        let turn = match self.driver.turn(run_id, None, None).await {
            Ok(turn) => turn,
            Err(TurnError::Later(_)) => return false,
            Err(error) => {
                tracing::warn!(run = run_id, %error, "a run cannot be moved");
                return true;
            }
        };
        let followed = self.follow(run_id, &turn, false).await;
        let rung = match followed {
            Ok(()) => self.ring(run_id, turn.ended.is_some()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &rung {
            tracing::debug!(run = run_id, %error, "the Conductor server could not be told of a run yet");
        }
        rung.is_ok()
    }

    /// Does an attempt. The caller has noted the task and that an attempt begins.
    pub(super) async fn serve_attempt(self: &Arc<Tender>, task: ConductorTask) {
        let result = self.attempt(&task).await.unwrap_or_else(|why| {
            tracing::error!(
                task = task.task_id,
                why,
                "an attempt that Conductor asked for cannot be done"
            );
            task.failed(&self.worker, &why)
        });
        self.end_attempt();
        self.tell(&result).await;
        self.leave(&task.task_id);
    }

    async fn attempt(self: &Arc<Tender>, task: &ConductorTask) -> Result<Json, String> {
        let run_id: String = task.input("runId")?.ok_or("the task has no runId")?;
        let item: WorkItem = task.input("work")?.ok_or("the task has no work")?;
        if let Some(begun) = read::<KeptReport>(&task.output_data, "report")? {
            // Its worker is gone, and may not have written that it began.
            return Ok(task.result(
                "COMPLETED",
                &self.worker,
                json!({"end": "lost", "report": begun}),
            ));
        }
        let seen = match task.input_data.get("work") {
            Some(work) => read::<Seen>(work, "seen")?,
            None => None,
        };
        if let Some(seen) = seen {
            let checked = self.driver.check_history(&run_id, &seen);
            // Work does not wait for a store that is slow or gone.
            let checked = tokio::time::timeout(self.driver.setup.write_budget, checked).await;
            if let Ok(Err(error @ TurnError::Diverged(_))) = checked {
                return Err(error.to_string());
            }
        }
        let watch = Watch {
            tender: self.clone(),
            task: task.clone(),
            last: Mutex::new((Instant::now(), false)),
        };
        Ok(match self.driver.attempt(&run_id, &item, &watch).await {
            Ok(AttemptEnd::Written(turn)) => {
                self.seen_to(&run_id, &turn, true).await;
                self.wake_sooner(&run_id, &turn);
                task.result("COMPLETED", &self.worker, json!({"end": "written"}))
            }
            Ok(AttemptEnd::Kept(report)) => task.result(
                "COMPLETED",
                &self.worker,
                json!({"end": "kept", "report": report}),
            ),
            Err(TurnError::Later(_)) => task.later(&self.worker, LATER_S, json!({})),
            Err(error @ (TurnError::Fatal(_) | TurnError::Diverged(_))) => {
                return Err(error.to_string());
            }
        })
    }

    /// Tells the server how a task is, until the server answers.
    async fn tell(&self, result: &Json) {
        let mut backoff = BACKOFF.0;
        while let Err(error) = self.api.update(result).await {
            match error {
                ApiError::Away(_) => {
                    tracing::debug!(%error, "the Conductor server cannot be told of a task yet")
                }
                // The workflow was removed, or has ended without it.
                ApiError::Unknown(_) | ApiError::Refused(_) | ApiError::Denied(_) => {
                    return tracing::warn!(%error, "the Conductor server does not take the result of a task");
                }
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }
}

/// In how much time a run must be looked at; none if nothing is known to come.
fn next_wake(turn: &Turn) -> Option<Duration> {
    let work = turn
        .work
        .iter()
        .filter(|it| !it.held && it.start_in_ms > 0)
        .map(|it| it.start_in_ms);
    work.chain(turn.wake_in_ms).min().map(Duration::from_millis)
}

fn end_output(ended: EndedAs, turn: &Turn) -> Json {
    let (end, reason) = match ended {
        EndedAs::Completed => ("COMPLETED", ""),
        EndedAs::Failed => ("FAILED", "the run has failed; the store has its events"),
        EndedAs::Cancelled => (
            "CANCELLED",
            "the run was cancelled; the store has its events",
        ),
    };
    json!({"go": "end", "end": end, "reason": reason, "seen": turn.seen, "status": turn.status})
}

/// Tells the server that an attempt is alive.
struct Watch {
    tender: Arc<Tender>,
    task: ConductorTask,
    /// When the server was told last, and whether it was told of a start that is not written.
    last: Mutex<(Instant, bool)>,
}

impl AttemptWatch for Watch {
    async fn beat(&self, unwritten: Option<&KeptReport>) {
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.0.elapsed() < BEAT && last.1 == unwritten.is_some() {
                return;
            }
            *last = (Instant::now(), unwritten.is_some());
        }
        let beat = self
            .task
            .later(&self.tender.worker, SILENT_S, json!({"report": unwritten}));
        let tender = self.tender.clone();
        // A server that does not answer must not hold up the attempt.
        tokio::spawn(async move {
            if let Err(error) = tender.api.update(&beat).await {
                tracing::warn!(%error, "a heartbeat could not be sent");
            }
        });
    }

    /// Conductor cannot ask a worker to stop; the run itself can, through the driver of this process. This process stops by itself.
    async fn stopped(&self) {
        self.tender.stopping.cancelled().await;
    }
}
