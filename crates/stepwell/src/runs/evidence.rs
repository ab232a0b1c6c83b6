//! `stepwell runs evidence`: what an auditor gets of a run. One record for every attempt, every end and everything that
//! a person decided, each with the hash of the record before.

use anyhow::Result;
use clap::Args;
use serde_json::{Value as Json, json};
use stepwell_dialects::actions::evidence::{Evidence, EvidenceFinding};

use crate::actor::ActorArgs;
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::place::PlaceArgs;
use crate::term::{self, count, one_line};
use stepwell_views::RunView;
use stepwell_views::evidence::RunEvidence;

/// Print the evidence of a run: every attempt, every end and every decision of a person, as a chain of hashes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell runs evidence RUN
  stepwell runs evidence RUN --json > evidence.json
  stepwell runs evidence RUN --json | jq '.records[] | select(.outcome == \"Unknown\")'

Each record has run, action, attempt, execution, start, end, outcome, error class and correlation (event,
key, workflow, tenant, who started the run, who acted). Records of kind answer, run_approval, signal, change
and stop say what a person decided: reason, references to evidence, and when the work was completed. A run
that was compensated has a record with the result of each compensation.
Evidence is made from the event log and is the same each time.

Exit codes: 0 printed, 1 run not found, the store cannot be used, or the chain does not verify.")]
pub(super) struct EvidenceArgs {
    /// Run id, as `stepwell runs list` shows it
    #[arg(value_name = "RUN")]
    run: String,
    /// Print JSON; the same as --output json
    #[arg(long)]
    json: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    actor: ActorArgs,
    #[command(flatten)]
    store: PlaceArgs,
}

pub(super) fn run(args: &EvidenceArgs) -> Result<Exit> {
    let store = args.store.runs(&args.actor)?;
    let view = RunView::read_as(&*store, &args.run, &args.actor.actor(None)?)?;
    let found = RunEvidence::of(&view);
    let format = match args.json {
        true => OutputFormat::Json,
        false => args.output,
    };
    let is_sound = found.findings.is_empty();
    term::print(&match format {
        OutputFormat::Json => {
            let document = found.document(&view);
            format!("{}\n", serde_json::to_string_pretty(&document)?)
        }
        OutputFormat::Human => lines(&view, &found.records, &found.findings),
    })?;
    Ok(match is_sound {
        true => Exit::Ok,
        false => Exit::Problems,
    })
}

fn lines(view: &RunView, records: &[Evidence], findings: &[EvidenceFinding]) -> String {
    let mut text = format!("{}\n", one_line(view.state.run_id()));
    for record in records {
        text.push_str(&format!("  {}\n", one_line(&line(record))));
        for undo in record.compensation.iter().flat_map(|it| &it.actions) {
            let outcome = word(&json!(undo.outcome));
            let attempts = count(undo.attempts as usize, "attempt");
            let executions = count(undo.executions as usize, "execution");
            let line = format!(
                "    {}  {outcome} after {attempts} ({executions})",
                undo.action_id
            );
            text.push_str(&format!("{}\n", one_line(&line)));
        }
    }
    for finding in findings {
        let fault = word(&json!(finding.fault));
        text.push_str(&format!("  record {}: {fault}\n", finding.index));
    }
    for unknown in view.unknown_to_this_version() {
        text.push_str(&format!(
            "  written by a newer version: {}\n",
            one_line(&unknown)
        ));
    }
    text
}

/// `attempt  pay 2  Failed timeout  2026-…Z – 2026-…Z  run_1:pay:1  worker-7  3f2a…`.
fn line(record: &Evidence) -> String {
    let mut parts = vec![word(&json!(record.kind))];
    if let Some(action) = &record.action_id {
        parts.push(match record.execution {
            Some(execution) if execution != record.attempt => {
                format!("{action} {} (execution {execution})", record.attempt)
            }
            _ => format!("{action} {}", record.attempt),
        });
    }
    let mut outcome = word(&json!(record.outcome));
    if let Some(class) = &record.error_class {
        outcome = format!("{outcome} {class}");
    }
    if let Some(summary) = &record.compensation {
        outcome = format!("{outcome} rollback {}", word(&json!(summary.rollback)));
    }
    parts.push(outcome);
    parts.push(format!(
        "{} – {}",
        record.started_at_iso, record.ended_at_iso
    ));
    parts.extend(record.correlation.idempotency_key.clone());
    parts.extend(record.correlation.actor.clone());
    if let Some(decision) = &record.decision {
        parts.extend(decision.signal.clone());
        parts.extend(decision.reason.clone());
        if !decision.changed.is_empty() {
            parts.push(format!("changed {}", decision.changed.join(", ")));
        }
        if !decision.evidence_refs.is_empty() {
            parts.push(format!("evidence {}", decision.evidence_refs.join(", ")));
        }
    }
    parts.push(record.hash.chars().take(12).collect());
    parts.join("  ")
}

/// The word that JSON has for a value.
fn word(value: &Json) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
