//! `cargo xtask growth`: long plans and long loops through the binary, at two sizes, to see that the time of a run grows
//! with its length and not with the square of it, and that its memory stays within bounds.

use crate::repo::Repo;
use anyhow::{Context as _, Result, bail};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

pub(crate) const HELP: &str = "\
Runs long plans and long loops with the release build of `stepwell`, at two sizes, and compares them: processor time
and most memory. Linux only.

Usage: cargo xtask growth [--steps N] [--only NAME]

Without options the small size is 4,000 steps and the large one 20,000, the most that a plan may have. The exit code is
not 0 if five times the steps take more than eight times the processor, if a run does not end well, or if the large
size takes more memory than 60 MB and 18 KB for each step. Other programs on the machine disturb the figures a
little: processor time is compared, not elapsed time.
";

/// How much larger the large size is.
const FACTOR: usize = 5;
/// How much more processor time it may take. Five would be linear; caches and the depth of trees add to it.
const MOST: f64 = 8.0;
/// Time that every command takes, whatever the size: it is taken off before sizes are compared.
const EVEN: f64 = 0.03;
/// The most memory of a run, in MB, as a share for each step and the rest.
const MEMORY: (f64, f64) = (0.018, 60.0);

/// A definition of a given size, and how it is run.
struct Workload {
    name: &'static str,
    definition: fn(usize) -> String,
    args: &'static [&'static str],
}

const NATIVE: &[&str] = &["--parallel", "64"];
const WIDE: &[&str] = &["--parallel", "1000"];
const MOCK: &[&str] = &["--engine", "mock"];
const VIRTUAL: &[&str] = &["--engine", "mock", "--virtual-time"];

const WORKLOADS: [Workload; 13] = [
    workload("actions", actions, NATIVE),
    workload("dag-chain", |n| dag(n, chain), NATIVE),
    workload("dag-wide", |n| dag(n, star), WIDE),
    workload("dag-layers", |n| dag(n, layers), NATIVE),
    workload("plan", |n| plan(n, |_| Vec::new()), NATIVE),
    workload("plan-star", |n| plan(n, star), WIDE),
    workload("linear", linear, NATIVE),
    workload("playbook", |n| playbook(n, ""), NATIVE),
    workload("playbook-ctx", |n| playbook(n, "ctx"), NATIVE),
    workload("loop", loop_over, WIDE),
    workload("mock", actions, MOCK),
    workload("mock-virtual", actions, VIRTUAL),
    workload("mock-approvals", approvals, VIRTUAL),
];

const fn workload(
    name: &'static str,
    definition: fn(usize) -> String,
    args: &'static [&'static str],
) -> Workload {
    Workload {
        name,
        definition,
        args,
    }
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<()> {
    let (steps, only) = options(args)?;
    let words = ["build", "--locked", "--release", "-p", "stepwell"];
    if !repo.cargo(&words).status()?.success() {
        bail!("the program cannot be built");
    }
    let program = target(repo).join("release/stepwell");
    let folder = target(repo).join("tmp/growth");
    let chosen: Vec<&Workload> = WORKLOADS
        .iter()
        .filter(|it| only.as_ref().is_none_or(|only| it.name == only))
        .collect();
    if chosen.is_empty() {
        let all = WORKLOADS.map(|it| it.name).join(", ");
        bail!("there is no such workload; there are {all}");
    }
    println!("workload         steps  processor  memory   steps  processor  memory   factor");
    let mut wrong = Vec::new();
    for it in chosen {
        let sizes = [steps, steps * FACTOR];
        let [small, large] = sizes.map(|size| Figures::of(it, size, &program, &folder));
        let (small, large) = (small?, large?);
        let factor = (large.processor - EVEN) / (small.processor - EVEN).max(EVEN);
        println!(
            "{:<15} {} {}   {factor:.1}",
            it.name,
            small.text(sizes[0]),
            large.text(sizes[1])
        );
        if factor > MOST {
            wrong.push(format!("{}: {factor:.1} times the processor", it.name));
        }
        let most = MEMORY.0 * sizes[1] as f64 + MEMORY.1;
        if large.memory > most {
            wrong.push(format!("{}: {:.0} MB of memory", it.name, large.memory));
        }
    }
    fs::remove_dir_all(&folder).ok();
    match wrong.is_empty() {
        true => Ok(()),
        false => bail!(
            "too much for {FACTOR} times the steps: {}",
            wrong.join("; ")
        ),
    }
}

fn options(args: &[String]) -> Result<(usize, Option<String>)> {
    let (mut steps, mut only) = (4_000, None);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--steps" => steps = value.parse().context("--steps needs a number")?,
            "--only" => only = Some(value.clone()),
            other => bail!("unknown argument `{other}`; try --help"),
        }
    }
    Ok((steps, only))
}

