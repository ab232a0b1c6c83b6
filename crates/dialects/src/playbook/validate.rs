//! The playbook as a graph: names that must exist, steps that cannot be reached, and branches that
//! meet without a join.

use std::collections::{HashMap, HashSet};

use stepwell_kernel::plan::Route;

use super::model::{Named, Playbook};
use crate::codes;
use crate::problem::Problems;
use crate::words::{list, nearest, quote};

/// How many arcs the search for meeting branches looks at, so that a huge file costs no minutes.
const MEETING_BUDGET: usize = 2_000_000;

/// Reports everything that is wrong between the steps.
pub(super) fn check(playbook: &Playbook, p: &mut Problems) {
    let graph = Graph::of(playbook, p);
    workbook(playbook, p);
    let entry = graph.lookup(playbook.executor.entry.as_ref(), "entry_step", p);
    let last = graph.lookup(playbook.executor.final_step.as_ref(), "final_step", p);
    let entry = match (&playbook.executor.entry, entry) {
        (Some(_), None) => return,
        (_, entry) => entry.unwrap_or(0),
    };
    final_step(playbook, &graph, entry, last, p);
    if p.has_errors() {
        // Arcs that lead nowhere would make their targets look unreachable.
        return;
    }
    unreachable(playbook, &graph, entry, last, p);
    joins(playbook, &graph, entry, p);
    meetings(playbook, &graph, p);
}

/// Steps by number, arcs by number.
struct Graph<'p> {
    by_name: HashMap<&'p str, usize>,
    names: Vec<&'p str>,
    out: Vec<Vec<usize>>,
}

