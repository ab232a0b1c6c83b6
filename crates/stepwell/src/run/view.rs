//! What is shown while a run goes on: nothing, the log, one line per change, or a tree; and what the steps
//! say, each line between the start and the end of its step.

use std::io::{self, Write};
use std::sync::Arc;

use anyhow::Result;
use stepwell_engine::rows::parse_target;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::Event;
use stepwell_kernel::plan::StepRef;
use stepwell_kernel::time::Time;
use stepwell_worker::logs::LogEntry;

use super::follow::{EventSink, Followed, Follower};
use super::lines::Lines;
use super::resume::Watermarks;
use super::tree::Tree;
use stepwell_views::snapshot;

/// What is shown while a run goes on.
#[derive(Debug)]
pub(super) struct View {
    form: Form,
    /// What is known already is not shown.
    known: Watermarks,
    /// Lines of steps that are not shown yet, oldest first.
    said: Vec<Arc<LogEntry>>,
}

#[derive(Debug)]
enum Form {
    Quiet,
    Events,
    Lines(Lines),
    Tree(Tree),
}

impl View {
    fn new(form: Form, known: Watermarks) -> View {
        View {
            form,
            known,
            said: Vec::new(),
        }
    }

    pub(super) fn quiet() -> View {
        View::new(Form::Quiet, Watermarks::new())
    }

    pub(super) fn events(known: Watermarks) -> View {
        View::new(Form::Events, known)
    }

    pub(super) fn lines(run_id: &str, known: Watermarks) -> View {
        View::new(Form::Lines(Lines::new(run_id)), known)
    }

    pub(super) fn tree() -> View {
        View::new(Form::Tree(Tree::new()), Watermarks::new())
    }

    /// Whether what the steps say is shown.
    pub(super) fn shows_lines(&self) -> bool {
        match self.form {
            Form::Quiet | Form::Events => false,
            Form::Lines(_) | Form::Tree(_) => true,
        }
    }

    /// A step has said something.
    pub(super) fn say(&mut self, entry: Arc<LogEntry>) {
        match &mut self.form {
            // Their readers are programs, which have the step's log.
            Form::Quiet | Form::Events => {}
            Form::Lines(_) => self.said.push(entry),
            Form::Tree(tree) => tree.say(&entry.run_id, &entry.step_id, &entry.line.text),
        }
    }

    /// Everything that is new has been followed: shows what the steps that run have said, and draws.
    pub(super) fn update(&mut self, follower: &Follower, now: Time) -> Result<()> {
        let has_started = |entry: &LogEntry| {
            let run = follower.get(&entry.run_id);
            run.is_some_and(|run| has_started(run, entry))
        };
        self.show_said(has_started)?;
        match &mut self.form {
            Form::Tree(tree) => tree.draw(follower, now)?,
            Form::Quiet | Form::Events | Form::Lines(_) => io::stdout().flush()?,
        }
        Ok(())
    }

    /// Nothing more will happen.
    pub(super) fn finish(&mut self, follower: &Follower, now: Time) -> Result<()> {
        self.show_said(|_| true)?;
        match &mut self.form {
            Form::Tree(tree) => tree.draw_last(follower, now)?,
            Form::Quiet | Form::Events | Form::Lines(_) => io::stdout().flush()?,
        }
        Ok(())
    }

    /// Shows the lines that it is time for.
    fn show_said(&mut self, due: impl Fn(&LogEntry) -> bool) -> Result<()> {
        let Form::Lines(lines) = &self.form else {
            return Ok(());
        };
        let mut out = io::stdout().lock();
        for entry in std::mem::take(&mut self.said) {
            if due(&entry) {
                let line = &entry.line;
                lines.say(
                    &mut out,
                    &entry.run_id,
                    &entry.step_id,
                    line.stream,
                    &line.text,
                )?;
            } else {
                self.said.push(entry);
            }
        }
        Ok(())
    }

    fn is_news(&self, run: &Followed, event: &Event) -> bool {
        let known = self.known.get(run.state.run_id());
        known.is_none_or(|known| event.seq > *known)
    }
}

impl EventSink for View {
    /// What a step said is shown before its end is.
    fn before(&mut self, run: &Followed, event: &Event) -> Result<()> {
        if self.said.is_empty() {
            return Ok(());
        }
        let Some(step) = event.body.step() else {
            return Ok(());
        };
        self.show_said(|entry| {
            entry.run_id == run.state.run_id()
                && step_of(run, entry) == Some(step)
                && has_started(run, entry)
        })
    }

    fn after(&mut self, run: &mut Followed, event: &Event) -> Result<()> {
        let is_news = self.is_news(run, event);
        for change in run.telemetry(event) {
            if is_news {
                tracing::info!(target: "stepwell_telemetry", "{}", change.json());
            }
        }
        match &mut self.form {
            Form::Quiet | Form::Tree(_) => {}
            Form::Events => {
                let line = snapshot::event(run.next_record()?);
                if is_news {
                    writeln!(io::stdout(), "{line}")?;
                }
            }
            Form::Lines(lines) => match is_news {
                true => lines.write(&mut io::stdout().lock(), run, event)?,
                // Times and words go on from what was said about it.
                false => lines.write(&mut io::sink(), run, event)?,
            },
        }
        Ok(())
    }
}

fn step_of(run: &Followed, entry: &LogEntry) -> Option<StepRef> {
    parse_target(&run.plan, &entry.step_id).map(|target| target.step_ref())
}

/// Whether the execution that said this has started, as far as the run was followed.
fn has_started(run: &Followed, entry: &LogEntry) -> bool {
    let execution = match parse_target(&run.plan, &entry.step_id) {
        // A name that is not in the plan belongs to no step that could start later.
        None => return true,
        Some(Target::Step(at)) => run.state.run(at).map(|it| it.execution()),
        Some(Target::Undo(at)) => {
            let undoing = run.state.undoing();
            undoing
                .filter(|it| it.current() == Some(at))
                .map(|it| it.run().execution())
        }
    };
    execution.is_some_and(|execution| execution >= entry.execution)
}
