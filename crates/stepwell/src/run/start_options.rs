//! The options that say when a run starts: limits on concurrent runs, a request id, a start time, a priority, and the
//! wait for a trigger.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

use anyhow::Result;
use clap::Args;
use stepwell::settings::{Settings, when_full};
use stepwell_dialects::duration::parse_text;
use stepwell_engine::{Limits, check_labels, check_request_id};
use stepwell_kernel::time::Time;

use crate::store::word;
use crate::usage;

/// The limits on concurrent runs, where the options say more than the configuration file.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct LimitArgs {
    /// Maximum number of runs of the store that run at the same time [default: `[limits] runs` in stepwell.toml, else no
    /// limit]
    #[arg(long, value_name = "N")]
    max_runs: Option<NonZeroU32>,
    /// What happens to a run above a limit: `queue` (it waits), `reject` or `delay` [default: `[limits] when_full` in
    /// stepwell.toml, else queue]
    #[arg(long, value_name = "WORD")]
    when_full: Option<String>,
}

impl LimitArgs {
    /// The limits of the configuration file, with what the options change.
    pub(super) fn limits(&self, config: Option<&Path>) -> Result<Limits> {
        let mut limits = Settings::open(config)?.limits.0;
        if let Some(most) = self.max_runs {
            limits.total = Some(most.get());
        }
        if let Some(word) = &self.when_full {
            match when_full(word, None, None) {
                // The times of the file count where the word is the same.
                Ok(asked)
                    if std::mem::discriminant(&asked)
                        != std::mem::discriminant(&limits.when_full) =>
                {
                    limits.when_full = asked;
                }
                Ok(_) => {}
                Err(_) => return usage("--when-full is one of queue, reject and delay"),
            }
        }
        Ok(limits)
    }

    /// Whether the options say something.
    pub(super) fn are_given(&self) -> bool {
        self.max_runs.is_some() || self.when_full.is_some()
    }

    /// The options for commands that are shown to the user.
    pub(super) fn flags(&self) -> String {
        let mut text = String::new();
        if let Some(most) = self.max_runs {
            text.push_str(&format!(" --max-runs {most}"));
        }
        if let Some(what) = &self.when_full {
            text.push_str(&format!(" --when-full {}", word(what)));
        }
        text
    }
}

/// How a new run is started.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct StartArgs {
    /// Id of this start request: a second start of the same definition with the same id finds the first run
    #[arg(long, value_name = "ID")]
    pub(super) request_id: Option<String>,
    /// Earliest start: a time such as 2026-03-01T08:00:00Z, or a duration from now such as 10m
    #[arg(long, value_name = "TIME")]
    start_at: Option<String>,
    /// Of the runs that wait for a slot, the one with the greatest number starts first
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub(super) priority: i32,
    /// Label of the run, which lists are searched by; can be repeated
    #[arg(long = "label", value_name = "NAME=VALUE")]
    labels: Vec<String>,
}

impl StartArgs {
    pub(super) fn check(&self) -> Result<()> {
        if let Some(Err(why)) = self.request_id.as_deref().map(check_request_id) {
            return usage(format!("--request-id: {}", why.message));
        }
        if let Err(why) = check_labels(&self.labels()?) {
            return usage(format!("--label: {}", why.message));
        }
        self.start_at(Time(0)).map(drop)
    }

    /// The labels of the run.
    pub(super) fn labels(&self) -> Result<BTreeMap<String, String>> {
        label_pairs(&self.labels)
    }

    /// When the run may start at the earliest.
    pub(super) fn start_at(&self, now: Time) -> Result<Option<Time>> {
        let Some(text) = &self.start_at else {
            return Ok(None);
        };
        let later = || Some(now.plus(parse_text(text).filter(|it| *it >= 0.0)? as u64));
        match Time::from_rfc3339(text).or_else(later) {
            Some(at) => Ok(Some(at)),
            None => usage(format!(
                "--start-at {}: write a time such as 2026-03-01T08:00:00Z, or a duration from now such as 10m",
                word(text)
            )),
        }
    }
}

/// Reads options of the form `NAME=VALUE`.
pub(crate) fn label_pairs(options: &[String]) -> Result<BTreeMap<String, String>> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => usage(format!("--label {}: write it as NAME=VALUE", word(text))),
    };
    options.iter().map(pair).collect()
}

/// How long ago what was missed may be at the most, if the user says nothing: a day.
const LOOK_BACK: &str = "1d";

/// The wait for the trigger of a definition.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct IdleArgs {
    /// Wait for the trigger of the definition, and start a run each time, until Ctrl-C
    #[arg(long, conflicts_with_all = ["resume", "run_id", "request_id", "start_at", "approve", "patch", "max_events"])]
    pub(super) idle: bool,
    /// End the wait when so many runs have been started and have ended
    #[arg(long, value_name = "N", requires = "idle")]
    pub(super) starts: Option<NonZeroU32>,
    /// How old an event or a missed due time may be at the start of the wait [default: 1d]
    #[arg(long, value_name = "DURATION", requires = "idle")]
    look_back: Option<String>,
}

impl IdleArgs {
    /// How far the wait goes back when it begins, in milliseconds.
    pub(super) fn look_back(&self) -> Result<u64> {
        let text = self.look_back.as_deref().unwrap_or(LOOK_BACK);
        match parse_text(text).filter(|it| *it >= 0.0) {
            Some(millis) => Ok(millis as u64),
            None => usage(format!(
                "--look-back {}: write a duration such as 10m or 1d",
                word(text)
            )),
        }
    }
}
