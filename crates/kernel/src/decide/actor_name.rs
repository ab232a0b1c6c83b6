//! The names of those who act. Separation of duties compares names, so two names that look the same must be the same
//! name: spaces at the ends do not count, and names with characters that are not seen are refused. Case counts.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | any state, a command of an actor whose name is empty or has characters that are not seen | – | `INVALID_ID` |

use super::reject;
use crate::command::Command;
use crate::rejection::{Code, Rejection};
use crate::unseen::is_unseen;

/// Removes the spaces at the ends of the name that a command has, and refuses a name that nobody can read.
pub(super) fn tidy(command: &mut Command) -> Result<(), Rejection> {
    let Some(name) = name_in(command) else {
        return Ok(());
    };
    let trimmed = name.trim();
    if trimmed.len() != name.len() {
        *name = trimmed.to_owned();
    }
    if name.is_empty() || name.chars().any(|c| c.is_control() || is_unseen(c)) {
        return reject(
            Code::InvalidId,
            "the name of an actor is not empty, and has no line breaks and no characters that are not seen",
        );
    }
    Ok(())
}

fn name_in(command: &mut Command) -> Option<&mut String> {
    match command {
        Command::CreateRun { context, .. } => context.triggered_by.as_mut(),
        Command::ApproveRun { actor, .. }
        | Command::CompleteManually { actor, .. }
        | Command::PatchCtx { actor, .. }
        | Command::CancelRun { actor, .. }
        | Command::Signal { actor, .. } => Some(&mut actor.id),
        Command::EnqueueRun
        | Command::StartRun { .. }
        | Command::ClaimStep { .. }
        | Command::CompleteStep { .. }
        | Command::FailStep { .. }
        | Command::WaitStep { .. }
        | Command::ConfirmKill { .. }
        | Command::ExpireLease { .. }
        | Command::FireTimer(_)
        | Command::DeliverEvent { .. }
        | Command::ChildEnded { .. }
        | Command::Proceed => None,
    }
}
