//! A planted fault as a file: a header that says what it breaks, then a unified diff.
//!
//! The diff is applied by the text of its hunks, not by their line numbers: the old text must be in the file exactly
//! once. So a patch goes on to apply when code around it moves, and a patch that could mean two places is refused.

use anyhow::{Context as _, Result, bail};

/// A fault that can be planted, as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// The name of its file, without `.patch`.
    pub(crate) name: String,
    /// What is wrong with the program that has it, as a sentence.
    pub(crate) title: String,
    /// The statements that it breaks, or the promise in words.
    pub(crate) breaks: String,
    /// The package that it is planted in.
    pub(crate) package: String,
    /// The scenarios to play before all others: patterns of `stepwell conformance`.
    pub(crate) plays: Vec<String>,
    /// Tests that are run too: arguments of `cargo test`.
    pub(crate) tests: Vec<String>,
    /// Stores and engines that the scenarios are played on.
    pub(crate) columns: Vec<PlayedOn>,
    edits: Vec<Edit>,
}

/// A column of the kit on which a fault must be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlayedOn {
    Memory,
    Sqlite,
    Postgres,
    Mock,
}

impl PlayedOn {
    const ALL: [(&'static str, PlayedOn); 4] = [
        ("memory", PlayedOn::Memory),
        ("sqlite", PlayedOn::Sqlite),
        ("postgres", PlayedOn::Postgres),
        ("mock", PlayedOn::Mock),
    ];

    fn of(word: &str) -> Result<PlayedOn> {
        match PlayedOn::ALL.iter().find(|(name, _)| *name == word) {
            Some((_, column)) => Ok(*column),
            None => bail!("`on: {word}` is no column; write memory, sqlite, postgres or mock"),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        let mut all = PlayedOn::ALL.iter();
        all.find(|(_, it)| *it == self).map_or("", |(name, _)| name)
    }
}

/// One place that is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    file: String,
    old: String,
    new: String,
}

impl Mutant {
    /// Reads a patch file.
    pub(crate) fn read(name: &str, text: &str) -> Result<Mutant> {
        let mut mutant = Mutant {
            name: name.to_owned(),
            title: String::new(),
            breaks: String::new(),
            package: String::new(),
            plays: Vec::new(),
            tests: Vec::new(),
            columns: Vec::new(),
            edits: Vec::new(),
        };
        let begin = text
            .lines()
            .position(|line| line.starts_with("--- "))
            .context("there is no diff: no line begins with `--- `")?;
        for line in text.lines().take(begin).filter(|it| !it.trim().is_empty()) {
            mutant.take_header(line)?;
        }
        for (field, value) in [
            ("title", &mutant.title),
            ("breaks", &mutant.breaks),
            ("package", &mutant.package),
        ] {
            if value.is_empty() {
                bail!("the header has no `{field}:`");
            }
        }
        if mutant.columns.is_empty() {
            mutant.columns.push(PlayedOn::Sqlite);
        }
        let diff: Vec<&str> = text.lines().skip(begin).collect();
        mutant.edits = edits(&diff)?;
        Ok(mutant)
    }

    fn take_header(&mut self, line: &str) -> Result<()> {
        let Some((field, value)) = line.split_once(':') else {
            bail!("`{line}` is no header; write `field: value`");
        };
        let value = value.trim().to_owned();
        match field {
            "title" => self.title = value,
            "breaks" => self.breaks = value,
            "package" => self.package = value,
            "plays" => self.plays.push(value),
            "test" => self.tests.push(value),
            "on" => {
                let words = value.split([',', ' ']).filter(|it| !it.is_empty());
                self.columns = words.map(PlayedOn::of).collect::<Result<_>>()?;
            }
            _ => bail!(
                "`{field}:` is no field of a header; write title, breaks, package, plays, test or on"
            ),
        }
        Ok(())
    }

    /// The files that it changes, each once.
    pub(crate) fn files(&self) -> Vec<&str> {
        let mut files: Vec<&str> = self.edits.iter().map(|it| it.file.as_str()).collect();
        files.dedup();
        files
    }

