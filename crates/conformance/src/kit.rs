//! Many scenarios on many columns: which of them apply, playing them side by side, and what came out.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, bail};

use crate::play::{self, FailedStep};
use crate::read;
use crate::report;
use crate::scenario::{Ability, Scenario};
use crate::want::like;
use crate::world::World;

/// The scenario files of the repository, built in.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

/// The numbered statements: number, section, text.
pub(crate) const STATEMENTS: &str = include_str!(concat!(env!("OUT_DIR"), "/statements.tsv"));

/// The kinds of stores that the kit knows the abilities of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Memory,
    Sqlite,
    Postgres(String),
    Other(String),
}

/// A store and an engine that scenarios are played on: one column of the table.
#[derive(Clone, Debug)]
pub struct Column {
    pub(crate) name: String,
    pub(crate) store: StoreKind,
    pub(crate) engine: String,
    /// Whether the commands go to a server over HTTP, which has the store.
    pub(crate) has_server: bool,
}

impl Column {
    /// The column of a store with the native engine: `memory`, `sqlite`, `postgres:URL` or the address of another store.
    pub fn of_store(text: &str) -> Result<Column> {
        let (name, store) = match text {
            "memory" | "memory:" => ("memory", StoreKind::Memory),
            "sqlite" | "sqlite:" => ("sqlite", StoreKind::Sqlite),
            _ => match text.split_once(':') {
                Some(("postgres", url)) if url.starts_with("postgres") => {
                    ("postgres", StoreKind::Postgres(url.to_owned()))
                }
                Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                    ("postgres", StoreKind::Postgres(text.to_owned()))
                }
                Some((scheme, rest)) if !rest.is_empty() && scheme != "sqlite" => {
                    (scheme, StoreKind::Other(text.to_owned()))
                }
                _ => bail!(
                    "{text:?} names no store; write memory, sqlite, postgres:URL, or the address of another store"
                ),
            },
        };
        Ok(Column {
            name: name.to_owned(),
            store,
            engine: "native".to_owned(),
            has_server: false,
        })
    }

    /// The native engine on SQLite, under its own name: other engines are compared with it.
    pub fn native() -> Result<Column> {
        let sqlite = Column::of_store("sqlite")?;
        Ok(Column {
            name: "native".to_owned(),
            ..sqlite
        })
    }

    /// The column of a server: each scenario has a server of its own on SQLite, and all commands go there over HTTP.
    #[must_use]
    pub fn of_server() -> Column {
        Column {
            name: "server".to_owned(),
            store: StoreKind::Sqlite,
            engine: "native".to_owned(),
            has_server: true,
        }
    }

    /// The column of an engine that is not the native one: its name, or its address, which begins with its name. Its runs are
    /// kept in SQLite.
    #[must_use]
    pub fn of_engine(engine: &str) -> Column {
        let name = engine.split([':', '+']).next().unwrap_or(engine);
        Column {
            name: name.to_owned(),
            store: StoreKind::Sqlite,
            engine: engine.to_owned(),
            has_server: false,
        }
    }

    /// The column of an engine on a store, with the name of the store behind that of the engine.
    pub fn of_engine_on(engine: &str, store: &str) -> Result<Column> {
        let (column, store) = (Column::of_engine(engine), Column::of_store(store)?);
        Ok(match store.store {
            StoreKind::Sqlite => column,
            kind => Column {
                name: format!("{}-{}", column.name, store.name),
                store: kind,
                ..column
            },
        })
    }

    /// The engine, as reasons of exemptions name it.
    pub(crate) fn engine_name(&self) -> &str {
        self.engine.split([':', '+']).next().unwrap_or_default()
    }

    fn can(&self, ability: Ability) -> bool {
        match (ability, &self.store) {
            // The server owns the store: a program cannot have it too, and nobody waits for it.
            (Ability::Program | Ability::Owned | Ability::Clock, _) if self.has_server => false,
            // Runs with a virtual clock are always in memory, also those of the mock engine. An engine outside has its own time.
            // The kit knows whether it has a program; every store can be used by one.
            (Ability::Program, _) => true,
            (Ability::Clock, store) => *store == StoreKind::Memory || self.engine == "mock",
            (_, StoreKind::Memory) => false,
            (Ability::Kept, _) => true,
            (Ability::Sql, store) => !matches!(store, StoreKind::Other(_)),
            (Ability::Shared, store) => matches!(store, StoreKind::Postgres(_)),
            (Ability::Owned, store) => *store == StoreKind::Sqlite,
        }
    }

    /// Why a scenario is not played here.
    fn refuses(&self, scenario: &Scenario) -> Option<String> {
        let exempt = scenario.exempt.get(&self.name);
        if let Some(why) = exempt.or_else(|| scenario.exempt.get(self.engine_name())) {
            return Some(format!("exempt: {why}"));
        }
        let missing = scenario.needs.iter().find(|it| !self.can(**it))?;
        Some(format!("needs {}", missing.name()))
    }
}

