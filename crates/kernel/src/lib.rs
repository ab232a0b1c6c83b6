//! The pure heart of Stepwell: plans, states, commands, events, and the rules between them.
//!
//! Total and deterministic: the same state, command and environment give the same events. Nothing
//! in this crate does I/O, waits, reads a clock or draws randomness, and it depends on nothing that
//! does.

mod canonical;
pub mod chain;
pub mod command;
pub mod contract;
pub mod decide;
pub mod effect;
pub mod event;
pub mod evolve;
pub mod explain;
pub mod expr;
pub mod keys;
pub mod plan;
pub mod reference;
pub mod rejection;
mod scope;
pub mod signal;
pub mod snapshot;

pub mod time;

pub use evolve::state;
pub use scope::run_output;
