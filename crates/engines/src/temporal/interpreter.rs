//! What the workflow of a run does: asks for a turn, starts an activity for each attempt that the turn lists and that is not running,
//! stops those that it does not list, and waits for the next thing to happen. All of it follows from the turns, which are in the
//! history; so a history replays as long as this file and the form of a turn stay.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, UNIX_EPOCH};

use temporalio_common::search_attributes::SearchAttributeKey;
use temporalio_sdk::{
    ActivityCancellationType, ActivityExecutionError, ActivityOptions, ApplicationFailure,
    ContinueAsNewOptions, LocalActivityOptions, TimerOptions, WaitConditionOptions,
    WorkflowCancellationToken, WorkflowContext, WorkflowResult, WorkflowTermination,
};

use super::activities::{AttemptRequest, EngineActivities, TurnRequest};
use super::workflow::{RunInput, RunWorkflow};
use crate::attempt::AttemptEnd;
use crate::turn::{EndedAs, KeptReport, Seen, Turn, WorkItem};

/// The search attribute with the status of a run.
pub(super) const STATUS: SearchAttributeKey<String> = SearchAttributeKey::keyword("StepwellStatus");
/// The search attribute with the tenant of a run.
pub(super) const TENANT: SearchAttributeKey<String> = SearchAttributeKey::keyword("StepwellTenant");
/// The search attribute with the definition of a run.
pub(super) const DEFINITION: SearchAttributeKey<String> =
    SearchAttributeKey::keyword("StepwellDefinition");

/// How long an attempt may take for the server. The kernel has its own limits.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// A history of this length begins no attempt any more, so that it can end: the server refuses histories of 51,200 events.
const LONG_HISTORY: u32 = 20_000;
/// How long nothing is begun after an attempt was lost by the engine, in milliseconds.
const PAUSE_MS: u64 = 1_000;
/// A wake-up is never sooner than this, in milliseconds: the clock of the server may be ahead.
const SOONEST_MS: u64 = 10;

type Ended = Result<AttemptEnd, ActivityExecutionError>;

/// An attempt that runs.
struct Flight<'a> {
    item: WorkItem,
    stop: WorkflowCancellationToken,
    end: Pin<Box<dyn Future<Output = Ended> + 'a>>,
}

/// A timer that runs.
struct Alarm<'a> {
    at_ms: u64,
    stop: WorkflowCancellationToken,
    rings: Pin<Box<dyn Future<Output = ()> + 'a>>,
}

/// What the workflow waited for.
enum Woke {
    Ended(Box<Ended>),
    Alarm,
    Rung,
    Cancelled(Option<String>),
}

/// How a local activity is tried: until the store answers.
pub(super) fn local_options(stop: WorkflowCancellationToken) -> LocalActivityOptions {
    let retry = temporalio_common::RetryPolicy::builder()
        .initial_interval(Duration::from_millis(500))
        // What the history keeps for the store must be there before the store's leases end.
        .maximum_interval(Duration::from_secs(4))
        .build();
    LocalActivityOptions::builder()
        .retry_policy(retry)
        .start_to_close_timeout(Duration::from_secs(60))
        .timer_backoff_threshold(Duration::from_secs(5))
        .cancellation_token(stop)
        .build()
}

