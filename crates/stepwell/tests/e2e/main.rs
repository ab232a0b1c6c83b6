//! Definitions of every language, run for real by the binary, and everything that can go wrong while
//! they are: the process is killed, interrupted or frozen, the work is hostile.

#![allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]

#[path = "../it/call.rs"]
mod call;
mod canary;
// Only the standard library is in it, so it can be included here as it is.
#[allow(dead_code, reason = "xtask uses the rest")]
#[path = "../../../../xtask/src/cluster.rs"]
mod cluster;
mod data;
mod engines;
mod fences;
mod hostile;
mod interrupted;
mod killed;
mod languages;
#[allow(dead_code, reason = "what its other users need is there too")]
#[path = "../../../bus/tests/it/listener.rs"]
mod listener;
mod losses;
#[allow(
    dead_code,
    reason = "the names of the tests of the server are not needed here"
)]
mod preload;
mod saga;
mod schedules;
mod servers;
mod sessions;
mod slow_line;
mod test_site;
mod untrusted;
