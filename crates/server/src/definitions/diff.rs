//! The difference of two texts, line by line, in the unified form that `diff -u` prints.

use std::fmt::Write as _;

/// Lines around a change that are shown.
const AROUND: usize = 3;
/// Texts that differ in more lines are shown as replaced as a whole: the search takes the square of this.
const MAX_CHANGES: usize = 1_500;

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Same(usize, usize),
    Gone(usize),
    New(usize),
}

/// The difference of two texts; empty if they are equal.
pub(crate) fn unified((old_name, old): (&str, &str), (new_name, new): (&str, &str)) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let fates = fates(&a, &b);
    let changed: Vec<usize> = fates
        .iter()
        .enumerate()
        .filter(|(_, fate)| !matches!(fate, Fate::Same(..)))
        .map(|(at, _)| at)
        .collect();
    let mut text = String::new();
    let (Some(_), mut at) = (changed.first(), 0) else {
        return text;
    };
    // Writing to a text cannot fail.
    let _ = writeln!(text, "--- {old_name}\n+++ {new_name}");
    while let Some(first) = changed.get(at) {
        let from = first.saturating_sub(AROUND);
        let mut last = *first;
        // Changes that are near each other are one hunk.
        while let Some(next) = changed.get(at).filter(|it| **it <= last + 2 * AROUND) {
            last = *next;
            at += 1;
        }
        let to = (last + AROUND + 1).min(fates.len());
        hunk(&mut text, &fates, (from, to), &a, &b);
    }
    text
}

fn hunk(text: &mut String, fates: &[Fate], (from, to): (usize, usize), a: &[&str], b: &[&str]) {
    let counts = |fates: &[Fate]| {
        let old = fates
            .iter()
            .filter(|it| !matches!(it, Fate::New(_)))
            .count();
        let new = fates
            .iter()
            .filter(|it| !matches!(it, Fate::Gone(_)))
            .count();
        (old, new)
    };
    let (before, inside) = (counts(&fates[..from]), counts(&fates[from..to]));
    // A side without lines names the line before.
    let start = |before: usize, count: usize| before + usize::from(count > 0);
    let _ = writeln!(
        text,
        "@@ -{},{} +{},{} @@",
        start(before.0, inside.0),
        inside.0,
        start(before.1, inside.1),
        inside.1
    );
    for fate in &fates[from..to] {
        let (mark, line) = match fate {
            Fate::Same(old, _) => (' ', a[*old]),
            Fate::Gone(old) => ('-', a[*old]),
            Fate::New(new) => ('+', b[*new]),
        };
        let _ = writeln!(text, "{mark}{line}");
    }
}

/// What becomes of each line, in order: the shortest way from one text to the other (Myers).
fn fates(a: &[&str], b: &[&str]) -> Vec<Fate> {
    let head = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (rest_a, rest_b) = (&a[head..], &b[head..]);
    let tail = rest_a.iter().rev().zip(rest_b.iter().rev());
    let tail = tail.take_while(|(x, y)| x == y).count();
    let (n, m) = (rest_a.len() - tail, rest_b.len() - tail);
    let mut all: Vec<Fate> = (0..head).map(|at| Fate::Same(at, at)).collect();
    let middle = path(&rest_a[..n], &rest_b[..m]);
    all.extend(middle.into_iter().map(|fate| match fate {
        Fate::Same(x, y) => Fate::Same(head + x, head + y),
        Fate::Gone(x) => Fate::Gone(head + x),
        Fate::New(y) => Fate::New(head + y),
    }));
    all.extend((0..tail).map(|at| Fate::Same(head + n + at, head + m + at)));
    all
}

/// The shortest way; everything replaced, if that is too long.
fn path(a: &[&str], b: &[&str]) -> Vec<Fate> {
    let (n, m) = (a.len(), b.len());
    // The furthest line of `a` on each diagonal (x - y), for each number of changes. Diagonals are moved so that they
    // are never negative.
    let most = (n + m).min(MAX_CHANGES);
    let width = 2 * most + 3;
    let middle = most + 1;
    let mut reached = vec![0_usize; width];
    let mut trace: Vec<Vec<usize>> = Vec::new();
    for changes in 0..=most {
        trace.push(
            reached[middle - changes.min(middle)..=(middle + changes).min(width - 1)].to_vec(),
        );
        for diagonal in (middle - changes..=middle + changes).step_by(2) {
            let goes_down = diagonal == middle - changes
                || (diagonal != middle + changes && reached[diagonal - 1] < reached[diagonal + 1]);
            let mut x = match goes_down {
                true => reached[diagonal + 1],
                false => reached[diagonal - 1] + 1,
            };
            let Some(mut y) = (x + middle).checked_sub(diagonal) else {
                reached[diagonal] = x;
                continue;
            };
            while x < n && y < m && a[x] == b[y] {
                (x, y) = (x + 1, y + 1);
            }
            reached[diagonal] = x;
            if x >= n && y >= m {
                return back(&trace, middle, n, m);
            }
        }
    }
    let gone = (0..n).map(Fate::Gone);
    gone.chain((0..m).map(Fate::New)).collect()
}