/// What is played, and how.
#[derive(Debug)]
pub struct Kit {
    pub scenarios: Vec<Scenario>,
    pub columns: Vec<Column>,
    /// The program that is driven.
    pub binary: PathBuf,
    /// A program that embeds the engine, with the handlers of `examples/kit_handlers.rs`.
    pub program: Option<PathBuf>,
    /// How many scenarios are played at the same time.
    pub jobs: usize,
    /// Keep the folders of scenarios that failed.
    pub keeps: bool,
    /// Begin no other scenario once one has failed.
    pub fails_fast: bool,
    /// Print a line for each scenario that is played.
    pub is_talkative: bool,
}

/// What came of a scenario on a column.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Passed,
    /// Failed, and what is wrong was known: the reason.
    Known(String, FailedStep),
    Failed(FailedStep),
    /// Passed, although it says what is wrong.
    Fixed(String),
    NotApplicable(String),
}

impl Verdict {
    fn is_bad(&self) -> bool {
        match self {
            Verdict::Failed(_) | Verdict::Fixed(_) => true,
            Verdict::Passed | Verdict::Known(..) | Verdict::NotApplicable(_) => false,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Played {
    pub(crate) scenario: usize,
    pub(crate) column: usize,
    pub(crate) verdict: Verdict,
    pub(crate) time: Duration,
    /// The folder of a failed scenario, if it was kept.
    pub(crate) folder: Option<PathBuf>,
}

/// What came of all scenarios.
#[derive(Debug)]
pub struct KitResults {
    pub(crate) scenarios: Vec<Scenario>,
    pub(crate) columns: Vec<String>,
    pub(crate) played: Vec<Played>,
    pub(crate) time: Duration,
}

impl KitResults {
    /// Whether everything is as it should be: nothing failed but what is known, and nothing known has begun to pass.
    #[must_use]
    pub fn is_good(&self) -> bool {
        !self.played.iter().any(|it| it.verdict.is_bad())
    }

    /// The table and the failures, for people.
    #[must_use]
    pub fn text(&self) -> String {
        report::text(self)
    }

    /// Every scenario and every cell of the table, for programs.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        report::json(self)
    }
}

/// The scenarios that are built in and whose path, title or statement fits a pattern.
pub fn load_built_in(pattern: Option<&str>) -> Result<Vec<Scenario>> {
    let files = BUILT_IN
        .iter()
        .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
    load(files.collect(), pattern)
}

/// The scenarios below a folder.
pub fn load_folder(folder: &Path, pattern: Option<&str>) -> Result<Vec<Scenario>> {
    let mut files = Vec::new();
    collect(folder, "", &mut files)
        .with_context(|| format!("cannot read the scenarios in {}", folder.display()))?;
    files.sort();
    load(files, pattern)
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{prefix}{name}");
        if path.is_dir() {
            collect(&path, &format!("{name}/"), files)?;
        } else if path.extension().is_some_and(|it| it == "yaml") {
            files.push((name, fs::read(&path)?));
        }
    }
    Ok(())
}

fn load(files: Vec<(String, Vec<u8>)>, pattern: Option<&str>) -> Result<Vec<Scenario>> {
    let is_statement = |number: &str| statements().any(|(it, _)| it == number);
    let mut scenarios = Vec::new();
    let mut problems = String::new();
    for (name, bytes) in files {
        match read::scenario(&name, &bytes, is_statement) {
            Ok(scenario) => scenarios.push(scenario),
            Err(text) => problems.push_str(&text),
        }
    }
    if !problems.is_empty() {
        bail!("scenario files have errors\n{problems}");
    }
    if let Some(pattern) = pattern {
        scenarios.retain(|it| fits(it, pattern));
        if scenarios.is_empty() {
            bail!(
                "no scenario fits {pattern:?}; write a statement (A24), a part of a path, or a pattern with *"
            );
        }
    }
    Ok(scenarios)
}

/// The numbered statements: number and text.
pub(crate) fn statements() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = STATEMENTS.lines().skip(1);
    lines.filter_map(|line| {
        let mut cells = line.split('\t');
        let number = cells.next()?;
        Some((number, cells.nth(1)?))
    })
}

fn fits(scenario: &Scenario, pattern: &str) -> bool {
    let is_number = |it: &String| it.eq_ignore_ascii_case(pattern);
    scenario.statements.iter().any(is_number)
        || match pattern.contains('*') {
            true => like(pattern, &scenario.file),
            false => {
                scenario.file.contains(pattern)
                    && statements().all(|(it, _)| !it.eq_ignore_ascii_case(pattern))
            }
        }
}

