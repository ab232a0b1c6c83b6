//! Everything the kernel promises, seen from outside: one binary, one module a subject.

mod support;

mod chain;
mod contract;
mod driver;
mod expr;
mod histories;
mod laws;
mod snapshot;
