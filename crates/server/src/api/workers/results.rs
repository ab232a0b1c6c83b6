//! Results of tasks: each becomes the command that reports it, and all of a batch share a commit.

use std::sync::Arc;

use axum::http::StatusCode;
use futures_util::future::join_all;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use stepwell_engine::Error;
use stepwell_engine::read::LoggedRun;
use stepwell_engine::remote::RemoteClaim;
use stepwell_kernel::command::{Claim, Command, EarlierResult, Reply, WaitFor};
use stepwell_kernel::event::{ArtifactRef, CalledRun, Patch, StepError};
use stepwell_kernel::plan::{ErrorClass, Plan};
use stepwell_kernel::time::LONGEST_WAIT_MS;
use stepwell_worker::artifacts::INLINE_BYTES;
use tokio::sync::oneshot;

use super::answers::{AnswerPlace, Gathered};
use super::dto::{ResultAnswer, SentResult, WaitsFor, WorkOutcome, WorkResult, WorkWait};
use super::references;
use crate::access::Caller;
use crate::app::{App, replied};
use crate::codes;
use crate::problem::{ApiProblem, unanswered};

/// The longest message of an error that is kept, in bytes.
const MAX_MESSAGE: usize = 4 << 10;

/// Reports all results of a batch at once, and answers in their order. Whoever waits is woken once, when all are answered.
pub(super) async fn report_all(
    app: &App,
    caller: &Caller,
    results: Vec<SentResult>,
) -> Vec<ResultAnswer> {
    if results.is_empty() {
        return Vec::new();
    }
    let mut answers = Vec::with_capacity(results.len());
    let (mut sent, mut large) = (Vec::with_capacity(results.len()), Vec::new());
    let (gathered, all) = Gathered::new(results.len());
    for (place, result) in results.iter().enumerate() {
        let (task_token, report) = read_result(app, caller, result);
        answers.push(ResultAnswer::accepted(task_token));
        match report {
            // It was accepted before.
            Ok(None) => {}
            Ok(Some(report)) if report.is_large || !report.refers.is_empty() => {
                large.push((place, report))
            }
            Ok(Some(report)) => sent.push((place, report.send(app, gathered.place(place)))),
            Err(problem) => answers[place].refuse(problem),
        }
    }
    let shrunk = large.into_iter().map(async |(place, report)| {
        let report = match report.checked(app).await {
            Ok(report) if report.is_large => report.shrunk(app).await,
            report => report,
        };
        let sent = report.and_then(|it| it.send(app, gathered.place(place)));
        (place, sent)
    });
    sent.extend(join_all(shrunk).await);
    drop(gathered);
    let mut gathered = all.answers().await;
    for (place, sent) in sent {
        let reply = gathered.get_mut(place).and_then(Option::take);
        let ended = match sent {
            Ok(report) => report.end(app, reply).await,
            Err(problem) => Err(problem),
        };
        if let Err(problem) = ended {
            answers[place].refuse(problem);
        }
    }
    answers
}

impl ResultAnswer {
    fn accepted(task_token: String) -> ResultAnswer {
        ResultAnswer {
            task_token,
            accepted: true,
            code: None,
            detail: None,
            retry: false,
        }
    }

    fn refuse(&mut self, problem: ApiProblem) {
        self.accepted = false;
        // Whatever is not the worker's fault may go better later.
        self.retry = problem.retry_after.is_some()
            || problem.status >= StatusCode::INTERNAL_SERVER_ERROR.as_u16();
        self.code = Some(problem.code);
        self.detail = Some(problem.detail);
    }
}

/// The token of a result, and the result as the engine gets it.
fn read_result(
    app: &App,
    caller: &Caller,
    sent: &SentResult,
) -> (String, Result<Option<Report>, ApiProblem>) {
    match serde_json::from_str::<WorkResult>(sent.get()) {
        Ok(result) => {
            let token = result.task_token.clone();
            (token, Report::new(app, caller, result))
        }
        Err(error) => {
            let why = format!("the result cannot be read, and only this one is refused: {error}");
            (token_in(sent), Err(ApiProblem::bad_request(why)))
        }
    }
}

