//! Cycles among dependencies. Knows nothing of actions: only who depends on whom, by number.

use std::collections::HashMap;

/// Cycles, each as the numbers along it; every step on one is named in exactly one of them. At most
/// `most` are looked for. `needs[a]` holds what `a` depends on, all of it valid numbers.
pub(super) fn cycles(needs: &[Vec<usize>], most: usize) -> Vec<Vec<usize>> {
    let mut done = settled(needs);
    let mut found = Vec::new();
    for start in 0..needs.len() {
        if done[start] || found.len() >= most {
            continue;
        }
        let path = walk(needs, &done, start);
        for node in &path.seen {
            done[*node] = true;
        }
        found.extend(path.cycle);
    }
    found
}

/// What no cycle holds back: steps that can be put in an order.
fn settled(needs: &[Vec<usize>]) -> Vec<bool> {
    let mut missing: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut dependents = vec![Vec::new(); needs.len()];
    for (node, list) in needs.iter().enumerate() {
        for need in list {
            dependents[*need].push(node);
        }
    }
    let mut done = vec![false; needs.len()];
    let mut ready: Vec<usize> = (0..needs.len()).filter(|n| missing[*n] == 0).collect();
    while let Some(node) = ready.pop() {
        done[node] = true;
        for dependent in &dependents[node] {
            missing[*dependent] -= 1;
            if missing[*dependent] == 0 {
                ready.push(*dependent);
            }
        }
    }
    done
}

struct Path {
    seen: Vec<usize>,
    cycle: Option<Vec<usize>>,
}

/// Goes from need to need until it meets itself or what was looked at before.
fn walk(needs: &[Vec<usize>], done: &[bool], start: usize) -> Path {
    let mut place: HashMap<usize, usize> = HashMap::new();
    let mut seen: Vec<usize> = Vec::new();
    let mut node = start;
    loop {
        if let Some(at) = place.insert(node, seen.len()) {
            let cycle: Vec<usize> = seen[at..].to_vec();
            return Path {
                seen,
                cycle: Some(cycle),
            };
        }
        seen.push(node);
        let Some(next) = needs[node].iter().find(|need| !done[**need]) else {
            return Path { seen, cycle: None };
        };
        node = *next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_no_cycle() {
        assert!(cycles(&[vec![], vec![0], vec![0, 1]], 9).is_empty());
    }

    #[test]
    fn each_cycle_is_named_once_and_what_hangs_on_it_not() {
        let needs = [vec![1], vec![0], vec![0], vec![4], vec![3]];
        assert_eq!(cycles(&needs, 9), [vec![0, 1], vec![3, 4]]);
        assert_eq!(cycles(&needs, 1).len(), 1);
    }
}
