//! What `check` says of a definition that is right but not safe: values from outside without a guard, and
//! secrets on command lines. One warning for all places of a kind, because a file has either none or many.

use std::collections::{BTreeSet, HashMap};

use stepwell_kernel::plan::Plan;

use crate::codes;
use crate::endless;
use crate::failure_arcs;
use crate::problem::{Problem, Severity};
use crate::source::{Source, Span};
use crate::tools::untrusted::{self, Finding, FindingKind, Reach};
use crate::tree::{self, Node};
use crate::words::list;

/// How many places a message names.
const NAMED: usize = 5;

/// The warnings about a plan that was compiled from this source.
#[must_use]
pub fn advice(source: &Source, plan: &Plan) -> Vec<Problem> {
    let found = untrusted::of_plan(plan);
    let (secrets, unguarded): (Vec<&Finding>, Vec<&Finding>) = found
        .iter()
        .partition(|it| it.kind == FindingKind::SecretOnCommandLine);
    let mut advice = Vec::new();
    if !unguarded.is_empty() {
        let reaches: BTreeSet<Reach> = unguarded.iter().filter_map(|it| reach(it)).collect();
        let words: Vec<&str> = reaches.iter().map(|it| it.words()).collect();
        let safe: Vec<&str> = reaches.iter().map(|it| it.safe_form()).collect();
        advice.push(summary(
            source,
            codes::VALUE_UNGUARDED,
            &format!(
                "values from outside get into {} without a guard",
                words.join(", ")
            ),
            &unguarded,
            format!(
                "{}; `stepwell explain VALUE_UNGUARDED` says more",
                safe.join("; ")
            ),
        ));
    }
    if !secrets.is_empty() {
        advice.push(summary(
            source,
            codes::SECRET_ON_COMMAND_LINE,
            "a secret can be read by every user of the machine, on the command line of a program",
            &secrets,
            "pass it in `env: {NAME: \"${secret:…}\"}` and have the program read the variable"
                .into(),
        ));
    }
    advice.extend(failures(source, plan));
    advice.extend(endless(source, plan));
    advice.sort_by_key(|it| it.span.start);
    advice
}

/// One warning for all steps that can fail and have an arc without a guard.
fn failures(source: &Source, plan: &Plan) -> Option<Problem> {
    let steps = failure_arcs::steps(plan);
    let first = steps.first()?;
    let mut problem = Problem::new(
        codes::ARC_AFTER_FAILURE,
        Severity::Warning,
        step_place(source, first),
        format!(
            "arcs without a guard are taken after a failure too: out of {}",
            named(&steps)
        ),
    );
    problem.help(
        "write `executor.spec.policy.failure.mode: fail_fast` to stop the run at the first failure, or a guard: \
         `when: \"{{ event.name == 'step.done' }}\"`",
    );
    Some(problem)
}

/// A warning for a run that cannot end.
fn endless(source: &Source, plan: &Plan) -> Option<Problem> {
    let steps = endless::steps(plan);
    let first = steps.first()?;
    let mut problem = Problem::new(
        codes::ARC_ENDLESS,
        Severity::Warning,
        step_place(source, first),
        format!(
            "the run never ends: {} follow each other without end",
            named(&steps)
        ),
    );
    problem.help("give an arc that leads back a guard: `when: \"{{ ctx.page < 10 }}\"`");
    Some(problem)
}

/// The first of these names, and how many more there are.
fn named(steps: &[&str]) -> String {
    let more = match steps.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", list(&steps[..steps.len().min(NAMED)]))
}

/// Where a step is defined.
fn step_place(source: &Source, name: &str) -> Span {
    let root = tree::parse(source).ok();
    let steps = root.as_ref().and_then(|root| root.get("workflow"));
    let mut steps = steps.and_then(Node::as_seq).into_iter().flatten();
    let place = steps.find_map(|step| step.get("step").filter(|it| it.as_str() == Some(name)));
    place.map_or(Span::at(0), |it| it.span)
}

fn reach(finding: &Finding) -> Option<Reach> {
    match finding.kind {
        FindingKind::Unguarded(reach) => Some(reach),
        FindingKind::SecretOnCommandLine => None,
    }
}

fn summary(
    source: &Source,
    code: &'static str,
    what: &str,
    found: &[&Finding],
    help: String,
) -> Problem {
    let mut places = Vec::new();
    // Equal lines are in the order of the file.
    let mut after: HashMap<&str, usize> = HashMap::new();
    for finding in found {
        let from = after.entry(&finding.line).or_default();
        let span = place(source, finding, *from);
        *from = span.map_or(*from, |it| it.end);
        places.push(span);
    }
    let mut named: Vec<String> = Vec::new();
    for (finding, span) in found.iter().zip(&places) {
        let line = span.map(|it| format!(" (line {})", source.line_col(it.start).0));
        let text = format!("{finding}{}", line.unwrap_or_default());
        if !named.contains(&text) {
            named.push(text);
        }
    }
    let more = named.len().saturating_sub(NAMED);
    named.truncate(NAMED);
    let more = match more {
        0 => String::new(),
        more => format!(", and in {more} more places"),
    };
    let span = places.into_iter().flatten().next().unwrap_or(Span::at(0));
    let message = format!("{what}: {}{more}", named.join(", "));
    let mut problem = Problem::new(code, Severity::Warning, span, message);
    problem.help(help);
    problem
}

/// Where the template or the reference stands in the source; none if it is written there in another way.
fn place(source: &Source, finding: &Finding, from: usize) -> Option<Span> {
    let text = source.text();
    let after = text.get(from..)?;
    let in_line = finding.line.find(&finding.written)?;
    let in_source = after.find(&finding.line).map(|at| at + in_line);
    let at = from + in_source.or_else(|| after.find(&finding.written))?;
    Some(Span::new(at, at + finding.written.len()))
}
