//! Everything the kernel promises, seen from outside: one binary, one module a subject.

#![allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]

mod histories;
mod support;

mod chain;
mod contract;
mod driver;
mod snapshot;
