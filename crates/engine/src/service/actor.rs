//! Actors: the parts of an engine that do for the loops what a loop must not wait for. In a service each actor has a
//! thread; in the simulator its owner steps the actors one by one, so that the same seed gives the same order.

use std::io;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

use super::Input;

/// A part of an engine that works beside the loops.
pub(super) trait Actor: Send {
    /// Takes the next work and does it. With `waits`, waits for the work if there is none.
    fn step(&mut self, waits: bool) -> Step;
}

/// What an actor did in one step.
pub(super) enum Step {
    /// Work was done, and these are the answers.
    Done(Vec<Answer>),
    /// There was no work.
    #[cfg_attr(not(feature = "stepped"), allow(dead_code))] // A thread waits for the work.
    Idle,
    /// There will be no more work.
    Ended,
}

/// An answer of an actor on its way to the inbox of a loop.
pub(super) struct Answer {
    pub(super) inbox: Sender<Input>,
    pub(super) input: Input,
}

impl Answer {
    /// Puts the answer into the inbox. A loop that is gone needs no answer.
    pub(super) fn deliver(self) {
        let _ = self.inbox.send(self.input);
    }
}

/// Runs an actor on a thread until there is no more work.
pub(super) fn start(name: &str, mut actor: impl Actor + 'static) -> io::Result<JoinHandle<()>> {
    let run = move || {
        loop {
            match actor.step(true) {
                Step::Done(answers) => answers.into_iter().for_each(Answer::deliver),
                Step::Idle => {}
                Step::Ended => return,
            }
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(run)
}
