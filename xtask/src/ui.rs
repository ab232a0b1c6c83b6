//! `cargo xtask ui`: the web UI, from its sources in `ui/` to the files that are compiled into the server. The files are
//! committed, so that `cargo build` needs no Node; `--check` proves that they are what the sources give.

use crate::cluster::is_root;
use crate::postgres::apt_get;
use crate::repo::Repo;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const HELP: &str = "\
Build the web UI into crates/server/ui, or check it.

Usage: cargo xtask ui [--check]

Needs Node 20 or newer with npm. Installs the packages of ui/package-lock.json, writes the types of the API from
schemas/openapi.json, builds the bundle, and writes the list of its files (crates/server/src/ui/bundle.rs). The bundle may
have 400 kB after gzip. With --check nothing is written: types, bundle and list must be what the sources give, and the
checks of types and the tests of components run. Without Node the task prints SKIPPED and succeeds.
";

pub(crate) const BROWSER_HELP: &str = "\
Drive the web UI of a real server with a real browser.

Usage: cargo xtask browser [NAME | --flows]

  NAME     only tests whose name contains it
  --flows  only what people do: start, fail, retry, approve, cancel, travel in time; not all pages and large runs

Needs Node 20 or newer and Chromium, which is installed as root on Debian; without one of them the task prints SKIPPED and
succeeds. Each test starts `stepwell serve` on a SQLite store of its own. The variable STEPWELL_CHROMIUM names another
browser; STEPWELL_BIN another server, otherwise stepwell is built, without --flows as a release because times are measured; STEPWELL_UI_BUNDLE a folder with a built
bundle (`STEPWELL_UI_OUT=FOLDER npm run build` in ui/) that is served instead of that of the server.
";

pub(crate) const SCREENSHOTS_HELP: &str = "\
Write screenshots of every page of the web UI to docs/images.

Usage: cargo xtask screenshots

Needs what `cargo xtask browser` needs. Each page is shown light and dark, on a desktop and on a phone.
";

const SOURCES: &str = "ui";
const BUNDLE: &str = "crates/server/ui";
const LIST: &str = "crates/server/src/ui/bundle.rs";
/// The tests of what people do.
const FLOWS: &[&str] = &[
    "tests/flows.test.mjs",
    "tests/flows-actions.test.mjs",
    "tests/flows-operations.test.mjs",
    "tests/flows-fixed.test.mjs",
    "tests/flows-run.test.mjs",
    "tests/flows-attention.test.mjs",
    "tests/flows-lists.test.mjs",
    "tests/flows-fixed2.test.mjs",
    "tests/flows-run-more.test.mjs",
    "tests/flows-run-causes.test.mjs",
    "tests/flows-pages.test.mjs",
];
const TYPES: &str = "ui/src/api/schema.d.ts";
/// The oldest Node that the tools run on.
const NODE: u32 = 20;

/// How the server is built.
#[derive(Clone, Copy)]
enum Profile {
    Debug,
    Release,
}

type Files = BTreeMap<String, Vec<u8>>;

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    let check = crate::wants_check(args)?;
    let Some(ui) = Ui::find(repo, "the web UI was not built")? else {
        return Ok(());
    };
    if check { ui.check() } else { ui.write() }
}

pub(crate) fn browser(repo: &Repo, args: &[String]) -> Result<()> {
    // What people do is proven in two minutes; pages and large runs take several more.
    let (name, tests): (_, &[&str]) = match args {
        [] => (None, &["tests/"]),
        [only] if only == "--flows" => (None, FLOWS),
        [name] => (Some(name.as_str()), &["tests/"]),
        _ => bail!("unknown arguments {args:?}; try --help"),
    };
    let Some((ui, chromium)) = Ui::with_browser(repo, "no browser was driven")? else {
        return Ok(());
    };
    // Flows wait for most of their time; what is measured is measured alone.
    let at_a_time = match tests == FLOWS {
        true => "--test-concurrency=2",
        false => "--test-concurrency=1",
    };
    let mut script = vec!["--test", at_a_time];
    if let Some(name) = name {
        script.extend(["--test-name-pattern", name]);
    }
    script.extend(tests);
    // What is measured is measured with what people use.
    let profile = match tests == FLOWS {
        true => Profile::Debug,
        false => Profile::Release,
    };
    ui.node(&script, &chromium, profile)
}

