//! What a process takes, sampled over time, and whether a line through the samples rises.

use anyhow::{Context as _, Result};
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// What is watched: its name, and how much it may grow over the whole time: a share of its mean, and the rest.
const QUANTITIES: [(&str, f64, f64); 5] = [
    ("memory (MB)", 0.06, 8.0),
    ("file handles", 0.0, 10.0),
    ("threads", 0.0, 5.0),
    ("sockets", 0.0, 8.0),
    ("store (MB)", 0.10, 6.0),
];
/// How much more memory may rise in a short soak: caches of the store and pools of threads fill for some minutes.
const WARMING_MB: f64 = 32.0;

/// The process and the store that are watched.
pub(super) struct Watched {
    pub(super) process: u32,
    pub(super) folder: PathBuf,
    /// The address of its PostgreSQL.
    pub(super) database: Option<String>,
}

/// How many runs were started, and how many have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) started: u64,
    pub(super) ended: u64,
}

pub(super) struct Sample {
    at: Duration,
    counts: Counts,
    values: [f64; QUANTITIES.len()],
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [memory, handles, threads, sockets, store] = self.values;
        write!(
            f,
            "{:>7} {:>9} {:>9} {memory:>11.1} {handles:>13} {threads:>8} {sockets:>8} {store:>11.1}",
            self.at.as_secs(),
            self.counts.started,
            self.counts.ended,
        )
    }
}

impl Watched {
    pub(super) fn sample(&self, at: Duration, counts: Counts) -> Result<Sample> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process))
            .context("the server is gone")?;
        let field = |name: &str| -> Result<f64> {
            let line = status.lines().find_map(|it| it.strip_prefix(name));
            let number = line.and_then(|it| it.split_whitespace().next()?.parse().ok());
            number.with_context(|| format!("no {name} in the status of the server"))
        };
        let handles = fs::read_dir(format!("/proc/{}/fd", self.process))?;
        let links: Vec<PathBuf> = handles
            .filter_map(|it| fs::read_link(it.ok()?.path()).ok())
            .collect();
        let sockets = links
            .iter()
            .filter(|it| it.starts_with("socket:") || it.to_string_lossy().starts_with("socket:"));
        Ok(Sample {
            at,
            counts,
            values: [
                field("VmRSS:")? / 1024.0,
                links.len() as f64,
                field("Threads:")?,
                sockets.count() as f64,
                self.store_size()? / 1e6,
            ],
        })
    }

    fn store_size(&self) -> Result<f64> {
        let Some(url) = &self.database else {
            let files = fs::read_dir(self.folder.join(".stepwell"))?;
            let sizes = files.filter_map(|it| it.ok()?.metadata().ok());
            return Ok(sizes
                .filter(fs::Metadata::is_file)
                .map(|it| it.len() as f64)
                .sum());
        };
        let asked = Command::new("psql")
            .args([url, "-Atc", "SELECT pg_database_size(current_database())"])
            .output();
        // Without psql the size is not watched.
        let text = asked.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned());
        Ok(text.ok().and_then(|it| it.parse().ok()).unwrap_or(0.0))
    }
}

/// All samples that were taken, oldest first.
#[derive(Default)]
pub(super) struct Samples(Vec<Sample>);

pub(super) struct Verdict {
    pub(super) table: String,
    /// The names of the quantities that rise.
    pub(super) rising: Vec<String>,
}

impl Samples {
    pub(super) const HEAD: &'static str =
        "seconds   started     ended memory (MB)  file handles  threads  sockets  store (MB)";

    pub(super) fn push(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    /// Whether a line through the samples after the warm-up rises more than it may.
    pub(super) fn verdict(&self, is_short: bool) -> Verdict {
        let rest = &self.0[self.0.len() / 3..];
        let mut table = "quantity        mean      rises by  allowed\n".to_owned();
        let mut rising = Vec::new();
        for (place, (name, share, least)) in QUANTITIES.into_iter().enumerate() {
            let points: Vec<(f64, f64)> = rest
                .iter()
                .map(|it| (it.at.as_secs_f64(), it.values[place]))
                .collect();
            let (mean, rise) = line(&points);
            let warming = if is_short && place == 0 {
                WARMING_MB
            } else {
                0.0
            };
            let allowed = mean * share + least + warming;
            let word = if rise > allowed { "  RISES" } else { "" };
            table.push_str(&format!(
                "{name:<13} {mean:>8.1} {rise:>12.1} {allowed:>8.1}{word}\n"
            ));
            if rise > allowed {
                rising.push(name.to_owned());
            }
        }
        Verdict { table, rising }
    }
}

/// The mean of the points, and how much the line of least squares through them rises from the first to the last.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|it| it.0), mean(|it| it.1));
    let spread: f64 = points.iter().map(|it| (it.0 - x).powi(2)).sum();
    let both: f64 = points.iter().map(|it| (it.0 - x) * (it.1 - y)).sum();
    let (first, last) = (points.first(), points.last());
    let length = last.map_or(0.0, |it| it.0) - first.map_or(0.0, |it| it.0);
    let slope = if spread > 0.0 { both / spread } else { 0.0 };
    (y, slope * length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_rises_is_told_from_noise_and_from_a_saw() {
        let points = |of: fn(usize) -> f64| -> Vec<(f64, f64)> {
            (0..60).map(|it| (it as f64 * 10.0, of(it))).collect()
        };
        let rise = |of| line(&points(of)).1;
        assert!((rise(|it| 5.0 + it as f64) - 59.0).abs() < 0.01);
        assert!(rise(|_| 7.0).abs() < 0.01);
        assert!(rise(|it| (it % 6) as f64).abs() < 1.0);
        assert_eq!(line(&[]), (0.0, 0.0));
    }
}
