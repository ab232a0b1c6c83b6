//! The model of tokens: where they go, what they carry and set, and who may enter.

use std::collections::{BTreeMap, BTreeSet};

use stepwell_kernel::event::{AdmissionVerdict, Patch, Routing};
use stepwell_kernel::plan::StepRef;

use super::{Args, PlaybookModel, Stage, Verdict, Visit, index, number};
use crate::definitions::playbook::{Guard, Value};

/// What a boundary event says of a step that has ended.
pub(super) struct Boundary {
    event: &'static str,
    failed: bool,
    output: u64,
    /// How many items of its loop failed; unknown if the loop has failed.
    failed_items: Option<u64>,
    args: Args,
}

impl PlaybookModel {
    /// A token comes to a step.
    pub(super) fn arrives(
        &mut self,
        step: usize,
        args: Args,
        verdict: AdmissionVerdict,
        since: u64,
    ) -> Verdict {
        let discards = { self.book.steps[step].admit.as_ref() }.is_some_and(|it| it.discards);
        let right = match (self.may_enter(step), verdict) {
            (None, _) => true,
            (Some(allowed), AdmissionVerdict::Allowed) => allowed,
            (Some(allowed), AdmissionVerdict::Denied) => !allowed && !discards,
            (Some(allowed), AdmissionVerdict::Discarded) => !allowed && discards,
        };
        if !right {
            return Err(format!(
                "a token for {} is {verdict:?}, and the rules say: {:?}, with {:?}",
                self.book.steps[step].name,
                self.may_enter(step),
                self.ctx
            ));
        }
        self.visits[step].push(Visit {
            stage: match verdict {
                AdmissionVerdict::Allowed => Stage::Arrived,
                AdmissionVerdict::Denied => Stage::Denied,
                AdmissionVerdict::Discarded => Stage::Dropped,
            },
            args,
            each: None,
            losses: BTreeMap::new(),
            routed: false,
            since,
            output: 0,
        });
        self.stalled = false;
        Ok(())
    }

    /// Whether a token may enter now; none if that is not known.
    pub(super) fn may_enter(&self, step: usize) -> Option<bool> {
        let Some(admit) = &self.book.steps[step].admit else {
            return Some(true);
        };
        for (guard, allow) in &admit.rules {
            if self.holds(guard, None)? {
                return Some(*allow);
            }
        }
        Some(admit.otherwise.unwrap_or(true))
    }

    /// Whether a guard holds; none if that is not known.
    pub(super) fn holds(&self, guard: &Guard, at: Option<&Boundary>) -> Option<bool> {
        let variable = |key: &str| self.ctx.get(key).copied().unwrap_or(0);
        Some(match guard {
            Guard::Event(name) => at?.event == *name,
            Guard::Status(status) => at?.failed == (*status == "error"),
            Guard::Output(least) => at?.output >= *least,
            Guard::FailedItems(least) => at?.failed_items? >= *least,
            Guard::Ctx(key, least) => variable(&format!("c{key}")) >= *least,
            Guard::Args(least) => match at?.args {
                Args::None => *least == 0,
                Args::Number(number) => number >= *least,
                Args::Unknown => return None,
            },
            Guard::Workload(least) => {
                // An operator may change a parameter; which steps see the old value is not said for guards.
                let mut all = self.numbers.iter().map(|it| it >= least);
                let first = all.next()?;
                return all.all(|it| it == first).then_some(first);
            }
            Guard::Laps => variable("laps") < 2,
        })
    }

    /// A value that is set or passed on; none if that is not known.
    pub(super) fn value(&self, value: &Value, at: &Boundary) -> Option<u64> {
        let variable = |key: &str| self.ctx.get(key).copied().unwrap_or(0);
        Some(match value {
            Value::Fixed(number) => *number,
            Value::Output => at.output,
            Value::Ctx(key) => variable(&format!("c{key}")),
            Value::Workload => {
                let first = *self.numbers.first()?;
                return { self.numbers.iter() }
                    .all(|it| *it == first)
                    .then_some(first);
            }
            Value::NextLap => variable("laps") + 1,
        })
    }