pub(crate) fn screenshots(repo: &Repo, args: &[String]) -> Result<()> {
    crate::no_arguments(args)?;
    let Some((ui, chromium)) = Ui::with_browser(repo, "no screenshot was made")? else {
        return Ok(());
    };
    ui.node(&["scripts/screenshots.mjs"], &chromium, Profile::Debug)
}

/// The folder with the sources, on a machine that can build them.
struct Ui<'a> {
    repo: &'a Repo,
    folder: PathBuf,
}

impl<'a> Ui<'a> {
    /// None if there is no Node that can do it; says so.
    fn find(repo: &'a Repo, lost: &str) -> Result<Option<Ui<'a>>> {
        let version = text_of(Command::new("node").arg("--version"));
        let major = version.as_deref().and_then(major);
        if major.is_none_or(|it| it < NODE)
            || text_of(Command::new("npm").arg("--version")).is_none()
        {
            let found = version.unwrap_or_else(|| "none".to_owned());
            println!(
                "SKIPPED: {lost}: Node {NODE} or newer with npm is needed, found {}",
                found.trim()
            );
            return Ok(None);
        }
        let ui = Ui {
            repo,
            folder: repo.root.join(SOURCES),
        };
        ui.install()?;
        Ok(Some(ui))
    }

    /// None if there is no browser; says so.
    fn with_browser(repo: &'a Repo, lost: &str) -> Result<Option<(Ui<'a>, PathBuf)>> {
        let Some(ui) = Ui::find(repo, lost)? else {
            return Ok(None);
        };
        match chromium() {
            Ok(browser) => Ok(Some((ui, browser))),
            Err(error) => {
                println!("SKIPPED: {lost}: {error:#}");
                Ok(None)
            }
        }
    }

    /// Installs the packages, if they are not those of the lock file.
    fn install(&self) -> Result<()> {
        let lock = fs::read(self.folder.join("package-lock.json"))?;
        let mark = self.folder.join("node_modules/.stepwell-lock");
        if fs::read(&mark).is_ok_and(|it| it == lock) {
            return Ok(());
        }
        // Not `npm ci`: a registry without the builds for other systems, which are optional, leaves them out of the lock.
        self.npm(&["install", "--no-save", "--no-audit", "--no-fund"], None)?;
        fs::write(mark, lock)?;
        Ok(())
    }

    fn npm(&self, args: &[&str], out: Option<&Path>) -> Result<()> {
        println!("+ npm {}", args.join(" "));
        let mut command = Command::new("npm");
        command.args(args).current_dir(&self.folder);
        if let Some(out) = out {
            command.env("STEPWELL_UI_OUT", out);
        }
        let status = command.status().context("cannot run npm")?;
        match status.success() {
            true => Ok(()),
            false => bail!("`npm {}` ended with {status}", args.join(" ")),
        }
    }

    fn node(&self, args: &[&str], chromium: &Path, profile: Profile) -> Result<()> {
        let server = match std::env::var_os("STEPWELL_BIN") {
            Some(server) => PathBuf::from(server),
            None => match profile {
                Profile::Debug => self.repo.program()?.to_owned(),
                Profile::Release => {
                    let build = ["build", "-q", "--locked", "-p", "stepwell", "--release"];
                    self.repo.cargo_output(&build)?;
                    self.repo.root.join("target/release/stepwell")
                }
            },
        };
        println!("+ node {}", args.join(" "));
        let status = Command::new("node")
            .args(args)
            .current_dir(&self.folder)
            .env("STEPWELL_BIN", server)
            .env("STEPWELL_CHROMIUM", chromium)
            .status()
            .context("cannot run node")?;
        match status.success() {
            true => Ok(()),
            false => bail!("`node {}` ended with {status}", args.join(" ")),
        }
    }

    fn write(&self) -> Result<()> {
        self.npm(&["run", "--silent", "types"], None)?;
        let bundle = self.repo.root.join(BUNDLE);
        self.npm(&["run", "--silent", "build"], Some(&bundle))?;
        let files = read(&bundle)?;
        fs::write(self.repo.root.join(LIST), list(&files))?;
        self.weigh(&bundle)
    }

    fn check(&self) -> Result<()> {
        let scratch = std::env::temp_dir().join(format!("stepwell-ui-{}", std::process::id()));
        fs::create_dir_all(&scratch)?;
        let outcome = self.compare(&scratch);
        fs::remove_dir_all(&scratch).ok();
        outcome?;
        self.npm(&["run", "--silent", "check"], None)?;
        self.npm(&["test", "--silent"], None)
    }

    fn compare(&self, scratch: &Path) -> Result<()> {
        let types = scratch.join("schema.d.ts");
        let target = types.to_string_lossy();
        let args = [
            "exec",
            "--",
            "openapi-typescript",
            "../schemas/openapi.json",
            "-o",
            &target,
        ];
        self.npm(&args, None)?;
        if fs::read(&types)? != fs::read(self.repo.root.join(TYPES))? {
            bail!("{TYPES} is not made from schemas/openapi.json; run `cargo xtask ui`");
        }
        let made = scratch.join("bundle");
        self.npm(&["run", "--silent", "build"], Some(&made))?;
        let (wanted, found) = (read(&made)?, read(&self.repo.root.join(BUNDLE))?);
        let mut differing: Vec<&String> = wanted
            .keys()
            .filter(|path| found.get(*path) != wanted.get(*path))
            .collect();
        differing.extend(found.keys().filter(|path| !wanted.contains_key(*path)));
        if !differing.is_empty() {
            bail!(
                "{BUNDLE} is not what {SOURCES}/ gives: {differing:?} differ; run `cargo xtask ui`"
            );
        }
        if self.repo.read(LIST)? != list(&wanted) {
            bail!("{LIST} does not list the files of {BUNDLE}; run `cargo xtask ui`");
        }
        println!("ui: {} files are what the sources give", wanted.len());
        self.weigh(&made)
    }

    /// Prints what a browser loads, and fails if it is too much.
    fn weigh(&self, bundle: &Path) -> Result<()> {
        let status = Command::new("node")
            .arg("scripts/weigh.mjs")
            .arg(bundle)
            .current_dir(&self.folder)
            .status()
            .context("cannot run node")?;
        match status.success() {
            true => Ok(()),
            false => bail!("the bundle is too large"),
        }
    }
}

fn text_of(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(text)
}

/// The first number of a version such as `v20.1.0`.
fn major(version: &str) -> Option<u32> {
    version
        .trim()
        .trim_start_matches('v')
        .split('.')
        .next()?
        .parse()
        .ok()
}

/// The browser: the one that is named, one that is there, or one that can be installed.
fn chromium() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("STEPWELL_CHROMIUM").filter(|it| !it.is_empty()) {
        return Ok(PathBuf::from(named));
    }
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = || {
        let mut names = names.into_iter();
        names.find(|name| text_of(Command::new(name).arg("--version")).is_some())
    };
    if let Some(name) = found() {
        return Ok(PathBuf::from(name));
    }
    if is_root() && text_of(Command::new("apt-get").arg("--version")).is_some() {
        apt_get(&["update"])?;
        apt_get(&[
            "install",
            "-y",
            "--no-install-recommends",
            "chromium",
            "fonts-inter",
            "fonts-jetbrains-mono",
        ])?;
        if let Some(name) = found() {
            return Ok(PathBuf::from(name));
        }
    }
    bail!("Chromium is needed (Debian: apt-get install chromium)")
}

