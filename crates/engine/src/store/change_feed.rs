//! Which runs have changed, in an order that all servers of a store share. A reader that keeps a list of runs up to date has a
//! mark, and goes on from there: at another server, or after a restart, too.

use std::fmt;
use std::str::FromStr;

use stepwell_kernel::time::Time;

use super::{Result, RunNo};

/// Tells which runs have changed since a mark.
pub trait ChangeFeed {
    /// The mark of now: what was committed before this call is before the mark, unless another commit was under way then.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the mark as it is then.
    fn mark(&self) -> Result<Mark>;

    /// The runs whose logs have grown since a mark, each once, and the mark up to which they are told. No change is
    /// missed: what is committed and not told here comes after the new mark.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: at least the same runs, or `Lost` when they are
    /// forgotten.
    fn changed_since(&self, mark: &Mark, limit: usize) -> Result<Changed>;

    /// Forgets which runs changed before a time, where that is written down beside the log.
    ///
    /// Durable on return: the changes are forgotten. Crash before the return: some of them are, or none. Twice: there is
    /// less to forget.
    fn forget_changes(&self, before: Time) -> Result<()>;
}

/// A place in the order of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Later marks have greater numbers.
    pub at: u64,
    /// What the store recognises the place by.
    pub check: String,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.check.is_empty() {
            true => f.pad(&self.at.to_string()),
            false => f.pad(&format!("{}-{}", self.at, self.check)),
        }
    }
}

/// A text that is no mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMark;

impl FromStr for Mark {
    type Err = NoMark;

    fn from_str(text: &str) -> std::result::Result<Mark, NoMark> {
        let (at, check) = text.split_once('-').unwrap_or((text, ""));
        let is_plain = check.len() <= 60
            && check
                .bytes()
                .all(|it| it.is_ascii_alphanumeric() || it == b'.');
        match (at.parse(), is_plain) {
            (Ok(at), true) => Ok(Mark {
                at,
                check: check.to_owned(),
            }),
            (_, _) => Err(NoMark),
        }
    }
}

/// What has changed since a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// These runs, and the mark up to which they are told.
    Runs(Vec<RunNo>, Mark),
    /// More runs than were asked for.
    TooMany,
    /// The changes since the mark are not known any more, or the mark is of another store.
    Lost,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_is_written() {
        for (at, check) in [(0, ""), (7, "12.3"), (u64::MAX, "")] {
            let mark = Mark {
                at,
                check: check.to_owned(),
            };
            assert_eq!(mark.to_string().parse::<Mark>().unwrap(), mark);
        }
        for wrong in ["", "x", "-1", "1-\n", "1-ü"] {
            assert_eq!(wrong.parse::<Mark>(), Err(NoMark), "{wrong:?}");
        }
    }
}
