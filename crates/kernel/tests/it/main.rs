//! Everything the kernel promises, seen from outside: one binary, one module a subject.

mod support;

mod conformance;
mod driver;
mod laws;
