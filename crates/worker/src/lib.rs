//! The worker: does the work whose claims are committed, with the built-in tools or with handlers
//! written in Rust, and reports what became of it. It never decides what happens next in a run.

pub mod log;
pub mod outcome;
pub mod tool;
pub mod tools;
