//! `cargo xtask mutants`: faults that are planted on purpose, one at a time, to see that the conformance kit or a test
//! notices each of them. What a fault is, is in `patch.rs`; how one is tried, in `trial.rs`.

mod patch;
mod trial;

use crate::repo::Repo;
use anyhow::{Context as _, Result, bail};
use patch::Mutant;
use serde_json::json;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;
use trial::{Outcome, Trial};

pub(crate) const HELP: &str = "\
Plants faults in a copy of the checkout, one at a time, and expects the conformance kit or a test to notice each.

Usage: cargo xtask mutants [--list | --check] [--json] [PATTERN]

  PATTERN  only the faults whose name, package or statements contain it
  --list   list the faults, try nothing
  --check  only check that each patch applies and names scenarios, tests and packages that exist; quick
  --json   print the results as JSON

The faults are the patches of conformance/mutants; conformance/README.md describes them. For each: the patch is applied
to a copy of the checkout (target/mutants/checkout, with a target folder of its own that all faults share), the program
is built, the scenarios that the patch names are played on SQLite (or where it says), then its tests are run, then the
whole kit is played, until one of them fails. What fails must pass without the fault. The table says what caught each
fault. The exit code is 1 if a fault survives, if a patch does not apply, or if a program with a fault cannot be built.

A survivor is a promise that nobody looks at: write a scenario that fails with the fault, and name it in the patch. A
patch that does not apply any more is written again for the code as it is now. The first call compiles everything once.
";

/// Where the patches are.
const FOLDER: &str = "conformance/mutants";
/// Fewer faults than these would say little about the kit.
const FEWEST: usize = 30;

/// Packages on which the fewest others depend come first: their faults are tried in the shortest time.
const ORDER: &[&str] = &[
    "stepwell",
    "stepwell-bus",
    "stepwell-client",
    "stepwell-worker",
    "stepwell-stores",
    "stepwell-engine",
    "stepwell-dialects",
    "stepwell-kernel",
];

fn place(package: &str) -> usize {
    let found = ORDER.iter().position(|it| *it == package);
    found.unwrap_or(ORDER.len())
}

#[derive(Default)]
struct Options {
    lists: bool,
    checks: bool,
    json: bool,
    pattern: Option<String>,
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    let options = options(args)?;
    let all = load(repo)?;
    if options.checks {
        return check(repo, &all);
    }
    let mut chosen = all;
    if let Some(pattern) = &options.pattern {
        chosen.retain(|it| fits(it, pattern));
        if chosen.is_empty() {
            bail!("no fault fits {pattern:?}; `cargo xtask mutants --list` lists all");
        }
    }
    if options.lists {
        return list(&chosen, options.json);
    }
    // Faults of one package follow each other: then the least is compiled.
    chosen.sort_by_key(|it| (place(&it.package), it.package.clone(), it.name.clone()));
    let mut trial = Trial::prepare(repo, &chosen)?;
    let mut results = Vec::new();
    for mutant in &chosen {
        let begin = Instant::now();
        let outcome = trial.of(mutant)?;
        let seconds = begin.elapsed().as_secs_f64();
        // Standard output is for the results.
        eprintln!("{:<42} {} ({seconds:.0} s)", mutant.name, text(&outcome));
        results.push((mutant, outcome, seconds));
    }
    report(&results, options.json)
}

fn options(args: &[String]) -> Result<Options> {
    let mut options = Options::default();
    for arg in args {
        match arg.as_str() {
            "--list" => options.lists = true,
            "--check" => options.checks = true,
            "--json" => options.json = true,
            other if other.starts_with('-') => bail!("unknown argument `{other}`; try --help"),
            other if options.pattern.is_none() => options.pattern = Some(other.to_owned()),
            other => bail!("{other:?} is a second pattern; write one"),
        }
    }
    Ok(options)
}

fn load(repo: &Repo) -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for file in repo.files()? {
        let path = Path::new(&file);
        if path.parent() == Some(Path::new(FOLDER))
            && path.extension().is_some_and(|it| it == "patch")
        {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let mutant = Mutant::read(&name, &repo.read(&file)?);
            mutants.push(mutant.with_context(|| format!("{file} cannot be read"))?);
        }
    }
    Ok(mutants)
}

fn fits(mutant: &Mutant, pattern: &str) -> bool {
    let has = |text: &str| text.contains(pattern);
    let is_statement = mutant.breaks.split([',', ' ']).any(|it| it == pattern);
    is_statement || has(&mutant.name) || has(&mutant.package)
}

