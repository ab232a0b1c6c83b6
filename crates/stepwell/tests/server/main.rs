//! The server as a process: what is asked and answered over HTTP.

#![allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]

mod access;
mod attendance;
mod backup;
mod collector;
mod command;
mod confined;
mod crowd;
mod definitions;
mod duties;
mod hardening;
mod harness;
mod http_edges;
mod issuer;
mod listening;
mod lists;
mod load;
mod log_lines;
mod monitoring;
mod nothing_lost;
mod oidc;
mod operations;
mod outages;
#[path = "../e2e/preload.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the disk of the other tests is not needed here"
)]
mod preload;
mod projection;
#[path = "../../../sim/src/proxy.rs"]
#[allow(dead_code, unreachable_pub, reason = "a part of the faults is used")]
mod proxy;
mod reads;
mod rebinding;
mod repeated_starts;
mod results;
mod run_feed;
mod runs;
mod schedules;
mod sessions;
mod several;
mod sources;
mod stores;
mod task_files;
mod telemetry;
mod tenants;
mod ui;
mod webhooks;
mod worker_client;
mod worker_process;
mod workers;
