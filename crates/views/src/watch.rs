//! The snapshot of a run with its watermark, lag and gaps, as someone who watches the run is told.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value as Json;
use stepwell_engine::projector::{Gap, Projected, ResyncMode};
use stepwell_kernel::snapshot::{RunSnapshot, RunStatus};

/// The word of the contract.
fn word(mode: ResyncMode) -> &'static str {
    match mode {
        ResyncMode::Full => "FULL",
        ResyncMode::FromSnapshot => "FROM_SNAPSHOT",
    }
}

/// The run at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    pub snapshot: &'a RunSnapshot,
    pub is_stale: bool,
    pub observed: u64,
    pub gap: Option<&'a Gap>,
    pub resynced: Option<ResyncMode>,
    pub lag: Duration,
}

/// What there is to tell: a run with a gap was STALE before it was resynced.
#[must_use]
pub fn lines(seen: &Projected) -> Vec<Line<'_>> {
    let stale = seen.gap.iter().map(|gap| Line {
        snapshot: &gap.before,
        is_stale: true,
        observed: gap.observed,
        gap: Some(gap),
        resynced: None,
        lag: seen.lag,
    });
    let now = Line {
        gap: None,
        ..Line::of(seen)
    };
    stale.chain([now]).collect()
}

impl<'a> Line<'a> {
    /// The run as it is now.
    #[must_use]
    pub fn of(seen: &'a Projected) -> Line<'a> {
        Line {
            snapshot: &seen.snapshot,
            is_stale: seen.is_stale,
            observed: seen.observed,
            gap: seen.gap.as_ref(),
            resynced: seen.resynced,
            lag: seen.lag,
        }
    }

    /// The moment as programs read it.
    #[must_use]
    pub fn document(&self) -> RunMoment {
        RunMoment {
            run_id: self.snapshot.run_id.clone(),
            status: self.snapshot.status.clone(),
            stale: self.is_stale,
            last_event_seq: self.snapshot.last_event_seq,
            observed_seq: self.observed,
            gap: self.gap.map(|gap| MissingEvents {
                after: gap.before.last_event_seq,
                next: gap.next,
            }),
            resync: self.resynced.map(word).map(str::to_owned),
            lag_ms: u64::try_from(self.lag.as_millis()).unwrap_or(u64::MAX),
            snapshot: self.snapshot.clone(),
        }
    }

    /// The same as JSON.
    #[must_use]
    pub fn json(&self) -> Json {
        // The shape has text keys and no fields that can fail.
        serde_json::to_value(self.document()).unwrap_or_default()
    }

    /// The moment in one line for people.
    #[must_use]
    pub fn text(&self) -> String {
        text(&self.json())
    }
}

/// A run at a moment for programs: its snapshot, and how far it is behind the log.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunMoment {
    pub run_id: String,
    pub status: RunStatus,
    /// Whether events are missing that could not be read again: the snapshot is that before the gap.
    pub stale: bool,
    /// The watermark: the last event that the snapshot has.
    pub last_event_seq: u64,
    /// The highest event that was seen.
    pub observed_seq: u64,
    /// The gap in the log; null if there is none.
    pub gap: Option<MissingEvents>,
    /// How the snapshot was made again: `FULL` or `FROM_SNAPSHOT`; null if it was not.
    pub resync: Option<String>,
    /// How long the snapshot was behind the log, in milliseconds.
    pub lag_ms: u64,
    pub snapshot: RunSnapshot,
}

/// A gap in the numbers of events.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct MissingEvents {
    /// The last event before the gap.
    pub after: u64,
    /// The event that came next.
    pub next: u64,
}

/// A moment that was told as JSON, in one line for people.
#[must_use]
pub fn text(line: &Json) -> String {
    let word = |name: &str| line[name].as_str().unwrap_or_default();
    let is_stale = line["stale"] == true;
    let mut text = format!("{}  {}", word("runId"), word("status"));
    if is_stale {
        text.push_str(" STALE");
    }
    text.push_str(&format!("  event {}", line["lastEventSeq"]));
    if is_stale {
        text.push_str(&format!(" of {}", line["observedSeq"]));
    }
    text.push_str(&format!("  lag {} ms", line["lagMs"]));
    let steps = counts(&line["snapshot"]);
    if !steps.is_empty() {
        text.push_str(&format!("  steps: {steps}"));
    }
    if let Some(gap) = line.get("gap").filter(|it| it.is_object()) {
        let (next, last) = (&gap["next"], &gap["after"]);
        text.push_str(&format!("  event {next} came after event {last}"));
    }
    if let Some(mode) = line["resync"].as_str() {
        text.push_str(&format!("  resync {mode}"));
    }
    text
}

/// How many steps have each status, each step with its last attempt.
fn counts(snapshot: &Json) -> String {
    let attempts = snapshot["steps"].as_array().into_iter().flatten();
    let last: BTreeMap<&str, &str> = attempts
        .filter_map(|it| Some((it["stepId"].as_str()?, it["status"].as_str()?)))
        .collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for status in last.into_values() {
        *counts.entry(status).or_default() += 1;
    }
    let counts = counts.iter();
    let words: Vec<String> = counts.map(|(status, n)| format!("{n} {status}")).collect();
    words.join(", ")
}
