//! Definitions that are drawn from a seed, so that rare paths are likely. A definition is written as a file for the
//! engine, and read as it is by the model, which knows nothing of plans.

pub(crate) mod playbook;
pub(crate) mod steps;

use std::sync::Arc;

use crate::rng::Rng;

pub(crate) use playbook::Playbook;
pub(crate) use steps::{Answer, Growth, StepDefinition, StepsDefinition};

/// The languages that the model knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Actions,
    Dag,
    Linear,
    Playbook,
}

impl Language {
    pub(crate) const ALL: [Language; 4] = [
        Language::Actions,
        Language::Dag,
        Language::Linear,
        Language::Playbook,
    ];

    /// The name of a drawn workload of this language.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Language::Actions => "drawn-actions",
            Language::Dag => "drawn-dag",
            Language::Linear => "drawn-linear",
            Language::Playbook => "drawn-playbook",
        }
    }
}

/// A definition that was drawn from a seed.
#[derive(Clone, Debug)]
pub(crate) enum Definition {
    /// Steps that depend on each other: actions, dag and linear.
    Steps(Arc<StepsDefinition>),
    /// Steps that pass tokens along arcs.
    Playbook(Arc<Playbook>),
}

impl Definition {
    pub(crate) fn draw(language: Language, rng: &mut Rng) -> Definition {
        match language {
            Language::Playbook => Definition::Playbook(Arc::new(Playbook::draw(rng))),
            _ => Definition::Steps(Arc::new(StepsDefinition::draw(language, rng))),
        }
    }

    /// The definition as a file of its language.
    pub(crate) fn text(&self) -> String {
        match self {
            Definition::Steps(it) => it.text(),
            Definition::Playbook(it) => it.text(),
        }
    }
}
