//! The same definitions on several engines: the same events with the same keys, in the same causal order. The first column says what
//! is expected; where another engine cannot agree, the reason is written here.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value as Json;

use crate::kit::{Column, Kit, StoreKind, folder};
use crate::scenario::{CommandLine, Scenario};
use crate::world::World;

/// How long a run may take, also on a busy machine.
const RUN: Duration = Duration::from_secs(180);
/// How long a command that only reads may take.
const READ: Duration = Duration::from_secs(60);
/// The exit codes of runs that have ended as their definitions say: completed, failed.
const ENDS: [i64; 2] = [0, 3];

/// A definition that every engine runs, with children beside it.
struct Compared {
    name: &'static str,
    /// What fails in reality and must be told to an engine that simulates work.
    simulated: &'static [&'static str],
    /// The first step completes, or fails for good, before the second one starts.
    before: &'static [(&'static str, &'static str)],
    /// Engines that cannot give the same events, with the reason.
    exempt: &'static [(&'static str, &'static str)],
}

/// The definitions of the five languages.
const DEFINITIONS: [Compared; 5] = [
    Compared {
        name: "actions",
        simulated: &["--fail", "right@1"],
        before: &[("left", "last"), ("right", "last")],
        exempt: &[],
    },
    Compared {
        name: "dag",
        simulated: &["--fail", "ship"],
        before: &[("reserve", "charge"), ("charge", "ship")],
        exempt: &[],
    },
    Compared {
        name: "linear",
        simulated: &[],
        before: &[("FIRST", "PAUSE"), ("PAUSE", "LAST")],
        exempt: &[(
            "mock",
            "work is simulated, so the step with the tool `sleep` does not wait",
        )],
    },
    Compared {
        name: "plan",
        simulated: &[],
        before: &[("one", "two")],
        exempt: &[],
    },
    Compared {
        name: "playbook",
        simulated: &["--fail", "risky"],
        before: &[("count", "risky"), ("risky", "below"), ("below", "last")],
        exempt: &[],
    },
];

/// The files of the definitions.
const FILES: [(&str, &str); 6] = [
    (
        "actions.yaml",
        include_str!("../../../fixtures/engines/actions.yaml"),
    ),
    (
        "child.yaml",
        include_str!("../../../fixtures/engines/child.yaml"),
    ),
    (
        "dag.yaml",
        include_str!("../../../fixtures/engines/dag.yaml"),
    ),
    (
        "linear.yaml",
        include_str!("../../../fixtures/engines/linear.yaml"),
    ),
    (
        "plan.yaml",
        include_str!("../../../fixtures/engines/plan.yaml"),
    ),
    (
        "playbook.yaml",
        include_str!("../../../fixtures/engines/playbook.yaml"),
    ),
];

/// What came of a definition on a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// So many events are the same, with the same keys.
    Same(usize),
    /// The engine need not agree, for this reason.
    Exempt(&'static str),
    Differs(String),
}

/// A definition on a column beside the first column.
#[derive(Clone, Debug)]
pub struct ParityRow {
    pub definition: &'static str,
    pub column: String,
    pub agreement: Agreement,
}

/// One event, as far as engines must agree on it: its type, its step and its key.
type Line = (String, String, String);

impl Kit {
    /// Runs every definition on every column that keeps runs, and compares with the first of them.
    pub fn compare(&self) -> Vec<ParityRow> {
        let kept: Vec<(usize, &Column)> = self.columns.iter().enumerate().collect();
        let kept = kept
            .into_iter()
            .filter(|(_, it)| it.store != StoreKind::Memory && !it.has_server);
        let kept: Vec<(usize, &Column)> = kept.collect();
        let mut rows = Vec::new();
        for (number, definition) in DEFINITIONS.iter().enumerate() {
            let mut first: Option<Vec<Line>> = None;
            for (at, column) in &kept {
                let exempt = definition
                    .exempt
                    .iter()
                    .find(|it| it.0 == column.engine_name());
                let agreement = match exempt {
                    Some((_, reason)) => Agreement::Exempt(reason),
                    None => {
                        // No scenario has such a number.
                        let place = folder(usize::MAX - number, *at);
                        match self.events_of(definition, column, place) {
                            Ok(found) => agree(definition, &mut first, found),
                            Err(why) => Agreement::Differs(why),
                        }
                    }
                };
                if self.is_talkative {
                    eprintln!(
                        "parity  {:<9} {}: {agreement:?}",
                        column.name, definition.name
                    );
                }
                rows.push(ParityRow {
                    definition: definition.name,
                    column: column.name.clone(),
                    agreement,
                });
            }
        }
        rows
    }

