//! Messages: from run to run, and from other processes to runs that this one has. A message is a row
//! that is written in its sender's commit and deleted in its receiver's, so none is lost and none
//! counts twice.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::RunOutcome;
use stepwell_kernel::event::{Parent, Rollback, StepError, WaitKind};
use stepwell_kernel::plan::{ErrorClass, StepRef, Work};
use stepwell_kernel::run_output;
use stepwell_kernel::state::Phase;
use stepwell_kernel::time::Time;

use super::effects::engine_actor;
use super::{Coordinator, Draft, HotRun, Notice, Origin, Request};
use crate::error::Error;
use crate::start::{MAX_CHILD_DEPTH, StartRequest, run_id_for};
use crate::store::{MessageNo, NewMessage, RunNo, StoredMessage};

/// What a message says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "letter")] // The tag is in stored rows and cannot change.
pub enum Message {
    /// A command; with `reply` the sender looks for an answer.
    Command {
        /// What is wanted.
        command: Box<Command>,
        /// The sender looks for an answer.
        #[serde(default)]
        reply: bool,
    },
    /// A run to itself: a step waits for a child that is to be started.
    #[serde(rename_all = "camelCase")]
    StartChild {
        /// The step that waits.
        step: StepRef,
        /// Under this key.
        request_key: String,
        /// With these parameters.
        input: Arc<Json>,
    },
    /// A run to itself: an operator asked for its repetition.
    #[serde(rename_all = "camelCase")]
    Repeat {
        /// Under this key.
        request_key: String,
    },
    /// A parent was paused; which of its pauses.
    ParentPaused {
        /// Which.
        pause: u32,
    },
    /// A parent goes on; which of its pauses ended.
    ParentResumed {
        /// Which.
        pause: u32,
    },
}

impl From<Command> for Message {
    fn from(command: Command) -> Message {
        Message::Command {
            command: Box::new(command),
            reply: false,
        }
    }
}