/// Everything that can be known without building.
fn check(repo: &Repo, mutants: &[Mutant]) -> Result<()> {
    let mut problems = Vec::new();
    let files = repo.files()?;
    let tests = files
        .iter()
        .filter(|it| it.starts_with("crates/") && it.ends_with(".rs"));
    let mut sources: Option<Vec<String>> = None;
    for mutant in mutants {
        let mut say = |why: String| problems.push(format!("{FOLDER}/{}.patch: {why}", mutant.name));
        for file in mutant.files() {
            let applied = repo.read(file).and_then(|text| mutant.apply(file, &text));
            if let Err(error) = applied {
                say(format!("{error:#}"));
            }
            let folder = mutant.package.trim_start_matches("stepwell-");
            if !file.starts_with(&format!("crates/{folder}/")) {
                say(format!("{file} is not in the package {}", mutant.package));
            }
        }
        for pattern in &mutant.plays {
            if !repo.exists(&format!("conformance/{pattern}")) {
                say(format!("there is no scenario conformance/{pattern}"));
            }
        }
        for name in mutant.test_names() {
            let sources = match &sources {
                Some(sources) => sources,
                None => {
                    let read = tests.clone().map(|it| repo.read(it));
                    sources.insert(read.collect::<Result<_>>()?)
                }
            };
            if !sources.iter().any(|it| it.contains(&format!("fn {name}("))) {
                say(format!("there is no test {name}"));
            }
        }
    }
    if mutants.len() < FEWEST {
        problems.push(format!(
            "{} faults; at least {FEWEST} are wanted",
            mutants.len()
        ));
    }
    if problems.is_empty() {
        println!("{} faults can be planted", mutants.len());
        return Ok(());
    }
    bail!("{}", problems.join("\n"))
}

fn list(mutants: &[Mutant], as_json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if as_json {
        let all = mutants.iter().map(described);
        let all: Vec<_> = all.collect();
        writeln!(out, "{:#}", json!(all))?;
        return Ok(());
    }
    for it in mutants {
        writeln!(
            out,
            "{:<42} {:<18} {}: {}",
            it.name, it.package, it.breaks, it.title
        )?;
    }
    writeln!(out, "{} faults", mutants.len())?;
    Ok(())
}

fn described(mutant: &Mutant) -> serde_json::Value {
    let columns: Vec<&str> = mutant.columns.iter().map(|it| it.name()).collect();
    json!({
        "name": mutant.name,
        "title": mutant.title,
        "breaks": mutant.breaks,
        "package": mutant.package,
        "columns": columns,
    })
}

fn text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Caught(by) => by.clone(),
        Outcome::Survived => "SURVIVED".to_owned(),
        Outcome::Invalid(why) => format!("INVALID: {why}"),
    }
}

fn report(results: &[(&Mutant, Outcome, f64)], as_json: bool) -> Result<()> {
    let is_caught = |outcome: &Outcome| matches!(outcome, Outcome::Caught(_));
    let caught = results.iter().filter(|it| is_caught(&it.1)).count();
    let mut out = std::io::stdout().lock();
    if as_json {
        let rows = results.iter().map(|(mutant, outcome, seconds)| {
            let mut row = described(mutant);
            let (word, why) = match outcome {
                Outcome::Caught(by) => ("caught", Some(by)),
                Outcome::Survived => ("survived", None),
                Outcome::Invalid(why) => ("invalid", Some(why)),
            };
            row["outcome"] = json!(word);
            row["by"] = json!(why);
            row["seconds"] = json!(seconds.round());
            row
        });
        let rows: Vec<_> = rows.collect();
        writeln!(out, "{:#}", json!(rows))?;
    } else {
        writeln!(out, "{:<42} caught by", "mutant")?;
        for (mutant, outcome, _) in results {
            writeln!(out, "{:<42} {}", mutant.name, text(outcome))?;
        }
        writeln!(out, "{caught} of {} faults were caught", results.len())?;
    }
    match caught == results.len() {
        true => Ok(()),
        false => bail!(
            "{} faults were not caught; write a scenario for each that survived",
            results.len() - caught
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_of_the_repository_can_be_planted() {
        let repo = Repo::find().unwrap();
        let mutants = load(&repo).unwrap();
        check(&repo, &mutants).unwrap();
    }

    #[test]
    fn options_are_read_and_others_refused() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let read = options(&words("--json A12")).unwrap();
        assert!(read.json && read.pattern.as_deref() == Some("A12"));
        assert!(options(&words("--jsn")).is_err());
        assert!(options(&words("one two")).is_err());
    }
}