fn target(repo: &Repo) -> PathBuf {
    let set = std::env::var_os("CARGO_TARGET_DIR");
    set.map_or_else(|| repo.root.join("target"), PathBuf::from)
}

/// What one run took.
struct Figures {
    /// Seconds of the processor.
    processor: f64,
    /// The most memory, in MB.
    memory: f64,
}

impl Figures {
    fn of(workload: &Workload, size: usize, program: &Path, folder: &Path) -> Result<Figures> {
        fs::remove_dir_all(folder).ok();
        fs::create_dir_all(folder)?;
        fs::write(folder.join("long.yaml"), (workload.definition)(size))?;
        let before = waited_for()?;
        let mut command = Command::new(program);
        command
            .args(["run", "long.yaml"])
            .args(workload.args)
            .current_dir(folder)
            .stdout(Stdio::null());
        // Virtual time needs no store.
        if !workload.args.contains(&"--virtual-time") {
            command.args(["--store", "sqlite:long.db"]);
        }
        let mut child = command.spawn()?;
        let mut memory = 0.0;
        let status = loop {
            memory = peak(child.id()).unwrap_or(memory).max(memory);
            if let Some(status) = child.try_wait()? {
                break status;
            }
            thread::sleep(Duration::from_millis(5));
        };
        if !status.success() {
            bail!("{} with {size} steps ended with {status}", workload.name);
        }
        Ok(Figures {
            processor: waited_for()? - before,
            memory,
        })
    }

    fn text(&self, size: usize) -> String {
        format!(
            "{size:>6}  {:>7.2} s {:>4.0} MB",
            self.processor, self.memory
        )
    }
}

/// Seconds of the processor that all ended children have taken.
fn waited_for() -> Result<f64> {
    let stat =
        fs::read_to_string("/proc/self/stat").context("only Linux tells the time of children")?;
    // The name of the program, in brackets, may have blanks in it.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |at: usize| -> Result<f64> {
        let word = rest.split_whitespace().nth(at);
        Ok(word.context("/proc/self/stat is too short")?.parse()?)
    };
    // User and system time of children: fields 16 and 17, in hundredths of a second.
    Ok((ticks(13)? + ticks(14)?) / 100.0)
}

/// The most memory that a process has had so far, in MB.
fn peak(process: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes / 1024.0)
}

/// A definition: what comes first, then its steps.
fn text(head: &str, steps: usize, step: impl Fn(usize, &mut String)) -> String {
    let mut text = head.to_owned();
    for no in 0..steps {
        step(no, &mut text);
    }
    text
}

/// What a step depends on: the step before.
fn chain(no: usize) -> Vec<usize> {
    no.checked_sub(1).into_iter().collect()
}

/// All steps depend on the first one.
fn star(no: usize) -> Vec<usize> {
    (no > 0).then_some(0).into_iter().collect()
}

