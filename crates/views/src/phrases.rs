//! What is said about a step-run wherever it is shown: attempts, waits, retries, how far a loop is.
//! Everything here is a function of plan, state and time; nothing here knows where it is written.

use stepwell_engine::run_id_for;
use stepwell_kernel::decide::duties;
use stepwell_kernel::event::{Loss, StepError, WaitKind};
use stepwell_kernel::plan::{Duty, Plan, RunPolicy, Step, StepRef};
use stepwell_kernel::state::{LoopState, State, Status, StepRun, WaitState};
use stepwell_kernel::time::Time;

use crate::duration;

/// A deadline that is nearer is said as time left: the minute of a clock is too coarse for it.
const NEAR_MS: u64 = 120_000;

/// `attempt 2 of 5`; only `attempt 2` where there is no second one, or more than were planned.
pub fn attempt(number: u32, most: u32) -> String {
    match most {
        0 | 1 => format!("attempt {number}"),
        _ if number > most => format!("attempt {number}"),
        _ => format!("attempt {number} of {most}"),
    }
}

/// Which attempt of a step this is, out of how many.
pub fn attempt_of(step: &Step, run: &StepRun) -> String {
    attempt(run.tries(), step.retry.max_executions)
}

/// Which attempt comes next.
pub fn next_attempt_of(step: &Step, run: &StepRun) -> String {
    attempt(run.tries() + 1, step.retry.max_executions)
}

/// Why a step that has failed was not tried again although its retry policy allows several attempts; none for other steps.
pub fn not_retried(step: &Step, run: &StepRun) -> Option<String> {
    let has_failed = matches!(run.status(), Status::Failed | Status::Held);
    let error = run.error().filter(|_| has_failed)?;
    let retry = &step.retry;
    if retry.max_executions <= 1 {
        return None;
    }
    let class = error.class.name();
    let why = if run.tries() >= retry.max_executions {
        format!("all {} attempts are used", retry.max_executions)
    } else if step.at_most_once {
        "the step runs at most once".to_owned()
    } else if !retry.covers(error.class) {
        let covered: Vec<&str> = retry.classes.iter().map(|it| it.name()).collect();
        match covered.is_empty() {
            true => "its retry policy is for no class of errors".to_owned(),
            false => format!(
                "its retry policy is for errors of the class {}, and this one is of the class {class}",
                covered.join(", ")
            ),
        }
    } else {
        "the work said that another attempt does not help, or the run was about to end".to_owned()
    };
    Some(why)
}

/// `lost 2 times with its worker`; none for a step-run that was never lost.
pub fn losses(run: &StepRun) -> Option<String> {
    match run.losses() {
        0 => None,
        1 => Some("lost once with its worker".to_owned()),
        losses => Some(format!("lost {losses} times with its worker")),
    }
}

/// What is said when an execution was lost, or stopped by the engine.
pub fn loss(loss: Loss, losses: u32, most: Option<u32>) -> String {
    let most = most.unwrap_or(RunPolicy::MAX_LOSSES);
    match loss {
        Loss::Lost => format!("lost with its worker ({losses} of {most}), executed again"),
        Loss::Released => "stopped with its worker, executed again".to_owned(),
    }
}

/// Which attempt of a step's undo this is.
pub fn undo_attempt(step: &Step, number: u32) -> String {
    let most = step.undo.as_ref().map_or(1, |it| it.retry.max_executions);
    attempt(number, most)
}

/// `retries in 12 s`.
pub fn retries(at: Time, now: Time) -> String {
    match at.since(now) {
        0 => "retries now".to_owned(),
        left => format!("retries in {}", duration(whole_seconds(left))),
    }
}

/// A countdown that shows tenths is read by nobody.
fn whole_seconds(millis: u64) -> u64 {
    match millis {
        0..1000 => millis,
        _ => millis.div_ceil(1000) * 1000,
    }
}

/// An error in one line: its code, what retry rules see in it where the code does not say that, and
/// its message.
pub fn error(error: &StepError) -> String {
    let class = error.class.name();
    match error.code.eq_ignore_ascii_case(class) {
        true => format!("{}: {}", error.code, error.message),
        false => format!("{} ({class}): {}", error.code, error.message),
    }
}

