//! The due times of a cron line in a time zone. What a line may be is in `cron`.

use std::fmt;

use croner::Cron;
use croner::parser::{CronParser, Seconds};
use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use stepwell_kernel::time::Time;

use crate::cron;

/// The zone of schedules that name none.
const UTC: &str = "UTC";

/// A cron line and its time zone.
#[derive(Clone)]
pub struct Schedule {
    text: String,
    zone_name: String,
    cron: Cron,
    zone: TimeZone,
}

impl Schedule {
    /// Reads a line of five fields, or one of its short names, and the name of a time zone. Says what is wrong.
    pub(crate) fn parse(text: &str, zone: Option<&str>) -> Result<Schedule, String> {
        cron::check(text)?;
        let zone_name = zone.unwrap_or(UTC);
        let zone =
            self::zone(zone_name).ok_or_else(|| format!("there is no time zone {zone_name}"))?;
        let fields = cron::fields(text);
        let parser = CronParser::builder().seconds(Seconds::Disallowed).build();
        let cron = parser.parse(fields).map_err(|error| error.to_string())?;
        Ok(Schedule {
            text: text.trim().to_owned(),
            zone_name: zone_name.to_owned(),
            cron,
            zone,
        })
    }

    /// Reads a line for a server: five fields, a short name, or six fields that begin with the second.
    pub fn read(text: &str, zone: Option<&str>) -> Result<Schedule, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [seconds, rest @ ..] = &fields[..] else {
            return Schedule::parse(text, zone);
        };
        if rest.len() != 5 {
            return Schedule::parse(text, zone);
        }
        cron::check_seconds(seconds)?;
        let plain = Schedule::parse(&rest.join(" "), zone)?;
        let parser = CronParser::builder().seconds(Seconds::Required).build();
        let cron = parser.parse(&fields.join(" "));
        Ok(Schedule {
            text: text.trim().to_owned(),
            cron: cron.map_err(|error| error.to_string())?,
            ..plain
        })
    }

    /// The name of the time zone.
    #[must_use]
    pub fn zone_name(&self) -> &str {
        &self.zone_name
    }

    /// The line as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first due time after an instant; none before the year 9999 is very far away.
    #[must_use]
    pub fn next_after(&self, time: Time) -> Option<Time> {
        let at = Timestamp::from_millisecond(time.0).ok()?;
        let at = at.to_zoned(self.zone.clone());
        let next = self.cron.find_next_occurrence(&at, false).ok()?;
        let next = Time(next.timestamp().as_millisecond());
        // Where clocks are set back a search can find the hour that has passed.
        (next > time).then_some(next)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.zone_name)
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schedule({self})")
    }
}

