//! Schedules in the form of cron: five fields, or a short name. Here they are checked; their due times are in `trigger`.

/// The short names, with the fields that they stand for.
pub(crate) const SHORT: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// The most days that each month has.
const MONTH_LENGTHS: [u8; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// One of the five fields.
struct CronField {
    name: &'static str,
    low: u8,
    high: u8,
    /// Words for the numbers from `low` on.
    words: &'static [&'static str],
}

const FIELDS: [CronField; 5] = [
    field("minute", 0, 59, &[]),
    field("hour", 0, 23, &[]),
    field("day of the month", 1, 31, &[]),
    field("month", 1, 12, &MONTHS),
    // Sunday is 0 and 7.
    field("day of the week", 0, 7, &DAYS),
];

const fn field(name: &'static str, low: u8, high: u8, words: &'static [&'static str]) -> CronField {
    CronField {
        name,
        low,
        high,
        words,
    }
}

/// The five fields of a schedule that is right.
pub(crate) fn fields(text: &str) -> &str {
    let text = text.trim();
    let short = SHORT.iter().find(|(name, _)| *name == text);
    short.map_or(text, |(_, fields)| fields)
}

/// Says what is wrong with the field of seconds, which only schedules of a server have.
pub(crate) fn check_seconds(text: &str) -> Result<(), String> {
    field("second", 0, 59, &[]).read(text).map(drop)
}

/// Says what is wrong with a schedule.
pub(crate) fn check(text: &str) -> Result<(), String> {
    let text = text.trim();
    if text.starts_with('@') {
        let known = SHORT.iter().any(|(name, _)| *name == text);
        return match known {
            true => Ok(()),
            false => Err(format!("there is no schedule `{text}`")),
        };
    }
    let parts: Vec<&str> = text.split_whitespace().collect();
    if parts.len() != FIELDS.len() {
        return Err(format!(
            "a schedule has 5 fields, and this has {}",
            parts.len()
        ));
    }
    let mut values = Vec::new();
    for (part, field) in parts.iter().zip(&FIELDS) {
        values.push(field.read(part)?);
    }
    match &values[..] {
        [_, _, days, months, weekdays] if weekdays.is_none() => ever(days, months),
        _ => Ok(()),
    }
}

/// Whether any month of the schedule has one of its days.
fn ever(days: &Option<Vec<u8>>, months: &Option<Vec<u8>>) -> Result<(), String> {
    let Some(first) = days.iter().flatten().min() else {
        return Ok(());
    };
    let all: Vec<u8> = (1..=12).collect();
    let months = months.as_ref().unwrap_or(&all);
    let length = |month: &u8| MONTH_LENGTHS.get(usize::from(*month) - 1).copied();
    match months.iter().filter_map(length).any(|last| last >= *first) {
        true => Ok(()),
        false => Err(format!("no such month has a day {first}: it never happens")),
    }
}

impl CronField {
    /// The numbers of a field; absent if it is every one.
    fn read(&self, text: &str) -> Result<Option<Vec<u8>>, String> {
        let is_day = self.name.starts_with("day");
        if text == "*" || (text == "?" && is_day) {
            return Ok(None);
        }
        let mut numbers = Vec::new();
        for item in text.split(',') {
            let (range, step) = match item.split_once('/') {
                Some((range, step)) => (range, Some(self.step(step)?)),
                None => (item, None),
            };
            let (from, to) = match range.split_once('-') {
                _ if range == "*" => (self.low, self.high),
                Some((from, to)) => (self.number(from)?, self.number(to)?),
                // `5/15` is from 5 on.
                None if step.is_some() => (self.number(range)?, self.high),
                None => (self.number(range)?, self.number(range)?),
            };
            if from > to {
                return Err(format!("the {} `{range}` runs backwards", self.name));
            }
            numbers.extend((from..=to).step_by(usize::from(step.unwrap_or(1))));
        }
        Ok(Some(numbers))
    }

    fn step(&self, text: &str) -> Result<u8, String> {
        let step = text.parse().ok().filter(|step| (1..=59).contains(step));
        step.ok_or_else(|| format!("`/{text}` is no step for the {}", self.name))
    }

    fn number(&self, text: &str) -> Result<u8, String> {
        let lower = text.to_ascii_lowercase();
        let word = self.words.iter().position(|word| *word == lower);
        let word = word.and_then(|at| u8::try_from(at).ok());
        let number = match word {
            Some(at) => Some(self.low + at),
            None => text.parse().ok(),
        };
        let number = number.filter(|it| (self.low..=self.high).contains(it));
        number.ok_or_else(|| {
            format!(
                "`{text}` is no {}: {} to {}",
                self.name, self.low, self.high
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_that_happen_are_right() {
        for good in [
            "0 2 * * *",
            "*/5 * * * *",
            "0 9-17 * * mon-fri",
            "5/15 0,12 1 JAN-mar ?",
            "0 0 29 2 *",
            "0 0 31 2 1",
            "0 0 * * 7",
            "@daily",
            " 1 1 1 1 1 ",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn schedules_that_do_not_say_why() {
        for (bad, why) in [
            ("99 25 32 13 8", "`99` is no minute: 0 to 59"),
            ("0 25 * * *", "`25` is no hour: 0 to 23"),
            ("0 0 0 * *", "`0` is no day of the month: 1 to 31"),
            ("0 0 * foo *", "`foo` is no month: 1 to 12"),
            ("0 0 * * 8", "`8` is no day of the week: 0 to 7"),
            (
                "0 0 31 feb,apr *",
                "no such month has a day 31: it never happens",
            ),
            ("*/0 * * * *", "`/0` is no step for the minute"),
            ("30-10 * * * *", "the minute `30-10` runs backwards"),
            ("? * * * *", "`?` is no minute: 0 to 59"),
            ("0 2 * *", "a schedule has 5 fields, and this has 4"),
            ("@noon", "there is no schedule `@noon`"),
            ("", "a schedule has 5 fields, and this has 0"),
        ] {
            assert_eq!(check(bad), Err(why.to_owned()), "{bad}");
        }
    }
}
