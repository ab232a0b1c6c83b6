//! Memory, file descriptors, threads and processor time of this process, under the names that Prometheus gives them. Read
//! from `/proc` when somebody asks; a system without it has none of these metrics.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use super::collect::gauge;

/// Ticks of processor time in a second, as every Linux counts them for programs.
const TICKS: f64 = 100.0;

#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find_map(|it| it.strip_prefix(name))?;
            let word = line.split_whitespace().next()?;
            word.parse::<f64>().ok()
        };
        let gauges = [
            (
                "process_resident_memory_bytes",
                "Memory of the process that is in use",
                number("VmRSS:").map(|it| it * 1024.0),
            ),
            (
                "process_virtual_memory_bytes",
                "Address space of the process",
                number("VmSize:").map(|it| it * 1024.0),
            ),
            (
                "process_threads",
                "Threads of the process",
                number("Threads:"),
            ),
            (
                "process_open_fds",
                "File descriptors that are open",
                fs::read_dir("/proc/self/fd")
                    .ok()
                    .map(|it| it.count() as f64),
            ),
            (
                "process_max_fds",
                "File descriptors that may be open",
                max_fds(),
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                gauge(&mut encoder, name, help, value)?;
            }
        }
        if let Some(seconds) = cpu_seconds() {
            let counter = ConstCounter::new(seconds);
            let name = "process_cpu_seconds";
            let help = "Processor time of the process";
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}

fn max_fds() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find(|it| it.starts_with("Max open files"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the process is in brackets and may have spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}
