//! Messages: from run to run, and from other processes to runs that this one has. A message is a row
//! that is written in its sender's commit and deleted in its receiver's, so none is lost and none
//! counts twice. What concerns children is in `children`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use stepwell_kernel::command::{Command, EarlierResult};
use stepwell_kernel::plan::StepRef;
use stepwell_kernel::time::Time;

use super::creation::RepeatOf;
use super::request::{Decided, Origin};
use super::{Coordinator, Handoff, HotRun, Notice, Request, engine_actor};
use crate::error::Error;
use crate::service::ExternalEvent;
use crate::store::{Delivered, MessageNo, NewMessage, RunNo, StoredMessage};

/// The content of a message in the mailbox of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "letter")] // The tag is in stored rows and cannot change.
pub enum Message {
    /// A command for the run.
    Command {
        command: Box<Command>,
        /// Whether the sender waits for an answer.
        #[serde(default)]
        reply: bool,
    },
    /// From a run to itself: a step waits for a child run that must be started.
    #[serde(rename_all = "camelCase")]
    StartChild {
        /// The step that waits.
        step: StepRef,
        request_key: String,
        /// The parameters of the child run.
        input: Arc<Json>,
    },
    /// From a run to itself: an operator asked to repeat the run.
    #[serde(rename_all = "camelCase")]
    Repeat {
        request_key: String,
        /// Who asked, and so starts the new run; absent in messages of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// The parent run was paused; `pause` counts the pauses of the parent.
    ParentPaused { pause: u32 },
    /// The parent run continues; `pause` is the number of the pause that ended.
    ParentResumed { pause: u32 },
}

impl From<Command> for Message {
    fn from(command: Command) -> Message {
        Message::Command {
            command: Box::new(command),
            reply: false,
        }
    }
}

/// The answer to a message that was not simply taken.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageAnswer {
    /// The same command was decided before; this is the result of that time.
    Known(EarlierResult),
    /// The command was refused: the code and the reason.
    Refused(String),
}

/// What the text of an answer begins with that is no refusal. Refusals begin with their code.
const KNOWN: &str = "known ";

impl MessageAnswer {
    fn text(&self) -> String {
        match self {
            MessageAnswer::Known(first) => {
                let first = serde_json::to_string(first);
                format!("{KNOWN}{}", first.expect("every result has a JSON form"))
            }
            MessageAnswer::Refused(why) => why.clone(),
        }
    }

    /// Reads what the owner of a run has answered.
    #[must_use]
    pub fn read(text: &str) -> MessageAnswer {
        let first = text.strip_prefix(KNOWN);
        match first.and_then(|first| serde_json::from_str(first).ok()) {
            Some(first) => MessageAnswer::Known(first),
            None => MessageAnswer::Refused(text.to_owned()),
        }
    }
}

impl Message {
    /// The message as the JSON text that is stored.
    #[must_use]
    pub fn body(&self) -> String {
        serde_json::to_string(self).expect("every part of a message has a JSON form")
    }

    pub(super) fn to(&self, run_id: &str) -> NewMessage {
        NewMessage {
            to: run_id.to_owned(),
            body: self.body(),
        }
    }
}

fn signal(id: String, signal: &str) -> Command {
    Command::Signal {
        signal_id: id,
        signal: signal.to_owned(),
        payload: Json::Null,
        reason: None,
        actor: engine_actor(),
    }
}

/// What a message asks this server to do.
enum Asked {
    Command(Command, bool),
    /// Nothing: the message is out of date.
    Nothing,
    Repeat(RepeatOf),
    StartChild {
        step: StepRef,
        request_key: String,
        input: Arc<Json>,
    },
}

/// What a message asks for, as its run is now.
fn asked(hot: &HotRun, message: Message) -> Asked {
    let paused = |pause| format!("parent-PAUSE-{pause}");
    match message {
        Message::Command { command, reply } => Asked::Command(*command, reply),
        Message::ParentPaused { pause } => Asked::Command(signal(paused(pause), "PAUSE"), false),
        // Only for children that this pause has paused.
        Message::ParentResumed { pause } if hot.state().signals().contains_key(&paused(pause)) => {
            let id = format!("parent-RESUME-{pause}");
            Asked::Command(signal(id, "RESUME"), false)
        }
        Message::ParentResumed { .. } => Asked::Nothing,
        Message::Repeat { request_key, by } => Asked::Repeat(RepeatOf::new(hot, &request_key, by)),
        Message::StartChild {
            step,
            request_key,
            input,
        } => Asked::StartChild {
            step,
            request_key,
            input,
        },
    }
}

impl Coordinator {
    /// Deals with a message, unless that is being done already.
    pub(super) fn read_message(&mut self, mail: &StoredMessage, now: Time) {
        let (run, no) = (mail.run, mail.no);
        if !self.inbox.begin(no) {
            return;
        }
        let hot = match self.runs.load(run, self.room()) {
            Ok(hot) => hot,
            Err(error) => {
                // It lies there until its run can be read.
                self.inbox.end(no);
                tracing::warn!(%error, "a message could not be dealt with yet");
                return;
            }
        };
        let message = serde_json::from_str::<Message>(&mail.body);
        match message.map(|message| asked(hot, message)) {
            Ok(Asked::Command(command, reply)) => {
                let origin = Origin::Message { no, reply };
                self.take(run, Request::new(command, origin), now);
            }
            Ok(Asked::Nothing) => self.discard(run, no),
            Ok(Asked::Repeat(repeat)) => self.repeat(&repeat, no, now),
            Ok(Asked::StartChild {
                step,
                request_key,
                input,
            }) => self.start_child(mail, step, request_key, &input, now),
            Err(error) => {
                tracing::error!(%error, mail = no.0, "a message cannot be read and is dropped");
                self.discard(run, no);
            }
        }
    }