/// What a step-run waits for, by whom and until when.
pub fn waits(plan: &Plan, state: &State, at: StepRef, now: Time) -> Option<String> {
    let wait = state.run(at)?.wait()?;
    let text = match wait.kind() {
        WaitKind::Timer { .. } => {
            return Some(match wait.deadline() {
                Some(until) => format!("sleeps {} more", duration(whole_seconds(until.since(now)))),
                None => waits_for(wait.kind()),
            });
        }
        kind @ (WaitKind::Gate | WaitKind::Approval | WaitKind::Manual) => {
            let by = by_whom(duties(plan, at, kind), wait, state);
            waits_for_people(kind, &by)
        }
        kind @ (WaitKind::Event { .. } | WaitKind::Child { .. }) => waits_for(kind),
    };
    let until = wait.deadline().map(|it| until(it, now)).unwrap_or_default();
    Some(format!("{text}{until}"))
}

/// What a step-run waits for and by whom, without how many people must approve and until when.
pub fn waits_for_whom(plan: &Plan, state: &State, at: StepRef, kind: &WaitKind) -> String {
    match kind {
        WaitKind::Gate | WaitKind::Approval | WaitKind::Manual => {
            let duties = duties(plan, at, kind).iter();
            let who: Vec<String> = duties
                .filter(|duty| !matches!(duty, Duty::DistinctApprovers { .. }))
                .map(|duty| whom(duty, state))
                .collect();
            let by = match who.as_slice() {
                [] => String::new(),
                who => format!(" by {}", who.join(" and ")),
            };
            waits_for_people(kind, &by)
        }
        WaitKind::Event { .. } | WaitKind::Timer { .. } | WaitKind::Child { .. } => waits_for(kind),
    }
}

/// A wait for a person; `by` says which, and is empty where anybody will do.
fn waits_for_people(kind: &WaitKind, by: &str) -> String {
    match (kind, by) {
        (WaitKind::Gate, by) => format!("waits for approval{by} before it starts"),
        (WaitKind::Manual, "") => "waits for a person".to_owned(),
        (WaitKind::Manual, by) => format!("waits for completion{by}"),
        (_, by) => format!("waits for approval{by}"),
    }
}

/// What is waited for, without its circumstances.
pub fn waits_for(kind: &WaitKind) -> String {
    match kind {
        WaitKind::Gate => "waits for approval before it starts".to_owned(),
        WaitKind::Approval => "waits for approval".to_owned(),
        WaitKind::Manual => "waits for a person".to_owned(),
        WaitKind::Event { event_type, .. } => format!("waits for event {event_type}"),
        WaitKind::Timer { .. } => "waits for a timer".to_owned(),
        WaitKind::Child { request_key, .. } => format!("waits for run {}", run_id_for(request_key)),
    }
}

/// ` by 2 different people (ada has)`, ` by someone other than bob`.
fn by_whom(duties: &[Duty], wait: &WaitState, state: &State) -> String {
    let who: Vec<String> = duties.iter().map(|duty| whom(duty, state)).collect();
    let so_far = match wait.approvals() {
        [] => String::new(),
        [one] => format!(" ({one} has)"),
        some => format!(" ({} have)", some.join(", ")),
    };
    match who.as_slice() {
        [] => so_far,
        _ => format!(" by {}{so_far}", who.join(" and ")),
    }
}

/// Who fulfils a duty.
fn whom(duty: &Duty, state: &State) -> String {
    match duty {
        Duty::DistinctApprovers { count } => format!("{count} different people"),
        Duty::MakerChecker => match &state.context().triggered_by {
            Some(maker) => format!("a person other than {maker}"),
            None => "a person other than the starter of the run".to_owned(),
        },
        Duty::IncompatibleDuties { keys } => {
            format!("a person who has not done {}", keys.join(" or "))
        }
    }
}

