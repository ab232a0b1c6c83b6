//! The engine: takes commands to the kernel, commits what it decides, and does what follows.
//!
//! Ports (`port`) say what the engine needs from the world; `memory` is the store that lives in this
//! process and is the oracle for the others; `mock` drives runs with pretended work; `recover` reads
//! runs back after a crash. No SQL, no HTTP, and no rule about workflows: those are the kernel's.

pub mod clock;
pub mod engine;
pub mod memory;
pub mod mock;
pub mod port;
mod recover;

pub use engine::{Alert, Engine, Error, StartRequest};
