//! A scratch copy of the checkout in which faults are planted, one at a time: built, played and taken out again.
//!
//! The copy has a target folder of its own, which all faults share, so that each build compiles only what a fault
//! changes. The program without any fault is kept beside it: it plays the scenarios against the program with the fault,
//! and it must pass each scenario that is said to have caught one.

use super::patch::{Mutant, PlayedOn};
use crate::cluster::Cluster;
use crate::postgres;
use crate::repo::Repo;
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A fault may let a test or the kit run without end.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// The program with the handlers of the kit: where it is beside the program.
const HANDLERS: &str = "examples/kit_handlers";

/// What came of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A scenario or a test failed: which.
    Caught(String),
    /// No scenario and no test failed.
    Survived,
    /// The patch does not apply, the program with the fault cannot be built, or what failed fails without the fault too.
    Invalid(String),
}

/// The scratch copy, and the program that was built from it without a fault.
pub(crate) struct Trial<'a> {
    repo: &'a Repo,
    copy: Repo,
    /// Where the copy, its target folder and what is printed are.
    folder: PathBuf,
    /// The address of a PostgreSQL, and the server if it is ours.
    server: Option<(String, Option<Cluster>)>,
    /// What the program without faults made of scenarios, by scenario and column: whether they passed.
    passed: BTreeMap<(String, &'static str), bool>,
}

