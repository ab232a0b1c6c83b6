//! The server as a process: what is asked and answered over HTTP.

mod definitions;
mod harness;
mod runs;
mod schedules;
