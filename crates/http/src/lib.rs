//! What webhooks, fetched definitions and tools share about connections: which hosts may be connected to, and the header
//! `Retry-After`. No request is made here.

#![warn(clippy::wildcard_enum_match_arm)]

pub mod hosts;

use std::time::{Duration, SystemTime};

/// How long the header `Retry-After` asks to wait: a number of seconds, or a date (RFC 9110 §10.2.3). None if the
/// header is invalid. A date in the past is no wait.
#[must_use]
pub fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn both_forms_are_read() {
        let now = UNIX_EPOCH + Duration::from_secs(1_445_412_470);
        let parsed = |text| retry_after(text, now).map(|it| it.as_secs());
        assert_eq!(parsed("120"), Some(120));
        assert_eq!(parsed("Wed, 21 Oct 2015 07:28:00 GMT"), Some(10));
        assert_eq!(parsed("Tue, 20 Oct 2015 07:28:00 GMT"), Some(0));
        let since_1970 = |text| retry_after(text, UNIX_EPOCH).map(|it| it.as_secs());
        assert_eq!(since_1970("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        let leap_day = since_1970("Thu, 29 Feb 2024 12:00:01 GMT");
        assert_eq!(leap_day, Some(1_709_208_001));
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
