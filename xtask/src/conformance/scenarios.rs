//! Finds the scenarios of the conformance kit that show statements from outside, by the first lines of their files.
//!
//! The kit itself reads the whole files and refuses those with errors; here only the fields at the left edge count.

use super::tables::Number;

/// Where the scenario files are.
const FOLDER: &str = "conformance/";

/// A scenario file that names a statement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SeenBy {
    pub(super) file: String,
    /// Whether the file says that the program does this wrong today.
    pub(super) is_known: bool,
}

pub(super) fn is_scenario(path: &str) -> bool {
    path.starts_with(FOLDER) && path.ends_with(".yaml")
}

/// The statements that a scenario file names. A list that is not on one line is a problem.
pub(super) fn find(path: &str, text: &str) -> Result<Vec<(Number, SeenBy)>, String> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let seen_by = SeenBy {
        file: path.to_owned(),
        is_known: field("known:").is_some(),
    };
    let Some(list) = field("statements:") else {
        return match field("promise:") {
            Some(_) => Ok(Vec::new()),
            None => Err(format!("{path}: no `statements: […]` and no `promise: …`")),
        };
    };
    let list = list.trim();
    let list = list
        .strip_prefix('[')
        .and_then(|it| it.strip_suffix(']'))
        .ok_or_else(|| {
            format!("{path}: write the statements on one line: `statements: [A1, A2]`")
        })?;
    let mut found = Vec::new();
    for item in list.split(',').map(str::trim) {
        let number = Number::parse(item);
        let number = number.ok_or_else(|| format!("{path}: `{item}` is no number"))?;
        found.push((number, seen_by.clone()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_names_its_statements_on_one_line() {
        let found = find(
            "conformance/x.yaml",
            "statements: [A1, C12]\nknown: wrong\n",
        )
        .unwrap();
        let numbers: Vec<String> = found.iter().map(|(it, _)| it.to_string()).collect();
        assert_eq!(numbers, ["A1", "C12"]);
        assert!(found[0].1.is_known);
        assert_eq!(find("x", "promise: one-owner\n").unwrap().len(), 0);
        for bad in [
            "title: x",
            "statements: A1",
            "statements: [X1]",
            "statements:\n  - A1",
        ] {
            assert!(find("x", bad).is_err(), "{bad}");
        }
    }
}