/// Layers of a hundred steps; each depends on three steps of the layer before.
fn layers(no: usize) -> Vec<usize> {
    const WIDTH: usize = 100;
    let (layer, place) = (no / WIDTH, no % WIDTH);
    let Some(before) = layer.checked_sub(1) else {
        return Vec::new();
    };
    [0, 1, 7]
        .map(|shift| before * WIDTH + (place + shift) % WIDTH)
        .to_vec()
}

fn depends_on(needs: &[usize]) -> String {
    let names: Vec<String> = needs.iter().map(|need| format!("s{need}")).collect();
    format!(", dependsOn: [{}]", names.join(", "))
}

fn actions(steps: usize) -> String {
    let head = "schemaVersion: 1\nworkflowId: long\nworkspaceId: growth\nname: long\nversion: 1\n\
        active: true\nexecutionTier: Auto\nactions:\n";
    text(head, steps, |no, out| {
        let order = no + 1;
        let _ = writeln!(
            out,
            "  - {{actionId: s{no}, order: {order}, portFamily: none, operation: no:op, tool: {{kind: noop}}}}"
        );
    })
}

/// Every action waits for the approval of a person.
fn approvals(steps: usize) -> String {
    actions(steps).replace("executionTier: Auto", "executionTier: HumanApprove")
}

fn dag(steps: usize, needs: fn(usize) -> Vec<usize>) -> String {
    let head =
        "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: long}\nspec:\n  steps:\n";
    text(head, steps, |no, out| {
        let needs = depends_on(&needs(no));
        let _ = writeln!(
            out,
            "  - {{name: s{no}, timeout: 1h, tool: {{kind: noop}}{needs}}}"
        );
    })
}

fn plan(steps: usize, needs: fn(usize) -> Vec<usize>) -> String {
    let head = "metadata: {planId: long, planVersion: 1.0.0, schemaVersion: v1.2}\nsteps:\n";
    text(head, steps, |no, out| {
        let needs = needs(no);
        let needs = match needs.is_empty() {
            true => String::new(),
            false => depends_on(&needs),
        };
        let _ = writeln!(out, "  - {{stepId: s{no}, tool: {{kind: noop}}{needs}}}");
    })
}

fn linear(steps: usize) -> String {
    text(
        "workflowType: long\nworkflowVersion: 1\nsteps:\n",
        steps,
        |no, out| {
            let _ = writeln!(out, "  - {{stepType: S{no}, tool: {{kind: noop}}}}");
        },
    )
}

const PLAYBOOK: &str =
    "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: long}\nworkflow:\n";

/// A chain of steps; with `ctx` each sets a variable of its own, which the arc to the next one reads.
fn playbook(steps: usize, ctx: &str) -> String {
    text(PLAYBOOK, steps, |no, out| {
        let _ = writeln!(out, "  - step: s{no}\n    tool: {{kind: noop}}");
        let next = no + 1;
        if next < steps && ctx.is_empty() {
            let _ = writeln!(out, "    next: [{{step: s{next}}}]");
        } else if next < steps {
            let when = match no.checked_sub(1) {
                Some(before) => format!("{{{{ ctx.k{before} == {before} }}}}"),
                None => "{{ true }}".to_owned(),
            };
            let _ = writeln!(
                out,
                "    next: [{{step: s{next}, when: '{when}', set_ctx: {{k{no}: {no}}}}}]"
            );
        }
    })
}

fn loop_over(items: usize) -> String {
    format!(
        "{PLAYBOOK}  - step: each\n    loop: {{in: '{{{{ range({items}) | list }}}}', iterator: item, \
         spec: {{mode: parallel}}}}\n    tool: {{kind: noop}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(options(&[]).unwrap(), (4_000, None));
        let both = options(&words("--steps 10 --only loop")).unwrap();
        assert_eq!(both, (10, Some("loop".to_owned())));
        assert!(options(&words("--steps")).is_err() && options(&words("--stpes 1")).is_err());
    }

    #[test]
    fn layers_depend_on_the_layer_before() {
        assert!(layers(99).is_empty());
        assert_eq!(layers(199), [99, 0, 6]);
    }
}
