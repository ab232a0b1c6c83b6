//! Prints the results of a workload, as text or JSON.

use std::fmt::Write;

use serde_json::{Value as Json, json};
use stepwell_stores::bare::Bare;

use super::Counters;

/// The results of a workload.
#[derive(Debug)]
pub(super) struct WorkloadFigures {
    pub(super) workload: String,
    /// The engine, as events name it.
    pub(super) engine: String,
    /// How the native engine does the same, if this is another one.
    pub(super) beside_native: Option<EngineRatio>,
    pub(super) store: String,
    pub(super) sync: String,
    pub(super) servers: usize,
    pub(super) shards: usize,
    pub(super) concurrency: u64,
    pub(super) steps_per_run: u64,
    pub(super) before: Counters,
    pub(super) after: Counters,
    /// Latencies of complete runs in microseconds, sorted.
    pub(super) latencies: Vec<u64>,
    pub(super) bare: Option<Bare>,
    pub(super) notes: Vec<(&'static str, f64)>,
}

/// The native engine beside another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineRatio {
    /// How many times as many steps the native engine does in a second.
    steps: f64,
    /// How many times as long the median run takes on the other engine; none if no run has ended.
    latency: Option<f64>,
}

impl WorkloadFigures {
    /// How the native engine compares with these figures.
    pub(super) fn ratio(&self, native: &WorkloadFigures) -> EngineRatio {
        EngineRatio {
            steps: native.steps_per_second() / self.steps_per_second().max(1e-9),
            latency: (!self.latencies.is_empty() && !native.latencies.is_empty())
                .then(|| self.percentile(0.5) / native.percentile(0.5).max(1e-9)),
        }
    }

    pub(super) fn beside(self, bare: Option<Bare>) -> WorkloadFigures {
        WorkloadFigures { bare, ..self }
    }

    fn seconds(&self) -> f64 {
        let elapsed = self.after.at.duration_since(self.before.at);
        elapsed.as_secs_f64().max(1e-9)
    }

    fn steps(&self) -> f64 {
        ((self.after.steps - self.before.steps) as f64).max(1.0)
    }

    fn steps_per_second(&self) -> f64 {
        self.steps() / self.seconds()
    }

    fn runs_per_second(&self) -> f64 {
        (self.after.runs - self.before.runs) as f64 / self.seconds()
    }

    pub(super) fn appends_per_commit(&self) -> f64 {
        let commits = (self.after.commits - self.before.commits).max(1);
        (self.after.appends - self.before.appends) as f64 / commits as f64
    }

    pub(super) fn log_bytes_per_append(&self) -> usize {
        let appends = (self.after.appends - self.before.appends).max(1);
        ((self.after.log_bytes - self.before.log_bytes) / appends) as usize
    }

    fn store_bytes_per_step(&self) -> f64 {
        let grown = self
            .after
            .store_bytes
            .saturating_sub(self.before.store_bytes);
        grown as f64 / self.steps()
    }

    fn percentile(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let index = (last as f64 * share).round() as usize;
        self.latencies.get(index).map_or(0.0, |us| *us as f64 / 1e3)
    }

    fn cpu_us(&self, used: std::time::Duration) -> f64 {
        used.as_secs_f64() * 1e6 / self.steps()
    }

    pub(super) fn json(&self) -> Json {
        let cpu = self.after.cpu.since(self.before.cpu);
        let mut json = json!({
            "workload": self.workload,
            "engine": self.engine,
            "store": self.store,
            "sync": self.sync,
            "servers": self.servers,
            "shards": self.shards,
            "concurrency": self.concurrency,
            "stepsPerRun": self.steps_per_run,
            "seconds": round(self.seconds()),
            "stepsPerSecond": round(self.steps_per_second()),
            "workflowsPerSecond": round(self.runs_per_second()),
            "runMs": {
                "p50": round(self.percentile(0.5)),
                "p99": round(self.percentile(0.99)),
                "p999": round(self.percentile(0.999)),
            },
            "commits": self.after.commits - self.before.commits,
            "appendsPerCommit": round(self.appends_per_commit()),
            "logBytesPerAppend": self.log_bytes_per_append(),
            "storeBytesPerStep": round(self.store_bytes_per_step()),
            "decidingCpuUsPerStep": round(self.cpu_us(cpu.deciding)),
            "processCpuUsPerStep": round(self.cpu_us(cpu.process)),
            "residentMb": round(self.after.resident as f64 / 1e6),
        });
        if let Some(bare) = &self.bare {
            json["bare"] = json!({
                "rowsPerSecond": round(bare.rows_per_second),
                "commitMs": round(bare.commit.as_secs_f64() * 1e3),
                "ratio": round(self.steps_per_second() / bare.rows_per_second),
            });
        }
        if let Some(ratio) = &self.beside_native {
            json["native"] = json!({
                "stepsRatio": round(ratio.steps),
                "latencyRatio": ratio.latency.map(round),
            });
        }
        for (name, value) in &self.notes {
            json[*name] = json!(round(*value));
        }
        json
    }

    pub(super) fn human(&self) -> String {
        let cpu = self.after.cpu.since(self.before.cpu);
        let mut text = format!(
            "{}{} on {} ({}), {} concurrent runs{}\n",
            self.workload,
            match self.engine.as_str() {
                "native" => String::new(),
                engine => format!(" with {engine}"),
            },
            self.store,
            self.sync,
            self.concurrency,
            match self.servers {
                1 => String::new(),
                many => format!(", {many} servers"),
            }
        );
        let mut line = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {name:<20} {value}");
        };
        line("steps/s", format!("{:.0}", self.steps_per_second()));
        line("workflows/s", format!("{:.0}", self.runs_per_second()));
        line(
            "run latency",
            format!(
                "{:.2} ms p50, {:.2} ms p99, {:.2} ms p99.9",
                self.percentile(0.5),
                self.percentile(0.99),
                self.percentile(0.999)
            ),
        );
        line(
            "commits",
            format!(
                "{} with {:.1} runs each",
                self.after.commits - self.before.commits,
                self.appends_per_commit()
            ),
        );
        line(
            "bytes per step",
            format!("{:.0} in the store", self.store_bytes_per_step()),
        );
        line(
            "CPU per step",
            format!(
                "{:.1} µs deciding, {:.1} µs total",
                self.cpu_us(cpu.deciding),
                self.cpu_us(cpu.process)
            ),
        );
        line(
            "memory",
            format!("{:.0} MB", self.after.resident as f64 / 1e6),
        );
        if let Some(bare) = &self.bare {
            line(
                "bare store",
                format!(
                    "{:.0} rows/s, {:.2} ms per commit; the engine reaches {:.0} %",
                    bare.rows_per_second,
                    bare.commit.as_secs_f64() * 1e3,
                    100.0 * self.steps_per_second() / bare.rows_per_second
                ),
            );
        }
        if let Some(ratio) = &self.beside_native {
            line(
                "beside native",
                match ratio.latency {
                    Some(latency) => format!(
                        "native does {:.1} times as many steps a second; a run takes {latency:.1} times as long here",
                        ratio.steps
                    ),
                    None => format!(
                        "native does {:.1} times as many steps a second; no run has ended here: take more --seconds",
                        ratio.steps
                    ),
                },
            );
        }
        for (name, value) in &self.notes {
            line(name, format!("{value:.1}"));
        }
        text.push('\n');
        text
    }
}

/// Rounds to two decimal places.
pub(super) fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
