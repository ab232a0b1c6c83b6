//! What is shown while a run goes on: nothing, the log, one line per change, or a tree.

use std::io::{self, Write};

use anyhow::Result;
use stepwell_kernel::event::Event;
use stepwell_worker::step_log::Stream;

use super::RunEngine;
use super::follow::{Followed, Follower};
use super::lines::Lines;
use super::resume::Known;
use super::tree::Tree;
use super::wire;

/// What is shown while a run goes on.
#[derive(Debug)]
pub(super) enum View {
    Quiet,
    Events(Follower, Known),
    Lines(Follower, Lines, Known),
    Tree(Tree),
}

impl View {
    /// What is known already is not shown.
    pub(super) fn events(run_id: &str, known: Known) -> View {
        View::Events(Follower::new(run_id), known)
    }

    /// What is known already is not shown.
    pub(super) fn lines(run_id: &str, known: Known) -> View {
        View::Lines(Follower::new(run_id), Lines::new(run_id), known)
    }

    pub(super) fn tree(run_id: &str) -> View {
        View::Tree(Tree::new(run_id))
    }

    /// Something may have happened.
    pub(super) fn changed(&mut self, engine: &RunEngine) -> Result<()> {
        match self {
            View::Quiet => {}
            View::Events(follower, known) => {
                let mut out = io::stdout().lock();
                follower.pull(engine, &mut |followed, event| {
                    let line = wire::event(&mut followed.recorder, &followed.plan, event)
                        .map_err(io::Error::other)?;
                    match is_news(known, followed, event) {
                        true => writeln!(out, "{line}"),
                        false => Ok(()),
                    }
                })?;
            }
            View::Lines(follower, lines, known) => {
                let mut out = io::stdout().lock();
                follower.pull(engine, &mut |followed, event| {
                    match is_news(known, followed, event) {
                        true => lines.write(&mut out, followed, event),
                        // Times and words go on from what was said about it.
                        false => lines.write(&mut io::sink(), followed, event),
                    }
                })?;
            }
            View::Tree(tree) => tree.draw(engine)?,
        }
        Ok(())
    }

    /// A step has said something. What it is said by must have been shown before: see `changed`.
    pub(super) fn say(
        &mut self,
        run_id: &str,
        step_id: &str,
        stream: Stream,
        text: &str,
    ) -> Result<()> {
        match self {
            // Their readers are programs, which have the step's log.
            View::Quiet | View::Events(..) => {}
            View::Lines(_, lines, _) => {
                lines.say(&mut io::stdout().lock(), run_id, step_id, stream, text)?;
            }
            View::Tree(tree) => tree.say(run_id, step_id, text),
        }
        Ok(())
    }

    /// Nothing happens for a while.
    pub(super) fn waiting(&mut self, engine: &RunEngine) -> Result<()> {
        match self {
            View::Tree(tree) => tree.draw(engine)?,
            _ => io::stdout().flush()?,
        }
        Ok(())
    }

    /// Nothing more will happen.
    pub(super) fn finish(&mut self, engine: &RunEngine) -> Result<()> {
        self.changed(engine)?;
        match self {
            View::Tree(tree) => tree.draw_last(engine)?,
            _ => io::stdout().flush()?,
        }
        Ok(())
    }
}

fn is_news(known: &Known, followed: &Followed, event: &Event) -> bool {
    let known = known.get(&followed.state.run_id);
    known.is_none_or(|known| event.seq > *known)
}
