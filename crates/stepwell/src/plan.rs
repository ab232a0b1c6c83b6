//! `stepwell plan`: shows the net that a definition compiles to.

use std::io::{self, Write};

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::json;
use stepwell_dialects::secret_literals::{masked, masked_text};
use stepwell_kernel::plan::{
    Completion, EntryPoint, Join, LoopMode, MaxInFlight, OnFailure, OnLoopFailure, Plan, Route,
    Step, UndoMode, WaitOn, Work,
};

use crate::definition::{self, Definition};
use crate::exit::Exit;
use crate::graph;
use crate::term::{self, Paint, Tone, cut, duration, one_line, pad, width};
use crate::text_table;

/// Show the net that a definition compiles to
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell plan workflow.yaml
  stepwell plan workflow.yaml -o json | jq .hash
  stepwell plan workflow.yaml --dot | dot -Tsvg > workflow.svg
  stepwell plan workflow.yaml --mermaid

Exit codes: 0 printed, 1 the definition has errors, 2 wrong usage.")]
pub(crate) struct PlanArgs {
    /// File with the definition; `-` reads standard input
    #[arg(value_name = "FILE")]
    file: String,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = PlanFormat::Table)]
    output: PlanFormat,
    /// Print a Graphviz graph
    #[arg(long, conflicts_with_all = ["output", "mermaid"])]
    dot: bool,
    /// Print a Mermaid flowchart
    #[arg(long, conflicts_with = "output")]
    mermaid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlanFormat {
    /// Table for people
    Table,
    /// JSON for programs: the net and its hash
    Json,
}

pub(crate) fn run(args: &PlanArgs) -> Result<Exit> {
    let definition = Definition::open(&args.file);
    let problems = definition::problems(&definition, term::stderr_paint());
    io::stderr().write_all(problems.as_bytes())?;
    if args.output == PlanFormat::Json {
        definition::tell_program(&definition);
    }
    let Ok(plan) = definition.into_plan() else {
        return Ok(Exit::Problems);
    };
    // Secrets that the definition has written out are not shown.
    let whole = serde_json::to_value(plan.net())?;
    let text = if args.dot {
        graph::dot(&plan)
    } else if args.mermaid {
        graph::mermaid(&plan)
    } else if args.output == PlanFormat::Json {
        let mut net = masked(&whole);
        if let Some(policy) = net.get_mut("policy").and_then(|it| it.as_object_mut()) {
            // The list of these secrets.
            policy.remove("hidden");
        }
        let value = json!({ "hash": plan.hash(), "net": net });
        return finish(&format!("{}\n", serde_json::to_string_pretty(&value)?));
    } else {
        let paint = term::stdout_paint();
        format!(
            "{}{}{}",
            head(&plan, paint),
            table(&plan, paint),
            edges(&plan, paint)
        )
    };
    finish(&masked_text(&whole, &text))
}

fn finish(text: &str) -> Result<Exit> {
    term::print(text)?;
    Ok(Exit::Ok)
}

fn head(plan: &Plan, paint: Paint) -> String {
    let (net, policy) = (plan.net(), plan.policy());
    let title = paint.tone(Tone::Strong, &one_line(&net.plan_id));
    let mut text = format!("{title}\n");
    let mut fact = |name: &str, value: String| {
        text.push_str(&format!(
            "  {}  {value}\n",
            paint.tone(Tone::Dim, &pad(name, 12))
        ));
    };
    fact("language", net.dialect.name().to_owned());
    fact("version", one_line(&net.plan_version));
    fact("format", one_line(&net.schema_version));
    fact("source", one_line(&net.source.uri));
    fact("sha256", net.source.sha256.clone());
    fact("plan hash", plan.hash().to_owned());
    if let EntryPoint::Step(no) = policy.entry {
        fact("entry", one_line(&plan.step(no).name));
    }
    if let Some(no) = policy.final_step {
        fact("final step", one_line(&plan.step(no).name));
    }
    if let Some(millis) = policy.timeout_ms {
        let then = if policy.timeout_compensates {
            ", then undo"
        } else {
            ""
        };
        fact("run timeout", format!("{}{then}", duration(millis)));
    }
    if policy.needs_approval {
        fact("approval", "needed before the run starts".to_owned());
    }
    if plan.net().steps.iter().any(|step| step.undo.is_some()) {
        let after = match policy.undo_mode {
            UndoMode::Continue => "continue with the other undos",
            UndoMode::Stop => "stop the compensation",
        };
        fact("failed undo", after.to_owned());
    }
    text
}

const COLUMNS: [&str; 9] = [
    "#",
    "step",
    "work",
    "join",
    "route",
    "retry",
    "timeout",
    "on failure",
    "undo",
];