    /// The text of a file with the fault in it.
    pub(crate) fn apply(&self, file: &str, text: &str) -> Result<String> {
        let mut text = text.to_owned();
        for edit in self.edits.iter().filter(|it| it.file == file) {
            let found = text.match_indices(&edit.old);
            let found: Vec<usize> = found.map(|(at, _)| at).collect();
            // A line is found as a line, not as the end of another.
            let is_line = |at: &usize| *at == 0 || text.as_bytes()[at - 1] == b'\n';
            match found.into_iter().filter(is_line).collect::<Vec<_>>()[..] {
                [at] => text.replace_range(at..at + edit.old.len(), &edit.new),
                [] => bail!("its old text is not in {file} any more"),
                _ => bail!("its old text is more than once in {file}; add a line of context"),
            }
        }
        Ok(text)
    }

    /// The tests that it names, as words: those of the packages and files are left out.
    pub(crate) fn test_names(&self) -> impl Iterator<Item = &str> {
        let last = |it: &str| it.rsplit([' ', ':']).next().unwrap_or_default().len();
        self.tests.iter().map(move |it| &it[it.len() - last(it)..])
    }
}

fn edits(diff: &[&str]) -> Result<Vec<Edit>> {
    let mut edits: Vec<Edit> = Vec::new();
    let mut file: Option<String> = None;
    for line in diff {
        if let Some(path) = line.strip_prefix("+++ b/") {
            file = Some(path.trim().to_owned());
        } else if line.starts_with("--- ") || line.starts_with("diff ") {
            file = None;
        } else if line.starts_with("@@") {
            edits.push(Edit {
                file: file.clone().context("a hunk comes before its file")?,
                old: String::new(),
                new: String::new(),
            });
        } else {
            let Some(edit) = edits.last_mut() else {
                bail!("`{line}` comes before the first hunk");
            };
            let (mark, rest) = match line.char_indices().nth(1) {
                Some((at, _)) => line.split_at(at),
                None => (*line, ""),
            };
            let (is_old, is_new) = match mark {
                " " | "" => (true, true),
                "-" => (true, false),
                "+" => (false, true),
                _ => bail!("`{line}` is no line of a diff"),
            };
            for (wanted, text) in [(is_old, &mut edit.old), (is_new, &mut edit.new)] {
                if wanted {
                    text.push_str(rest);
                    text.push('\n');
                }
            }
        }
    }
    match edits
        .iter()
        .find(|it| it.old.is_empty() || it.old == it.new)
    {
        Some(it) => bail!("a hunk of {} changes nothing, or has no old line", it.file),
        None if edits.is_empty() => bail!("the diff has no hunk"),
        None => Ok(edits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "\
title: Two is three
breaks: A12
package: x
plays: actions/a12
on: sqlite, postgres
test: -p x --test it counts::two_is_two

--- a/src/two.rs
+++ b/src/two.rs
@@ -7,3 +7,3 @@ fn two()
 // How many.
-let two = 2;
+let two = 3;
";

    #[test]
    fn a_fault_is_planted_where_its_old_text_is() {
        let mutant = Mutant::read("two", PATCH).unwrap();
        assert_eq!(mutant.title, "Two is three");
        assert_eq!(mutant.columns, [PlayedOn::Sqlite, PlayedOn::Postgres]);
        assert_eq!(mutant.files(), ["src/two.rs"]);
        assert_eq!(mutant.test_names().collect::<Vec<_>>(), ["two_is_two"]);
        let text = "fn main() {\n// How many.\nlet two = 2;\n}\n";
        let planted = mutant.apply("src/two.rs", text).unwrap();
        assert_eq!(planted, "fn main() {\n// How many.\nlet two = 3;\n}\n");
    }

    #[test]
    fn a_patch_that_fits_nowhere_or_twice_is_refused() {
        let mutant = Mutant::read("two", PATCH).unwrap();
        let gone = mutant.apply("src/two.rs", "let two = 2;\n").unwrap_err();
        assert!(gone.to_string().contains("not in src/two.rs any more"));
        let twice = "// How many.\nlet two = 2;\n".repeat(2);
        let twice = mutant.apply("src/two.rs", &twice).unwrap_err();
        assert!(twice.to_string().contains("more than once"));
    }

    #[test]
    fn a_bad_file_says_what_to_write() {
        for (from, to, part) in [
            ("title: Two is three\n", "", "no `title:`"),
            ("on: sqlite", "on: disk", "memory, sqlite"),
            ("plays:", "play:", "title, breaks"),
            ("--- a/", "", "no diff"),
            ("+let two = 3;", "+let two = 2;", "changes nothing"),
        ] {
            let error = Mutant::read("two", &PATCH.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
    }
}
