//! The built-in tools against the real things: programs, interpreters, servers, files.
#![allow(clippy::unwrap_used)]

mod orphans;
mod programs;
mod python;
mod python_hostile;
mod shell;
