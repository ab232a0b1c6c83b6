//! Runs on Conductor: one workflow for each run asks for turns and waits between, and one small workflow for each attempt. The
//! workflows decide nothing; the kernel decides in this process, and the store is the truth.
//!
//! | Conductor | what it is here |
//! |---|---|
//! | workflow `stepwell_run`, its correlation id is the run's | the driver of a run: `DO_WHILE { turn, WAIT }` (`definitions`) |
//! | task `stepwell_turn` | one turn: what the engine kept is written, what is due fires, attempts start (`workers`) |
//! | `WAIT` | the time until the next wake-up; the bell completes it early (`tender`) |
//! | workflow `stepwell_attempt`, its correlation id is the run's and the execution's | one execution of a step: task `stepwell_attempt`, which claims, works and writes; then a turn, if its result could not be written |
//! | task domain | the store: processes of other stores do not get the tasks |
//!
//! Starts of workflows are not unique at the server. A driver that is there twice asks for turns twice, which changes nothing; an
//! attempt that is there twice claims once, since the store decides about claims.

mod api;
mod definitions;
mod host;
mod tender;
mod workers;

pub use definitions::{VERSION, workflows};
pub use host::ConductorHost;
