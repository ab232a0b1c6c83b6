//! All exit codes. Scripts depend on them, so a number never changes its meaning.

use std::process::ExitCode;

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success. A run succeeded, completely or partially.
    Ok,
    /// A definition has errors, or the command failed.
    Problems,
    /// The command line is wrong (`clap` uses the same number), or it names no worker for a step.
    Usage,
    /// The run ended with the outcome failed.
    RunFailed,
    /// The run ended with the outcome cancelled.
    RunCancelled,
    /// The run did not end and needs a person, an event or a worker.
    RunStuck,
    /// The process that owns the run did not answer in time.
    NoAnswer,
    /// Interrupted by Ctrl-C; 128 + SIGINT.
    Interrupted,
    /// The reader of the output closed the pipe; 128 + SIGPIPE.
    BrokenPipe,
}

/// Every code with its meaning, for `stepwell --help` and `docs/cli.md`.
const ALL: [(Exit, &str); 9] = [
    (
        Exit::Ok,
        "success; a run succeeded, completely or partially",
    ),
    (
        Exit::Problems,
        "a definition has errors, a command was refused, or the store cannot be used",
    ),
    (
        Exit::Usage,
        "the command line is wrong, or no worker of the command serves a step of the definition",
    ),
    (Exit::RunFailed, "the run failed"),
    (Exit::RunCancelled, "the run was cancelled"),
    (
        Exit::RunStuck,
        "the run did not end and needs a person, an event or a worker",
    ),
    (
        Exit::NoAnswer,
        "the process that owns the run did not answer in time; it may still execute the command",
    ),
    (
        Exit::Interrupted,
        "interrupted: the run is kept, and the last line shows the command that continues it",
    ),
    (Exit::BrokenPipe, "the reader of the output closed the pipe"),
];

/// One line per code.
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