fn read(folder: &Path) -> Result<Files> {
    let mut files = Files::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        let entries =
            fs::read_dir(&next).with_context(|| format!("cannot list {}", next.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if let Some(name) = crate::repo::relative(folder, &path) {
                files.insert(name, fs::read(&path)?);
            }
        }
    }
    Ok(files)
}

/// The list of the files as Rust, in the form of rustfmt.
fn list(files: &Files) -> String {
    let mut text =
        "//! The files of the UI. Written by `cargo xtask ui`.\n\nuse super::UiFile;\n\n\
                    #[rustfmt::skip]\npub(super) const FILES: &[UiFile] = &[\n"
            .to_owned();
    for path in files.keys() {
        let kind = kind(path);
        text.push_str(&format!(
            "    UiFile {{ path: \"{path}\", kind: \"{kind}\", bytes: include_bytes!(\"../../ui/{path}\") }},\n"
        ));
    }
    text.push_str("];\n");
    text
}

fn kind(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_node_are_read() {
        assert_eq!(major("v20.20.2\n"), Some(20));
        assert_eq!(major("nothing"), None);
    }

    #[test]
    fn the_list_names_every_file_with_its_kind() {
        let files = Files::from([
            ("index.html".to_owned(), Vec::new()),
            ("assets/app.js".to_owned(), Vec::new()),
        ]);
        let text = list(&files);
        assert!(text.contains("path: \"assets/app.js\", kind: \"text/javascript; charset=utf-8\""));
        assert!(text.contains("include_bytes!(\"../../ui/index.html\")"));
    }
}
