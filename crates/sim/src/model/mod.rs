//! A model of a run, written from the specifications of the languages and not on the kernel. It reads what was reported
//! (results of work, what people did, what timers did) and says what may follow. Where a specification leaves a
//! choice, the model accepts every choice.

mod playbook;
mod steps;

use stepwell_kernel::command::Claimed;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::Event;

use crate::definitions::Definition;

pub(crate) type Verdict = Result<(), String>;

/// A run as the specifications describe it.
#[derive(Clone, Debug)]
pub(crate) enum Model {
    Steps(Box<steps::StepsModel>),
    Playbook(Box<playbook::PlaybookModel>),
}

impl Model {
    pub(crate) fn new(definition: &Definition) -> Model {
        match definition {
            Definition::Steps(it) => Model::Steps(Box::new(steps::StepsModel::new(it.clone()))),
            Definition::Playbook(it) => {
                Model::Playbook(Box::new(playbook::PlaybookModel::new(it.clone())))
            }
        }
    }

    /// Takes the next event of the log. An error says what the specifications do not allow.
    pub(crate) fn take(&mut self, event: &Event) -> Verdict {
        match self {
            Model::Steps(it) => it.take(event),
            Model::Playbook(it) => it.take(event),
        }
    }

    /// Work begins with what this claim carries.
    pub(crate) fn begins(&self, target: Target, claimed: &Claimed) -> Verdict {
        match self {
            Model::Steps(it) => it.begins(target, &claimed.params),
            Model::Playbook(it) => it.begins(target, claimed),
        }
    }
}
