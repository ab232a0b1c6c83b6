//! The rules that the kernel alone can decide: the contract's numbered statements, and what every
//! language shares, named after the behaviour it promises.

pub(crate) mod c;
mod duties;
mod executions;
mod memo;
mod people;
mod stopping;
