//! What each engine can do, as data: natively, by other means and at what cost, or not at all. `stepwell engines` prints the table,
//! and a definition whose needs an engine cannot meet is refused before it starts.

use serde::Serialize;
use stepwell_dialects::plan::{CAPABILITIES, MISSING_CAPABILITIES};

/// How an engine does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "support")]
pub enum Support {
    /// By a means of the engine's own.
    Native,
    /// By the kernel and the store, or by a means that costs something.
    Emulated { cost: &'static str },
    /// The engine cannot do it.
    No { reason: &'static str },
}

impl Support {
    /// One word for tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Support::Native => "native",
            Support::Emulated { .. } => "emulated",
            Support::No { .. } => "no",
        }
    }

    /// What it costs, or why it is not possible.
    #[must_use]
    pub fn note(self) -> &'static str {
        match self {
            Support::Native => "",
            Support::Emulated { cost } => cost,
            Support::No { reason } => reason,
        }
    }
}

/// One thing that an engine can do or cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// The name that plans use in `requiresCapabilities`, or `engine.` and a property of the engine.
    pub name: &'static str,
    #[serde(flatten)]
    pub support: Support,
}

/// An engine and what it can do.
#[derive(Clone, Debug, Serialize)]
pub struct EngineRow {
    /// The name in events (`engineType`).
    pub name: &'static str,
    /// How `--engine` names it.
    pub address: &'static str,
    /// Whether this program was built with it.
    pub built: bool,
    /// Where the events of runs are kept.
    pub truth: &'static str,
    pub capabilities: Vec<Capability>,
}

const KERNEL: Support =
    emulated("the kernel decides and the store records it; no event of the engine");
const IN_STORE: Support = emulated("kept by this program beside its store, not by the engine");

const fn emulated(cost: &'static str) -> Support {
    Support::Emulated { cost }
}

/// Things that the engines outside do in the same way as each other, or each in its own.
struct OutsideRow {
    names: &'static [&'static str],
    temporal: Support,
    conductor: Support,
}

/// What plans can ask for and the engines outside take part in. Everything else is the kernel's on both.
const OUTSIDE: [OutsideRow; 7] = [
    OutsideRow {
        names: &["basic-execution", "workflow.retry", "workflow.fan.parallel"],
        temporal: emulated(
            "an attempt is an activity that is tried once (3 history events); the kernel decides retries and routes",
        ),
        conductor: emulated(
            "an attempt is a workflow of its own with one task that is tried once; the kernel decides retries and routes",
        ),
    },
    OutsideRow {
        names: &["history.rotation"],
        temporal: Support::Native,
        conductor: emulated("not needed: the loop of a run keeps its last two iterations"),
    },
    OutsideRow {
        names: &["workflow.timers", "workflow.timeout"],
        temporal: Support::Native,
        conductor: emulated(
            "a WAIT of whole seconds; the rest of a second, and timers that are late, are this process's",
        ),
    },
    OutsideRow {
        names: &["workflow.cancel", "signal.cancel", "signal.emergency-stop"],
        temporal: emulated(
            "a cancel at the server becomes a command; work in flight ends as the kernel says",
        ),
        conductor: emulated(
            "a command; the server cannot tell a worker to stop, the process that serves it can",
        ),
    },
    OutsideRow {
        names: &["workflow.artifacts", "workflow.secrets"],
        temporal: IN_STORE,
        conductor: IN_STORE,
    },
    OutsideRow {
        names: &["signal.pause.emulated", "workflow.pause"],
        temporal: COMMAND_ON_TEMPORAL,
        conductor: emulated(
            "PAUSED at once; work in flight drains (substatus DRAINING), and is accepted after the drain timeout, too",
        ),
    },
    OutsideRow {
        names: &[
            "workflow.signals",
            "workflow.approval",
            "signal.retry",
            "signal.skip",
            "signal.update-params",
        ],
        temporal: COMMAND_ON_TEMPORAL,
        conductor: emulated(
            "a command: the mailbox of the store, and a WAIT that is completed early (3 requests)",
        ),
    },
];