/// ` until 14:02 UTC`, with the day where it is another, or ` for 40 s more`.
fn until(deadline: Time, now: Time) -> String {
    let left = deadline.since(now);
    if left < NEAR_MS {
        return format!(" for {} more", duration(whole_seconds(left)));
    }
    let (then, today) = (deadline.to_rfc3339(), now.to_rfc3339());
    let (day, clock) = (&then[..10], &then[11..16]);
    match today.starts_with(day) {
        true => format!(" until {clock} UTC"),
        false => format!(" until {day} {clock} UTC"),
    }
}

/// How far a loop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub done: usize,
    pub all: usize,
    failed: u32,
    running: usize,
    elapsed: u64,
}

impl Progress {
    /// Of a loop that began then.
    pub fn of(each: &LoopState, started: Option<Time>, now: Time) -> Progress {
        Progress {
            done: each.ended() as usize,
            all: each.results().len(),
            failed: each.failed(),
            running: each.active().len(),
            elapsed: started.map_or(0, |started| now.since(started)),
        }
    }

    /// Done and all items, and failed items if there are any: `34/120, 2 failed`.
    pub fn counts(self) -> String {
        match self.failed {
            0 => format!("{}/{}", self.done, self.all),
            failed => format!("{}/{}, {failed} failed", self.done, self.all),
        }
    }

    /// For example `2 of 120 items failed`; none if no item failed.
    pub fn failures(self) -> Option<String> {
        let (failed, all) = (self.failed, self.all);
        (failed > 0).then(|| format!("{failed} of {all} items failed"))
    }

    /// `34/120, 2 failed, 5 running, 3/s, about 28 s left`.
    pub fn live(self) -> String {
        let mut parts = vec![self.counts()];
        if self.running > 0 {
            parts.push(format!("{} running", self.running));
        }
        if self.done > 0 && self.elapsed >= 1000 {
            parts.push(rate(self.done as u64, self.elapsed));
            let left = (self.all - self.done) as u64;
            if left > 0 {
                let left = self.elapsed.saturating_mul(left) / self.done as u64;
                parts.push(format!("about {} left", duration(whole_seconds(left))));
            }
        }
        parts.join(", ")
    }
}

/// `12/s`, `30/min`, `2/h`: the unit in which the number says something.
fn rate(done: u64, elapsed: u64) -> String {
    let per = |unit: u64| done.saturating_mul(unit) / elapsed;
    match (per(1000), per(60_000)) {
        (0, 0) => format!("{}/h", per(3_600_000)),
        (0, minutes) => format!("{minutes}/min"),
        (seconds, _) => format!("{seconds}/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time in all tests: 2026-01-01T13:00:00Z.
    const NOW: Time = Time(1_767_225_600_000 + 13 * 3_600_000);

    #[test]
    fn a_deadline_is_a_time_of_day_a_date_or_what_is_left() {
        assert_eq!(until(NOW.plus(62 * 60_000), NOW), " until 14:02 UTC");
        let tomorrow = " until 2026-01-02 14:00 UTC";
        assert_eq!(until(NOW.plus(25 * 3_600_000), NOW), tomorrow);
        assert_eq!(until(NOW.plus(39_200), NOW), " for 40 s more");
    }

    #[test]
    fn attempts_say_how_many_there_may_be() {
        assert_eq!(attempt(2, 5), "attempt 2 of 5");
        assert_eq!(attempt(1, 1), "attempt 1");
        assert_eq!(attempt(6, 5), "attempt 6");
        assert_eq!(retries(NOW.plus(11_001), NOW), "retries in 12 s");
        assert_eq!(retries(NOW, NOW.plus(5)), "retries now");
    }

    #[test]
    fn a_loop_says_its_pace_and_what_is_left() {
        let progress = Progress {
            done: 30,
            all: 120,
            failed: 2,
            running: 5,
            elapsed: 10_000,
        };
        let text = "30/120, 2 failed, 5 running, 3/s, about 30 s left";
        assert_eq!(progress.live(), text);
        let slow = Progress {
            done: 1,
            elapsed: 90_000,
            ..progress
        };
        assert!(slow.live().contains("40/h"), "{}", slow.live());
        let fresh = Progress { done: 0, ..slow };
        assert_eq!(fresh.live(), "0/120, 2 failed, 5 running");
    }
}