    /// The variables that were set are those that the playbook sets.
    pub(super) fn patches(
        &mut self,
        name: &str,
        patch: &Patch,
        expected: &[(String, Option<u64>)],
    ) -> Verdict {
        let keys: BTreeSet<&String> = expected.iter().map(|(key, _)| key).collect();
        if keys.into_iter().ne(patch.keys()) {
            return Err(format!("{name} set {patch:?}, not {expected:?}"));
        }
        for (key, got) in patch {
            // The last one that sets a variable wins.
            let last = expected.iter().rev().find(|(it, _)| it == key);
            let wanted = last.and_then(|(_, value)| *value);
            if wanted.is_some_and(|it| Some(it) != got.as_u64()) {
                return Err(format!("{name} set {key} to {got}, not {wanted:?}"));
            }
            self.ctx.insert(key.clone(), number(got));
        }
        if !patch.is_empty() {
            self.stalled = false;
        }
        Ok(())
    }

    pub(super) fn boundary(&self, at: StepRef) -> Result<Boundary, String> {
        let visit = self.visit(at)?;
        let failed = visit.stage == Stage::Failed;
        Ok(Boundary {
            event: match (failed, &visit.each) {
                (true, _) => "step.failed",
                (false, Some(_)) => "loop.done",
                (false, None) => "step.done",
            },
            failed,
            output: visit.output,
            failed_items: match (&visit.each, failed) {
                (None, _) => Some(0),
                (Some(each), false) => Some(each.failed),
                (Some(_), true) => None,
            },
            args: visit.args,
        })
    }

    /// The token of a step that has ended goes on.
    pub(super) fn routes(&mut self, at: StepRef, routing: &Routing, seq: u64) -> Verdict {
        let book = self.book.clone();
        let step = &book.steps[index(at)];
        let name = &step.name;
        let boundary = self.boundary(at)?;
        let (visit, _) = self.visit_mut(at)?;
        // A step without arcs has nowhere to go, whether the log says so or not.
        if step.arcs.is_empty() && routing.taken.is_empty() {
            visit.routed = true;
            return Ok(());
        }
        if !matches!(visit.stage, Stage::Succeeded | Stage::Failed) || visit.routed {
            return Err(format!("the token of {name} went on twice, or too early"));
        }
        visit.routed = true;
        let first = book.first_arc(index(at));
        let taken: Vec<usize> = { routing.taken.iter() }
            .map(|it| (it.edge.0 as usize).wrapping_sub(first))
            .collect();
        let held: Vec<Option<bool>> = { step.arcs.iter() }
            .map(|arc| {
                let when = arc.when.as_ref();
                when.map_or(Some(true), |it| self.holds(it, Some(&boundary)))
            })
            .collect();
        if !may_take(&held, step.inclusive, &taken) {
            return Err(format!(
                "the token of {name} took the arcs {taken:?}; their guards are {held:?}, all that match: {}",
                step.inclusive
            ));
        }
        let strays = !step.arcs.is_empty() && taken.is_empty();
        let strays = strays && book.no_next_is_error && !boundary.failed;
        if strays != routing.error.is_some() {
            return Err(format!(
                "the token of {name} has nowhere to go: {strays}, and the error is {:?}",
                routing.error
            ));
        }
        self.astray |= strays;
        if boundary.failed {
            let reads = |it: &usize| {
                let when = step.arcs[*it].when.as_ref();
                when.is_some_and(Guard::looks_at_the_outcome)
            };
            let handled = taken.iter().any(reads);
            if handled != routing.handled {
                return Err(format!("the failure of {name} is handled: {handled}"));
            }
            self.unhandled |= !handled;
            self.must_stop |= !handled && book.fails_fast;
        }
        let mut sets = Vec::new();
        let mut tokens = Vec::new();
        for (arc, token) in taken.iter().map(|it| &step.arcs[*it]).zip(&routing.taken) {
            let wanted = arc.args.as_ref().map(|it| self.value(it, &boundary));
            let got = token.args.as_deref().and_then(|it| it["n"].as_u64());
            if wanted.is_some() != got.is_some()
                || wanted.flatten().is_some_and(|it| Some(it) != got)
            {
                return Err(format!(
                    "the token from {name} carries {:?}, not {wanted:?}",
                    token.args
                ));
            }
            tokens.push((arc.to, got, token));
            for (key, value) in &arc.sets {
                sets.push((key.clone(), self.value(value, &boundary)));
            }
        }
        self.patches(name, &routing.set, &sets)?;
        for (to, args, token) in tokens {
            let args = args.map_or(Args::None, Args::Number);
            if !book.steps[to].joins {
                self.arrives(to, args, token.verdict, seq)?;
                continue;
            }
            self.waiting[token.edge.0 as usize] += 1;
            let arcs = book.arcs().enumerate();
            let leads_here: Vec<usize> = arcs
                .filter(|(_, (_, arc))| arc.to == to)
                .map(|(no, _)| no)
                .collect();
            if leads_here.iter().all(|arc| self.waiting[*arc] > 0) {
                leads_here.iter().for_each(|arc| self.waiting[*arc] -= 1);
                self.arrives(to, Args::Unknown, AdmissionVerdict::Allowed, seq)?;
            }
        }
        Ok(())
    }