impl Message {
    /// As JSON text.
    #[must_use]
    pub fn body(&self) -> String {
        // Every part of a message has a JSON form.
        serde_json::to_string(self).unwrap_or_default()
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

impl Coordinator {
    /// Deals with a message.
    pub(super) fn read_mail(&mut self, mail: &StoredMessage, now: Time) {
        if !self.reading.insert(mail.no) {
            return;
        }
        if let Err(error) = self.ensure(mail.run) {
            // It lies there until it can be read.
            self.reading.remove(&mail.no);
            tracing::warn!(%error, "a message could not be dealt with yet");
            return;
        }
        let no = mail.no;
        let from = |reply| Origin::Message { no, reply };
        let (command, from) = match serde_json::from_str::<Message>(&mail.body) {
            Ok(Message::Command { command, reply }) => (*command, from(reply)),
            Ok(Message::ParentPaused { pause }) => (
                signal(format!("parent-PAUSE-{pause}"), "PAUSE"),
                from(false),
            ),
            Ok(Message::ParentResumed { pause }) => {
                // Only for children that this pause has paused.
                let known = format!("parent-PAUSE-{pause}");
                let hot = self.runs.get(&mail.run);
                if hot.is_none_or(|hot| !hot.state.signals.contains_key(&known)) {
                    self.discard(mail.run, no);
                    return;
                }
                (
                    signal(format!("parent-RESUME-{pause}"), "RESUME"),
                    from(false),
                )
            }
            Ok(Message::Repeat { request_key }) => {
                self.repeat(mail.run, &request_key, no, now);
                return;
            }
            Ok(Message::StartChild {
                step,
                request_key,
                input,
            }) => {
                self.start_child(mail, step, request_key, &input, now);
                return;
            }
            Err(error) => {
                tracing::error!(%error, mail = no.0, "a message cannot be read and is dropped");
                self.discard(mail.run, no);
                return;
            }
        };
        let request = Request {
            command,
            from,
            guard: None,
            retries: 0,
        };
        self.take(mail.run, request, now);
    }

    /// Takes a message that needs nothing done.
    pub(super) fn discard(&mut self, run: RunNo, mail: MessageNo) {
        let Some(hot) = self.runs.get_mut(&run) else {
            return;
        };
        if hot.flight.is_some() {
            // Looked at again with the next poll.
            self.reading.remove(&mail);
            return;
        }
        let draft = hot.draft.get_or_insert_with(|| Draft::new(hot.committed));
        draft.taken.push(mail);
        self.dirty.insert(run);
    }

    /// Starts the child that a step waits for, once: its id follows from its key.
    fn start_child(
        &mut self,
        mail: &StoredMessage,
        step: StepRef,
        request_key: String,
        input: &Json,
        now: Time,
    ) {
        let Some(hot) = self.runs.get(&mail.run) else {
            return;
        };
        if !self.works_on(&hot.run_id) {
            // Whoever works on the run starts its children; the message lies there until then.
            return;
        }
        let waits = hot.state.run(step).and_then(|run| run.child()) == Some(&request_key);
        let Some((path, _)) = called(hot, step).filter(|_| waits) else {
            return self.discard(mail.run, mail.no);
        };
        let (path, parent_id) = (path.to_owned(), hot.run_id.to_string());
        let (plan, context) = (hot.plan.clone(), hot.state.context.clone());
        let stops = hot.state.phase == Phase::Stopping;
        if self.depth(mail.run) >= MAX_CHILD_DEPTH {
            let message =
                format!("runs may start runs {MAX_CHILD_DEPTH} deep; {path:?} would be one more");
            let error = StepError::new(ErrorClass::Validation, "CHILD_TOO_DEEP", message);
            let end = no_child(step, request_key, error);
            return self.answer_message(mail, end, now);
        }
        let Some(child_plan) = self.catalog.find(&plan, &path) else {
            if self.config.engine_type == "mock" {
                self.notices.push_back(Notice::MissingChild {
                    run: mail.run,
                    step,
                    request_key,
                    path,
                    mail: mail.no,
                });
                return;
            }
            let message = format!(
                "there is no definition {path:?} near {}",
                plan.net().source.uri
            );
            let error = StepError::new(ErrorClass::Validation, "CHILD_UNKNOWN", message);
            let end = no_child(step, request_key, error);
            return self.answer_message(mail, end, now);
        };
        let request = StartRequest {
            run_id: run_id_for(&request_key),
            params: input.clone(),
            context,
            parent: Some(Parent {
                run_id: parent_id,
                step_id: plan.step_id(step),
            }),
            ..StartRequest::default()
        };
        self.start_for(&child_plan, request, (mail.run, mail.no), stops, now);
    }

    /// A message becomes a command to the run it is for.
    pub(crate) fn answer_message(&mut self, mail: &StoredMessage, command: Command, now: Time) {
        let request = Request {
            command,
            from: Origin::Message {
                no: mail.no,
                reply: false,
            },
            guard: None,
            retries: 0,
        };
        self.take(mail.run, request, now);
    }

    /// Ends the wait for a child that could not be found, as the driver says.
    pub fn pretend_child(&mut self, run: RunNo, mail: MessageNo, command: Command, now: Time) {
        let mail = StoredMessage {
            no: mail,
            run,
            body: String::new(),
        };
        self.answer_message(&mail, command, now);
    }

    /// How many runs are above this one.
    fn depth(&mut self, run: RunNo) -> usize {
        let mut depth = 0;
        let mut at = run;
        while depth <= MAX_CHILD_DEPTH {
            let parent = self.runs.get(&at).and_then(|hot| hot.state.parent.clone());
            let Some(parent) = parent else { break };
            let Ok(above) = self.number_of(&parent.run_id) else {
                break;
            };
            if self.ensure(above).is_err() {
                break;
            }
            at = above;
            depth += 1;
        }
        depth
    }

    /// Tells the run that waits for this one how it ended. If that cannot be read just now, the end is
    /// not written before it can: nobody would tell it later.
    pub(super) fn tell_parent(&mut self, run: RunNo, outcome: RunOutcome) {
        let Some(parent) = self.runs.get(&run).and_then(|hot| hot.state.parent.clone()) else {
            return;
        };
        let above = self.number_of(&parent.run_id);
        if let Ok(above) = above {
            // What is in memory may be from before it began to wait.
            self.refresh(above);
        }
        let above = above.and_then(|above| self.ensure(above).map(|()| above));
        let above = match above {
            Ok(above) => above,
            Err(error) => {
                tracing::warn!(%error, "the parent of a run could not be read");
                if let Some(hot) = self.runs.get_mut(&run) {
                    hot.untold = Some(outcome);
                }
                return;
            }
        };
        let (Some(waiting), Some(hot)) = (self.runs.get(&above), self.runs.get(&run)) else {
            return;
        };
        let Some(step) = waiting.plan.parse_step_id(&parent.step_id) else {
            return;
        };
        let Some(request_key) = waiting.state.run(step).and_then(|it| it.child().cloned()) else {
            return;
        };
        let asked = called(waiting, step).and_then(|(_, return_step)| return_step);
        let end = Command::ChildEnded {
            step,
            request_key,
            outcome,
            output: run_output(&hot.plan, &hot.state, asked),
            error: hot.state.error.clone(),
        };
        let message = Message::from(end).to(&parent.run_id);
        if let Some(hot) = self.runs.get_mut(&run) {
            let draft = hot.draft.get_or_insert_with(|| Draft::new(hot.committed));
            draft.mail.push(message);
        }
    }

    /// Another server has the run: it is asked to take the command.
    pub(super) fn forward(&mut self, run: RunNo, request: Request, now: Time) {
        let Origin::Sender(ticket) = request.from else {
            // Messages are read by the owner; the coordinator's own commands are the owner's business.
            if let Origin::Message { no, .. } = request.from {
                self.reading.remove(&no);
            }
            self.forget_unused(run);
            return;
        };
        let message = Message::Command {
            command: Box::new(request.command.clone()),
            reply: true,
        };
        let body = message.body();
        if let Some(depth) = crate::chunk::too_deep(&body) {
            // The owner could not read it.
            let run_id = self.runs.get(&run).map(|hot| hot.run_id.to_string());
            let refused = Error::Refused {
                run_id: run_id.unwrap_or_default(),
                why: format!("it is nested {depth} deep"),
            };
            return self.refuse(&request, refused);
        }
        match self.store.post(run, &body, now) {
            Ok(mail) => self.polls.awaited.push((mail, ticket)),
            Err(error) => self.refuse(&request, Error::Store(error)),
        }
        self.forget_unused(run);
    }

    /// What is known of a run may be out of date by the time it is asked for again; what is decided for
    /// it (a worker's claim, the end of a lease) is still to be committed.
    fn forget_unused(&mut self, run: RunNo) {
        if self.runs.get(&run).is_some_and(|hot| hot.draft.is_none()) {
            self.drop_run(run);
        }
    }
}

/// Which definition a step waits for, and which of its steps' notices: what its worker asked for, else
/// what the plan says.
fn called(hot: &HotRun, step: StepRef) -> Option<(&str, Option<&str>)> {
    let wait = hot.state.run(step)?.wait.as_ref()?;
    let call = match &wait.kind {
        WaitKind::Child { call, .. } => call.as_ref(),
        _ => return None,
    };
    match (call, &hot.plan.step(step.step).work) {
        (Some(call), _) => Some((&call.path, call.return_step.as_deref())),
        (None, Work::Child(spec)) => Some((&spec.path, spec.return_step.as_deref())),
        (None, _) => None,
    }
}

/// A child that could not be started.
fn no_child(step: StepRef, request_key: String, error: StepError) -> Command {
    Command::ChildEnded {
        step,
        request_key,
        outcome: RunOutcome::Failed(Rollback::None),
        output: Json::Null,
        error: Some(error),
    }
}
