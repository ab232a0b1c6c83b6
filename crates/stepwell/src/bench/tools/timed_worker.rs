//! A worker that measures the time of each step in the worker and in total.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use std::sync::atomic::Ordering;
use stepwell_engine::coordinator::{Assignment, Notice};
use stepwell_engine::service::{Reporter, Worker};
use stepwell_engine::store::RunNo;
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::Target;
use stepwell_worker::Crew;

use crate::bench::load_generator::LoadGenerator;

/// Durations of steps in microseconds.
#[derive(Debug, Default)]
pub(super) struct StepTimes {
    /// From the assignment of a step to the assignment of the next step, after the commit.
    steps: Mutex<Vec<u64>>,
    /// From the assignment of a step to its result.
    worked: Mutex<Vec<u64>>,
    failure: Mutex<Option<String>>,
}

impl StepTimes {
    pub(super) fn take_steps(&self) -> Vec<u64> {
        taken(&self.steps)
    }

    pub(super) fn take_worked(&self) -> Vec<u64> {
        taken(&self.worked)
    }

    /// The error of the first failed step.
    pub(super) fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every command but one is a failure, and is shown"
    )]
    fn judge(&self, command: &Command) {
        let why = match command {
            Command::CompleteStep { .. } => return,
            Command::FailStep { error, .. } => format!("{}: {}", error.code, error.message),
            other => format!("{other:?}"),
        };
        lock(&self.failure).get_or_insert(why);
    }
}

fn taken(times: &Mutex<Vec<u64>>) -> Vec<u64> {
    let mut all = std::mem::take(&mut *lock(times));
    all.sort_unstable();
    all
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// A crew that measures durations.
pub(super) struct TimedWorker {
    crew: Crew,
    load: Arc<LoadGenerator>,
    times: Arc<StepTimes>,
    /// The assignment time of the current step of each run.
    handed: HashMap<RunNo, Instant>,
}

impl TimedWorker {
    pub(super) fn new(crew: Crew, load: Arc<LoadGenerator>, times: Arc<StepTimes>) -> TimedWorker {
        TimedWorker {
            crew,
            load,
            times,
            handed: HashMap::new(),
        }
    }

    fn over(&self, handed: Option<Instant>) {
        if let Some(handed) = handed {
            lock(&self.times.steps).push(micros(handed));
            self.load.steps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Worker for TimedWorker {
    fn start(&mut self, job: Assignment, reporter: &Reporter) {
        let begin = Instant::now();
        let before = self.handed.insert(job.run, begin);
        self.over(before);
        let (reporter, times) = (reporter.clone(), self.times.clone());
        self.crew.begin(job, move |job, command| {
            lock(&times.worked).push(micros(begin));
            times.judge(&command);
            reporter.report(job, command);
        });
    }

    fn stop(&mut self, run: RunNo, target: Target, execution: u32) {
        self.crew.stop(run, target, execution);
    }

    fn notice(&mut self, notice: &Notice, reporter: &Reporter) {
        if let Notice::Ended { run, run_id, .. } = notice {
            let last = self.handed.remove(run);
            self.over(last);
            self.load.ended(run_id, reporter.handle());
        }
    }
}
