//! The rules of the kernel that every language shares, each named after the behaviour it promises.

mod executions;
mod people;
mod stopping;
