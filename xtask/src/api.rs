//! `cargo xtask api`: requests that are made from the OpenAPI document of a running server. The server may refuse them,
//! but only as the document says, and never with a fault of its own.

use crate::programs;
use crate::repo::Repo;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

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
    repo.cargo_output(&["build", "-q", "--locked", "-p", "stepwell"])?;
    let folder = std::env::temp_dir().join(format!("stepwell-api-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let outcome = fuzz(&program, repo, &folder, examples);
    fs::remove_dir_all(&folder).ok();
    outcome
}

fn fuzz(program: &Path, repo: &Repo, folder: &Path, examples: &str) -> Result<()> {
    let server = Started::serve(repo, folder)?;
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

/// A server that ends with its value.
struct Started {
    child: Child,
    url: String,
}

impl Started {
    fn serve(repo: &Repo, folder: &Path) -> Result<Started> {
        let mut child = Command::new(repo.root.join("target/debug/stepwell"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .current_dir(folder)
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start stepwell serve")?;
        let err = child.stderr.take().context("no standard error")?;
        let (tell, told) = mpsc::channel();
        // Read to the end, so that the server never waits for its log to be read.
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                match line.split_once("serving on ") {
                    Some((_, url)) => drop(tell.send(url.trim().to_owned())),
                    None => eprintln!("server: {line}"),
                }
            }
        });
        match told.recv_timeout(Duration::from_secs(30)) {
            Ok(url) => Ok(Started { child, url }),
            Err(_) => {
                let _ = child.kill();
                bail!("stepwell serve did not start")
            }
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
