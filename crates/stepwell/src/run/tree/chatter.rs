//! The last lines of what runs now. A step is heard while it runs; what it said before is in its log.

use std::collections::{HashMap, VecDeque};

use stepwell_engine::rows::parse_target;
use stepwell_kernel::effect::Target;
use stepwell_kernel::state::Status;

use super::Live;
use crate::term::one_line;

/// As many lines as are shown, of each step: which of them are the last is known when it is drawn.
pub(super) const SHOWN: usize = 5;
/// More of a line than a terminal is wide.
const LONGEST: usize = 400;

/// What steps say while they run.
#[derive(Debug, Default)]
pub(super) struct Chatter {
    /// By run and step-run; the number is the order in which they came.
    heard: HashMap<(String, String), VecDeque<(u64, String)>>,
    count: u64,
}

impl Chatter {
    pub(super) fn hear(&mut self, run_id: &str, step_id: &str, text: &str) {
        self.count += 1;
        let short: String = text.chars().take(LONGEST).collect();
        let key = (run_id.to_owned(), step_id.to_owned());
        let lines = self.heard.entry(key).or_default();
        lines.push_back((self.count, one_line(&short)));
        if lines.len() > SHOWN {
            lines.pop_front();
        }
    }

    /// Drops the lines of what no longer runs.
    pub(super) fn forget_ended(&mut self, runs: &[Live<'_>]) {
        self.heard.retain(|(run_id, step_id), _| {
            let mut runs = runs.iter();
            let live = runs.find(|live| live.state.run_id() == *run_id);
            live.is_some_and(|live| is_running(*live, step_id))
        });
    }

    /// The last lines with their step, oldest first.
    pub(super) fn lines(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for ((_, step_id), lines) in &self.heard {
            all.extend(lines.iter().map(|(number, text)| (*number, step_id, text)));
        }
        all.sort_unstable_by_key(|(number, ..)| *number);
        let skip = all.len().saturating_sub(SHOWN);
        let last = all.into_iter().skip(skip);
        last.map(|(_, step_id, text)| (step_id.clone(), text.clone()))
            .collect()
    }
}

fn is_running(live: Live<'_>, step_id: &str) -> bool {
    let state = live.state;
    match parse_target(live.plan, step_id) {
        None => false,
        Some(Target::Step(at)) => {
            let run = state.run(at);
            run.is_some_and(|run| run.status() == Status::Running)
        }
        Some(Target::Undo(at)) => {
            let undoing = state.undoing();
            undoing
                .is_some_and(|it| it.current() == Some(at) && it.run().status() == Status::Running)
        }
    }
}
