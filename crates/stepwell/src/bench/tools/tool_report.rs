//! Prints the results of a tool, as text or JSON.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::measured_tool::MeasuredTool;
use crate::bench::resource_usage::CpuUsage;
use crate::bench::workload_report::round;
use crate::output_format::OutputFormat;

/// Counters of repeated calls or steps.
#[derive(Debug)]
pub(super) struct CallSample {
    pub(super) done: u64,
    pub(super) took: Duration,
    pub(super) cpu: CpuUsage,
    pub(super) resident: u64,
    /// The duration of each call in microseconds, sorted.
    pub(super) latencies: Vec<u64>,
}

impl CallSample {
    fn per_second(&self) -> f64 {
        self.done as f64 / self.took.as_secs_f64().max(1e-9)
    }

    fn cpu_us(&self, used: Duration) -> f64 {
        used.as_secs_f64() * 1e6 / (self.done as f64).max(1.0)
    }

    fn cpu_json(&self) -> Json {
        json!({
            "deciding": round(self.cpu_us(self.cpu.deciding)),
            "process": round(self.cpu_us(self.cpu.process)),
            "programs": round(self.cpu_us(self.cpu.programs)),
        })
    }
}

/// A percentile in milliseconds of sorted times in microseconds.
fn percentile(times: &[u64], share: f64) -> f64 {
    let last = times.len().saturating_sub(1);
    let index = (last as f64 * share).round() as usize;
    times.get(index).map_or(0.0, |us| *us as f64 / 1e3)
}

fn percentiles_json(times: &[u64]) -> Json {
    json!({
        "p50": round(percentile(times, 0.5)),
        "p99": round(percentile(times, 0.99)),
    })
}

fn percentiles(times: &[u64]) -> String {
    let (p50, p99) = (percentile(times, 0.5), percentile(times, 0.99));
    format!("{p50:.2} ms p50, {p99:.2} ms p99")
}

/// The results of a tool.
#[derive(Debug)]
pub(super) struct ToolFigures {
    pub(super) kind: MeasuredTool,
    pub(super) store: String,
    pub(super) sync: String,
    pub(super) at_a_time: u32,
    pub(super) engine: CallSample,
    /// The time of each step in the worker, in microseconds.
    pub(super) worked: Vec<u64>,
    pub(super) alone: Option<CallSample>,
}

impl ToolFigures {
    pub(super) fn print(&self, output: OutputFormat) -> String {
        match output {
            OutputFormat::Human => self.human(),
            OutputFormat::Json => format!("{}\n", self.json()),
        }
    }

    fn json(&self) -> Json {
        let engine = &self.engine;
        let mut json = json!({
            "tool": self.kind.name(),
            "store": self.store,
            "sync": self.sync,
            "atATime": self.at_a_time,
            "seconds": round(engine.took.as_secs_f64()),
            "stepsPerSecond": round(engine.per_second()),
            "stepMs": percentiles_json(&engine.latencies),
            "workMs": percentiles_json(&self.worked),
            "cpuUsPerStep": engine.cpu_json(),
            "residentMb": round(engine.resident as f64 / 1e6),
        });
        if let Some(alone) = &self.alone {
            json["alone"] = json!({
                "callsPerSecond": round(alone.per_second()),
                "callMs": percentiles_json(&alone.latencies),
                "cpuUsPerCall": alone.cpu_json(),
            });
        }
        json
    }

    fn human(&self) -> String {
        let engine = &self.engine;
        let mut text = format!(
            "{} on {} ({}), {} concurrent steps\n",
            self.kind.name(),
            self.store,
            self.sync,
            self.at_a_time,
        );
        let mut line = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {name:<20} {value}");
        };
        line("steps/s", format!("{:.0}", engine.per_second()));
        line("step latency", percentiles(&engine.latencies));
        line("time in the worker", percentiles(&self.worked));
        line(
            "CPU per step",
            format!(
                "{:.1} µs deciding, {:.1} µs total, {:.1} µs in programs",
                engine.cpu_us(engine.cpu.deciding),
                engine.cpu_us(engine.cpu.process),
                engine.cpu_us(engine.cpu.programs),
            ),
        );
        line("memory", format!("{:.0} MB", engine.resident as f64 / 1e6));
        if let Some(alone) = &self.alone {
            line(
                "tool alone",
                format!(
                    "{:.0} calls/s, {}, {:.1} µs total, {:.1} µs in programs",
                    alone.per_second(),
                    percentiles(&alone.latencies),
                    alone.cpu_us(alone.cpu.process),
                    alone.cpu_us(alone.cpu.programs),
                ),
            );
        }
        text.push('\n');
        text
    }
}

/// The line for a tool that was not measured.
pub(super) fn left_out(kind: MeasuredTool, why: &str, output: OutputFormat) -> String {
    match output {
        OutputFormat::Human => format!("{} was not measured: {why}\n\n", kind.name()),
        OutputFormat::Json => format!("{}\n", json!({ "tool": kind.name(), "leftOut": why })),
    }
}
