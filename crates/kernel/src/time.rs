//! Time as the kernel knows it: a number that arrives in a command. Nothing here reads a clock.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, UTC.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(transparent)]
pub struct Time(pub i64);

/// The longest that a definition or the report of a worker may let a step wait, 366 days.
pub const LONGEST_WAIT_MS: u64 = 366 * 86_400_000;

/// The latest instant the kernel writes down: the end of the year 9999, so that every instant has a
/// four-digit year and arithmetic on hostile durations can never overflow.
const LATEST: i64 = 253_402_300_799_999;

impl Time {
    /// The instant `millis` later; saturates at the end of the year 9999.
    #[must_use]
    pub fn plus(self, millis: u64) -> Time {
        let millis = i64::try_from(millis).unwrap_or(i64::MAX);
        Time(self.0.saturating_add(millis).clamp(0, LATEST))
    }

    /// Milliseconds from `earlier` to `self`, zero if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Time) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }

    /// RFC 3339 in UTC with milliseconds, as the contract writes it.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        // Digits and punctuation are text.
        String::from_utf8(self.rfc3339_bytes().to_vec()).unwrap_or_default()
    }

    /// The same as bytes of text. By hand, since every event has several and formatting is ten times as
    /// slow.
    pub(crate) fn rfc3339_bytes(self) -> [u8; 24] {
        let millis = self.0.clamp(0, LATEST);
        let (days, rest) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
        let (year, month, day) = civil_from_days(days);
        let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
        let (second, milli) = (rest / 1000 % 60, rest % 1000);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        write_digits(&mut text[..4], year);
        write_digits(&mut text[5..7], month);
        write_digits(&mut text[8..10], day);
        write_digits(&mut text[11..13], hour);
        write_digits(&mut text[14..16], minute);
        write_digits(&mut text[17..19], second);
        write_digits(&mut text[20..23], milli);
        text
    }

    /// Reads RFC 3339 with `Z` or a numeric offset; fractions beyond milliseconds are cut.
    #[must_use]
    pub fn from_rfc3339(text: &str) -> Option<Time> {
        let bytes = text.as_bytes();
        let digits = |from: usize, to: usize| -> Option<i64> {
            let part = text.get(from..to)?;
            part.bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| part.parse().ok())?
        };
        let is = |at: usize, wanted: &[u8]| bytes.get(at).is_some_and(|b| wanted.contains(b));
        if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
            return None;
        }
        let (year, month, day) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
        let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
        if !(1..=12).contains(&month)
            || !(1..=31).contains(&day)
            || hour > 23
            || minute > 59
            || second > 60
        {
            return None;
        }
        let mut at = 19;
        let mut milli = 0;
        if is(at, b".") {
            let end = (at + 1..bytes.len())
                .find(|i| !bytes[*i].is_ascii_digit())
                .unwrap_or(bytes.len());
            let fraction = text.get(at + 1..end).filter(|f| !f.is_empty())?;
            milli = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
            at = end;
        }
        let offset = match text.get(at..)? {
            "Z" | "z" => 0,
            zone if zone.len() == 6 && is(at, b"+-") && is(at + 3, b":") => {
                let minutes = digits(at + 1, at + 3)? * 60 + digits(at + 4, at + 6)?;
                if zone.starts_with('-') {
                    -minutes
                } else {
                    minutes
                }
            }
            _ => return None,
        };
        let days = days_from_civil(year, month, day);
        Some(Time(
            ((days * 24 + hour) * 60 + minute - offset) * 60_000 + second * 1000 + milli,
        ))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_rfc3339())
    }
}

/// Writes a number with as many digits as there is room for.
fn write_digits(room: &mut [u8], mut number: i64) {
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Days since 1970-01-01 to a date of the proleptic Gregorian calendar (eras of 400 years).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_index = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_index + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_as_the_contract_writes_them() {
        assert_eq!(Time(0).to_rfc3339(), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            Time(1_770_805_800_000).to_rfc3339(),
            "2026-02-11T10:30:00.000Z"
        );
        assert_eq!(
            Time(951_782_400_123).to_rfc3339(),
            "2000-02-29T00:00:00.123Z"
        );
    }

    #[test]
    fn written_instants_read_back() {
        for millis in [0, 1, 951_782_400_123, 1_770_805_800_000, 4_102_444_799_999] {
            assert_eq!(
                Time::from_rfc3339(&Time(millis).to_rfc3339()),
                Some(Time(millis))
            );
        }
        assert_eq!(
            Time::from_rfc3339("2026-02-11T11:30:00+01:00"),
            Some(Time(1_770_805_800_000))
        );
        for bad in [
            "",
            "2026",
            "2026-13-01T00:00:00Z",
            "2026-02-11 10:30",
            "2026-02-11T10:30:00.Z",
            "é026-02-11T10:30:00Z",
        ] {
            assert_eq!(Time::from_rfc3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn absurd_durations_saturate() {
        assert_eq!(
            Time(5).plus(u64::MAX).to_rfc3339(),
            "9999-12-31T23:59:59.999Z"
        );
        assert_eq!(Time(5).since(Time(9)), 0);
    }
}