impl<'p> Graph<'p> {
    fn of(playbook: &'p Playbook, p: &mut Problems) -> Graph<'p> {
        let mut by_name: HashMap<&str, usize> = HashMap::new();
        for (at, step) in playbook.steps.iter().enumerate() {
            if by_name.contains_key(step.name.text.as_str()) {
                p.error(
                    codes::NAME_DUPLICATE,
                    step.name.span,
                    format!("two steps are named {}", quote(&step.name.text)),
                )
                .help("give each step a name of its own");
            } else {
                by_name.insert(&step.name.text, at);
            }
        }
        let names: Vec<&str> = playbook
            .steps
            .iter()
            .map(|step| step.name.text.as_str())
            .collect();
        let mut graph = Graph {
            by_name,
            names,
            out: Vec::new(),
        };
        for step in &playbook.steps {
            let targets = step.arcs.iter().filter_map(|arc| graph.find(&arc.to, p));
            let targets: Vec<usize> = targets.collect();
            graph.out.push(targets);
        }
        graph
    }

    fn find(&self, name: &Named, p: &mut Problems) -> Option<usize> {
        let found = self.by_name.get(name.text.as_str()).copied();
        if found.is_none() {
            let message = format!("there is no step {}", quote(&name.text));
            let help = self.help(&name.text, p);
            p.error(codes::STEP_UNDEFINED, name.span, message)
                .help(help);
        }
        found
    }

    fn help(&self, given: &str, p: &Problems) -> String {
        // Past the cap nobody sees the help, and finding it costs.
        let near = if p.is_full() {
            None
        } else {
            nearest(given, &self.names)
        };
        match near {
            Some(near) => format!("did you mean {}?", quote(near)),
            None => {
                let some = &self.names[..self.names.len().min(20)];
                format!("the steps are {}", list(some))
            }
        }
    }

    fn lookup(&self, name: Option<&Named>, what: &str, p: &mut Problems) -> Option<usize> {
        let name = name?;
        let found = self.by_name.get(name.text.as_str()).copied();
        if found.is_none() {
            let message = format!(
                "`{what}` names {}, and there is no such step",
                quote(&name.text)
            );
            let help = self.help(&name.text, p);
            p.error(codes::STEP_UNDEFINED, name.span, message)
                .help(help);
        }
        found
    }
}

fn workbook(playbook: &Playbook, p: &mut Problems) {
    let known: Vec<&str> = playbook.library.keys().map(String::as_str).collect();
    let tasks = playbook.steps.iter().filter_map(|step| step.tasks.as_ref());
    for (name, span) in tasks.flatten().filter_map(|task| task.workbook.as_ref()) {
        if playbook.library.contains_key(name) {
            continue;
        }
        let help = match nearest(name, &known) {
            Some(near) => format!("did you mean {}?", quote(near)),
            None if known.is_empty() => {
                "add `workbook:` with an entry of this name to the playbook".to_owned()
            }
            None => format!("the workbook has {}", list(&known)),
        };
        p.error(
            codes::WORKBOOK_UNKNOWN,
            *span,
            format!("there is no workbook task {}", quote(name)),
        )
        .help(help);
    }
}

/// The final step runs once, after everything else: no token may reach or leave it.
fn final_step(
    playbook: &Playbook,
    graph: &Graph<'_>,
    entry: usize,
    last: Option<usize>,
    p: &mut Problems,
) {
    let (Some(last), Some(name)) = (last, &playbook.executor.final_step) else {
        return;
    };
    if entry == last {
        p.error(
            codes::FINAL_STEP_ARC,
            name.span,
            format!("{} is the entry and the final step", quote(&name.text)),
        )
        .help("the final step runs once everything else is done; begin with another one");
    }
    for step in &playbook.steps {
        for arc in step.arcs.iter().filter(|arc| arc.to.text == name.text) {
            p.error(
                codes::FINAL_STEP_ARC,
                arc.to.span,
                format!(
                    "{} is the final step, so no arc may lead to it",
                    quote(&name.text)
                ),
            )
            .help("remove the arc: the final step runs by itself once everything else is done");
        }
    }
    for arc in playbook.steps.get(last).iter().flat_map(|it| &it.arcs) {
        if graph.by_name.contains_key(arc.to.text.as_str()) {
            p.error(
                codes::FINAL_STEP_ARC,
                arc.to.span,
                format!(
                    "{} is the final step, so nothing comes after it",
                    quote(&name.text)
                ),
            )
            .help("remove its `next`");
        }
    }
}

fn unreachable(
    playbook: &Playbook,
    graph: &Graph<'_>,
    entry: usize,
    last: Option<usize>,
    p: &mut Problems,
) {
    let mut seen = vec![false; playbook.steps.len()];
    let mut todo = vec![entry];
    while let Some(at) = todo.pop() {
        if !std::mem::replace(&mut seen[at], true) {
            todo.extend(&graph.out[at]);
        }
    }
    for (at, step) in playbook.steps.iter().enumerate() {
        if !seen[at] && last != Some(at) {
            p.warn(
                codes::STEP_UNREACHABLE,
                step.name.span,
                format!("no token can reach {}", quote(&step.name.text)),
            )
            .help("lead an arc to it, or remove it");
        }
    }
}

/// A join of fewer than two arcs waits for nothing.
fn joins(playbook: &Playbook, graph: &Graph<'_>, entry: usize, p: &mut Problems) {
    let mut incoming = vec![0usize; playbook.steps.len()];
    for target in graph.out.iter().flatten() {
        incoming[*target] += 1;
    }
    for (at, step) in playbook.steps.iter().enumerate() {
        let Some(span) = step.join_all else { continue };
        if incoming[at] < 2 {
            p.warn(
                codes::JOIN_POINTLESS,
                span,
                "there are not two arcs to join here",
            )
            .help("remove `join`, or lead the other branches here");
        } else if at == entry {
            p.warn(
                codes::JOIN_POINTLESS,
                span,
                "the entry step starts without waiting for the arcs that lead back to it",
            )
            .help("put a step before it");
        }
    }
}

/// Warns where two branches of a fan-out can reach the same step: it runs once for each.
fn meetings(playbook: &Playbook, graph: &Graph<'_>, p: &mut Problems) {
    let mut budget = MEETING_BUDGET;
    let mut reported: HashSet<usize> = HashSet::new();
    for (fork, step) in playbook.steps.iter().enumerate() {
        if step.route != Route::Inclusive || graph.out[fork].len() < 2 || p.is_full() {
            continue;
        }
        // The branch that reached a step first; a second one that comes there has met it.
        let mut owner: HashMap<usize, usize> = HashMap::new();
        for (branch, start) in graph.out[fork].iter().enumerate() {
            let mut todo = vec![*start];
            while let Some(at) = todo.pop() {
                budget = budget.saturating_sub(1);
                if budget == 0 {
                    return;
                }
                let joins = playbook.steps[at].join_all.is_some();
                match owner.get(&at) {
                    Some(first) if *first == branch => {}
                    Some(_) if at == fork || joins => {}
                    Some(_) => {
                        if reported.insert(at) {
                            warn_meeting(playbook, fork, at, p);
                        }
                    }
                    None => {
                        owner.insert(at, branch);
                        // Behind a join there is one token again.
                        if at != fork && !joins {
                            todo.extend(&graph.out[at]);
                        }
                    }
                }
            }
        }
    }
}

fn warn_meeting(playbook: &Playbook, fork: usize, at: usize, p: &mut Problems) {
    let (fork, step) = (&playbook.steps[fork].name.text, &playbook.steps[at].name);
    p.warn(
        codes::STEP_RUNS_TWICE,
        step.span,
        format!(
            "branches that part at {} can meet at {}, which then runs once for each",
            quote(fork),
            quote(&step.text)
        ),
    )
    .help("write `join: all` in this step to wait for all of its arcs, if it should run once");
}
