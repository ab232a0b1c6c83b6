//! A definition from the command line, with its problems. An unreadable path is reported as a problem
//! of the file.

use stepwell::files::read;
use stepwell_dialects::{Loaded, Problem, Severity, Source, load, problem};
use stepwell_kernel::keys::sha256_hex;
use stepwell_kernel::plan::Plan;

use crate::term::Paint;

/// A definition and the result of loading it.
#[derive(Debug)]
pub(crate) struct Definition {
    /// The text; empty if it could not be read.
    pub(crate) source: Source,
    /// The plan and the problems.
    pub(crate) loaded: Loaded,
}

impl Definition {
    /// Reads and loads a file; `-` is standard input.
    pub(crate) fn open(path: &str) -> Definition {
        match read(path) {
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

    /// How many problems are errors, and how many are warnings.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let problems = &self.loaded.problems;
        let is_error = |it: &&Problem| it.severity == Severity::Error;
        let errors = problems.iter().filter(is_error).count();
        (errors, problems.len() - errors)
    }

    /// The problems with their source lines; ends with an empty line if there are any problems.
    pub(crate) fn render(&self, paint: Paint) -> String {
        if self.loaded.problems.is_empty() {
            return String::new();
        }
        let text = problem::render(&self.source, &self.loaded.problems, paint.0);
        format!("{}\n\n", text.trim_end())
    }

    /// The SHA-256 of the text; none if the file could not be read.
    pub(crate) fn sha256(&self) -> Option<String> {
        let text = self.source.text();
        (!text.is_empty()).then(|| sha256_hex(text))
    }

    /// Writes the first error and the number of further errors as JSON to standard error.
    pub(crate) fn tell_program(&self) {
        let is_error = |it: &&Problem| it.severity == Severity::Error;
        if let Some(first) = self.loaded.problems.iter().find(is_error) {
            let more = match self.counts().0 {
                0 | 1 => String::new(),
                errors => format!(" (and {} more)", errors - 1),
            };
            crate::tell_program(Some(first.code), &format!("{}{more}", first.message));
        }
    }

    /// The plan; none if the definition has errors.
    pub(crate) fn into_plan(self) -> Option<Plan> {
        let (errors, _) = self.counts();
        self.loaded.plan.filter(|_| errors == 0)
    }
}