impl Kit {
    /// Plays all scenarios on all columns.
    pub fn play(self) -> Result<KitResults> {
        let begin = Instant::now();
        let pairs: Vec<(usize, usize)> = (0..self.columns.len())
            .flat_map(|column| (0..self.scenarios.len()).map(move |it| (it, column)))
            .collect();
        let next = AtomicUsize::new(0);
        let is_over = AtomicBool::new(false);
        let played = Mutex::new(Vec::with_capacity(pairs.len()));
        thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while let Some(&(scenario, column)) =
                        pairs.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        if is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        let one = self.one(scenario, column);
                        if self.fails_fast && one.verdict.is_bad() {
                            is_over.store(true, Ordering::Relaxed);
                        }
                        let mut played = played
                            .lock()
                            .unwrap_or_else(std::sync::PoisonError::into_inner);
                        if self.is_talkative {
                            let name = &self.columns[column].name;
                            eprintln!("{}", report::line(&self.scenarios[scenario], name, &one));
                        }
                        played.push(one);
                    }
                });
            }
        });
        let mut played = played
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        played.sort_by_key(|it: &Played| (it.scenario, it.column));
        Ok(KitResults {
            columns: self.columns.iter().map(|it| it.name.clone()).collect(),
            scenarios: self.scenarios,
            played,
            time: begin.elapsed(),
        })
    }

    fn one(&self, at: usize, column_at: usize) -> Played {
        let (scenario, column) = (&self.scenarios[at], &self.columns[column_at]);
        let begin = Instant::now();
        let played = |verdict: Verdict, folder: Option<PathBuf>| Played {
            scenario: at,
            column: column_at,
            verdict,
            time: begin.elapsed(),
            folder,
        };
        let wants_program = scenario.needs.contains(&Ability::Program);
        let no_program = (wants_program && self.program.is_none())
            .then(|| "needs program: none is beside the binary".to_owned());
        if let Some(why) = column.refuses(scenario).or(no_program) {
            return played(Verdict::NotApplicable(why), None);
        }
        let mut kept = None;
        let programs = (self.binary.as_path(), self.program.as_deref());
        let result = match World::new(scenario, column, programs, folder(at, column_at)) {
            Ok(mut world) => {
                let result = play::play(scenario, &mut world);
                if result.is_err() && self.keeps {
                    world.is_kept = true;
                    kept = Some(world.folder.clone());
                }
                result
            }
            Err(why) => Err(FailedStep {
                line: 1,
                step: "before the first step".to_owned(),
                why,
            }),
        };
        let verdict = match (result, scenario.known_on(&column.name)) {
            (Ok(()), None) => Verdict::Passed,
            (Ok(()), Some(known)) => Verdict::Fixed(known.to_owned()),
            (Err(failed), None) => Verdict::Failed(failed),
            (Err(failed), Some(known)) => Verdict::Known(known.to_owned(), failed),
        };
        played(verdict, kept)
    }
}

/// A folder that no other scenario has, in this process or another.
pub(crate) fn folder(scenario: usize, column: usize) -> PathBuf {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |it| it.as_micros() % 1_000_000_000_000);
    let name = format!("kit-{}-{now}-{scenario}-{column}", std::process::id());
    std::env::temp_dir().join(name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]
mod tests {
    use super::*;

    #[test]
    fn all_scenarios_of_the_repository_can_be_read() {
        let scenarios = load_built_in(None).unwrap();
        assert!(!scenarios.is_empty());
        assert_eq!(statements().count(), 166);
    }

    #[test]
    fn columns_have_the_abilities_of_their_stores() {
        let memory = Column::of_store("memory").unwrap();
        let postgres = Column::of_store("postgres:postgresql://me@db/x").unwrap();
        let mock = Column::of_engine("mock");
        assert!(memory.can(Ability::Clock) && !memory.can(Ability::Kept));
        assert!(postgres.can(Ability::Shared) && !postgres.can(Ability::Owned));
        assert!(mock.can(Ability::Clock) && mock.can(Ability::Kept));
        let server = Column::of_server();
        assert!(server.can(Ability::Kept) && server.can(Ability::Sql));
        assert!(!server.can(Ability::Clock) && !server.can(Ability::Program));
        assert!(Column::of_store("nowhere").is_err());
    }

    #[test]
    fn a_bad_file_says_where_and_what_to_write() {
        let text = "statements: [A99]\ntitle: x\nneeds: [disk]\nsteps:\n  - call: run f.yaml --store x\n    exits: 3\n  - file: out\n    are: [{$hass: x}]\n  - sleep: 1s\n    kill: it\n";
        let error = load(
            vec![("bad.yaml".to_owned(), text.as_bytes().to_vec())],
            None,
        );
        let error = error.unwrap_err().to_string();
        for part in [
            "bad.yaml:1:14",
            "there is no statement A99",
            "kept",
            "the runner adds --store",
            "did you mean `exit`",
            "$hass is no condition",
            "a step is one thing",
        ] {
            assert!(error.contains(part), "{part} is not in\n{error}");
        }
    }
}