/// A zone by its name in the IANA database, such as `Europe/Berlin`.
pub(crate) fn zone(name: &str) -> Option<TimeZone> {
    TimeZoneDatabase::bundled().get(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(text: &str, zone: Option<&str>, from: &str, count: usize) -> Vec<String> {
        let schedule = Schedule::parse(text, zone).unwrap();
        let mut at = Time::from_rfc3339(from).unwrap();
        let mut all = Vec::new();
        for _ in 0..count {
            at = schedule.next_after(at).unwrap();
            all.push(at.to_rfc3339().replace(":00.000Z", ""));
        }
        all
    }

    #[test]
    fn due_times_follow_each_other() {
        let two = due("0 2 * * *", None, "2026-01-01T02:00:00Z", 2);
        assert_eq!(two, ["2026-01-02T02:00", "2026-01-03T02:00"]);
        let quarter = due("*/15 9 * * mon-fri", None, "2026-01-02T09:40:00Z", 2);
        assert_eq!(quarter, ["2026-01-02T09:45", "2026-01-05T09:00"]);
        assert_eq!(
            due("@hourly", None, "2026-01-01T00:00:00Z", 1),
            ["2026-01-01T01:00"]
        );
        // A day of the month and one of the week: either will do.
        let either = due("0 0 3 * sun", None, "2026-01-01T00:00:00Z", 2);
        assert_eq!(either, ["2026-01-03T00:00", "2026-01-04T00:00"]);
    }

    #[test]
    fn a_time_zone_moves_the_due_times_with_its_clocks() {
        let berlin = due(
            "0 2 * * *",
            Some("Europe/Berlin"),
            "2026-01-01T12:00:00Z",
            1,
        );
        assert_eq!(berlin, ["2026-01-02T01:00"]);
        let summer = due(
            "0 2 * * *",
            Some("Europe/Berlin"),
            "2026-07-01T12:00:00Z",
            1,
        );
        assert_eq!(summer, ["2026-07-02T00:00"]);
    }

    #[test]
    fn days_on_which_clocks_are_set_have_one_due_time() {
        // In Berlin 02:30 does not exist on March 29th, and happens twice on October 25th.
        let line = "30 2 * * *";
        let spring = due(line, Some("Europe/Berlin"), "2026-03-28T12:00:00Z", 2);
        assert_eq!(spring, ["2026-03-29T01:00", "2026-03-30T00:30"]);
        let autumn = due(line, Some("Europe/Berlin"), "2026-10-24T12:00:00Z", 2);
        assert_eq!(autumn, ["2026-10-25T00:30", "2026-10-26T01:30"]);
    }

    #[test]
    fn due_times_always_go_forwards() {
        for line in ["*/20 * * * *", "30 2 * * *", "0 * * * *", "15 1-3 * * 0"] {
            for zone in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"] {
                let schedule = Schedule::parse(line, Some(zone)).unwrap();
                // The days around each change of the clocks of a year.
                for day in ["03-07", "03-28", "04-04", "10-03", "10-24", "10-31"] {
                    let mut at = Time::from_rfc3339(&format!("2026-{day}T00:00:00Z")).unwrap();
                    let end = at.plus(4 * 86_400_000);
                    while at < end {
                        let next = schedule.next_after(at);
                        let next = next.unwrap_or_else(|| panic!("{schedule} ends at {at:?}"));
                        assert!(next > at);
                        at = next;
                    }
                }
            }
        }
    }

    #[test]
    fn a_server_reads_seconds_too() {
        let four = |line: &str| {
            let schedule = Schedule::read(line, Some("Europe/Berlin")).unwrap();
            let mut at = Time::from_rfc3339("2026-10-24T12:00:00Z").unwrap();
            let mut seen = Vec::new();
            for _ in 0..4 {
                at = schedule.next_after(at).unwrap();
                seen.push(at.to_rfc3339()[5..19].to_owned());
            }
            seen
        };
        // In the night in which 02:30 happens twice, a fixed time is due once, and a line that repeats within the hour goes on.
        assert_eq!(
            four("15 30 2 * * *"),
            [
                "10-25T00:30:15",
                "10-26T01:30:15",
                "10-27T01:30:15",
                "10-28T01:30:15"
            ]
        );
        assert_eq!(
            four("*/20 30 2 * * *"),
            [
                "10-25T00:30:00",
                "10-25T00:30:20",
                "10-25T00:30:40",
                "10-25T01:30:00"
            ]
        );
        assert_eq!(
            four("*/30 2 * * *"),
            [
                "10-25T00:00:00",
                "10-25T00:30:00",
                "10-25T01:00:00",
                "10-25T01:30:00"
            ]
        );
        for wrong in ["60 * * * * *", "* * * * * * *", "* * *", "a * * * * *"] {
            assert!(Schedule::read(wrong, None).is_err(), "{wrong}");
        }
        assert!(Schedule::read("@daily", None).is_ok());
    }

    #[test]
    fn unknown_zones_are_refused() {
        for name in ["Europe/Atlantis", "CET+3", "", "../etc/passwd"] {
            assert!(zone(name).is_none(), "{name}");
        }
    }
}
