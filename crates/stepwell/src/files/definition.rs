//! A definition in a file: its text, its plan, and the problems that were found. The one way to load a
//! definition, for commands, for programs and for child runs. A path that cannot be read is a problem of
//! that file like any other.

use std::fmt;

use serde_json::Value as Json;
use stepwell_dialects::plan::check_engine;
use stepwell_dialects::{
    Loaded, Problem, Severity, Source, advice, children, inputs, load, problem,
};
use stepwell_engine::port::Catalog as _;
use stepwell_kernel::plan::Plan;

use super::{Files, read};

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
            Ok(source) => Definition::of(source),
            Err((name, problem)) => Definition::with_problems(&name, vec![problem]),
        }
    }

    pub(super) fn of(source: Source) -> Definition {
        let loaded = load(&source);
        Definition { source, loaded }
    }

    /// A definition that could not be read.
    pub(super) fn with_problems(name: &str, problems: Vec<Problem>) -> Definition {
        Definition {
            source: Source::unreadable(name),
            loaded: Loaded {
                plan: None,
                unusable: None,
                dialect: None,
                problems,
            },
        }
    }

    /// Adds warnings about what is right but not safe, and calls of definitions that do not exist, unless there is an
    /// error in more than the names that templates read: `stepwell check` shows them.
    pub fn advise(&mut self) {
        let is_right = self.errors().next().is_none();
        let right = self.loaded.plan.as_ref().filter(|_| is_right);
        if let Some(plan) = right.or(self.loaded.unusable.as_ref()) {
            let mut found = advice::advice(&self.source, plan);
            let files = Files::default();
            let is_known = |path: &str| files.find(plan, path).is_some();
            found.extend(children::unknown(&self.source, plan, &is_known));
            self.loaded.problems.extend(found);
        }
    }

    /// Adds a warning for each parameter that the definition neither declares nor reads, unless there is an error.
    pub fn look_at_input(&mut self, params: &Json) {
        let is_right = self.errors().next().is_none();
        if let Some(plan) = self.loaded.plan.as_ref().filter(|_| is_right) {
            let found = inputs::unused(plan, params);
            self.loaded.problems.extend(found);
        }
    }

    /// Adds what keeps the engine `native` or `mock` from running the definition, unless there is an error.
    pub fn look_at_engine(&mut self, engine: &str) {
        let is_right = self.errors().next().is_none();
        if let Some(plan) = self.loaded.plan.as_ref().filter(|_| is_right) {
            let found = check_engine(plan, engine);
            self.loaded.problems.extend(found);
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

    /// The hash of the bytes, if they could be read.
    #[must_use]
    pub fn sha256(&self) -> Option<String> {
        (!self.source.text().is_empty()).then(|| self.source.sha256())
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
    /// An error if an engine must not run a plan.
    pub(crate) fn check_engine(plan: &Plan, engine: &str) -> Result<(), DefinitionError> {
        let problems = check_engine(plan, engine);
        if problems.iter().all(|it| it.severity == Severity::Warning) {
            return Ok(());
        }
        let source = Source::unreadable(&plan.net().source.uri);
        Err(DefinitionError {
            text: problem::render(&source, &problems, false),
            problems,
        })
    }

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