    /// Tokens that were denied may enter: all those whose rules allow it now, the oldest first.
    pub(super) fn admits(&mut self, tokens: &[StepRef]) -> Verdict {
        let mut open: Vec<(u64, usize, usize)> = Vec::new();
        for (step, visits) in self.visits.iter().enumerate() {
            for (visit, it) in visits.iter().enumerate() {
                if it.stage == Stage::Denied && self.may_enter(step) != Some(false) {
                    open.push((it.since, step, visit));
                }
            }
        }
        open.sort_unstable();
        let sure = |it: &(u64, usize, usize)| self.may_enter(it.1) == Some(true);
        let listed = |it: &(u64, usize, usize)| {
            let mut tokens = tokens.iter();
            tokens.any(|at| index(*at) == it.1 && at.visit as usize - 1 == it.2)
        };
        if let Some(forgotten) = open.iter().find(|it| sure(it) && !listed(it)) {
            return Err(format!(
                "a token for {} may enter, and was not admitted",
                self.book.steps[forgotten.1].name
            ));
        }
        let mut last = 0;
        for at in tokens {
            let place =
                |it: &&(u64, usize, usize)| it.1 == index(*at) && it.2 == at.visit as usize - 1;
            let Some((since, ..)) = open.iter().find(place) else {
                return Err(format!(
                    "a token for step {} was admitted, and may not enter with {:?}",
                    at.step.0, self.ctx
                ));
            };
            if *since < last {
                return Err("tokens were admitted, and not the oldest first".into());
            }
            last = *since;
        }
        for at in tokens {
            self.visit_mut(*at)?.0.stage = Stage::Arrived;
        }
        self.stalled = false;
        Ok(())
    }
}

/// Whether these arcs may be taken. `held` says which guards hold, as far as that is known.
fn may_take(held: &[Option<bool>], inclusive: bool, taken: &[usize]) -> bool {
    if taken.iter().any(|it| *it >= held.len()) || !taken.is_sorted() {
        return false;
    }
    let fits = |arc: usize| match taken.contains(&arc) {
        true => held[arc] != Some(false),
        false => held[arc] != Some(true),
    };
    match (inclusive, taken) {
        (true, _) => (0..held.len()).all(fits),
        (false, []) => held.iter().all(|it| *it != Some(true)),
        (false, [one]) => fits(*one) && held[..*one].iter().all(|it| *it != Some(true)),
        (false, _) => false,
    }
}