/// Drives the run to its end.
pub(super) async fn interpret(ctx: &WorkflowContext<RunWorkflow>) -> WorkflowResult<String> {
    let input = ctx.state(|it| it.input.clone());
    let mut status = input.status.clone();
    let mut flights: Vec<Flight<'_>> = Vec::new();
    let mut alarm: Option<Alarm<'_>> = None;
    let (mut rings, mut cancel_asked) = (ctx.state(|it| it.rings), false);
    let mut not_before = 0;
    let mut turn = ask(ctx, &input, input.seen.clone(), None).await?;
    loop {
        let now = now_ms(ctx);
        ctx.state_mut(|it| it.turn = Some(turn.clone()));
        if status != turn.status {
            status.clone_from(&turn.status);
            if input.searchable {
                ctx.upsert_search_attributes([STATUS.value_set(status.clone())]);
            }
        }
        if let Some(ended) = turn.ended {
            return finish(ended, &status);
        }
        stop_unlisted(&mut flights, &turn);
        let rotate = ctx.continue_as_new_suggested() || ctx.history_length() > LONG_HISTORY;
        if rotate && flights.is_empty() && ctx.all_handlers_finished() {
            return rotated(ctx, &input, &turn, status);
        }
        let full = rotate && ctx.history_length() > LONG_HISTORY;
        let mut wake = turn.wake_in_ms.map(|wait| now + wait);
        for item in turn.work.iter().filter(|item| !item.held) {
            if flights.iter().any(|it| it.item.key() == item.key()) {
                continue;
            }
            let at = (now + item.start_in_ms).max(not_before);
            if at <= now && !full {
                flights.push(begin(ctx, &input, item.clone()));
            } else if !full {
                wake = Some(wake.map_or(at, |wake| wake.min(at)));
            }
        }
        set_alarm(ctx, &mut alarm, wake, now);
        let woke = wait(ctx, &mut flights, &mut alarm, rings, cancel_asked).await;
        rings = ctx.state(|it| it.rings);
        let report = match woke {
            Woke::Ended(ended) => match *ended {
                Ok(AttemptEnd::Written(next)) => {
                    // Attempts end in any order; what is known is never replaced by what was known before.
                    if next.seen.seq >= turn.seen.seq {
                        turn = next;
                        continue;
                    }
                    None
                }
                Ok(AttemptEnd::Kept(report)) => Some(report),
                Err(error) => {
                    not_before = now_ms(ctx) + PAUSE_MS;
                    begun(&error)
                }
            },
            Woke::Cancelled(reason) => {
                cancel_asked = true;
                Some(KeptReport::Cancel { reason })
            }
            Woke::Alarm | Woke::Rung => None,
        };
        turn = ask(ctx, &input, Some(turn.seen.clone()), report).await?;
    }
}

/// Asks for a turn, until the store answers.
async fn ask(
    ctx: &WorkflowContext<RunWorkflow>,
    input: &RunInput,
    seen: Option<Seen>,
    report: Option<KeptReport>,
) -> Result<Turn, WorkflowTermination> {
    let asked = TurnRequest {
        run_id: input.run_id.clone(),
        seen,
        report,
    };
    // A cancel of the workflow is a command to the run, and must not cut the turn short.
    let options = local_options(WorkflowCancellationToken::new());
    let turn = ctx.execute_local_activity(EngineActivities::turn, asked, options);
    turn.await.map_err(|error| {
        let reason = error.reason().map(ToString::to_string);
        let message = reason.unwrap_or_else(|| error.to_string());
        WorkflowTermination::failed_application(ApplicationFailure::non_retryable(message))
    })
}

