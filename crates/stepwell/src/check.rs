//! `stepwell check`: reports all problems of definitions, with line and column.

use anyhow::Result;
use clap::Args;
use serde_json::{Value as Json, json};
use stepwell_dialects::problem;

use crate::definition::{self, Definition};
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::run::input;
use crate::term::{self, Paint, Tone, count, one_line, pad};

/// Check definitions without running them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell check workflow.yaml
  stepwell check examples/*.yaml --deny-warnings
  stepwell check workflow.yaml -i path=/srv/data
  generate-workflow | stepwell check -
  stepwell check workflow.yaml -o json | jq '.files[].problems'

Exit codes: 0 no errors, 1 errors (or warnings with --deny-warnings), 2 wrong usage.
`stepwell explain CODE` explains a code.")]
pub(crate) struct CheckArgs {
    /// Files with definitions; `-` reads standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// An input that the run would get, to see whether a definition declares or reads it
    #[arg(short, long = "input", value_name = "KEY=VALUE")]
    input: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    /// Treat warnings as errors
    #[arg(long)]
    deny_warnings: bool,
}

pub(crate) fn run(args: &CheckArgs) -> Result<Exit> {
    let paint = term::stdout_paint();
    let params = input::params(None, &args.input)?;
    let columns = args.files.iter().map(|file| term::width(file)).max();
    let mut good = true;
    let mut summary = String::new();
    let mut files = Vec::new();
    for path in &args.files {
        let mut definition = Definition::open(path);
        definition.advise();
        definition.look_at_input(&params);
        let (errors, warnings) = definition.counts();
        let ok = errors == 0 && !(args.deny_warnings && warnings > 0);
        good &= ok;
        match args.output {
            OutputFormat::Human => {
                term::print(&definition::problems(&definition, paint))?;
                let columns = columns.unwrap_or(0);
                summary.push_str(&line(path, &definition, ok, columns, paint));
            }
            OutputFormat::Json => files.push(entry(path, &definition, ok)),
        }
    }
    match args.output {
        OutputFormat::Human => term::print(&summary)?,
        OutputFormat::Json => {
            let text = serde_json::to_string_pretty(&json!({ "files": files }))?;
            term::print(&format!("{text}\n"))?;
        }
    }
    Ok(if good { Exit::Ok } else { Exit::Problems })
}

/// One summary line: `ok  examples/x.yaml  playbook  7 steps`, or the number of problems.
fn line(path: &str, definition: &Definition, ok: bool, columns: usize, paint: Paint) -> String {
    let (errors, warnings) = definition.counts();
    let mark = match (ok, warnings) {
        (true, 0) => paint.tone(Tone::Good, "ok  "),
        (true, _) => paint.tone(Tone::Warn, "ok  "),
        _ => paint.tone(Tone::Bad, "bad "),
    };
    let dialect = definition.loaded.dialect.map_or("-", |it| it.name());
    let mut facts = Vec::new();
    if let Some(plan) = definition.loaded.plan.as_ref().filter(|_| errors == 0) {
        facts.push(count(plan.len(), "step"));
    }
    if errors > 0 {
        facts.push(count(errors, "error"));
    }
    if warnings > 0 {
        facts.push(count(warnings, "warning"));
    }
    let path = pad(&one_line(path), columns);
    format!(
        "{mark}  {path}  {}  {}\n",
        pad(dialect, 8),
        facts.join(", ")
    )
}

fn entry(path: &str, definition: &Definition, ok: bool) -> Json {
    let loaded = &definition.loaded;
    let (errors, _) = definition.counts();
    let plan = loaded.plan.as_ref().filter(|_| errors == 0);
    json!({
        "file": path,
        "ok": ok,
        "dialect": loaded.dialect.map(|it| it.name()),
        "planId": plan.map(|plan| &plan.net().plan_id),
        "steps": plan.map(|plan| plan.len()),
        "sha256": definition.sha256(),
        "problems": problem::to_json(&definition.source, &loaded.problems),
    })
}
