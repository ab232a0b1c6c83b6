//! A definition in a file: its text, its plan, and the problems that were found. The one way to load a
//! definition, for commands, for programs and for child runs. A path that cannot be read is a problem of
//! that file like any other.

use std::fmt;

use stepwell_dialects::{Loaded, Problem, Severity, Source, load, problem};
use stepwell_kernel::keys::sha256_hex;
use stepwell_kernel::plan::Plan;

use super::read;

/// A definition and the result of loading it.
#[derive(Debug)]
pub struct Definition {
    /// The text; empty if it could not be read.
    pub source: Source,
    /// The plan and the problems.
    pub loaded: Loaded,
}

impl Definition {
    /// Reads and loads a file; `-` is standard input.
    #[must_use]
    pub fn open(path: &str) -> Definition {
        Definition::load(read(path))
    }

    /// Loads a definition from its text; `name` stands for the file in messages.
    #[must_use]
    pub fn from_text(name: &str, text: &str) -> Definition {
        let source = Source::from_bytes(name, text.as_bytes());
        Definition::load(source.map_err(|problem| (name.to_owned(), problem)))
    }

    fn load(source: Result<Source, (String, Problem)>) -> Definition {
        match source {
            Ok(source) => {
                let loaded = load(&source);
                Definition { source, loaded }
            }
            Err((name, problem)) => Definition {
                source: Source::unreadable(name),
                loaded: Loaded {
                    plan: None,
                    dialect: None,
                    problems: vec![problem],
                },
            },
        }
    }

    /// The problems that are errors.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        let problems = self.loaded.problems.iter();
        problems.filter(|it| it.severity == Severity::Error)
    }

    /// How many problems are errors, and how many are warnings.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let errors = self.errors().count();
        (errors, self.loaded.problems.len() - errors)
    }

    /// The hash of the text, if it could be read.
    #[must_use]
    pub fn sha256(&self) -> Option<String> {
        let text = self.source.text();
        (!text.is_empty()).then(|| sha256_hex(text))
    }

    /// All problems with the places in the text where they are; empty if there are none.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        match self.loaded.problems.is_empty() {
            true => String::new(),
            false => problem::render(&self.source, &self.loaded.problems, colour),
        }
    }

    /// The plan, unless there was an error.
    pub fn into_plan(mut self) -> Result<Plan, DefinitionError> {
        let plan = self.loaded.plan.take();
        match plan.filter(|_| self.errors().next().is_none()) {
            Some(plan) => Ok(plan),
            None => Err(DefinitionError {
                text: self.render(false),
                problems: self.loaded.problems,
            }),
        }
    }
}

/// A definition that has errors.
#[derive(Debug)]
pub struct DefinitionError {
    text: String,
    problems: Vec<Problem>,
}

impl DefinitionError {
    /// All problems of the definition, warnings included.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

/// The problems as `stepwell check` shows them, without colours.
impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim_end())
    }
}

impl std::error::Error for DefinitionError {}