const COMMAND_ON_TEMPORAL: Support = emulated(
    "a command: an update of the workflow, or the mailbox of the store and a signal (4 history events)",
);

/// What the engines outside are, beside what plans can ask for.
const OF_ENGINES: [(&str, Support, Support); 6] = [
    both("engine.durable-driver", Support::Native),
    both(
        "engine.child-runs",
        emulated("each run is a workflow of its own; the store connects parent and child"),
    ),
    (
        "engine.search",
        Support::Native,
        emulated("by correlation id: the id of the run, or of the run and the execution"),
    ),
    both("engine.fail-open", Support::Native),
    both(
        "engine.virtual-time",
        Support::No {
            reason: "time is the server's",
        },
    ),
    both(
        "engine.memory-store",
        Support::No {
            reason: "a run outlives this process there, so its store must too",
        },
    ),
];

const fn both(name: &'static str, support: Support) -> (&'static str, Support, Support) {
    (name, support, support)
}

/// The rows of an engine outside.
fn outside(engine: &str, of: impl Fn((Support, Support)) -> Support) -> Vec<Capability> {
    let support = |name: &'static str| {
        let row = OUTSIDE.iter().find(|it| it.names.contains(&name));
        row.map_or(KERNEL, |it| of((it.temporal, it.conductor)))
    };
    let mut all = rows(engine, support);
    all.extend(
        OF_ENGINES
            .iter()
            .map(|&(name, temporal, conductor)| Capability {
                name,
                support: of((temporal, conductor)),
            }),
    );
    all
}

fn of_native(name: &'static str) -> Support {
    match name {
        "signal.pause.emulated" => KERNEL,
        _ => Support::Native,
    }
}

fn rows(engine: &str, support: impl Fn(&'static str) -> Support) -> Vec<Capability> {
    let missing = |name: &str| {
        let mut all = MISSING_CAPABILITIES.iter();
        all.find(|it| it.0 == engine && it.1 == name)
            .map(|it| Support::No { reason: it.2 })
    };
    let known = CAPABILITIES.iter().map(|name| Capability {
        name,
        support: missing(name).unwrap_or_else(|| support(name)),
    });
    known.collect()
}

/// All engines, each with everything that plans can ask for.
#[must_use]
pub fn engines() -> Vec<EngineRow> {
    vec![
        EngineRow {
            name: "native",
            address: "native",
            built: true,
            truth: "store",
            capabilities: rows("native", of_native),
        },
        EngineRow {
            name: "mock",
            address: "mock",
            built: true,
            truth: "store",
            capabilities: rows("mock", of_native),
        },
        EngineRow {
            name: "temporal",
            address: "temporal://HOST:PORT/NAMESPACE",
            built: cfg!(feature = "temporal"),
            truth: "store",
            capabilities: outside("temporal", |it| it.0),
        },
        EngineRow {
            name: "conductor",
            address: "conductor+http://HOST:PORT/api",
            built: cfg!(feature = "conductor"),
            truth: "store",
            capabilities: outside("conductor", |it| it.1),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_says_something_of_everything_that_a_plan_can_ask_for() {
        for engine in engines() {
            for name in CAPABILITIES {
                let row = engine.capabilities.iter().find(|it| it.name == name);
                assert!(row.is_some(), "{} says nothing of {name}", engine.name);
            }
        }
    }

    #[test]
    fn what_engines_outside_take_part_in_can_be_asked_for() {
        for row in &OUTSIDE {
            for name in row.names {
                assert!(CAPABILITIES.contains(name), "no plan asks for {name}");
            }
        }
    }

    #[test]
    fn what_is_emulated_has_a_cost_and_what_is_missing_has_a_reason() {
        for engine in engines() {
            for row in &engine.capabilities {
                let is_native = row.support == Support::Native;
                assert_eq!(
                    row.support.note().is_empty(),
                    is_native,
                    "{} {}",
                    engine.name,
                    row.name
                );
            }
        }
    }
}