impl<'a> Trial<'a> {
    /// Makes the copy, or brings it up to date, and builds the program without faults. The tests that the faults name
    /// must pass.
    pub(crate) fn prepare(repo: &'a Repo, mutants: &[Mutant]) -> Result<Trial<'a>> {
        let folder = repo.root.join("target/mutants");
        let copy = Repo::at(folder.join("checkout"));
        bring_up_to_date(repo, &copy)?;
        let on_postgres = mutants
            .iter()
            .any(|it| it.columns.contains(&PlayedOn::Postgres));
        let mut trial = Trial {
            repo,
            copy,
            folder,
            server: None,
            passed: BTreeMap::new(),
        };
        if on_postgres {
            let given = std::env::var(postgres::VARIABLE).ok();
            trial.server = Some(match given.filter(|url| !url.is_empty()) {
                Some(url) => (url, None),
                None => {
                    let cluster = postgres::private()?;
                    (cluster.url(), Some(cluster))
                }
            });
        }
        if let Err(why) = trial.build()? {
            bail!("the program cannot be built without a fault either:\n{why}");
        }
        fs::copy(trial.program(), trial.sound()).context("cannot keep the program")?;
        fs::create_dir_all(trial.folder.join("examples"))?;
        fs::copy(
            trial.folder.join("target/debug").join(HANDLERS),
            trial.folder.join(HANDLERS),
        )
        .context("cannot keep the program with handlers")?;
        let mut tests: Vec<&String> = mutants.iter().flat_map(|it| &it.tests).collect();
        tests.sort();
        tests.dedup();
        for test in tests {
            if !trial.test(test)?.0 {
                bail!("`cargo test {test}` fails without a fault too");
            }
        }
        Ok(trial)
    }

    /// The program as the copy was when it was built last.
    fn program(&self) -> PathBuf {
        self.folder.join("target/debug/stepwell")
    }

    /// The program without faults.
    fn sound(&self) -> PathBuf {
        self.folder.join("stepwell")
    }

    /// Plants a fault, looks who notices, and takes it out again.
    pub(crate) fn of(&mut self, mutant: &Mutant) -> Result<Outcome> {
        let mut before = Vec::new();
        for file in mutant.files() {
            let path = self.copy.root.join(file);
            let text = self.copy.read(file)?;
            match mutant.apply(file, &text) {
                Ok(planted) => before.push((path, text, planted)),
                Err(error) => return Ok(Outcome::Invalid(error.to_string())),
            }
        }
        for (path, _, planted) in &before {
            fs::write(path, planted)?;
        }
        let outcome = self.look(mutant);
        for (path, text, _) in &before {
            fs::write(path, text)?;
        }
        outcome
    }

    fn look(&mut self, mutant: &Mutant) -> Result<Outcome> {
        if let Err(why) = self.build()? {
            let why = why.lines().find(|it| it.starts_with("error"));
            let why = why.unwrap_or("no message").to_owned();
            return Ok(Outcome::Invalid(format!("it cannot be built: {why}")));
        }
        // The scenarios that its file names, then its tests, then all scenarios.
        for pattern in mutant.plays.iter().map(Some) {
            if let Some(outcome) = self.played(mutant, pattern)? {
                return Ok(outcome);
            }
        }
        for test in &mutant.tests {
            let (passed, text) = self.test(test)?;
            if !passed {
                let failed = text.lines().find_map(|line| {
                    let name = line.strip_prefix("test ")?;
                    Some(name.strip_suffix(" ... FAILED")?.to_owned())
                });
                // Without a failed test it did not even run.
                return Ok(match failed {
                    Some(name) => Outcome::Caught(format!("test {name}")),
                    None => Outcome::Invalid(format!("`cargo test {test}` did not run to its end")),
                });
            }
        }
        Ok(self.played(mutant, None)?.unwrap_or(Outcome::Survived))
    }

    /// Plays scenarios on the columns of a fault; nothing if all passed.
    fn played(&mut self, mutant: &Mutant, pattern: Option<&String>) -> Result<Option<Outcome>> {
        for column in &mutant.columns {
            let program = self.program();
            let Some(failed) = self.play(&program, pattern.map(String::as_str), *column)? else {
                continue;
            };
            let key = (failed.file.clone(), column.name());
            let passes = match self.passed.get(&key) {
                Some(passes) => *passes,
                None => {
                    let sound = self.sound();
                    let again = self.play(&sound, Some(&failed.file), *column)?;
                    self.passed.insert(key, again.is_none());
                    again.is_none()
                }
            };
            let (file, line, column) = (failed.file, failed.line, column.name());
            return Ok(Some(match passes {
                true => Outcome::Caught(format!("{file}:{line} on {column}")),
                false => {
                    Outcome::Invalid(format!("{file} fails on {column} without the fault too"))
                }
            }));
        }
        Ok(None)
    }

    /// Plays scenarios against a program until one fails: that one.
    fn play(
        &self,
        program: &Path,
        pattern: Option<&str>,
        column: PlayedOn,
    ) -> Result<Option<FailedScenario>> {
        let found = self.folder.join("results.json");
        fs::remove_file(&found).ok();
        let mut command = Command::new(self.sound());
        command
            .args(["conformance", "--fail-fast", "--json"])
            .arg(&found)
            .arg("--dir")
            .arg(self.repo.root.join("conformance"))
            .arg("--program")
            .arg(program);
        match column {
            PlayedOn::Memory => command.args(["--store", "memory"]),
            PlayedOn::Sqlite => command.args(["--store", "sqlite"]),
            PlayedOn::Mock => command.args(["--engine", "mock"]),
            PlayedOn::Postgres => {
                let server = self.server.as_ref().context("no PostgreSQL was started")?;
                command.args(["--store", &format!("postgres:{}", server.0)])
            }
        };
        command.args(pattern);
        let (_, text) = self.finish(command)?;
        let Ok(results) = fs::read(&found) else {
            bail!("the kit could not be played:\n{text}");
        };
        let results: serde_json::Value = serde_json::from_slice(&results)?;
        let all = results["scenarios"].as_array();
        let failed = all.into_iter().flatten().find(|it| {
            let outcome = it["outcome"].as_str();
            matches!(outcome, Some("failed" | "fixed"))
        });
        Ok(failed.map(|it| FailedScenario {
            file: it["file"].as_str().unwrap_or_default().to_owned(),
            line: it["failure"]["line"].as_u64().unwrap_or_default(),
        }))
    }

    fn cargo(&self, args: &[&str]) -> Command {
        let mut command = self.copy.cargo(args);
        command.env("CARGO_TARGET_DIR", self.folder.join("target"));
        if let Some((url, _)) = &self.server {
            command.env(postgres::VARIABLE, url);
        }
        command
    }

    /// Builds the program as the copy is now; the inner error is what the compiler says.
    fn build(&self) -> Result<Result<(), String>> {
        // The program with handlers is played too, where a scenario needs it.
        let mut words = vec!["build", "--locked", "--quiet", "-p", "stepwell"];
        words.extend(["--bins", "--example", "kit_handlers"]);
        let (good, text) = self.finish(self.cargo(&words))?;
        Ok(match good {
            true => Ok(()),
            false => Err(text),
        })
    }

    /// Runs tests: whether all passed, and their output.
    fn test(&self, args: &str) -> Result<(bool, String)> {
        let mut words = vec!["test", "--locked"];
        words.extend(args.split_whitespace());
        self.finish(self.cargo(&words))
    }

    /// Runs a command to its end, or to the end of its time: whether it succeeded, and what it printed.
    fn finish(&self, mut command: Command) -> Result<(bool, String)> {
        let path = self.folder.join("output.txt");
        let output = File::create(&path)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        let mut child = command.spawn()?;
        let begin = Instant::now();
        let status = loop {
            match child.try_wait()? {
                None if begin.elapsed() > LIMIT => {
                    end_group(&mut child)?;
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(20)),
                status => break status,
            }
        };
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        Ok((status.is_some_and(|it| it.success()), text))
    }
}

/// A scenario that was not as wanted, and the line of the step.
struct FailedScenario {
    file: String,
    line: u64,
}

/// Ends a command with all that it started.
fn end_group(child: &mut Child) -> Result<()> {
    let group = format!("-{}", child.id());
    let kill = Command::new("kill").args(["-KILL", "--", &group]).status();
    kill.context("cannot end a command that takes too long")?;
    child.wait()?;
    Ok(())
}

/// Makes the copy the same as the checkout. What is the same already is not touched, so that it is not compiled again.
fn bring_up_to_date(repo: &Repo, copy: &Repo) -> Result<()> {
    let files = repo.files()?;
    fs::create_dir_all(&copy.root)?;
    for file in &files {
        let (from, to) = (repo.root.join(file), copy.root.join(file));
        let bytes = fs::read(&from)?;
        if fs::read(&to).is_ok_and(|it| it == bytes) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(&from, &to).with_context(|| format!("cannot copy {file}"))?;
    }
    for file in copy.files()? {
        if files.binary_search(&file).is_err() {
            fs::remove_file(copy.root.join(&file))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_brought_up_to_date_and_loses_what_is_gone() {
        let folder = std::env::temp_dir().join(format!("xtask-copy-{}", std::process::id()));
        let [repo, copy] = ["from", "to"].map(|it| Repo::at(folder.join(it)));
        fs::create_dir_all(repo.root.join("src")).unwrap();
        fs::write(repo.root.join("src/a.rs"), "1").unwrap();
        fs::write(repo.root.join("b.rs"), "1").unwrap();
        bring_up_to_date(&repo, &copy).unwrap();
        fs::write(repo.root.join("src/a.rs"), "2").unwrap();
        fs::remove_file(repo.root.join("b.rs")).unwrap();
        bring_up_to_date(&repo, &copy).unwrap();
        assert_eq!(copy.files().unwrap(), ["src/a.rs"]);
        assert_eq!(copy.read("src/a.rs").unwrap(), "2");
        fs::remove_dir_all(&folder).unwrap();
    }
}
