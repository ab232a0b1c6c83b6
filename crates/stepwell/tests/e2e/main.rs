//! Definitions of every language, run for real by the binary, and everything that can go wrong while
//! they are: the process is killed, interrupted or frozen, the work is hostile.

#![allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]

mod data;
mod hostile;
mod interrupted;
mod killed;
mod languages;
#[allow(dead_code, reason = "what its other users need is there too")]
#[path = "../../../bus/tests/it/listener.rs"]
mod listener;
mod saga;
mod servers;
mod test_site;