fn table(plan: &Plan, paint: Paint) -> String {
    let mut rows: Vec<[String; 9]> = Vec::with_capacity(plan.len());
    for (no, step) in plan.net().steps.iter().enumerate() {
        let row = [
            (no + 1).to_string(),
            one_line(&step.name),
            work(step),
            join(
                step,
                plan.incoming(stepwell_kernel::plan::StepNo(no as u32))
                    .len(),
            ),
            route(step).to_owned(),
            retry(step),
            step.timeout_ms.map_or_else(|| "-".into(), duration),
            on_failure(step),
            step.undo
                .as_ref()
                .map_or_else(|| "-".into(), |undo| one_line(&undo.operation)),
        ];
        rows.push(row.map(|cell| cut(&cell, 48)));
    }
    // A column without values is not shown.
    let shown: Vec<usize> = (0..COLUMNS.len())
        .filter(|at| *at < 3 || rows.iter().any(|row| row[*at] != "-"))
        .collect();
    let head: Vec<&str> = shown.iter().map(|at| COLUMNS[*at]).collect();
    let cells = |row: &[String; 9]| {
        let cells: Vec<String> = shown.iter().map(|at| row[*at].clone()).collect();
        (cells, Tone::Plain)
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    format!("\n{}", text_table::render(&head, rows, 0, paint))
}

fn edges(plan: &Plan, paint: Paint) -> String {
    let edges = &plan.net().edges;
    if edges.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n", paint.tone(Tone::Dim, "edges"));
    let name = |no| one_line(&plan.step(no).name);
    let columns = edges.iter().map(|edge| width(&name(edge.from))).max();
    for edge in edges {
        let from = pad(&name(edge.from), columns.unwrap_or(0));
        text.push_str(&format!("{from}  → {}", name(edge.to)));
        if let Some(when) = &edge.when {
            text.push_str(&format!("  when {}", one_line(when.source().trim())));
        }
        if !edge.set_ctx.is_empty() {
            let keys: Vec<String> = edge.set_ctx.iter().map(|(key, _)| one_line(key)).collect();
            text.push_str(&format!("  sets {}", keys.join(", ")));
        }
        text.push('\n');
    }
    text
}

/// A short description of the work of a step.
pub(crate) fn work(step: &Step) -> String {
    let what = match &step.work {
        Work::Task {
            queue, operation, ..
        } if queue.is_empty() => operation.clone(),
        Work::Task {
            queue, operation, ..
        } => format!("{queue}/{operation}"),
        Work::Pipeline { tasks } => {
            let tasks = tasks.as_array().map(Vec::as_slice).unwrap_or_default();
            let kinds: Vec<&str> = tasks.iter().filter_map(|it| it["kind"].as_str()).collect();
            match kinds.len() {
                0 => "nothing".to_owned(),
                1..=3 => kinds.join(" → "),
                more => format!("{} → … ({more} tasks)", kinds[0]),
            }
        }
        Work::Wait(wait) => match &wait.on {
            WaitOn::Approval => "wait for approval".to_owned(),
            WaitOn::Manual => "wait for a person".to_owned(),
            WaitOn::Event { event_type } => format!("wait for {event_type}"),
            WaitOn::Timer { millis } => format!("wait {}", duration(*millis)),
        },
        Work::Child(child) => format!("run {}", child.path),
    };
    let mut marks = Vec::new();
    if step.gate.is_some() {
        marks.push("gate".to_owned());
    }
    if step.completion == Completion::Manual {
        marks.push("manual completion".to_owned());
    }
    if let Some(each) = &step.each {
        let most = match (&each.mode, &each.max_in_flight) {
            (LoopMode::Sequential, _) => "sequential".to_owned(),
            (LoopMode::Parallel, MaxInFlight::Fixed(most)) => format!("max {most} in parallel"),
            (LoopMode::Parallel, MaxInFlight::Computed(_)) => "parallel".to_owned(),
        };
        marks.push(format!("loop {most}"));
    }
    if step.admit.is_some() {
        marks.push("admission".to_owned());
    }
    match marks[..] {
        [] => one_line(&what),
        _ => format!("{} [{}]", one_line(&what), marks.join(", ")),
    }
}

fn join(step: &Step, incoming: usize) -> String {
    match step.join {
        _ if incoming < 2 => "-".to_owned(),
        Join::All => format!("all {incoming}"),
        Join::Each => "each".to_owned(),
    }
}

fn route(step: &Step) -> &'static str {
    match step.route {
        Route::Edges => "-",
        Route::Exclusive => "first match",
        Route::Inclusive => "all matches",
    }
}

fn retry(step: &Step) -> String {
    let retry = &step.retry;
    if step.at_most_once {
        return "at most once".to_owned();
    }
    if retry.max_executions <= 1 {
        return "-".to_owned();
    }
    let pace = retry.backoff.words(duration);
    let pace = pace.map_or_else(String::new, |pace| format!(", {pace}"));
    format!("{} attempts{pace}", retry.max_executions)
}

fn on_failure(step: &Step) -> String {
    let what = match step.on_failure {
        OnFailure::Stop { compensate: true } => "stop, undo".to_owned(),
        OnFailure::Stop { compensate: false } => "stop".to_owned(),
        OnFailure::Skip => "skip".to_owned(),
        OnFailure::Route => "route".to_owned(),
        OnFailure::Hold { timeout_ms } => format!("hold {}", duration(timeout_ms)),
    };
    match step.each.as_ref().map(|each| each.on_failure) {
        Some(OnLoopFailure::Continue) => format!("{what}; other items continue"),
        _ => what,
    }
}
