//! What the engine, the store and the traces count: read when somebody asks for it.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use stepwell_engine::projector;
use stepwell_engine::service::{Buckets, Limits, Stats};
use stepwell_engine::store::WaitingCounts;
use stepwell_kernel::time::Time;

use crate::sources::{MessageEnd, SourceStates};
use crate::telemetry::Telemetry;

/// How long the numbers of the store are used before it is asked again.
const OLD: Duration = Duration::from_secs(5);

/// Who counts beside the server.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) stats: Arc<Stats>,
    pub(crate) projector: projector::Handle,
    pub(crate) telemetry: Telemetry,
    pub(crate) sources: SourceStates,
}

/// What was asked of the store, and when.
#[derive(Debug)]
pub(crate) struct Sample {
    asked: Instant,
    now: Time,
    /// Absent if the store did not answer.
    store: Option<WaitingCounts>,
    /// Workers in other processes that asked this server for work lately.
    workers: usize,
}

impl Sample {
    pub(crate) fn new(store: Option<WaitingCounts>, workers: usize, now: Time) -> Sample {
        Sample {
            asked: Instant::now(),
            now,
            store,
            workers,
        }
    }

    pub(super) fn is_old(&self) -> bool {
        self.asked.elapsed() >= OLD
    }
}

impl Counted {
    pub(super) fn collector(self, sample: Arc<Mutex<Option<Sample>>>) -> CountedCollector {
        CountedCollector {
            counted: self,
            sample,
        }
    }
}

#[derive(Debug)]
pub(super) struct CountedCollector {
    counted: Counted,
    sample: Arc<Mutex<Option<Sample>>>,
}

impl Collector for CountedCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.engine(&mut encoder)?;
        self.traces(&mut encoder)?;
        self.sources(&mut encoder)?;
        let sample = self.sample.lock().unwrap_or_else(PoisonError::into_inner);
        match &*sample {
            Some(sample) => of_store(&mut encoder, sample),
            None => Ok(()),
        }
    }
}

impl CountedCollector {
    fn engine(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let stats = &self.counted.stats;
        let of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        let commits = "Commits that the store has answered";
        counter(encoder, "commits", commits, of(&stats.commits))?;
        let appends = "Appends to runs in these commits";
        counter(encoder, "appends", appends, of(&stats.appends))?;
        let bytes = "Bytes of log in these commits";
        counter(encoder, "log_bytes", bytes, of(&stats.bytes))?;
        let sizes = "Appends of a commit";
        histogram(encoder, "commit_appends", sizes, &stats.batch_sizes, 1.0)?;
        let commit = "Time from the end of the decisions of a commit to the answer of the store";
        histogram(
            encoder,
            "commit_duration_seconds",
            commit,
            &stats.commit_ms,
            1e-3,
        )?;
        let claim =
            "Time from the decision that this server does some work to the commit of the claim";
        histogram(
            encoder,
            "claim_duration_seconds",
            claim,
            &stats.claim_ms,
            1e-3,
        )?;
        let in_flight = stats.in_flight.load(Ordering::Relaxed) as f64;
        let steps = "Steps that this server executes now";
        gauge(encoder, "steps_in_flight", steps, in_flight)?;
        let projector = &self.counted.projector;
        let lag = "Age of the oldest change that is not in the snapshots";
        gauge(
            encoder,
            "projector_lag_seconds",
            lag,
            projector.lag().as_secs_f64(),
        )?;
        let behind = "Runs with changes that are not in the snapshots";
        gauge(
            encoder,
            "projector_runs_behind",
            behind,
            projector.behind() as f64,
        )
    }

    fn sources(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let sources = &self.counted.sources;
        let (all, connected) = sources.count();
        let help = "Sources that this server reads from, or tries to";
        gauge(encoder, "sources", help, all as f64)?;
        let help = "Sources that this server is connected with";
        gauge(encoder, "sources_connected", help, connected as f64)?;
        let help = "Messages of sources by what became of them at this server";
        let mut metric =
            encoder.encode_descriptor("source_messages", help, None, MetricType::Counter)?;
        for became in MessageEnd::ALL {
            let labels = [("result", became.word())];
            let counter = ConstCounter::new(sources.messages(became));
            counter.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn traces(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.counted.telemetry.counts();
        let of = |pick: fn(&crate::telemetry::SpanCounts) -> &std::sync::atomic::AtomicU64| {
            counts.map_or(0, |it| pick(it).load(Ordering::Relaxed))
        };
        let sent = "Spans that the collector of traces has taken";
        counter(encoder, "spans_sent", sent, of(|it| &it.sent))?;
        let dropped =
            "Spans that were dropped, because the queue was full or the collector refused them";
        counter(encoder, "spans_dropped", dropped, of(|it| &it.dropped))?;
        let failures = "Requests to the collector of traces that failed";
        counter(
            encoder,
            "span_requests_failed",
            failures,
            of(|it| &it.failures),
        )
    }
}

/// Numbers of the whole store: all servers say the same.
fn of_store(encoder: &mut DescriptorEncoder<'_>, sample: &Sample) -> fmt::Result {
    let workers =
        "Workers in other processes that asked this server for work in the last ten minutes";
    gauge(encoder, "workers", workers, sample.workers as f64)?;
    let up = "Whether the store answers this server";
    gauge(
        encoder,
        "store_up",
        up,
        f64::from(u8::from(sample.store.is_some())),
    )?;
    let Some(counts) = &sample.store else {
        return Ok(());
    };
    let oldest = counts.outbox_since.map_or(0, |it| sample.now.since(it));
    let gauges = [
        (
            "queued_runs",
            "Runs of the store that wait for a slot",
            counts.queued,
        ),
        (
            "tasks_offered",
            "Tasks of the store that wait for workers",
            counts.offered,
        ),
        (
            "leases",
            "Tasks of the store that workers have",
            counts.leased,
        ),
        (
            "outbox_pending",
            "Deliveries to sinks that have not arrived",
            counts.outbox,
        ),
        (
            "dead_letters",
            "Deliveries to sinks that were given up",
            counts.dead_letters,
        ),
        (
            "sessions",
            "Servers with a session that lives",
            counts.sessions,
        ),
    ];
    for (name, help, value) in gauges {
        gauge(encoder, name, help, value as f64)?;
    }
    let help = "How long the oldest delivery to a sink has been waiting";
    gauge(encoder, "outbox_oldest_seconds", help, oldest as f64 / 1e3)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let counter = ConstCounter::new(value);
    counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
}

pub(super) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: f64,
) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

/// `unit` is what a value of 1 is in the unit of the metric.
fn histogram<L: Limits>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    buckets: &Buckets<L>,
    unit: f64,
) -> fmt::Result {
    // The last bucket has no limit.
    let limit = |limit: Option<u64>| limit.map_or(f64::INFINITY, |it| it as f64 * unit);
    let counts: Vec<(f64, u64)> = buckets
        .counts()
        .map(|(of, count)| (limit(of), count))
        .collect();
    let all = counts.iter().map(|(_, count)| count).sum();
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    metric.encode_histogram::<[(&str, &str); 0]>(buckets.sum() as f64 * unit, all, &counts, None)
}
