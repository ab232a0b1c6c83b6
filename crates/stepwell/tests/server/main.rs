//! The server as a process: what is asked and answered over HTTP.

mod harness;
mod runs;
mod worker_process;
mod workers;