/// The token of a result that cannot be read.
fn token_in(sent: &SentResult) -> String {
    let read = serde_json::from_str::<Value>(sent.get()).unwrap_or_default();
    let token = read.get("taskToken").and_then(Value::as_str);
    token.unwrap_or_default().to_owned()
}

/// A result as the engine gets it.
struct Report {
    claim: RemoteClaim,
    /// What is written in the same words is the same result.
    hash: [u8; 32],
    command: Command,
    /// Larger than what is kept in a log.
    is_large: bool,
    /// The artifacts that it refers to.
    refers: Vec<ArtifactRef>,
}

/// A result that the engine has.
struct SentReport {
    claim: RemoteClaim,
    hash: [u8; 32],
}

impl Report {
    /// The result; none if the same one was accepted before.
    fn new(app: &App, caller: &Caller, result: WorkResult) -> Result<Option<Report>, ApiProblem> {
        let claim = app.workers.claim(caller, &result.task_token)?;
        let text = serde_json::to_vec(&result).map_err(|error| ApiProblem::internal(&error))?;
        let hash: [u8; 32] = Sha256::digest(&text).into();
        if let Some(first) = app.workers.registry.result_of(&claim) {
            return same(first == hash).map(|()| None);
        }
        Ok(Some(Report {
            refers: references::of(&result, &text)?,
            command: command_of(result, claim.proof())?,
            claim,
            hash,
            is_large: text.len() > INLINE_BYTES,
        }))
    }

    /// Compares what the result says about artifacts with what is there: a log never has the hash of something else.
    async fn checked(self, app: &App) -> Result<Report, ApiProblem> {
        for reference in &self.refers {
            references::check(app, &self.claim, reference).await?;
        }
        Ok(self)
    }

    /// Keeps large values as artifacts.
    async fn shrunk(self, app: &App) -> Result<Report, ApiProblem> {
        let claim = &self.claim;
        let plan: Arc<Plan> = match app.workers.registry.plan_of(claim) {
            Some(plan) => plan,
            None => {
                let run_id = claim.run_id.clone();
                app.ask(move |store| Ok::<_, Error>(LoggedRun::open(store, &run_id)?.plan))
                    .await?
            }
        };
        let (run, inputs) = ((claim.run_id.as_str(), &plan), &app.workers.inputs);
        let command = inputs.shrink(run, &claim.proof(), self.command).await;
        Ok(Report { command, ..self })
    }

    fn send(self, app: &App, answer: AnswerPlace) -> Result<SentReport, ApiProblem> {
        let (claim, hash, remote) = (self.claim, self.hash, &app.workers.remote);
        remote.report(&claim, self.command, move |reply| answer.give(reply))?;
        Ok(SentReport { claim, hash })
    }
}

impl SentReport {
    /// What the engine's answer means for the worker.
    async fn end(self, app: &App, reply: Option<Result<Reply, Error>>) -> Result<(), ApiProblem> {
        let (claim, hash, registry) = (self.claim, self.hash, &app.workers.registry);
        let reply = match reply {
            Some(reply) => replied(reply),
            None => Err(unanswered(&claim.run_id)),
        };
        match reply {
            Ok(Reply::Duplicate(first)) => match *first {
                EarlierResult::SucceededOtherwise | EarlierResult::FailedOtherwise(_) => {
                    same(false)
                }
                // This server may know more of the first result than the run does.
                EarlierResult::Succeeded
                | EarlierResult::Failed(_)
                | EarlierResult::Manual(_)
                | EarlierResult::Event
                | EarlierResult::SignalAccepted
                | EarlierResult::SignalRejected(_)
                | EarlierResult::Child => {
                    let first = registry.result_of(&claim);
                    same(first.is_none_or(|first| first == hash))
                }
            },
            Ok(_) => {
                if let Some(log) = registry.reported(&claim, hash) {
                    log.finish().await;
                }
                Ok(())
            }
            // The kernel knows a success or a failure again, but not a wait or a failure that was retried.
            Err(problem) if problem.status == 409 => match registry.result_of(&claim) {
                Some(first) => same(first == hash),
                None => Err(problem),
            },
            Err(problem) => Err(problem),
        }
    }
}

/// The answer to a result of a task that has one: the first answer for the same result, a refusal for another one.
fn same(is_same: bool) -> Result<(), ApiProblem> {
    match is_same {
        true => Ok(()),
        false => Err(ApiProblem::new(
            StatusCode::CONFLICT,
            codes::RESULT_CONTRADICTED,
            "another result of this execution of the task was accepted before; it counts, and this one changes nothing",
        )),
    }
}

