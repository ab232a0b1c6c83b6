//! Runs on Temporal: one workflow for each run asks for turns, starts an activity for each attempt, and sleeps between. The workflow
//! decides nothing; the kernel decides in this process, and the store is the truth.
//!
//! | Temporal | what it is here |
//! |---|---|
//! | workflow `stepwell.run.v1`, its id is the run's | the driver of a run (`workflow`) |
//! | local activity `stepwell.turn` | one turn: what the engine kept is written, what is due fires (`activities`) |
//! | activity `stepwell.attempt`, tried once | one execution of a step: claim, work, result |
//! | signal `look` | a ring of the bell |
//! | update `command` | a command, with the kernel's answer |
//! | timer | the next wake-up of the run |
//! | continue-as-new | a new history that begins with what the store has |

// The macros of the SDK make types for the methods.
#[allow(missing_debug_implementations)]
mod activities;
mod connection;
mod host;
mod interpreter;
#[allow(missing_debug_implementations)]
mod workflow;

pub use activities::{EngineActivities, TurnRequest};
pub use host::TemporalHost;
pub use workflow::{RunInput, RunWorkflow, UpdateAnswer};
