//! The worker's parts against the real things. The tests of a tool are in the folder of the tool.
#![allow(clippy::unwrap_used)]

mod artifacts;
mod logs;
mod pipeline;
mod redactor;
mod secrets;
