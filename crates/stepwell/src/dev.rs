//! `stepwell dev`: a server on this machine with the definitions of a folder, which are loaded again when they change.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Result;
use clap::Args;
use stepwell::files::{Definition, files_below};
use stepwell_server::Server;

use crate::definition;
use crate::exit::Exit;
use crate::serve::{self, ServeArgs, Whose};
use crate::term::{self, stderr_paint};
use crate::{log, usage};

pub(crate) const AFTER_HELP: &str = "\
Examples:
  stepwell dev
  stepwell dev flows
  stepwell dev --listen 127.0.0.1:8080 --store sqlite:/tmp/try.db

All files *.yaml, *.yml and *.json of the folder and its subfolders that are definitions are registered under their
names. A file that changes is registered again within a second: its content is the next revision, and new runs are
started from it. A file with errors is reported and left out. Runs go on with the revision that they were started
from. A definition stays registered when its file is deleted.

The server works on all runs of the store, as `stepwell serve` does; Ctrl-C stops it.

Exit codes: 0 stopped, 1 the store cannot be used or the address is taken, 2 wrong usage.";

/// What `stepwell check` says of files that are no definitions: manifests of other programs, and files without content.
const FOREIGN: [&str; 3] = ["LANGUAGE_UNKNOWN", "SOURCE_MANY_DOCUMENTS", "SOURCE_EMPTY"];

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Folder with the definitions
    #[arg(value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    #[command(flatten)]
    serve: ServeArgs,
}

pub(crate) fn run(args: &DevArgs) -> Result<Exit> {
    if !args.folder.is_dir() {
        return usage(format!("{} is no folder", args.folder.display()));
    }
    let mut loader = Loader {
        folder: args.folder.clone(),
        seen: BTreeMap::new(),
        names: BTreeMap::new(),
    };
    let mut is_first = true;
    serve::until_stopped(&args.serve, Whose::Own, |server| {
        loader.load(server)?;
        if std::mem::take(&mut is_first) {
            loader.say_next(server);
        }
        Ok(())
    })
}

/// How a file looked when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    changed: Option<SystemTime>,
    len: u64,
}

/// Keeps the definitions of the server as the files of a folder are.
struct Loader {
    folder: PathBuf,
    seen: BTreeMap<PathBuf, Look>,
    /// The definition of each file that has one.
    names: BTreeMap<PathBuf, String>,
}

impl Loader {
    /// Registers the files that are new or have changed.
    fn load(&mut self, server: &Server) -> Result<()> {
        let files = files_below(&self.folder);
        for gone in self.seen.keys().filter(|it| !files.contains(it)) {
            server.forget_file(&named(&self.folder, gone));
            if let Some(name) = self.names.remove(gone) {
                log::line(&format!(
                    "{}: deleted; {name} stays registered",
                    gone.display()
                ));
            }
        }
        self.seen.retain(|path, _| files.contains(path));
        for path in files {
            let Ok(meta) = path.metadata() else { continue };
            let look = Look {
                changed: meta.modified().ok(),
                len: meta.len(),
            };
            if self.seen.insert(path.clone(), look) != Some(look) {
                self.load_file(server, &path)?;
            }
        }
        Ok(())
    }

    fn load_file(&mut self, server: &Server, path: &Path) -> Result<()> {
        let shown = path.strip_prefix("./").unwrap_or(path).display();
        let definition = Definition::open(&path.to_string_lossy());
        let mut found = definition.errors();
        if definition.loaded.dialect.is_none() && found.all(|it| FOREIGN.contains(&it.code)) {
            // Other files have these endings too.
            server.forget_file(&named(&self.folder, path));
            return Ok(());
        }
        if definition.errors().next().is_some() {
            let problems = definition::problems(&definition, stderr_paint());
            io::stderr().write_all(problems.as_bytes())?;
            log::line(&format!(
                "{shown}: not loaded; it is loaded when it has changed"
            ));
            let errors: Vec<_> = definition.errors().collect();
            server.refuse_file(&named(&self.folder, path), &definition.source, &errors);
            return Ok(());
        }
        match server.register(&named(&self.folder, path), definition.source.text()) {
            Ok(registered) => {
                let name = registered.name.clone();
                let what = match registered.created {
                    true => "loaded as",
                    false => "is",
                };
                let (shown_name, revision) = (term::one_line(&name), registered.revision);
                log::line(&format!("{shown}: {what} {shown_name} revision {revision}"));
                let others = self.names.iter();
                if let Some((other, _)) = others.clone().find(|it| *it.1 == name && it.0 != path) {
                    let other = other.display();
                    log::line(&format!(
                        "{shown}: {other} has the same name {shown_name}; the file that changed last counts"
                    ));
                }
                self.names.insert(path.to_owned(), name);
            }
            Err(problem) => {
                log::line(&format!(
                    "{shown}: not loaded: {} ({})",
                    problem.detail, problem.code
                ));
                if problem.retry_after.is_some() {
                    self.seen.remove(path);
                }
            }
        }
        Ok(())
    }

    /// What to open or type next.
    fn say_next(&self, server: &Server) {
        let url = format!("http://{}", server.address());
        let name = self.names.values().next();
        let mut lines = vec![
            format!("see and steer all: open {url}/ in a browser"),
            format!("list definitions:  curl -s {url}/api/v1/definitions"),
        ];
        match name {
            Some(name) => {
                let body = serde_json::json!({
                    "definition": { "name": name }, "params": {}, "waitSeconds": 30,
                });
                let body = body.to_string().replace('\'', "'\\''");
                lines.push(format!(
                    "start a run:       curl -s {url}/api/v1/runs -H 'content-type: application/json' -d '{body}'"
                ));
            }
            None => lines.push(
                "no definition yet: write one into this folder, it is loaded by itself".to_owned(),
            ),
        }
        lines.push(format!(
            "list runs:         curl -s {url}/api/v1/runs   or: stepwell runs list"
        ));
        lines.push(format!("all endpoints:     {url}/api/openapi.json"));
        log::line("what to do next:");
        for line in lines {
            log::line(&format!("  {line}"));
        }
    }
}

/// The path of a file as the server knows it: below the folder.
fn named(folder: &Path, path: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path);
    let parts = below.components();
    let parts = parts.map(|it| it.as_os_str().to_string_lossy().into_owned());
    parts.collect::<Vec<_>>().join("/")
}
