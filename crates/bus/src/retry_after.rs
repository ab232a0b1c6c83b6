//! The header `Retry-After`: a number of seconds, or a date (RFC 9110 §10.2.3).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long to wait.
pub(crate) fn parse(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = UNIX_EPOCH + Duration::from_secs(date(text)?);
    Some(at.duration_since(now).unwrap_or_default())
}

/// Seconds since 1970 of a date like `Wed, 21 Oct 2015 07:28:00 GMT`, the only form that may be sent.
fn date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_, rest) = text.split_once(", ")?;
    let parts: Vec<&str> = rest.split(' ').collect();
    let [day, month, year, time, "GMT"] = parts[..] else {
        return None;
    };
    let day: u64 = day.parse().ok().filter(|day| (1..=31).contains(day))?;
    let month = MONTHS.iter().position(|it| *it == month)? as u64 + 1;
    let year: u64 = year.parse().ok().filter(|it| (1970..10_000).contains(it))?;
    let time: Vec<u64> = time
        .split(':')
        .map(|it| it.parse().ok().filter(|it| *it <= 60))
        .collect::<Option<_>>()?;
    let [hour, minute, second] = time[..] else {
        return None;
    };
    // Years begin in March, so that the leap day is the last one.
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days =
        (365 * year + year / 4 - year / 100 + year / 400 + day_of_year).checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let now = UNIX_EPOCH + Duration::from_secs(1_445_412_470);
        let parsed = |text| parse(text, now).map(|it| it.as_secs());
        assert_eq!(parsed("120"), Some(120));
        assert_eq!(parsed("Wed, 21 Oct 2015 07:28:00 GMT"), Some(10));
        assert_eq!(parsed("Tue, 20 Oct 2015 07:28:00 GMT"), Some(0));
        assert_eq!(date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(date("Thu, 29 Feb 2024 12:00:01 GMT"), Some(1_709_208_001));
        for odd in [
            "",
            "-1",
            "soon",
            "Wed, 21 Oct 2015",
            "Wed, 0 Oct 2015 07:28:00 GMT",
        ] {
            assert_eq!(parsed(odd), None, "{odd}");
        }
    }
}