fn now_ms(ctx: &WorkflowContext<RunWorkflow>) -> u64 {
    let time = ctx.workflow_time();
    let since = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// How the workflow ends, in Temporal's own words.
fn finish(ended: EndedAs, status: &str) -> WorkflowResult<String> {
    match ended {
        EndedAs::Completed => Ok(status.to_owned()),
        EndedAs::Failed => Err(WorkflowTermination::failed_application(
            ApplicationFailure::non_retryable("the run has failed; the store has its events"),
        )),
        EndedAs::Cancelled => Err(WorkflowTermination::cancelled()),
    }
}

/// Goes on in a new history.
fn rotated(
    ctx: &WorkflowContext<RunWorkflow>,
    input: &RunInput,
    turn: &Turn,
    status: String,
) -> WorkflowResult<String> {
    let next = RunInput {
        seen: Some(turn.seen.clone()),
        status,
        rotation: input.rotation + 1,
        ..input.clone()
    };
    match ctx.continue_as_new(next, ContinueAsNewOptions::default())? {}
}

fn stop_unlisted(flights: &mut [Flight<'_>], turn: &Turn) {
    for flight in flights {
        let listed = turn.work.iter().find(|it| it.key() == flight.item.key());
        if listed.is_none_or(|it| it.stop) && !flight.stop.is_cancelled() {
            flight.stop.cancel();
        }
    }
}

/// Starts an attempt. The kernel owns retries, so the server tries once.
fn begin<'a>(
    ctx: &'a WorkflowContext<RunWorkflow>,
    input: &RunInput,
    item: WorkItem,
) -> Flight<'a> {
    let stop = WorkflowCancellationToken::new();
    let once = temporalio_common::RetryPolicy::builder()
        .maximum_attempts(1)
        .build();
    let options = ActivityOptions::with_start_to_close_timeout(ATTEMPT_LIMIT)
        .activity_id(item.key())
        .heartbeat_timeout(Duration::from_millis(input.heartbeat_ms))
        // The attempt reports that it has stopped.
        .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
        .cancellation_token(stop.clone())
        .retry_policy(once)
        .build();
    let asked = AttemptRequest {
        run_id: input.run_id.clone(),
        work: item.clone(),
    };
    Flight {
        item,
        stop,
        end: Box::pin(ctx.execute_activity(EngineActivities::attempt, asked, options)),
    }
}

/// Keeps a timer that is early enough, and replaces one that is too late.
fn set_alarm<'a>(
    ctx: &'a WorkflowContext<RunWorkflow>,
    alarm: &mut Option<Alarm<'a>>,
    wake: Option<u64>,
    now: u64,
) {
    let Some(at_ms) = wake.map(|wake| wake.max(now + SOONEST_MS)) else {
        return;
    };
    if alarm.as_ref().is_some_and(|it| it.at_ms <= at_ms) {
        return;
    }
    if let Some(late) = alarm.take() {
        late.stop.cancel();
    }
    let stop = WorkflowCancellationToken::new();
    let timer = TimerOptions::builder(Duration::from_millis(at_ms - now))
        .cancellation_token(stop.clone())
        .build();
    let timer = ctx.timer(timer);
    *alarm = Some(Alarm {
        at_ms,
        stop,
        rings: Box::pin(async move {
            timer.await;
        }),
    });
}

/// Waits until something happens. Looks at everything in the same order each time, so that a replay does the same.
async fn wait<'a>(
    ctx: &WorkflowContext<RunWorkflow>,
    flights: &mut Vec<Flight<'a>>,
    alarm: &mut Option<Alarm<'a>>,
    rings: u64,
    cancel_asked: bool,
) -> Woke {
    let detached = WaitConditionOptions::builder()
        .cancellation_token(WorkflowCancellationToken::new())
        .build();
    let rung = ctx.wait_condition_with_options(|it| it.rings != rings, detached);
    let cancelled = ctx.cancelled();
    let (mut rung, mut cancelled) = (Box::pin(rung), Box::pin(cancelled));
    std::future::poll_fn(move |cx| {
        for index in 0..flights.len() {
            if let Poll::Ready(end) = flights[index].end.as_mut().poll(cx) {
                flights.remove(index);
                return Poll::Ready(Woke::Ended(Box::new(end)));
            }
        }
        if !cancel_asked && let Poll::Ready(reason) = cancelled.as_mut().poll(cx) {
            return Poll::Ready(Woke::Cancelled(reason));
        }
        if let Some(set) = alarm
            && set.rings.as_mut().poll(cx).is_ready()
        {
            *alarm = None;
            return Poll::Ready(Woke::Alarm);
        }
        match rung.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(Woke::Rung),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// What the last heartbeat of a lost attempt says: its claim may not be in the store.
fn begun(error: &ActivityExecutionError) -> Option<KeptReport> {
    let timeout = error.as_timeout()?;
    let details = timeout.last_heartbeat_details::<Option<KeptReport>>();
    details.ok().flatten().flatten()
}