/// Reports the result of a claim, and waits until it is committed.
pub(super) async fn submit(
    app: &App,
    claim: &RemoteClaim,
    command: Command,
) -> Result<Reply, ApiProblem> {
    let (answer, answered) = oneshot::channel();
    app.workers.remote.report(claim, command, move |reply| {
        // The worker may be gone.
        let _ = answer.send(reply);
    })?;
    app.answer(&claim.run_id, answered).await
}

/// The command that reports a result.
fn command_of(result: WorkResult, claim: Claim) -> Result<Command, ApiProblem> {
    let needs = |field: &str, outcome: &str| {
        ApiProblem::bad_request(format!("a result with the outcome {outcome} needs {field}"))
    };
    let ctx: Patch = result.ctx.into_iter().collect();
    Ok(match result.outcome {
        WorkOutcome::Completed => Command::CompleteStep {
            claim,
            output: result.output,
            ctx,
            artifacts: read_all(result.artifacts)?,
        },
        WorkOutcome::Failed => {
            let error = result.error.ok_or_else(|| needs("`error`", "failed"))?;
            let class: ErrorClass = read("error.class", Value::String(error.class))?;
            let end = error.message.floor_char_boundary(MAX_MESSAGE);
            Command::FailStep {
                claim,
                error: StepError::new(class, error.code, &error.message[..end]),
                retryable: result.retryable,
                delay_ms: a_wait("delayMs", result.delay_ms)?,
                ctx,
            }
        }
        WorkOutcome::Waiting => {
            let wait = result.wait.ok_or_else(|| needs("`wait`", "waiting"))?;
            waiting(wait, claim)?
        }
        WorkOutcome::Stopped => Command::ConfirmKill { claim },
    })
}

fn waiting(wait: WorkWait, claim: Claim) -> Result<Command, ApiProblem> {
    let needs = |field: &str| ApiProblem::bad_request(format!("this wait needs {field}"));
    let wait_for = match wait.waits_for {
        WaitsFor::Event => WaitFor::Event {
            event_type: wait.event_type.ok_or_else(|| needs("`eventType`"))?,
        },
        WaitsFor::Manual => WaitFor::Manual,
        WaitsFor::Timer => WaitFor::Timer,
        WaitsFor::Child => {
            let call = wait.call.ok_or_else(|| needs("`call`"))?;
            WaitFor::Child {
                call: called(call)?,
                input: wait.input.unwrap_or_default(),
            }
        }
    };
    Ok(Command::WaitStep {
        claim,
        wait: wait_for,
        timeout_ms: a_wait("wait.timeoutMs", wait.timeout_ms)?,
        outbound: wait.outbound,
        memo: wait.memo,
    })
}

/// The run that a wait asks for.
fn called(call: Value) -> Result<CalledRun, ApiProblem> {
    match call.get("path").is_some_and(Value::is_string) {
        true => read("wait.call", call),
        false => Err(ApiProblem::bad_request(
            "wait.call: an object with the field `path` is needed, the name or the path of a definition, such as \
             {\"path\": \"pack\"}; `returnStep` may name the step whose output is the result",
        )),
    }
}

/// A length of time that a step may wait; a longer one is a mistake, such as another unit.
fn a_wait(field: &str, ms: Option<u64>) -> Result<Option<u64>, ApiProblem> {
    match ms.filter(|ms| *ms > LONGEST_WAIT_MS) {
        Some(_) => Err(ApiProblem::bad_request(format!(
            "{field}: a number of milliseconds up to {LONGEST_WAIT_MS} (366 days) is needed"
        ))),
        None => Ok(ms),
    }
}

pub(super) fn read_all(values: Vec<Value>) -> Result<Vec<ArtifactRef>, ApiProblem> {
    let read = |value| read("artifacts", value);
    values.into_iter().map(read).collect()
}

fn read<T: serde::de::DeserializeOwned>(field: &str, value: Value) -> Result<T, ApiProblem> {
    serde_json::from_value(value)
        .map_err(|error| ApiProblem::bad_request(format!("{field}: {error}")))
}
