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

const KERNEL: Support = Support::Emulated {
    cost: "the kernel decides and the store records it; no event of the engine",
};
const IN_STORE: Support = Support::Emulated {
    cost: "kept by this program beside its store, not by the engine",
};

/// What the kernel does the same way on every engine, and how Temporal takes part.
fn temporal(name: &str) -> Support {
    match name {
        "basic-execution" | "workflow.retry" | "workflow.fan.parallel" => Support::Emulated {
            cost: "an attempt is an activity that is tried once (3 history events); the kernel decides retries and routes",
        },
        "history.rotation" => Support::Native,
        "workflow.timers" | "workflow.timeout" => Support::Native,
        "workflow.cancel" | "signal.cancel" | "signal.emergency-stop" => Support::Emulated {
            cost: "a cancel at the server becomes a command; work in flight ends as the kernel says",
        },
        "workflow.artifacts" | "workflow.secrets" => IN_STORE,
        "workflow.signals"
        | "workflow.approval"
        | "signal.pause.emulated"
        | "workflow.pause"
        | "signal.retry"
        | "signal.skip"
        | "signal.update-params" => Support::Emulated {
            cost: "a command: an update of the workflow, or the mailbox of the store and a signal (4 history events)",
        },
        _ => KERNEL,
    }
}

/// What the kernel does the same way on every engine, and how Conductor takes part.
fn conductor(name: &str) -> Support {
    match name {
        "basic-execution" | "workflow.retry" | "workflow.fan.parallel" => Support::Emulated {
            cost: "an attempt is a workflow of its own with one task that is tried once; the kernel decides retries and routes",
        },
        "history.rotation" => Support::Emulated {
            cost: "not needed: the loop of a run keeps its last two iterations",
        },
        "workflow.timers" | "workflow.timeout" => Support::Emulated {
            cost: "a WAIT of whole seconds; the rest of a second, and timers that are late, are this process's",
        },
        "workflow.cancel" | "signal.cancel" | "signal.emergency-stop" => Support::Emulated {
            cost: "a command; the server cannot tell a worker to stop, the process that serves it can",
        },
        "workflow.artifacts" | "workflow.secrets" => IN_STORE,
        "signal.pause.emulated" | "workflow.pause" => Support::Emulated {
            cost: "PAUSED at once; work in flight drains (substatus DRAINING), and is accepted after the drain timeout, too",
        },
        "workflow.signals"
        | "workflow.approval"
        | "signal.retry"
        | "signal.skip"
        | "signal.update-params" => Support::Emulated {
            cost: "a command: the mailbox of the store, and a WAIT that is completed early (3 requests)",
        },
        _ => KERNEL,
    }
}

/// What Conductor is, beside what plans can ask for.
const OF_CONDUCTOR: [Capability; 6] = [
    Capability {
        name: "engine.durable-driver",
        support: Support::Native,
    },
    Capability {
        name: "engine.child-runs",
        support: Support::Emulated {
            cost: "each run is a workflow of its own; the store connects parent and child",
        },
    },
    Capability {
        name: "engine.search",
        support: Support::Emulated {
            cost: "by correlation id: the id of the run, or of the run and the execution",
        },
    },
    Capability {
        name: "engine.fail-open",
        support: Support::Native,
    },
    Capability {
        name: "engine.virtual-time",
        support: Support::No {
            reason: "time is the server's",
        },
    },
    Capability {
        name: "engine.memory-store",
        support: Support::No {
            reason: "a run outlives this process there, so its store must too",
        },
    },
];

/// What Temporal is, beside what plans can ask for.
const OF_TEMPORAL: [Capability; 6] = [
    Capability {
        name: "engine.durable-driver",
        support: Support::Native,
    },
    Capability {
        name: "engine.child-runs",
        support: Support::Emulated {
            cost: "each run is a workflow of its own; the store connects parent and child",
        },
    },
    Capability {
        name: "engine.search",
        support: Support::Native,
    },
    Capability {
        name: "engine.fail-open",
        support: Support::Native,
    },
    Capability {
        name: "engine.virtual-time",
        support: Support::No {
            reason: "time is the server's",
        },
    },
    Capability {
        name: "engine.memory-store",
        support: Support::No {
            reason: "a run outlives this process there, so its store must too",
        },
    },
];

fn of_native(name: &'static str) -> Support {
    match name {
        "signal.pause.emulated" => KERNEL,
        _ => Support::Native,
    }
}

fn rows(
    engine: &str,
    support: impl Fn(&'static str) -> Support,
    own: &[Capability],
) -> Vec<Capability> {
    let missing = |name: &str| {
        let mut all = MISSING_CAPABILITIES.iter();
        all.find(|it| it.0 == engine && it.1 == name)
            .map(|it| Support::No { reason: it.2 })
    };
    let known = CAPABILITIES.iter().map(|name| Capability {
        name,
        support: missing(name).unwrap_or_else(|| support(name)),
    });
    known.chain(own.iter().copied()).collect()
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
            capabilities: rows("native", of_native, &[]),
        },
        EngineRow {
            name: "mock",
            address: "mock",
            built: true,
            truth: "store",
            capabilities: rows("mock", of_native, &[]),
        },
        EngineRow {
            name: "temporal",
            address: "temporal://HOST:PORT/NAMESPACE",
            built: cfg!(feature = "temporal"),
            truth: "store",
            capabilities: rows("temporal", temporal, &OF_TEMPORAL),
        },
        EngineRow {
            name: "conductor",
            address: "conductor+http://HOST:PORT/api",
            built: cfg!(feature = "conductor"),
            truth: "store",
            capabilities: rows("conductor", conductor, &OF_CONDUCTOR),
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
