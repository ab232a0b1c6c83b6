//! What the server counts and measures, in the form that Prometheus reads. Labels come from small fixed sets: a caller
//! cannot make new ones.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use stepwell_engine::projector;
use stepwell_engine::service::Stats;
use stepwell_kernel::effect::RunOutcome;

/// Durations of requests, in seconds.
const SECONDS: [f64; 12] = [
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];

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
    outcome: OutcomeLabel,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelValue)]
enum OutcomeLabel {
    Succeeded,
    Partial,
    Failed,
    Cancelled,
}

/// What the server counts and measures.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    seconds: Histogram,
    ended: Family<EndLabels, Counter>,
    streams: Gauge,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::with_prefix("stepwell");
        let requests = Family::<RequestLabels, Counter>::default();
        registry.register(
            "http_requests",
            "Requests that were answered",
            requests.clone(),
        );
        let seconds = Histogram::new(SECONDS);
        registry.register_with_unit(
            "http_request_duration",
            "Time from the head of a request to the head of its answer",
            Unit::Seconds,
            seconds.clone(),
        );
        let ended = Family::<EndLabels, Counter>::default();
        registry.register(
            "runs_ended",
            "Runs that ended on this server",
            ended.clone(),
        );
        let streams = Gauge::default();
        registry.register(
            "http_streams",
            "Streams of server-sent events that are open",
            streams.clone(),
        );
        Metrics {
            registry: Mutex::new(registry),
            requests,
            seconds,
            ended,
            streams,
        }
    }

    /// Also reports what the engine counts.
    pub(crate) fn watch(&self, stats: Arc<Stats>, projector: projector::Handle) {
        let collector = Box::new(EngineCollector { stats, projector });
        self.registry().register_collector(collector);
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
        // A caller chooses the method: only known ones are labels.
        let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
        let method = known
            .into_iter()
            .find(|it| *it == method)
            .unwrap_or("other");
        let labels = RequestLabels {
            method: method.to_owned(),
            route: route.to_owned(),
            status,
        };
        self.requests.get_or_create(&labels).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// A run ended on this server.
    pub(crate) fn ended(&self, outcome: &RunOutcome) {
        let outcome = match outcome {
            RunOutcome::Succeeded => OutcomeLabel::Succeeded,
            RunOutcome::Partial => OutcomeLabel::Partial,
            RunOutcome::Failed(_) => OutcomeLabel::Failed,
            RunOutcome::Cancelled(_) => OutcomeLabel::Cancelled,
        };
        self.ended.get_or_create(&EndLabels { outcome }).inc();
    }

    /// The text that Prometheus reads.
    pub(crate) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry())?;
        Ok(text)
    }
}

/// Counts one open stream.
#[derive(Debug)]
pub(crate) struct OpenStream(Gauge);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Reads what the engine counts when it is asked for.
#[derive(Debug)]
struct EngineCollector {
    stats: Arc<Stats>,
    projector: projector::Handle,
}

impl prometheus_client::collector::Collector for EngineCollector {
    fn encode(
        &self,
        mut encoder: prometheus_client::encoding::DescriptorEncoder<'_>,
    ) -> Result<(), fmt::Error> {
        use prometheus_client::encoding::EncodeMetric as _;
        let stats = &self.stats;
        let counters = [
            (
                "commits",
                "Commits that the store has answered",
                &stats.commits,
            ),
            (
                "appends",
                "Appends to runs in these commits",
                &stats.appends,
            ),
            ("log_bytes", "Bytes of log in these commits", &stats.bytes),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value.load(Ordering::Relaxed));
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        let in_flight = stats.in_flight.load(Ordering::Relaxed);
        let gauges = [
            (
                "steps_in_flight",
                "Steps that this server executes now",
                in_flight as f64,
            ),
            (
                "projector_lag_seconds",
                "Age of the oldest change that is not in the snapshots",
                self.projector.lag().as_secs_f64(),
            ),
            (
                "projector_runs_behind",
                "Runs with changes that are not in the snapshots",
                self.projector.behind() as f64,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_nobody_knows_makes_no_label_of_its_own() {
        let metrics = Metrics::new();
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
}
