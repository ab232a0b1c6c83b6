//! Each decision has a number of its own, which its file name and its title begin with.

use super::{Finding, Tree};
use std::collections::BTreeMap;

const FOLDER: &str = "docs/decisions/";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut first_of: BTreeMap<&str, &str> = BTreeMap::new();
    let mut findings = Vec::new();
    for (path, text) in &tree.files {
        let Some(name) = path.strip_prefix(FOLDER) else {
            continue;
        };
        let number = name.split('-').next().unwrap_or_default();
        if let Some(other) = first_of.insert(number, name) {
            let message = format!("`{other}` has this number too; take the next free number");
            findings.push(Finding::error(path, 0, message));
        }
        if !text.starts_with(&format!("# {number}: ")) {
            let message = format!("the first line must begin with `# {number}: `");
            findings.push(Finding::error(path, 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_once_and_is_in_the_title() {
        let file = |name: &str, text: &str| (format!("{FOLDER}{name}"), text.to_owned());
        let tree = Tree {
            files: BTreeMap::from([
                file("0001-one.md", "# 0001: One\n"),
                file("0001-two.md", "# 0001: Two\n"),
                file("0002-three.md", "# 0003: Three\n"),
            ]),
            metadata: serde_json::Value::Null,
        };
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "docs/decisions/0001-two.md: `0001-one.md` has this number too; take the next free number",
                "docs/decisions/0002-three.md:1: the first line must begin with `# 0002: `",
            ]
        );
    }
}
