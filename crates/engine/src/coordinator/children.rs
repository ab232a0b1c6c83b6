//! Children: a step that waits for a run of another definition has it started, once, and is told how it
//! ended.

use serde_json::Value as Json;
use stepwell_kernel::codes;
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::{Effect, Priority, RunOutcome};
use stepwell_kernel::event::{Parent, Rollback, RunContext, StepError, WaitKind};
use stepwell_kernel::plan::{ErrorClass, StepRef, Work};
use stepwell_kernel::rejection::Rejection;
use stepwell_kernel::run_output;
use stepwell_kernel::state::Phase;
use stepwell_kernel::time::Time;
use stepwell_kernel::trace::wait_span;

use super::{Coordinator, HotRun, Message, MissingChildren, Notice};
use crate::error::Error;
use crate::port::NoChild;
use crate::start::{MAX_CHILD_DEPTH, StartRequest, run_id_for};
use crate::store::{MessageNo, NewMessage, RunNo, StoredMessage};

/// A child is of the tenant and of the trace of its parent; the wait for the child is what causes it.
fn context_of_child(hot: &HotRun, step: StepRef) -> RunContext {
    let mut context = hot.state().context().clone();
    if let Some(trace) = &mut context.trace {
        let waits = hot.state().run(step);
        let execution = waits.map_or(0, |it| it.execution());
        let name = hot.plan().step_id(step);
        *trace = trace.below(&wait_span(hot.run_id(), &name, execution));
    }
    context
}

