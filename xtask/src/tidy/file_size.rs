//! A file that does not fit into one head is split: 800 lines at most, a warning from 600.

use super::{Finding, Tree};

const MOST: usize = 800;
const MANY: usize = 600;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust("crates/")
        .filter(|(path, _)| path.split('/').nth(2) == Some("src"))
        .filter_map(|(path, text)| judge(path, text.lines().count()))
        .collect()
}

fn judge(path: &str, lines: usize) -> Option<Finding> {
    let message = format!("{lines} lines; split it along what changes together");
    match lines {
        0..MANY => None,
        MANY..=MOST => Some(Finding::warning(path, 0, message)),
        _ => Some(Finding::error(path, 0, message)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn long_files_warn_and_then_fail() {
        assert_eq!(judge("a.rs", 599), None);
        let severity = |lines| judge("a.rs", lines).map(|it| it.severity);
        assert_eq!(severity(600), Some(Severity::Warning));
        assert_eq!(severity(800), Some(Severity::Warning));
        assert_eq!(severity(801), Some(Severity::Error));
    }
}
