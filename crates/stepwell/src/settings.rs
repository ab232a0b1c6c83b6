//! The configuration file `stepwell.toml`. The command and the embedded engine use the same rules.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use stepwell_dialects::duration::parse_text;
use stepwell_engine::{Limits, WhenFull};
use stepwell_server::RetentionTimes;
use stepwell_worker::Security;

use crate::engine_settings::EngineSection;
use crate::profiles::Profiles;
use crate::server_settings::ServerSection;
use crate::telemetry_settings::TelemetrySection;

/// The environment variable with the path of the file.
const VARIABLE: &str = "STEPWELL_CONFIG";

/// The environment variable that comes before `confine` of the section `[security]`.
const CONFINE: &str = "STEPWELL_CONFINE";

/// The file in the current directory that is read if nothing else is said.
const FILE: &str = "stepwell.toml";

/// What the configuration file says; all defaults if there is no file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// What workers refuse to do.
    #[serde(default)]
    pub security: Security,
    /// Who acts, where neither an option nor a variable says.
    #[serde(default)]
    pub actor: ActorSettings,
    /// How many runs may run at a time.
    #[serde(default)]
    pub limits: LimitSettings,
    /// Which definitions may be fetched by reference.
    #[serde(default)]
    pub plans: PlanSettings,
    /// How long a server keeps ended runs.
    #[serde(default)]
    pub retention: RetentionSettings,
    /// Where a server listens, and who may use it.
    #[serde(default)]
    pub server: ServerSection,
    /// Engines outside that a server serves.
    #[serde(default)]
    pub engines: EngineSection,
    /// Servers that commands can work on.
    #[serde(default)]
    pub profiles: Profiles,
    /// Where a server sends traces.
    #[serde(default)]
    pub telemetry: TelemetrySection,
    /// What a server counts.
    #[serde(default)]
    pub metrics: MetricSettings,
    /// How log lines are written.
    #[serde(default)]
    pub log: LogSettings,
}

/// The section `[metrics]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricSettings {
    /// How many plans have labels of their own; absent: 50.
    pub plans: Option<u16>,
}

/// The section `[log]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// The form of log lines; absent: text.
    pub format: Option<LogFormat>,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object on each line.
    Json,
}

/// The section `[retention]`: how long a server keeps ended runs and rows of the audit log. What has no time is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RetentionTable")]
pub struct RetentionSettings(pub RetentionTimes);

/// The section `[retention]` as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RetentionTable {
    completed: Option<String>,
    failed: Option<String>,
    cancelled: Option<String>,
    audit: Option<String>,
}

impl TryFrom<RetentionTable> for RetentionSettings {
    type Error = String;

    fn try_from(table: RetentionTable) -> Result<RetentionSettings, String> {
        let age = |name: &str, text: Option<String>| {
            let millis = text.map(|text| length(name, &text)).transpose()?;
            Ok::<_, String>(millis.map(Duration::from_millis))
        };
        Ok(RetentionSettings(RetentionTimes {
            completed: age("completed", table.completed)?,
            failed: age("failed", table.failed)?,
            cancelled: age("cancelled", table.cancelled)?,
            audit: age("audit", table.audit)?,
        }))
    }
}

/// The section `[plans]`: where definitions by reference may be fetched from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, try_from = "PlanTable")]
pub struct PlanSettings {
    /// Prefixes with scheme and place: `s3://plans/`. Empty: nothing may be fetched.
    pub allow: Vec<String>,
    /// How long a fetch may take.
    pub timeout: Duration,
}

/// How long a fetch may take, if nobody says.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

impl Default for PlanSettings {
    fn default() -> PlanSettings {
        PlanSettings {
            allow: Vec::new(),
            timeout: FETCH_TIMEOUT,
        }
    }
}

/// The section `[plans]` as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PlanTable {
    allow: Vec<String>,
    timeout: Option<String>,
}

impl TryFrom<PlanTable> for PlanSettings {
    type Error = String;

