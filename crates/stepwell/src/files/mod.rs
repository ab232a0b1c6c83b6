//! Definitions as files and by reference: reads them safely, and finds the definitions of child runs.

mod catalog;
mod definition;
mod reference;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use stepwell_dialects::source::MAX_SOURCE_BYTES;
use stepwell_dialects::{Problem, Severity, Source, Span};

pub use catalog::{Files, files_below};
pub use definition::{Definition, DefinitionError};
pub use reference::FetchedDefinition;
pub use stepwell_dialects::plan::reference::PlanRef;

/// Reads the text at a path (`-` is standard input). The error is the name for messages and the problem.
pub fn read(path: &str) -> Result<Source, (String, Problem)> {
    let name = if path == "-" { "<stdin>" } else { path };
    let refuse = |problem| (name.to_owned(), problem);
    let bytes = bytes_at(path).map_err(|error| refuse(unreadable(path, &error)))?;
    Source::from_bytes(name, &bytes).map_err(refuse)
}

fn bytes_at(path: &str) -> io::Result<Vec<u8>> {
    // One byte more than the limit is enough to detect a file that is too large, even an endless one.
    let most = MAX_SOURCE_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if path == "-" {
        io::stdin().lock().take(most).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    if Path::new(path).is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    // Opening a pipe waits for a writer, and reading a device can change it.
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the errors of the system are a list that grows"
)]
fn unreadable(path: &str, cause: &io::Error) -> Problem {
    let (why, help) = match cause.kind() {
        io::ErrorKind::NotFound if path.contains("://") => (
            "this is an address, not a file",
            "download the definition, or run it by reference: `stepwell run --plan-ref FILE`, where FILE has the address \
             as `uri`, with its `sha256`",
        ),
        io::ErrorKind::NotFound => ("the file was not found", "check the path"),
        io::ErrorKind::IsADirectory => (
            "this is a directory, not a file",
            "give the files in the directory, for example `DIR/*.yaml`",
        ),
        io::ErrorKind::InvalidInput => (
            "this is a pipe, a socket or a device, not a file",
            "give a file, or `-` for standard input",
        ),
        io::ErrorKind::PermissionDenied => (
            "no permission to read the file",
            "check the owner and the permissions of the file",
        ),
        _ => ("the file cannot be read", "check the path"),
    };
    let message = match cause.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::PermissionDenied => why.to_owned(),
        _ => format!("{why}: {cause}"),
    };
    let mut problem = error("SOURCE_UNREADABLE", message);
    let written_as_flag = path.starts_with("--");
    problem.help(if written_as_flag {
        "this looks like an option; write options before `--`"
    } else {
        help
    });
    problem
}

fn error(code: &'static str, message: String) -> Problem {
    Problem::new(code, Severity::Error, Span::default(), message)
}
