//! What is shown while a run goes on: nothing, the log, one line per change, or a tree.

use std::io::{self, Write};

use anyhow::Result;

use super::RunEngine;
use super::follow::Follower;
use super::lines::Lines;
use super::tree::Tree;
use super::wire;

/// What is shown while a run goes on.
#[derive(Debug)]
pub(super) enum View {
    Quiet,
    Events(Follower),
    Lines(Follower, Lines),
    Tree(Tree),
}

impl View {
    pub(super) fn events() -> View {
        View::Events(Follower::default())
    }

    pub(super) fn lines(run_id: &str) -> View {
        View::Lines(Follower::default(), Lines::new(run_id))
    }

    pub(super) fn tree(run_id: &str) -> View {
        View::Tree(Tree::new(run_id))
    }

    /// Something may have happened.
    pub(super) fn changed(&mut self, engine: &RunEngine) -> Result<()> {
        match self {
            View::Quiet => {}
            View::Events(follower) => {
                let mut out = io::stdout().lock();
                follower.pull(engine, &mut |followed, event| {
                    let line = wire::event(followed, event).map_err(io::Error::other)?;
                    writeln!(out, "{line}")
                })?;
            }
            View::Lines(follower, lines) => {
                let mut out = io::stdout().lock();
                follower.pull(engine, &mut |followed, event| {
                    lines.write(&mut out, followed, event)
                })?;
            }
            View::Tree(tree) => tree.draw(engine)?,
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
