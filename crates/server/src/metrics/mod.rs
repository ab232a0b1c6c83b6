//! What the server counts and measures, in the form that Prometheus reads. Labels come from small fixed sets: a caller
//! cannot make new ones. The ids of plans are labels too, of so many plans as the configuration allows.
//!
//! - `collect`: what the engine, the store and the traces count, read when it is asked for.
//! - `process`: memory, file descriptors and threads of this process.

mod collect;
mod process;
mod text_format;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use stepwell_kernel::effect::RunOutcome;

pub(crate) use collect::{Counted, Sample};
pub(crate) use text_format::MetricsForm;

/// Durations of requests and claims, in seconds.
const SECONDS: [f64; 12] = [
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];
/// How many plans have labels of their own, if nobody says.
pub(crate) const PLANS: usize = 50;
/// The label of all other plans.
const OTHER: &str = "other";

/// A request: which endpoint, and what kind of answer.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    method: String,
    /// The route with its placeholders; `none` for addresses that do not exist.
    route: String,
    status: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EndLabels {
    plan: String,
    outcome: OutcomeLabel,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
enum OutcomeLabel {
    Succeeded,
    Partial,
    Failed,
    Cancelled,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StoreErrorLabels {
    code: &'static str,
}

/// What the server counts and measures.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    /// The metrics that every process has, under the names that Prometheus gives them.
    of_process: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Histogram,
    ended: Family<EndLabels, Counter>,
    streams: Gauge,
    retries: Counter,
    losses: Counter,
    store_errors: Family<StoreErrorLabels, Counter>,
    claims: Histogram,
    missed: Counter,
    deleted: Counter,
    /// The plans that have labels of their own, and how many may.
    plans: Mutex<BTreeSet<String>>,
    max_plans: usize,
    /// What was last asked of the store.
    sample: Arc<Mutex<Option<Sample>>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn new(max_plans: usize) -> Metrics {
        let mut of_process = Registry::default();
        of_process.register_collector(Box::new(process::ProcessCollector));
        let mut registry = Registry::with_prefix("stepwell");
        let metrics = Metrics {
            of_process,
            requests: Family::default(),
            seconds: Histogram::new(SECONDS),
            ended: Family::default(),
            streams: Gauge::default(),
            retries: Counter::default(),
            losses: Counter::default(),
            store_errors: Family::default(),
            claims: Histogram::new(SECONDS),
            missed: Counter::default(),
            deleted: Counter::default(),
            plans: Mutex::default(),
            max_plans,
            sample: Arc::default(),
            registry: Mutex::new(Registry::default()),
        };
        registry.register(
            "http_requests",
            "Requests that were answered",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "http_request_duration",
            "Time from the head of a request to the head of its answer",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        registry.register(
            "http_streams",
            "Streams of server-sent events that are open",
            metrics.streams.clone(),
        );
        registry.register(
            "runs_ended",
            "Runs that ended on this server, by plan and outcome",
            metrics.ended.clone(),
        );
        registry.register(
            "step_retries",
            "Executions of steps and undos that failed and are repeated",
            metrics.retries.clone(),
        );
        registry.register(
            "step_losses",
            "Executions of steps and undos that were lost with their worker and are repeated",
            metrics.losses.clone(),
        );
        registry.register(
            "store_errors",
            "Failed calls of the engine to the store, by code",
            metrics.store_errors.clone(),
        );
        registry.register_with_unit(
            "worker_claim_duration",
            "Time until the claim of a task for a worker in another process is committed",
            Unit::Seconds,
            metrics.claims.clone(),
        );
        registry.register(
            "schedules_missed",
            "Due times of schedules for which no run was started",
            metrics.missed.clone(),
        );
        registry.register(
            "runs_deleted",
            "Runs that were deleted because they ended long ago",
            metrics.deleted.clone(),
        );
        *metrics.registry() = registry;
        metrics
    }

    /// Also reports what others count.
    pub(crate) fn watch(&self, counted: Counted) {
        let collector = counted.collector(Arc::clone(&self.sample));
        self.registry().register_collector(Box::new(collector));
    }

    /// A stream is open as long as the value lives.
    pub(crate) fn stream(&self) -> OpenStream {
        self.streams.inc();
        OpenStream(self.streams.clone())
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request was answered.
    pub(crate) fn answered(&self, method: &str, route: &str, status: u16, took: Duration) {
        let labels = RequestLabels {
            method: known_method(method).to_owned(),
            route: route.to_owned(),
            status,
        };
        self.requests.get_or_create(&labels).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// A run of a plan ended on this server.
    pub(crate) fn ended(&self, plan: &str, outcome: &RunOutcome) {
        let outcome = match outcome {
            RunOutcome::Succeeded => OutcomeLabel::Succeeded,
            RunOutcome::Partial => OutcomeLabel::Partial,
            RunOutcome::Failed(_) => OutcomeLabel::Failed,
            RunOutcome::Cancelled(_) => OutcomeLabel::Cancelled,
        };
        let plan = self.label_of(plan);
        self.ended.get_or_create(&EndLabels { plan, outcome }).inc();
    }

    /// The first plans have labels of their own.
    fn label_of(&self, plan: &str) -> String {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = plans.contains(plan);
        if !is_known && plans.len() < self.max_plans {
            plans.insert(plan.to_owned());
        } else if !is_known {
            return OTHER.to_owned();
        }
        plan.to_owned()
    }

    /// An execution is repeated.
    pub(crate) fn retried(&self, lost: bool) {
        let counter = match lost {
            true => &self.losses,
            false => &self.retries,
        };
        counter.inc();
    }

    /// A call of the engine to the store failed.
    pub(crate) fn store_failed(&self, code: &'static str) {
        self.store_errors
            .get_or_create(&StoreErrorLabels { code })
            .inc();
    }

    /// A task was claimed for a worker in another process.
    pub(crate) fn claimed(&self, took: Duration) {
        self.claims.observe(took.as_secs_f64());
    }

    /// No run was started for so many due times.
    pub(crate) fn missed(&self, due_times: u64) {
        self.missed.inc_by(due_times);
    }

    /// So many old runs were deleted.
    pub(crate) fn deleted(&self, runs: usize) {
        self.deleted.inc_by(runs as u64);
    }

    /// The last sample of the store, if it is young enough.
    pub(crate) fn needs_sample(&self) -> bool {
        let sample = self.sample.lock().unwrap_or_else(PoisonError::into_inner);
        sample.as_ref().is_none_or(Sample::is_old)
    }

    /// What the store says now.
    pub(crate) fn sampled(&self, sample: Sample) {
        *self.sample.lock().unwrap_or_else(PoisonError::into_inner) = Some(sample);
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry())?;
        encode_registry(&mut text, &self.of_process)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

/// A caller chooses the method: only known ones are labels.
pub(crate) fn known_method(method: &str) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
    let mut known = known.into_iter();
    known.find(|it| *it == method).unwrap_or("other")
}

/// Counts one open stream.
#[derive(Debug)]
pub(crate) struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_nobody_knows_makes_no_label_of_its_own() {
        let metrics = Metrics::new(PLANS);
        metrics.answered("BREW", "none", 404, Duration::from_millis(3));
        metrics.answered("GET", "/api/v1/runs", 200, Duration::from_millis(3));
        let text = metrics.text().unwrap();
        assert!(!text.contains("BREW"), "{text}");
        assert!(
            text.contains(
                r#"stepwell_http_requests_total{method="GET",route="/api/v1/runs",status="200"} 1"#
            ),
            "{text}"
        );
    }

    #[test]
    fn only_so_many_plans_have_labels() {
        let metrics = Metrics::new(2);
        for plan in ["a", "b", "c", "d", "a"] {
            metrics.ended(plan, &RunOutcome::Succeeded);
        }
        let text = metrics.text().unwrap();
        for (plan, count) in [("a", 2), ("b", 1), ("other", 2)] {
            let line = format!(
                r#"stepwell_runs_ended_total{{plan="{plan}",outcome="Succeeded"}} {count}"#
            );
            assert!(text.contains(&line), "{text}");
        }
        assert!(!text.contains(r#"plan="c""#), "{text}");
    }
}