    /// Takes a message that needs nothing done.
    pub(super) fn discard(&mut self, run: RunNo, message: MessageNo) {
        match self.runs.get_mut(run) {
            Some(hot) if !hot.is_in_flight() => {
                hot.draft().discard(message);
                self.schedule.mark(run);
            }
            // Looked at again with the next poll.
            Some(_) => self.inbox.end(message),
            None => {
                self.inbox.end(message);
                self.invariants
                    .broken(run, "the run of a message is not in memory");
            }
        }
    }

    /// Events came to a run that had ended: they go to others that wait for them, or are kept.
    pub(super) fn give_back(&mut self, run: RunNo, events: Vec<Decided>, now: Time) {
        for Decided { request, .. } in events {
            let (Some(hot), Some(no)) = (self.runs.get(run), request.message()) else {
                continue;
            };
            let Command::DeliverEvent {
                event_id,
                event_type,
                payload,
            } = request.command
            else {
                continue;
            };
            let event = ExternalEvent {
                tenant: hot.state().context().tenant_id.clone(),
                id: event_id,
                event_type,
                key: hot.event_key().to_owned(),
                payload,
            };
            self.inbox.end(no);
            match self.store.give_back(no, &event.into(), now) {
                Ok(Delivered::ToRun(_)) => {
                    self.inbox.look();
                    self.notices.push(Notice::Elsewhere(Handoff::Mailed));
                }
                Ok(Delivered::Kept | Delivered::Again) => {}
                // The message lies there, and is read once more.
                Err(away) => {
                    tracing::warn!(error = %away, "an event could not be given back yet");
                }
            }
        }
    }

    /// A message becomes a command to the run it is for.
    pub(super) fn answer_message(&mut self, mail: &StoredMessage, command: Command, now: Time) {
        let origin = Origin::Message {
            no: mail.no,
            reply: false,
        };
        self.take(mail.run, Request::new(command, origin), now);
    }

    /// Tells the sender of a message what the same command came to the first time.
    pub(super) fn tell_first(&mut self, message: MessageNo, first: EarlierResult) {
        self.inbox.end(message);
        if let Err(away) = self
            .store
            .answer(message, &MessageAnswer::Known(first).text())
        {
            // The message stays unanswered, so it is read and answered once more.
            tracing::warn!(error = %away, "an answer could not be written yet");
        }
    }

    /// Another server has the run: it is asked to take the command.
    pub(super) fn forward(&mut self, run: RunNo, request: Request, now: Time) {
        match request.origin {
            Origin::Sender(ticket) => {
                let message = Message::Command {
                    command: Box::new(request.command.clone()),
                    reply: true,
                };
                match self.post(run, &message, now) {
                    Ok(message) => self.inbox.await_answer(message, ticket),
                    Err(error) => self.refuse(&request, error),
                }
            }
            // Messages are read by the owner.
            Origin::Message { no, .. } => self.inbox.end(no),
            // A child is created by its first command, which nobody else can have; and the coordinator's
            // own commands are the owner's business.
            Origin::Parent { .. } | Origin::Coordinator => {}
        }
        self.forget_unused(run);
    }

    fn post(&self, run: RunNo, message: &Message, now: Time) -> Result<MessageNo, Error> {
        let body = message.body();
        if let Some(depth) = crate::chunk::too_deep(&body) {
            // The owner could not read it.
            let hot = self.runs.get(run);
            return Err(Error::Refused {
                run_id: hot.map_or_else(|| run.0.to_string(), |hot| hot.run_id().to_string()),
                why: format!("it is nested {depth} deep"),
            });
        }
        Ok(self.store.post(run, &body, now)?)
    }

    /// What is known of a run may be out of date by the time it is asked for again; what is decided for
    /// it (a worker's claim, the end of a lease) is still to be committed.
    fn forget_unused(&mut self, run: RunNo) {
        if self.runs.get(run).is_some_and(|hot| !hot.has_draft()) {
            self.drop_run(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_back_as_it_was_written() {
        let all = [
            Message::from(Command::Proceed),
            Message::Repeat {
                request_key: "k".into(),
                by: Some("ada".into()),
            },
            Message::ParentPaused { pause: 2 },
            Message::ParentResumed { pause: 2 },
        ];
        for message in all {
            let body = message.body();
            assert_eq!(serde_json::from_str::<Message>(&body).unwrap(), message);
        }
    }

    #[test]
    fn an_answer_reads_back_as_it_was_written() {
        let first = EarlierResult::Manual(stepwell_kernel::command::ManualOutcome::Failed);
        let known = MessageAnswer::Known(first);
        assert_eq!(MessageAnswer::read(&known.text()), known);
        let refused = MessageAnswer::Refused("RUN_TERMINAL: it has ended".into());
        assert_eq!(MessageAnswer::read(&refused.text()), refused);
    }

    #[test]
    fn stored_messages_keep_their_form() {
        let body = Message::ParentPaused { pause: 3 }.body();
        assert_eq!(body, r#"{"letter":"parentPaused","pause":3}"#);
    }
}
