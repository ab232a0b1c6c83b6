//! Lengths of time as the languages write them.
//!
//! Here: `"500ms"`, `"1h30m"`, ISO-8601 `"PT5M"` and bare numbers in a
//! declared unit, all as whole milliseconds. Not here: points in time, time
//! zones and calendars; a month has no length, so ISO months are refused.

/// The longest duration accepted, 366 days.
pub const MAX_DURATION_MS: u64 = stepwell_kernel::time::LONGEST_WAIT_MS;

/// What a bare number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Milliseconds; a fraction is rounded to a whole millisecond.
    Millis,
    /// Seconds, which may have a fraction.
    Seconds,
    /// Minutes, which may have a fraction.
    Minutes,
}

impl Unit {
    pub(crate) fn in_millis(self) -> f64 {
        match self {
            Unit::Millis => 1.0,
            Unit::Seconds => 1_000.0,
            Unit::Minutes => 60_000.0,
        }
    }
}

/// Which durations a field takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationRule {
    pub(crate) bare: Option<Unit>,
    pub(crate) zero: bool,
}

impl DurationRule {
    /// Only text with a unit, such as `"30s"`.
    pub const TEXT: DurationRule = DurationRule {
        bare: None,
        zero: false,
    };
    /// Text with a unit, or a number of milliseconds.
    pub const MILLIS: DurationRule = DurationRule::bare(Unit::Millis);
    /// Text with a unit, or a number of seconds.
    pub const SECONDS: DurationRule = DurationRule::bare(Unit::Seconds);
    /// Text with a unit, or a number of minutes.
    pub const MINUTES: DurationRule = DurationRule::bare(Unit::Minutes);

    /// Text with a unit, or a number in `unit`.
    #[must_use]
    pub const fn bare(unit: Unit) -> Self {
        DurationRule {
            bare: Some(unit),
            zero: false,
        }
    }

    /// Takes zero as well.
    #[must_use]
    pub const fn or_zero(mut self) -> Self {
        self.zero = true;
        self
    }

    /// Checks a number of milliseconds against this rule and the maximum.
    ///
    /// # Errors
    /// What is wrong with it, to follow the name of the field.
    pub(crate) fn check(self, millis: f64) -> Result<u64, &'static str> {
        if !millis.is_finite() || millis < 0.0 {
            return Err("must not be negative");
        }
        let millis = millis.round();
        if millis > MAX_DURATION_MS as f64 {
            return Err("must not be longer than 366 days");
        }
        if millis < 1.0 && !self.zero {
            return Err("must be longer than zero");
        }
        // In range as checked above, so the cast neither cuts nor wraps.
        Ok(millis as u64)
    }

    /// How to write one, for help texts.
    pub(crate) fn help(self) -> &'static str {
        match self.bare {
            None => "write a number with a unit, such as \"500ms\", \"30s\", \"5m\" or \"1h30m\"",
            Some(Unit::Millis) => {
                "write a number of milliseconds, or one with a unit, such as \"30s\" or \"1h30m\""
            }
            Some(Unit::Seconds) => {
                "write a number of seconds, or one with a unit, such as \"500ms\" or \"1h30m\""
            }
            Some(Unit::Minutes) => {
                "write a number of minutes, or one with a unit, such as \"30s\" or \"1h30m\""
            }
        }
    }
}

const UNITS: [(&str, f64); 6] = [
    ("ms", 1.0),
    ("s", 1_000.0),
    ("m", 60_000.0),
    ("h", 3_600_000.0),
    ("d", 86_400_000.0),
    ("w", 604_800_000.0),
];

/// Reads a duration with units into milliseconds.
///
/// ```
/// use stepwell_dialects::duration::parse_text;
/// assert_eq!(parse_text("1h30m"), Some(5_400_000.0));
/// assert_eq!(parse_text("PT0.5S"), Some(500.0));
/// assert_eq!(parse_text("soon"), None);
/// ```
#[must_use]
pub fn parse_text(text: &str) -> Option<f64> {
    let text = text.trim();
    // Real durations are short; this bounds the work on everything else.
    if text.len() > 64 {
        return None;
    }
    match text.strip_prefix('P') {
        Some(rest) => parse_iso(rest),
        None => parse_units(text),
    }
}

/// How to write what was probably meant: `5m` for "5 minutes" or "5 min".
pub(crate) fn suggest(text: &str) -> Option<String> {
    const WORDS: [(&str, &[&str]); 6] = [
        (
            "ms",
            &[
                "ms",
                "msec",
                "msecs",
                "millisecond",
                "milliseconds",
                "millis",
            ],
        ),
        ("s", &["s", "sec", "secs", "second", "seconds"]),
        ("m", &["m", "min", "mins", "minute", "minutes"]),
        ("h", &["h", "hr", "hrs", "hour", "hours"]),
        ("d", &["d", "day", "days"]),
        ("w", &["w", "week", "weeks"]),
    ];
    let (_, rest) = take_number(text.trim())?;
    let number = text.trim().strip_suffix(rest)?;
    let word = rest.trim().to_ascii_lowercase();
    let unit = WORDS.iter().find(|(_, words)| words.contains(&&*word))?.0;
    let written = format!("{number}{unit}");
    parse_text(&written).is_some().then_some(written)
}

/// `1h30m`: each unit at most once, the largest first.
fn parse_units(mut text: &str) -> Option<f64> {
    let mut total = 0.0;
    let mut smallest = f64::INFINITY;
    loop {
        let (number, rest) = take_number(text)?;
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, rest) = rest.split_at(letters.unwrap_or(rest.len()));
        let millis = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        if millis >= smallest {
            return None;
        }
        smallest = millis;
        total += number * millis;
        text = rest.trim_start();
        if text.is_empty() {
            return Some(total);
        }
    }
}

/// ISO-8601 after the `P`: weeks, days, and after `T` hours, minutes, seconds.
fn parse_iso(text: &str) -> Option<f64> {
    let (date, time) = match text.split_once('T') {
        Some((_, "")) => return None,
        Some((date, time)) => (date, time),
        None => (text, ""),
    };
    if date.is_empty() && time.is_empty() {
        return None;
    }
    let dates = iso_part(date, &[('W', 604_800_000.0), ('D', 86_400_000.0)])?;
    let times = iso_part(time, &[('H', 3_600_000.0), ('M', 60_000.0), ('S', 1_000.0)])?;
    Some(dates + times)
}

fn iso_part(mut text: &str, mut units: &[(char, f64)]) -> Option<f64> {
    let mut total = 0.0;
    while !text.is_empty() {
        let (number, rest) = take_number(text)?;
        let mut chars = rest.chars();
        let letter = chars.next()?;
        let at = units.iter().position(|(unit, _)| *unit == letter)?;
        total += number * units[at].1;
        units = &units[at + 1..];
        text = chars.as_str();
    }
    Some(total)
}

/// Digits with at most one point, at the start of `text`.
fn take_number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    if !digits.starts_with(|c: char| c.is_ascii_digit()) || digits.ends_with('.') {
        return None;
    }
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_units_get_the_unit() {
        let all = [
            "5 minutes",
            "5 min",
            "1.5 Hours",
            "30S",
            "2 weeks",
            "10 msec",
        ]
        .map(suggest);
        let all: Vec<String> = all.into_iter().flatten().collect();
        assert_eq!(all, ["5m", "5m", "1.5h", "30s", "2w", "10ms"]);
        for text in [
            "",
            "5",
            "minutes",
            "5 fortnights",
            "1e9h",
            "5 minutes or so",
        ] {
            assert_eq!(suggest(text), None, "{text}");
        }
    }
}
