//! Dependencies between the named steps of a graph: which can never start, and why.
//!
//! Here: only the graph. The languages say the same things under their own codes, so reporting is
//! theirs. Nothing recurses: a chain may be as long as a plan may be.

/// What is wrong with a graph of dependencies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DependencyCycles {
    /// Circles, each from its first step in the file along "depends on", the start not repeated.
    pub(crate) cycles: Vec<Vec<usize>>,
    /// Steps on none of those circles that wait for one.
    pub(crate) starved: Vec<usize>,
}

/// Finds the steps that no order of execution reaches. `needs[i]` lists what step `i` depends on.
///
/// Of circles that share steps at least one is found, so that fixing one shows the next.
pub(crate) fn dependency_cycles(needs: &[Vec<usize>]) -> DependencyCycles {
    let stuck = stuck(needs);
    let mut dependency_cycles = DependencyCycles::default();
    // Which walk came past a step; a step that an earlier walk saw leads to a known circle.
    let mut walk_of = vec![0_usize; needs.len()];
    let mut on_cycle = vec![false; needs.len()];
    for start in (0..needs.len()).filter(|at| stuck[*at]) {
        let mut path = Vec::new();
        let mut at = start;
        while walk_of[at] == 0 {
            walk_of[at] = start + 1;
            path.push(at);
            // A stuck step has at least one stuck dependency, or it would not be stuck.
            match needs[at].iter().copied().find(|need| stuck[*need]) {
                Some(need) => at = need,
                None => break,
            }
        }
        let closed = walk_of[at] == start + 1;
        if let Some(from) = path.iter().position(|step| *step == at).filter(|_| closed) {
            let cycle = from_first(&path[from..]);
            for step in &cycle {
                on_cycle[*step] = true;
            }
            dependency_cycles.cycles.push(cycle);
        }
    }
    dependency_cycles.starved = (0..needs.len())
        .filter(|at| stuck[*at] && !on_cycle[*at])
        .collect();
    dependency_cycles
}

/// Which steps are left when everything that can start has run.
fn stuck(needs: &[Vec<usize>]) -> Vec<bool> {
    let mut missing: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut dependents = vec![Vec::new(); needs.len()];
    for (at, needed) in needs.iter().enumerate() {
        for need in needed {
            dependents[*need].push(at);
        }
    }
    let mut ready: Vec<usize> = (0..needs.len()).filter(|at| missing[*at] == 0).collect();
    let mut stuck = vec![true; needs.len()];
    while let Some(at) = ready.pop() {
        stuck[at] = false;
        for dependent in &dependents[at] {
            missing[*dependent] -= 1;
            if missing[*dependent] == 0 {
                ready.push(*dependent);
            }
        }
    }
    stuck
}

/// The circle turned so that it begins at the step that comes first in the file.
fn from_first(cycle: &[usize]) -> Vec<usize> {
    let first = cycle.iter().enumerate().min_by_key(|(_, step)| **step);
    let mut turned = cycle.to_vec();
    turned.rotate_left(first.map_or(0, |(place, _)| place));
    turned
}

/// The circle for a message: `a → b → a`.
pub(crate) fn path(cycle: &[usize], name: impl Fn(usize) -> String) -> String {
    const SHOWN: usize = 12;
    let mut names: Vec<String> = cycle.iter().take(SHOWN).map(|step| name(*step)).collect();
    if cycle.len() > SHOWN {
        names.push(format!("… {} more …", cycle.len() - SHOWN));
    }
    names.extend(cycle.first().map(|step| name(*step)));
    names.join(" → ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_without_circles_has_no_knots() {
        assert_eq!(
            dependency_cycles(&[vec![], vec![0], vec![0], vec![1, 2]]),
            DependencyCycles::default()
        );
    }

    #[test]
    fn a_circle_is_told_apart_from_what_waits_for_it() {
        let found = dependency_cycles(&[vec![3], vec![2], vec![1], vec![1]]);
        assert_eq!(found.cycles, [vec![1, 2]]);
        assert_eq!(found.starved, [0, 3]);
    }

    #[test]
    fn a_step_that_needs_itself_is_a_circle_of_one() {
        assert_eq!(dependency_cycles(&[vec![0]]).cycles, [vec![0]]);
    }

    #[test]
    fn two_circles_are_both_found() {
        assert_eq!(
            dependency_cycles(&[vec![1], vec![0], vec![3], vec![2]])
                .cycles
                .len(),
            2
        );
    }

    #[test]
    fn a_very_long_chain_needs_no_deep_stack() {
        let chain: Vec<Vec<usize>> = (0..200_000)
            .map(|at: usize| at.checked_sub(1).into_iter().collect())
            .collect();
        assert_eq!(dependency_cycles(&chain), DependencyCycles::default());
    }
}
