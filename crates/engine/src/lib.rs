//! The engine: takes commands to the kernel, commits what it decides, and does what follows.
//!
//! Ports (`port`) say what the engine needs from the world; `memory` is the store that lives in this
//! process and is the oracle for the others; `engine` commits and performs, with `start`, `children`,
//! `wake` and `recover` beside it; `mock` drives runs with pretended work. No SQL, no HTTP, and no rule about workflows: those are the kernel's.

mod children;
pub mod chunk;
pub mod clock;
pub mod engine;
pub mod memory;
pub mod mock;
pub mod port;
mod recover;
mod start;
pub mod store;
pub mod suite;
mod wake;

pub use children::MAX_CHILD_DEPTH;
pub use engine::{Alert, Engine, Error};
pub use start::{StartRequest, run_id_for};
