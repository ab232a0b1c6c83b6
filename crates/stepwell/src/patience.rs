//! How long a command waits for its store: the option `--store-patience`, and what is said while it waits.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use stepwell_dialects::duration::parse_text;
use stepwell_engine::store::{Patience, StoreError, WaitListener};

use crate::log;
use crate::term::duration;

/// How long a command waits for its store if nobody says.
const DEFAULT: Duration = Duration::from_secs(60);

/// The value of `--store-patience`: a duration, or none for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StorePatience(Option<Duration>);

impl Default for StorePatience {
    fn default() -> StorePatience {
        StorePatience(Some(DEFAULT))
    }
}

impl FromStr for StorePatience {
    type Err = String;

    fn from_str(text: &str) -> Result<StorePatience, String> {
        match text {
            "forever" => return Ok(StorePatience(None)),
            "0" => return Ok(StorePatience(Some(Duration::ZERO))),
            _ => {}
        }
        let millis = parse_text(text).filter(|it| *it >= 0.0);
        let millis = millis.ok_or_else(|| {
            "write a duration such as 30s, 5m or 1h30m, 0 for no wait, or forever".to_owned()
        })?;
        Ok(StorePatience(Some(Duration::from_millis(millis as u64))))
    }
}

impl StorePatience {
    /// The longest wait; absent: forever.
    pub(crate) fn limit(self) -> Option<Duration> {
        self.0
    }

    /// The patience of one command, which says on standard error that it waits.
    pub(crate) fn start(self) -> Arc<Patience> {
        let patience = Arc::new(Patience::new(self.0, SayWaits));
        log::quiet_during(&patience);
        patience
    }
}

/// The value of `--write-budget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteBudget(u64);

impl FromStr for WriteBudget {
    type Err = String;

    fn from_str(text: &str) -> Result<WriteBudget, String> {
        let millis = parse_text(text).filter(|it| *it >= 1.0);
        let millis = millis.ok_or_else(|| "write a duration such as 3s or 500ms".to_owned())?;
        Ok(WriteBudget(millis as u64))
    }
}

impl WriteBudget {
    pub(crate) fn millis(self) -> u64 {
        self.0
    }
}

impl fmt::Display for WriteBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// How long the engine of a command tries to write a result before its step fails: what the command says, else as
/// long as the command waits for its store.
pub(crate) fn write_budget_ms(asked: Option<WriteBudget>, patience: &Patience, usual: u64) -> u64 {
    if let Some(WriteBudget(asked)) = asked {
        return asked;
    }
    let limit = patience
        .limit()
        .map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
    limit.unwrap_or(u64::MAX / 4).max(usual)
}

fn said(time: Duration) -> String {
    duration(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Says on standard error that the command waits for its store.
#[derive(Debug)]
struct SayWaits;

impl WaitListener for SayWaits {
    fn begins(&self, error: &StoreError, limit: Option<Duration>) {
        let limit = match limit {
            Some(limit) => format!("for up to {}", said(limit)),
            None => "without a limit".to_owned(),
        };
        log::line(&format!(
            "waiting for the store {limit} (--store-patience); Ctrl-C ends the wait: {error}"
        ));
    }

    fn lasts(&self, error: &StoreError, since: Duration) {
        let since = said(since);
        log::line(&format!(
            "still waiting for the store after {since}: {error}"
        ));
    }

    fn over(&self, after: Duration) {
        let after = said(after);
        log::line(&format!("the store answers again after {after}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_zero_and_forever_are_read() {
        let read = |text: &str| text.parse::<StorePatience>();
        assert_eq!(
            read("90s"),
            Ok(StorePatience(Some(Duration::from_secs(90))))
        );
        assert_eq!(read("1m"), Ok(StorePatience::default()));
        assert_eq!(read("0"), Ok(StorePatience(Some(Duration::ZERO))));
        assert_eq!(read("forever"), Ok(StorePatience(None)));
        for wrong in ["", "-1s", "soon", "60"] {
            assert!(read(wrong).unwrap_err().contains("30s"), "{wrong}");
        }
    }

    #[test]
    fn a_write_budget_is_what_was_asked_for_else_the_patience() {
        let patience = Patience::new(Some(Duration::from_secs(60)), SayWaits);
        let asked = "2s".parse::<WriteBudget>().unwrap();
        assert_eq!(write_budget_ms(Some(asked), &patience, 3_000), 2_000);
        assert_eq!(write_budget_ms(None, &patience, 3_000), 60_000);
        assert_eq!(asked.to_string().parse(), Ok(asked));
        for wrong in ["0s", "-1s", "soon", "60"] {
            assert!(wrong.parse::<WriteBudget>().is_err(), "{wrong}");
        }
    }
}