    /// Runs a definition to its end, and reads its events.
    fn events_of(
        &self,
        definition: &Compared,
        column: &Column,
        place: std::path::PathBuf,
    ) -> Result<Vec<Line>, String> {
        let files = FILES.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let scenario = Scenario {
            file: definition.name.to_owned(),
            statements: Vec::new(),
            promise: None,
            title: String::new(),
            needs: Vec::new(),
            exempt: BTreeMap::new(),
            known: BTreeMap::new(),
            servers: Vec::new(),
            files: files.into(),
            steps: Vec::new(),
        };
        let mut world = World::new(&scenario, column, (&self.binary, None), place)?;
        let (file, run) = (
            format!("{}.yaml", definition.name),
            format!("run_parity_{}", definition.name),
        );
        let mut words = vec!["run", &*file, "--run-id", &*run];
        if column.engine == "mock" {
            words.extend(definition.simulated);
        }
        let (exit, _, said) = command(&mut world, &words, RUN)?;
        if !ENDS.contains(&exit) {
            return Err(format!(
                "the run ended with exit code {exit}: {}",
                said.trim_end()
            ));
        }
        let (exit, events, said) = command(&mut world, &["runs", "events", &run], READ)?;
        if exit != 0 {
            return Err(format!("the events cannot be read: {}", said.trim_end()));
        }
        let lines = events.lines().filter(|line| line.starts_with('{'));
        lines.map(read_line).collect()
    }
}

/// Runs a command to its end: its exit code and what it says.
fn command(
    world: &mut World,
    words: &[&str],
    limit: Duration,
) -> Result<(i64, String, String), String> {
    let mut process = world.start(&CommandLine {
        words: words.iter().map(|it| (*it).to_owned()).collect(),
        env: Vec::new(),
        stdin: String::new(),
        is_program: false,
    })?;
    let exit = process.wait(limit)?;
    Ok((exit, process.out(), process.err()))
}

fn read_line(line: &str) -> Result<Line, String> {
    let event: Json = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
    let field = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    Ok((field("eventType"), field("stepId"), field("idempotencyKey")))
}

/// Compares events with those of the first column, which are kept. Steps side by side may be mixed; each step, and the run itself, has
/// its events in the same order, and steps come after those that they wait for.
fn agree(definition: &Compared, first: &mut Option<Vec<Line>>, found: Vec<Line>) -> Agreement {
    if found.is_empty() {
        return Agreement::Differs("the run has no events".to_owned());
    }
    for (earlier, later) in definition.before {
        let ended = |it: &&Line| {
            it.1 == *earlier && matches!(&*it.0, "StepCompleted" | "StepFailed" | "StepSkipped")
        };
        let last_end = found.iter().rposition(|it| ended(&it));
        let start = found
            .iter()
            .position(|it| it.1 == *later && it.0 == "StepStarted");
        match (last_end, start) {
            (Some(end), Some(start)) if end < start => {}
            places => {
                return Agreement::Differs(format!(
                    "the step {later} does not start after the end of {earlier}: {places:?}"
                ));
            }
        }
    }
    let Some(expected) = first else {
        let count = found.len();
        *first = Some(found);
        return Agreement::Same(count);
    };
    let (expected, count) = (by_step(expected), found.len());
    let found = by_step(&found);
    for (step, events) in &expected {
        if found.get(step) != Some(events) {
            return Agreement::Differs(format!(
                "step {step:?} has {:?} and should have {events:?}",
                found.get(step)
            ));
        }
    }
    match found.keys().find(|it| !expected.contains_key(*it)) {
        Some(other) => Agreement::Differs(format!("there is another step: {other:?}")),
        None => Agreement::Same(count),
    }
}

/// The types and keys of the events of each step; those of the run itself under no name.
fn by_step(events: &[Line]) -> BTreeMap<&str, Vec<(&str, &str)>> {
    let mut steps: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (kind, step, key) in events {
        steps.entry(step).or_default().push((kind, key));
    }
    steps
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]
mod tests {
    use super::*;

    const ONE: Compared = Compared {
        name: "one",
        simulated: &[],
        before: &[("a", "b")],
        exempt: &[],
    };

    fn lines(events: &[(&str, &str, &str)]) -> Vec<Line> {
        let owned = |it: &(&str, &str, &str)| (it.0.into(), it.1.into(), it.2.into());
        events.iter().map(owned).collect()
    }

    #[test]
    fn other_keys_another_order_and_missing_events_are_differences() {
        let right = lines(&[
            ("RunStarted", "", "k0"),
            ("StepStarted", "a", "k1"),
            ("StepCompleted", "a", "k2"),
            ("StepStarted", "b", "k3"),
            ("RunCompleted", "", "k4"),
        ]);
        let mut first = None;
        assert_eq!(agree(&ONE, &mut first, right.clone()), Agreement::Same(5));
        assert_eq!(agree(&ONE, &mut first, right.clone()), Agreement::Same(5));
        let mut other_key = right.clone();
        other_key[1].2 = "k9".into();
        let mut turned = right.clone();
        turned.swap(2, 3);
        let mut shorter = right.clone();
        shorter.pop();
        let mut longer = right;
        longer.push(("StepStarted".into(), "c".into(), "k5".into()));
        for wrong in [other_key, turned, shorter, longer, Vec::new()] {
            let answer = agree(&ONE, &mut first, wrong);
            assert!(matches!(answer, Agreement::Differs(_)), "{answer:?}");
        }
    }
}