impl Coordinator {
    /// Starts the child that a step waits for, once: its id follows from its key.
    pub(super) fn start_child(
        &mut self,
        mail: &StoredMessage,
        step: StepRef,
        request_key: String,
        input: &Json,
        now: Time,
    ) {
        let Some(hot) = self.runs.get(mail.run) else {
            let what = "the run of a message is not in memory";
            return self.invariants.broken(mail.run, what);
        };
        if !self.works_on(hot.run_id()) {
            // The server that works on the run starts its children; the message waits until then.
            return;
        }
        let waits = hot.state().run(step).and_then(|run| run.child()) == Some(&request_key);
        let Some((path, _)) = called(hot, step).filter(|_| waits) else {
            // The step waits no longer: it was cancelled, or it was told how the child ended.
            return self.discard(mail.run, mail.no);
        };
        let path = path.to_owned();
        let plan = hot.plan().clone();
        let request = StartRequest {
            run_id: run_id_for(&request_key),
            params: input.clone(),
            context: context_of_child(hot, step),
            parent: Some(Parent {
                run_id: hot.run_id().to_string(),
                step_id: plan.step_id(step),
            }),
            ..StartRequest::default()
        };
        let stops = hot.state().phase() == Phase::Stopping;
        if self.depth(mail.run) >= MAX_CHILD_DEPTH {
            let message =
                format!("runs may start runs {MAX_CHILD_DEPTH} deep; {path:?} would be one more");
            let error = StepError::new(ErrorClass::Validation, codes::CHILD_TOO_DEEP, message);
            return self.answer_message(mail, no_child(step, request_key, error), now);
        }
        match self.catalog.find_for(&request.context, &plan, &path) {
            Ok(Some(child)) => {
                return self.start_for(&child, request, (mail.run, mail.no), stops, now);
            }
            Ok(None) => {}
            Err(NoChild::Later(why)) => {
                tracing::warn!(why, path, "a child definition cannot be read yet");
                return self.inbox.end(mail.no);
            }
            Err(NoChild::Refused { code, why }) => {
                let message = format!("the definition {path:?} starts no run: {code}: {why}");
                let error = StepError::new(ErrorClass::Validation, code, message);
                return self.answer_message(mail, no_child(step, request_key, error), now);
            }
        }
        if self.config.missing_children == MissingChildren::AskDriver {
            return self.notices.push(Notice::MissingChild {
                run: mail.run,
                step,
                request_key,
                path,
                mail: mail.no,
            });
        }
        let message = format!(
            "there is no definition {path:?} near {}",
            plan.net().source.uri
        );
        let error = StepError::new(ErrorClass::Validation, codes::CHILD_UNKNOWN, message);
        self.answer_message(mail, no_child(step, request_key, error), now);
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

    /// How many runs are above this one. A parent that cannot be read now is not counted: the child it
    /// waits for is started, and is not one too many by more than those above it.
    fn depth(&mut self, run: RunNo) -> usize {
        let mut depth = 0;
        let mut at = run;
        while depth <= MAX_CHILD_DEPTH {
            let parent = self.runs.get(at).and_then(|hot| hot.state().parent());
            let above = parent.map(|parent| self.runs.number_of(&parent.run_id));
            let Some(Ok(above)) = above else { break };
            if self.runs.load(above, self.room()).is_err() {
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
        let Some(hot) = self.runs.get(run) else {
            let what = "a run that ended is not in memory";
            return self.invariants.broken(run, what);
        };
        let Some(parent) = hot.state().parent().cloned() else {
            // Nobody waits for it.
            return;
        };
        match self.child_ended(run, &parent, outcome) {
            Ok(Some(message)) => match self.runs.get_mut(run) {
                Some(hot) => hot.draft().send(message),
                None => self
                    .invariants
                    .broken(run, "a run that ended is not in memory"),
            },
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "the parent of a run could not be read");
                if let Some(hot) = self.runs.get_mut(run) {
                    hot.keep_untold(outcome);
                }
            }
        }
    }

    /// Tells the parent what it could not be told before. Says whether the run's end can be written.
    pub(super) fn tell_parent_again(&mut self, run: RunNo) -> bool {
        let untold = self.runs.get_mut(run).and_then(HotRun::take_untold);
        let Some(outcome) = untold else {
            return true;
        };
        self.tell_parent(run, outcome);
        !self.runs.get(run).is_some_and(HotRun::is_untold)
    }

    /// The message to a parent that its child has ended; none if it waits for the child no longer.
    fn child_ended(
        &mut self,
        run: RunNo,
        parent: &Parent,
        outcome: RunOutcome,
    ) -> Result<Option<NewMessage>, Error> {
        let above = self.runs.number_of(&parent.run_id)?;
        self.refresh(above);
        let stored = match self.runs.get(above) {
            Some(hot) if self.is_current(hot) => None,
            // What is in memory may be from before the parent began to wait.
            Some(_) => Some(self.runs.read(above)?),
            None => {
                self.runs.load(above, self.room())?;
                None
            }
        };
        let waiting = stored.as_ref().or_else(|| self.runs.get(above));
        let (Some(waiting), Some(hot)) = (waiting, self.runs.get(run)) else {
            let what = "a run and its parent are not both in memory";
            self.invariants.broken(run, what);
            return Ok(None);
        };
        // A parent whose plan has no such step, or whose step waits for something else by now, was moved
        // by an operator.
        let step = waiting.plan().parse_step_id(&parent.step_id);
        let key = step.and_then(|step| Some((step, waiting.state().run(step)?.child()?)));
        let Some((step, request_key)) = key else {
            return Ok(None);
        };
        let asked = called(waiting, step).and_then(|(_, return_step)| return_step);
        let end = Command::ChildEnded {
            step,
            request_key: request_key.to_owned(),
            outcome,
            output: run_output(hot.plan(), hot.state(), asked),
            error: hot.state().error().cloned(),
        };
        Ok(Some(Message::from(end).to(&parent.run_id)))
    }

    /// The child that a message asks for is there: the message is done.
    pub(super) fn child_is_there(&mut self, parent: RunNo, message: MessageNo) {
        match self.runs.load(parent, self.room()) {
            Ok(_) => self.discard(parent, message),
            Err(error) => {
                // It lies there until its run can be read; it asks for a child that is there then.
                self.inbox.end(message);
                tracing::warn!(%error, "a message could not be dealt with yet");
            }
        }
    }

    /// The child that a message asks for cannot be created: the step that waits for it fails.
    pub(super) fn child_refused(
        &mut self,
        (parent, mail): (RunNo, MessageNo),
        child: (&str, Option<&Parent>),
        why: &Rejection,
        now: Time,
    ) {
        if let Err(error) = self.runs.load(parent, self.room()) {
            // The message lies there until its run can be read; then the child is tried again.
            self.inbox.end(mail);
            return tracing::warn!(%error, "a message could not be dealt with yet");
        }
        let waiting = self.runs.get(parent).and_then(|hot| waiting(hot, child));
        let Some((step, request_key)) = waiting else {
            // No step waits for it: it repeats the run, or the step was cancelled. A repetition was possible when it was
            // asked for; who asked must learn that it is not.
            let (child, of) = child;
            tracing::warn!(%why, run = child, "a run could not be created");
            if of.is_none() {
                let alert = Effect::Alert {
                    code: codes::REPEAT_REFUSED,
                    priority: Priority::P2,
                    message: format!(
                        "the run {child}, which repeats this one, was not created: {why}"
                    ),
                };
                self.follow(parent, vec![alert]);
            }
            return self.discard(parent, mail);
        };
        let message = format!("the child run cannot be created: {why}");
        let error = StepError::new(ErrorClass::Conflict, why.code.name(), message);
        let mail = StoredMessage {
            no: mail,
            run: parent,
            body: String::new(),
        };
        self.answer_message(&mail, no_child(step, request_key, error), now);
    }
}

/// The step of a parent that waits for the child with this id, and the key of the child.
fn waiting(hot: &HotRun, (run_id, parent): (&str, Option<&Parent>)) -> Option<(StepRef, String)> {
    let step = hot.plan().parse_step_id(&parent?.step_id)?;
    let key = hot.state().run(step)?.child()?;
    (run_id_for(key) == run_id).then(|| (step, key.to_owned()))
}

/// Which definition a step waits for, and which of its steps' outputs: what its worker asked for, else
/// what the plan says.
fn called(hot: &HotRun, step: StepRef) -> Option<(&str, Option<&str>)> {
    let wait = hot.state().run(step)?.wait()?;
    let WaitKind::Child { call, .. } = wait.kind() else {
        return None;
    };
    let call = call.as_ref();
    match (call, &hot.plan().step(step.step).work) {
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
