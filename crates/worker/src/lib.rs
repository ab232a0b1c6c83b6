//! The worker: does the work whose claims are committed, with the built-in tools or with handlers
//! written in Rust, and reports what became of it. It never decides what happens next in a run.

pub mod artifacts;
pub mod log;
pub mod logs;
pub mod outcome;
pub mod secrets;
pub mod tool;
pub mod tools;
