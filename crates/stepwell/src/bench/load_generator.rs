//! Generates load: starts a new run when a run ends, and completes steps without work.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value as Json;
use stepwell_engine::StartRequest;
use stepwell_engine::coordinator::{Assignment, Notice};
use stepwell_engine::service::{Handle, Reporter, Worker};
use stepwell_kernel::command::Command;
use stepwell_kernel::event::{Patch, RunContext};
use stepwell_kernel::plan::Plan;

/// State that the benchmark and the threads of the engine share.
#[derive(Debug)]
pub(super) struct LoadGenerator {
    plan: Mutex<Arc<Plan>>,
    begin: Instant,
    /// Whether to start a new run when a run ends.
    more: AtomicBool,
    numbers: AtomicU64,
    tag: String,
    pub(super) steps: AtomicU64,
    pub(super) ended: AtomicU64,
    /// Time from the start request to the last commit of each run, in microseconds.
    latencies: Mutex<Vec<u64>>,
    changed: Condvar,
    handles: Mutex<Vec<Handle>>,
}

impl LoadGenerator {
    pub(super) fn new(plan: Arc<Plan>, tag: &str) -> Arc<LoadGenerator> {
        Arc::new(LoadGenerator {
            plan: Mutex::new(plan),
            begin: Instant::now(),
            more: AtomicBool::new(true),
            numbers: AtomicU64::new(0),
            tag: tag.to_owned(),
            steps: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            latencies: Mutex::new(Vec::new()),
            changed: Condvar::new(),
            handles: Mutex::new(Vec::new()),
        })
    }

    pub(super) fn add(&self, handle: Handle) {
        lock(&self.handles).push(handle);
    }

    pub(super) fn set_plan(&self, plan: Arc<Plan>) {
        *lock(&self.plan) = plan;
    }

    /// Starts a run on the next server in turn. The run id contains the start time.
    pub(super) fn start(&self) -> Result<()> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let handles = lock(&self.handles);
        let handle = handles[number as usize % handles.len()].clone();
        drop(handles);
        self.start_at(&handle, number)
    }

    fn start_at(&self, handle: &Handle, number: u64) -> Result<()> {
        let at = self.begin.elapsed().as_micros();
        let request = StartRequest {
            run_id: format!("run_{}-{number:x}-{at:x}", self.tag),
            params: Json::Null,
            context: RunContext {
                tenant_id: "bench".into(),
                project_id: "bench".into(),
                environment_id: "bench".into(),
                ..RunContext::default()
            },
            ..StartRequest::default()
        };
        let plan = lock(&self.plan).clone();
        // The answer is not needed: `ended` counts the run.
        drop(handle.start_later(&plan, request)?);
        Ok(())
    }

    /// Stops starting new runs.
    pub(super) fn stop(&self) {
        self.more.store(false, Ordering::SeqCst);
    }

    pub(super) fn go_on(&self) {
        self.more.store(true, Ordering::SeqCst);
    }

    /// The number of started runs.
    pub(super) fn started(&self) -> u64 {
        self.numbers.load(Ordering::SeqCst)
    }

    /// Waits until this many runs have ended, at most for `patience`. Returns whether they have.
    pub(super) fn wait_for(&self, ended: u64, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut guard = lock(&self.latencies);
        while self.ended.load(Ordering::SeqCst) < ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let nap = left.min(Duration::from_millis(100));
            let woken = self.changed.wait_timeout(guard, nap);
            guard = woken.map_or_else(|it| it.into_inner().0, |it| it.0);
        }
        true
    }

    /// Returns the sorted latencies and clears them.
    pub(super) fn take_latencies(&self) -> Vec<u64> {
        let mut all = std::mem::take(&mut *lock(&self.latencies));
        all.sort_unstable();
        all
    }

    pub(super) fn ended(&self, run_id: &str, handle: &Handle) {
        let now = self.begin.elapsed().as_micros();
        let at = run_id.rsplit('-').next().unwrap_or_default();
        if let Ok(at) = u128::from_str_radix(at, 16) {
            let took = u64::try_from(now.saturating_sub(at)).unwrap_or(u64::MAX);
            lock(&self.latencies).push(took);
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_all();
        if self.more.load(Ordering::SeqCst) {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            // An engine that is stopping accepts no more runs.
            let _ = self.start_at(handle, number);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A worker that completes every step immediately.
#[derive(Debug)]
pub(super) struct NoopWorker {
    pub(super) load: Arc<LoadGenerator>,
}

impl Worker for NoopWorker {
    fn start(&mut self, job: Assignment, reporter: &Reporter) {
        self.load.steps.fetch_add(1, Ordering::Relaxed);
        let complete = Command::CompleteStep {
            claim: job.claimed.claim.clone(),
            output: Json::Null,
            ctx: Patch::new(),
            artifacts: Vec::new(),
        };
        reporter.report(&job, complete);
    }

    fn notice(&mut self, notice: &Notice, reporter: &Reporter) {
        if let Notice::Ended { run_id, .. } = notice {
            self.load.ended(run_id, reporter.handle());
        }
    }
}
