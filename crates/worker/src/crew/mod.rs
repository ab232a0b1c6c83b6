//! The crew: does jobs whose claims are committed, many at a time, and reports each result.
//!
//! One job is one execution of one step-run. It ends with exactly one report, whatever happens to it:
//! done, failed, waiting, or stopped as it was told. What a report leads to is decided elsewhere.

mod job;
mod large_values;
mod outside;
mod run_secrets;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stepwell_engine::coordinator::{Assignment, Serves};
use stepwell_engine::rows::BUILT_IN;
use stepwell_engine::service::{EndLostWork, Reporter, Worker};
use stepwell_engine::store::RunNo;
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::Target;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

pub use outside::{OutsideInput, OutsideInputs};

use crate::handler::Handlers;
use crate::resources::WorkerResources;
use crate::warm_pool::WarmPool;

/// How long a job that was stopped may take beyond its programs' grace: its log is written yet.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Which execution of which work.
type Slot = (RunNo, Target, u32);

/// Does jobs, many at a time.
pub struct Crew {
    shared: Arc<CrewShared>,
    handle: Handle,
    /// Ends with the crew, if the crew made it.
    runtime: Option<Runtime>,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew")
            .field("resources", &self.shared.resources)
            .field("handlers", &self.shared.handlers)
            .finish_non_exhaustive()
    }
}

/// A job that runs, and how to end it.
struct RunningJob {
    /// Tells the job to stop; its programs have their grace, and the job reports.
    cancelled: CancellationToken,
    /// Ends the job where it stands: its programs are killed, and nothing is reported.
    task: AbortHandle,
}

struct CrewShared {
    resources: WorkerResources,
    handlers: Handlers,
    running: Mutex<HashMap<Slot, RunningJob>>,
    warm_pool: WarmPool,
    run_secrets: run_secrets::RunSecrets,
}

impl Crew {
    /// A crew with threads of its own.
    pub fn new(resources: WorkerResources, handlers: Handlers) -> io::Result<Crew> {
        let runtime = Builder::new_multi_thread()
            .thread_name("stepwell-worker")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let mut crew = Crew::on(handle, resources, handlers);
        crew.runtime = Some(runtime);
        Ok(crew)
    }

    /// A crew on a runtime that is there already.
    #[must_use]
    pub fn on(handle: Handle, resources: WorkerResources, handlers: Handlers) -> Crew {
        let shared = Arc::new(CrewShared {
            resources,
            handlers,
            running: Mutex::default(),
            warm_pool: WarmPool::default(),
            run_secrets: run_secrets::RunSecrets::default(),
        });
        Crew {
            shared,
            handle,
            runtime: None,
        }
    }

    /// What it can do: pipelines of tools, and what it has handlers for.
    #[must_use]
    pub fn serves(&self) -> Serves {
        let tools = (BUILT_IN.to_owned(), "pipeline".to_owned());
        let handlers = self.shared.handlers.serves().cloned();
        Serves::Only(Arc::new(handlers.chain([tools]).collect()))
    }

    /// How many jobs of a queue it may be given at a time, for queues with a limit.
    #[must_use]
    pub fn limits(&self) -> BTreeMap<String, usize> {
        self.shared.handlers.limits().clone()
    }

    #[must_use]
    pub fn resources(&self) -> &WorkerResources {
        &self.shared.resources
    }

    /// Does a job and reports its result, once.
    pub fn begin(
        &self,
        job: Assignment,
        report: impl FnOnce(&Assignment, Command) + Send + 'static,
    ) {
        let claim = &job.claimed.claim;
        let slot = (job.run, claim.target, claim.execution);
        let cancelled = CancellationToken::new();
        let shared = Arc::clone(&self.shared);
        let stop = cancelled.clone();
        // Locked until the job is listed, so that it cannot end before.
        let mut running = self.shared.running();
        let task = self.handle.spawn(async move {
            let command = shared.work(&job, stop).await;
            report(&job, command);
            // Only then: when no job is left, all reports were sent.
            shared.running().remove(&slot);
        });
        let task = task.abort_handle();
        running.insert(slot, RunningJob { cancelled, task });
    }

    /// Tells a job to stop.
    pub fn stop(&self, run: RunNo, target: Target, execution: u32) {
        if let Some(job) = self.shared.running().get(&(run, target, execution)) {
            job.cancelled.cancel();
        }
    }

    /// How many jobs there are.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.shared.running().len()
    }

    /// Tells all jobs to stop.
    pub fn stop_all(&self) {
        self.shared
            .running()
            .values()
            .for_each(|job| job.cancelled.cancel());
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop_all();
        if let Some(runtime) = self.runtime.take() {
            // Whatever runs there now has been told; programs are killed when their task is dropped.
            runtime.shutdown_background();
        }
    }
}

impl Worker for Crew {
    fn start(&mut self, assignment: Assignment, reporter: &Reporter) {
        let reporter = reporter.clone();
        self.begin(assignment, move |assignment, result| {
            reporter.report(assignment, result);
        });
    }

    fn stop(&mut self, run: RunNo, target: Target, execution: u32) {
        Crew::stop(self, run, target, execution);
    }

    fn stop_all(&mut self) -> Duration {
        Crew::stop_all(self);
        self.shared.resources.limits.grace + LAST_WORDS
    }

    fn lost_work(&self) -> Option<Arc<dyn EndLostWork>> {
        Some(self.shared.clone())
    }
}

impl EndLostWork for CrewShared {
    fn end(&self, of: &dyn Fn(RunNo) -> bool) {
        let lost = |slot: &Slot, _: &mut RunningJob| of(slot.0);
        for (_, job) in self.running().extract_if(lost) {
            // Threads that the job waits for hear of it too; they have no task that could be ended.
            job.cancelled.cancel();
            job.task.abort();
        }
    }
}

/// Runs work whose panic is its own.
async fn caught<T>(work: AssertUnwindSafe<impl Future<Output = T>>) -> Result<T, String> {
    let mut work = std::pin::pin!(work.0);
    std::future::poll_fn(|cx| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        match polled {
            Ok(std::task::Poll::Pending) => std::task::Poll::Pending,
            Ok(std::task::Poll::Ready(value)) => std::task::Poll::Ready(Ok(value)),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                let text = text.unwrap_or_else(|| "it does not say why".into());
                std::task::Poll::Ready(Err(format!("the worker's code panicked: {text}")))
            }
        }
    })
    .await
}

impl CrewShared {
    fn running(&self) -> MutexGuard<'_, HashMap<Slot, RunningJob>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