    fn try_from(table: PlanTable) -> Result<PlanSettings, String> {
        let has_place = |prefix: &String| {
            let parts = prefix.split_once("://");
            parts.is_some_and(|(scheme, place)| !scheme.is_empty() && !place.is_empty())
        };
        if let Some(wrong) = table.allow.iter().find(|it| !has_place(it)) {
            return Err(format!(
                "allow: {wrong:?} allows nothing: write a scheme and a place, such as \"https://plans.example.com/\""
            ));
        }
        let timeout = match table.timeout {
            Some(text) => Duration::from_millis(length("timeout", &text)?),
            None => FETCH_TIMEOUT,
        };
        Ok(PlanSettings {
            allow: table.allow,
            timeout,
        })
    }
}

/// The section `[actor]`: the person or system that commands act for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActorSettings {
    /// The name; absent: the login name.
    pub name: Option<String>,
    /// The roles; the highest counts. Empty: every right.
    #[serde(default)]
    pub roles: Vec<String>,
    /// The tenant; absent: every tenant.
    pub tenant: Option<String>,
}

/// The section `[limits]`: how many runs of the store may run at a time, and what happens to one too many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, try_from = "LimitTable")]
pub struct LimitSettings(pub Limits);

/// The section `[limits]` as it is written.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitTable {
    runs: Option<NonZeroU32>,
    runs_per_tenant: Option<NonZeroU32>,
    runs_per_workflow: Option<NonZeroU32>,
    runs_per_key: Option<KeyTable>,
    when_full: Option<String>,
    retry_after: Option<String>,
    delay: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyTable {
    parameter: String,
    runs: NonZeroU32,
}

impl TryFrom<LimitTable> for LimitSettings {
    type Error = String;

    fn try_from(table: LimitTable) -> Result<LimitSettings, String> {
        let word = table.when_full.as_deref().unwrap_or("queue");
        let (retry_after, delay) = (table.retry_after.as_deref(), table.delay.as_deref());
        let number = |limit: Option<NonZeroU32>| limit.map(NonZeroU32::get);
        let key = table.runs_per_key.map(|key| {
            // Dots, as in `--input`; a JSON pointer has slashes, and `~` means something there.
            let escaped = key.parameter.replace('~', "~0").replace('/', "~1");
            (format!("/{}", escaped.replace('.', "/")), key.runs.get())
        });
        Ok(LimitSettings(Limits {
            total: number(table.runs),
            per_tenant: number(table.runs_per_tenant),
            per_plan: number(table.runs_per_workflow),
            per_key: key,
            when_full: when_full(word, retry_after, delay)?,
        }))
    }
}

/// How long the sender of a refused start should wait, and how long a start is delayed, if nobody says.
const RETRY_AFTER: &str = "5s";
const DELAY: &str = "1m";

/// The longest duration, 366 days.
const MAX_MILLIS: f64 = 366.0 * 86_400_000.0;

/// The milliseconds of a duration.
fn length(name: &str, text: &str) -> Result<u64, String> {
    let millis = parse_text(text).filter(|it| (1.0..=MAX_MILLIS).contains(it));
    let millis = millis.map(|it| it as u64);
    millis.ok_or_else(|| {
        format!("{name}: {text:?} is not a duration such as \"30s\", up to 366 days")
    })
}

/// What happens to a run that finds no slot: a word, and the time of `reject` or of `delay`.
pub fn when_full(
    word: &str,
    retry_after: Option<&str>,
    delay: Option<&str>,
) -> Result<WhenFull, String> {
    for (name, set, of) in [
        ("retry_after", retry_after, "reject"),
        ("delay", delay, "delay"),
    ] {
        if set.is_some() && word != of {
            return Err(format!(
                "{name} needs when_full = {of:?}, but it is {word:?}"
            ));
        }
    }
    match word {
        "queue" => Ok(WhenFull::Queue),
        "reject" => Ok(WhenFull::Reject {
            retry_after_ms: length("retry_after", retry_after.unwrap_or(RETRY_AFTER))?,
        }),
        "delay" => Ok(WhenFull::Delay {
            by_ms: length("delay", delay.unwrap_or(DELAY))?,
        }),
        other => Err(format!(
            "when_full: {other:?} is none of \"queue\", \"reject\" and \"delay\""
        )),
    }
}

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the configuration file {} cannot be used: {why}", path.display())]
pub struct SettingsError {
    path: PathBuf,
    why: String,
}

