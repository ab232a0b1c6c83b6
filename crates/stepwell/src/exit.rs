//! Exit codes, in one place: scripts rely on them, so a number never changes its meaning.

use std::process::ExitCode;

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is well; a run succeeded, perhaps in part.
    Ok,
    /// A definition has errors, or the command itself could not do its work.
    Problems,
    /// The command line is wrong; `clap` uses the same number.
    Usage,
    /// The run failed.
    RunFailed,
    /// The run was cancelled.
    RunCancelled,
    /// The run cannot go on by itself.
    RunStuck,
    /// Whoever has the run did not answer in time.
    NoAnswer,
    /// Ctrl-C, as shells number it.
    Interrupted,
    /// Nobody reads the output any more, as shells number it.
    BrokenPipe,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Ok => 0,
            Exit::Problems => 1,
            Exit::Usage => 2,
            Exit::RunFailed => 3,
            Exit::RunCancelled => 4,
            Exit::RunStuck => 5,
            Exit::NoAnswer => 6,
            Exit::Interrupted => 130,
            Exit::BrokenPipe => 141,
        })
    }
}