/// The way back from the end of both texts.
fn back(trace: &[Vec<usize>], middle: usize, n: usize, m: usize) -> Vec<Fate> {
    let mut fates = Vec::new();
    let (mut x, mut y) = (n, m);
    for (changes, reached) in trace.iter().enumerate().skip(1).rev() {
        // What was reached before this change: the diagonals from `middle - changes` on.
        let at = |diagonal: usize| reached[diagonal + changes - middle];
        let diagonal = x + middle - y;
        let goes_down = diagonal == middle - changes
            || (diagonal != middle + changes && at(diagonal - 1) < at(diagonal + 1));
        let before = if goes_down {
            diagonal + 1
        } else {
            diagonal - 1
        };
        let from_x = at(before);
        let from_y = from_x + middle - before;
        while x > from_x && y > from_y {
            (x, y) = (x - 1, y - 1);
            fates.push(Fate::Same(x, y));
        }
        match goes_down {
            true => {
                y -= 1;
                fates.push(Fate::New(y));
            }
            false => {
                x -= 1;
                fates.push(Fate::Gone(x));
            }
        }
    }
    while x > 0 && y > 0 {
        (x, y) = (x - 1, y - 1);
        fates.push(Fate::Same(x, y));
    }
    fates.reverse();
    fates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(old: &str, new: &str) -> String {
        unified(("old", old), ("new", new))
    }

    #[test]
    fn equal_texts_have_no_difference() {
        assert_eq!(diff("", ""), "");
        assert_eq!(diff("a\nb\n", "a\nb\n"), "");
    }

    #[test]
    fn changed_lines_are_shown_with_the_lines_around_them() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = old.replace("5\n", "five\n");
        let wanted = "--- old\n+++ new\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n";
        assert_eq!(diff(old, &new), wanted);
        assert_eq!(diff("", "a\n"), "--- old\n+++ new\n@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(diff("a\n", ""), "--- old\n+++ new\n@@ -1,1 +0,0 @@\n-a\n");
    }

    #[test]
    fn changes_that_are_far_apart_are_hunks_of_their_own() {
        let lines: Vec<String> = (0..40).map(|it| it.to_string()).collect();
        let old = lines.join("\n");
        let new = old.replace("\n3\n", "\n").replace("\n30\n", "\n30\nnew\n");
        let seen = diff(&old, &new);
        assert_eq!(seen.matches("@@ -").count(), 2, "{seen}");
        assert!(
            seen.contains("\n-3\n") && seen.contains("\n+new\n"),
            "{seen}"
        );
    }

    /// The new text, made from the old one and the fates.
    #[test]
    fn the_fates_of_any_two_texts_lead_from_one_to_the_other() {
        let mut seed = 7_u64;
        let mut next = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..500 {
            let mut text = |most: u64| -> Vec<&str> {
                let len = next(most);
                (0..len)
                    .map(|_| ["a", "b", "c", "d"][next(4) as usize])
                    .collect()
            };
            let (a, b) = (text(12), text(12));
            let fates = fates(&a, &b);
            let old: Vec<usize> = fates
                .iter()
                .filter_map(|it| match it {
                    Fate::Same(x, _) | Fate::Gone(x) => Some(*x),
                    Fate::New(_) => None,
                })
                .collect();
            let new: Vec<usize> = fates
                .iter()
                .filter_map(|it| match it {
                    Fate::Same(_, y) | Fate::New(y) => Some(*y),
                    Fate::Gone(_) => None,
                })
                .collect();
            assert_eq!(old, (0..a.len()).collect::<Vec<_>>(), "{a:?} {b:?}");
            assert_eq!(new, (0..b.len()).collect::<Vec<_>>(), "{a:?} {b:?}");
            for fate in fates {
                if let Fate::Same(x, y) = fate {
                    assert_eq!(a[x], b[y]);
                }
            }
        }
    }
}
