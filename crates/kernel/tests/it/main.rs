//! Everything the kernel promises, seen from outside: one binary, one module a subject.
#![allow(clippy::unwrap_used)]

mod support;

mod chain;
mod conformance;
mod contract;
mod decide_tables;
mod driver;
mod encoding;
mod expr;
mod golden;
mod histories;
mod hostile;
mod keys;
mod large;
mod laws;
mod liveness;
mod oracle;
mod recording;
mod snapshot;
