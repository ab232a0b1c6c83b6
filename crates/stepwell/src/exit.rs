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

/// Every code with its meaning, as `stepwell --help` and `docs/cli.md` have it.
const ALL: [(Exit, &str); 9] = [
    (Exit::Ok, "all is well; a run succeeded, perhaps in part"),
    (
        Exit::Problems,
        "a definition has errors, a command was refused, or the store cannot be used",
    ),
    (Exit::Usage, "the command line is wrong"),
    (Exit::RunFailed, "the run failed"),
    (Exit::RunCancelled, "the run was cancelled"),
    (
        Exit::RunStuck,
        "the run did not end and cannot go on by itself",
    ),
    (
        Exit::NoAnswer,
        "the process that has the run did not answer in time; the command may still be done",
    ),
    (
        Exit::Interrupted,
        "interrupted: the run is kept, and the last line says how to go on",
    ),
    (Exit::BrokenPipe, "nobody reads the output any more"),
];

/// Every code with its meaning, a line each.
pub(crate) fn table() -> String {
    let line = |(exit, what): &(Exit, &str)| format!("  {:>3}  {what}\n", exit.code());
    ALL.iter().map(line).collect()
}

impl Exit {
    fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Problems => 1,
            Exit::Usage => 2,
            Exit::RunFailed => 3,
            Exit::RunCancelled => 4,
            Exit::RunStuck => 5,
            Exit::NoAnswer => 6,
            Exit::Interrupted => 130,
            Exit::BrokenPipe => 141,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_every_code_with_the_same_words() {
        let page = include_str!("../../../docs/cli.md");
        let (_, section) = page.split_once("## Exit codes").unwrap();
        let section = section.split("\n## ").next().unwrap();
        let row = |(exit, what): &(Exit, &str)| format!("| {} | {what} |", exit.code());
        let rows: Vec<String> = ALL.iter().map(row).collect();
        let written = section.lines().filter(|line| line.starts_with("| "));
        let written: Vec<&str> = written.skip(1).collect();
        assert_eq!(written, rows);
    }
}