impl Settings {
    /// Reads a file. Without a path, the file that the variable `STEPWELL_CONFIG` names, else `stepwell.toml` in
    /// the current directory, if it is there.
    pub fn open(path: Option<&Path>) -> Result<Settings, SettingsError> {
        let set = || std::env::var_os(VARIABLE).filter(|it| !it.is_empty());
        let named = path
            .map(Path::to_owned)
            .or_else(|| set().map(PathBuf::from));
        let path = match named {
            Some(path) => path,
            None if Path::new(FILE).exists() => PathBuf::from(FILE),
            None => return Settings::default().with_variables(),
        };
        let read = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        let settings = read.and_then(|text| Settings::parse(&text));
        let settings = settings.map_err(|why| SettingsError { path, why })?;
        settings.with_variables()
    }

    /// What variables say comes before what the file says.
    fn with_variables(mut self) -> Result<Settings, SettingsError> {
        match std::env::var(CONFINE).as_deref() {
            Err(_) | Ok("") => {}
            Ok("true") => self.security.confine = Some(true),
            Ok("false") => self.security.confine = Some(false),
            Ok(other) => {
                return Err(SettingsError {
                    path: PathBuf::from(CONFINE),
                    why: format!("the variable is {other:?}; write true or false"),
                });
            }
        }
        Ok(self)
    }

    fn parse(text: &str) -> Result<Settings, String> {
        toml::from_str(text).map_err(|error| fault(text, &error))
    }
}

/// Why a file in TOML cannot be used, and at which line.
pub(crate) fn fault(text: &str, error: &toml::de::Error) -> String {
    let why = error.message().trim_end();
    let before = error.span().and_then(|span| text.get(..span.start));
    match before {
        Some(before) => format!("line {}: {why}", before.matches('\n').count() + 1),
        None => why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use stepwell_worker::Unguarded;

    use super::*;

    #[test]
    fn what_is_not_said_has_its_default_and_slips_are_errors() {
        let of = |text: &str| Settings::parse(text).map(|it| it.security.unguarded);
        assert_eq!(of(""), Ok(Unguarded::Allow));
        assert_eq!(of("[security]\nunguarded = 'deny'"), Ok(Unguarded::Deny));
        let http = "[security.http]\nallow = ['*.example.org']\ndeny = ['private', '10.0.0.0/8']";
        assert_eq!(Settings::parse(http).unwrap().security.http.deny.len(), 2);
        assert!(of("[security.http]\ndeny = ['10.0.0.0/99']").is_err());
        let limits = |text: &str| Settings::parse(text).map(|it| it.limits.0);
        let all = "[limits]\nruns = 3\nruns_per_workflow = 2\nwhen_full = 'delay'\ndelay = '2s'\n\
                   runs_per_key = {parameter = 'customer.id', runs = 1}";
        let wanted = Limits {
            total: Some(3),
            per_plan: Some(2),
            per_key: Some(("/customer/id".into(), 1)),
            when_full: WhenFull::Delay { by_ms: 2_000 },
            ..Limits::default()
        };
        assert_eq!(limits(all), Ok(wanted));
        assert_eq!(limits(""), Ok(Limits::default()));
        let plans = |text: &str| Settings::parse(text).map(|it| it.plans);
        assert_eq!(plans(""), Ok(PlanSettings::default()));
        let wanted = PlanSettings {
            allow: vec!["s3://plans/".into()],
            timeout: Duration::from_secs(2),
        };
        let some = "[plans]\nallow = ['s3://plans/']\ntimeout = '2s'";
        assert_eq!(plans(some), Ok(wanted));
        for wrong in [
            "[limits]\nruns = 0",
            "[limits]\nrun = 1",
            "[limits]\nwhen_full = 'wait'",
            "[limits]\ndelay = '1s'",
            "[limits]\nwhen_full = 'delay'\ndelay = 'soon'",
            "[securty]",
            "[plans]\nallow = ['s3://']",
            "[plans]\nallow = ['plans.example.com']",
            "[plans]\ntimeout = 'soon'",
            "[plans]\nallowed = []",
            "[actor]\nnick = 'ada'",
            "[security]\nunguarded = 'no'",
            "[security]\nx = 1",
            "[",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
