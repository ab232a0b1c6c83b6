//! Definitions as files: reading them, whatever is at the path, and loading them.
//!
//! Nothing here panics or gives up on what is in a file: a path that cannot be read is a problem of
//! that file like any other.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use stepwell_dialects::source::MAX_SOURCE_BYTES;
use stepwell_dialects::{Loaded, Problem, Severity, Source, Span, load, problem};
use stepwell_kernel::keys::sha256_hex;
use stepwell_kernel::plan::Plan;

use crate::term::Paint;

/// A definition and what became of loading it.
#[derive(Debug)]
pub(crate) struct Definition {
    /// The text; empty if it could not be read.
    pub(crate) source: Source,
    /// The plan and the problems.
    pub(crate) loaded: Loaded,
}

impl Definition {
    /// Reads and loads a file; `-` is standard input.
    pub(crate) fn open(path: &str) -> Definition {
        match read(path) {
            Ok(source) => {
                let loaded = load(&source);
                Definition { source, loaded }
            }
            Err((name, problem)) => Definition {
                source: Source::unreadable(name),
                loaded: Loaded {
                    plan: None,
                    dialect: None,
                    problems: vec![problem],
                },
            },
        }
    }

    /// How many problems are errors, and how many are warnings.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let problems = &self.loaded.problems;
        let is_error = |it: &&Problem| it.severity == Severity::Error;
        let errors = problems.iter().filter(is_error).count();
        (errors, problems.len() - errors)
    }

    /// The problems with the places they stand at; ends with an empty line if there are any.
    pub(crate) fn render(&self, paint: Paint) -> String {
        if self.loaded.problems.is_empty() {
            return String::new();
        }
        let text = problem::render(&self.source, &self.loaded.problems, paint.0);
        format!("{}\n\n", text.trim_end())
    }

    /// The hash of the text, if it could be read.
    pub(crate) fn sha256(&self) -> Option<String> {
        let text = self.source.text();
        (!text.is_empty()).then(|| sha256_hex(text))
    }

    /// The first error, and how many more there are, for programs that do not read the rest.
    pub(crate) fn tell_program(&self) {
        let is_error = |it: &&Problem| it.severity == Severity::Error;
        if let Some(first) = self.loaded.problems.iter().find(is_error) {
            let more = match self.counts().0 {
                0 | 1 => String::new(),
                errors => format!(" (and {} more)", errors - 1),
            };
            crate::tell_program(Some(first.code), &format!("{}{more}", first.message));
        }
    }

    /// The plan, unless there was an error.
    pub(crate) fn into_plan(self) -> Option<Plan> {
        let (errors, _) = self.counts();
        self.loaded.plan.filter(|_| errors == 0)
    }
}

/// The text at a path, or what messages call it and why it cannot be read.
pub(crate) fn read(path: &str) -> Result<Source, (String, Problem)> {
    let name = if path == "-" { "<stdin>" } else { path };
    let refuse = |problem| (name.to_owned(), problem);
    let bytes = bytes_at(path).map_err(|error| refuse(unreadable(path, &error)))?;
    Source::from_bytes(name, &bytes).map_err(refuse)
}

fn bytes_at(path: &str) -> io::Result<Vec<u8>> {
    // One byte more than is allowed: enough to know that it is too much, however long it goes on.
    let most = MAX_SOURCE_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if path == "-" {
        io::stdin().lock().take(most).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    if Path::new(path).is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(path: &str, cause: &io::Error) -> Problem {
    let (why, help) = match cause.kind() {
        io::ErrorKind::NotFound => ("there is no such file", "check the path"),
        io::ErrorKind::IsADirectory => (
            "this is a directory, not a file",
            "name the files in it, as `DIR/*.yaml`",
        ),
        io::ErrorKind::PermissionDenied => (
            "no permission to read the file",
            "check who owns it and who may read it",
        ),
        _ => ("the file cannot be read", "check the path"),
    };
    let message = match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::IsADirectory | io::ErrorKind::PermissionDenied => {
            why.to_owned()
        }
        _ => format!("{why}: {cause}"),
    };
    let mut problem = error("SOURCE_UNREADABLE", message);
    let written_as_flag = path.starts_with("--");
    problem.help(if written_as_flag {
        "this looks like an option; options stand before `--`"
    } else {
        help
    });
    problem
}

fn error(code: &'static str, message: String) -> Problem {
    Problem {
        code,
        severity: Severity::Error,
        span: Span::default(),
        message,
        help: None,
    }
}
