//! Makes a violation smaller: fewer steps, fewer servers, fewer runs, one workload, for as long as the same thing goes
//! wrong. The result is a command that shows the small trace.

use crate::simulation::{Options, Violation, simulate};
use crate::workload::NAMES;

/// How many simulations a search may take.
const TRIES: u32 = 120;

/// The smallest simulation that was found in which the same thing goes wrong.
#[must_use]
pub fn shrink(violation: &Violation) -> Violation {
    let mut search = Search {
        best: violation.clone(),
        kind: kind(&violation.what),
        tries: 0,
    };
    for name in NAMES {
        let options = search.best.options.clone();
        search.accepts(Options {
            workload: Some(name.to_owned()),
            ..options
        });
    }
    for servers in 1..3 {
        let options = search.best.options.clone();
        if options.max_servers.is_none() {
            search.accepts(Options {
                max_servers: Some(servers),
                ..options
            });
        }
    }
    for runs in 1..6 {
        let options = search.best.options.clone();
        if options.max_runs.is_none() {
            search.accepts(Options {
                max_runs: Some(runs),
                ..options
            });
        }
    }
    search.shorten();
    search.best
}

struct Search {
    best: Violation,
    kind: String,
    tries: u32,
}

impl Search {
    /// Tries other options; keeps them if the same thing goes wrong.
    fn accepts(&mut self, options: Options) -> bool {
        if self.tries >= TRIES {
            return false;
        }
        self.tries += 1;
        match simulate(self.best.seed, &options) {
            Err(violation) if kind(&violation.what) == self.kind => {
                self.best = *violation;
                true
            }
            _ => false,
        }
    }

    /// Halves the number of steps with faults, and then takes smaller parts away.
    fn shorten(&mut self) {
        let mut part = self.best.options.steps / 2;
        while part > 0 {
            let steps = self.best.options.steps.saturating_sub(part);
            let options = Options {
                steps,
                ..self.best.options.clone()
            };
            if !self.accepts(options) {
                part /= 2;
            }
        }
    }
}

/// What went wrong, without numbers and names of runs.
fn kind(what: &str) -> String {
    let words = what.split(|it: char| !it.is_alphabetic());
    let plain = words.filter(|it| it.len() > 2 && !it.starts_with("run"));
    plain.take(8).collect::<Vec<_>>().join(" ")
}
