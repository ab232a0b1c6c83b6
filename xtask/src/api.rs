//! `cargo xtask api`: requests that are made from the OpenAPI document of a running server. The server may refuse them,
//! but only as the document says, and never with a fault of its own.

use crate::programs;
use crate::repo::Repo;
use crate::served::Served;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) const HELP: &str = "\
Send generated requests to a real server, and compare its answers with its OpenAPI document.

Usage: cargo xtask api [--examples N]

  --examples N  how many requests for each endpoint in the fuzzing phase; default 10

Starts `stepwell serve` on a SQLite store in a temporary directory and runs schemathesis (installed with pip into
target/tools) against it: no answer may be a 5xx, have a status that the document does not list, or a body that does
not fit its schema. Without schemathesis and without network the task prints SKIPPED and succeeds. A failure is printed
with the curl command that repeats it.
";

/// Streams do not end by themselves.
const NOT_STREAMS: &str = "stream|watch";

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    let examples = match args {
        [] => "10",
        [flag, number] if flag == "--examples" && number.parse::<u32>().is_ok() => number,
        _ => bail!("unknown arguments {args:?}; try --help"),
    };
    let program = match programs::from_pip(repo, "schemathesis", "schemathesis") {
        Ok(program) => program,
        Err(error) => {
            println!("SKIPPED: no requests were generated: {error:#}");
            return Ok(());
        }
    };
    let folder = std::env::temp_dir().join(format!("stepwell-api-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let outcome = fuzz(&program, repo, &folder, examples);
    fs::remove_dir_all(&folder).ok();
    outcome
}

fn fuzz(program: &Path, repo: &Repo, folder: &Path, examples: &str) -> Result<()> {
    let program_of_server = repo.program()?;
    let server = Served::start(program_of_server, folder, &[])?;
    let document = format!("{}/api/openapi.json", server.url);
    let status = Command::new(program)
        .args(["run", &document, "--phases", "coverage,fuzzing"])
        .args(["--max-examples", examples])
        .args(["--checks", "not_a_server_error,status_code_conformance"])
        .args([
            "--checks",
            "content_type_conformance,response_schema_conformance",
        ])
        .args(["--exclude-path-regex", NOT_STREAMS, "--no-color"])
        .args(["--warnings", "off"])
        .current_dir(folder)
        .status()
        .context("cannot run schemathesis")?;
    match status.success() {
        true => Ok(()),
        false => bail!("answers of the server differ from its OpenAPI document, see above"),
    }
}
