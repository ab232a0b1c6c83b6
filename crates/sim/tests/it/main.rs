//! One binary for all tests of this crate.
#![allow(clippy::unwrap_used)]

mod database;
mod down;
mod kills;
mod sabotage;
mod seeds;
mod site;
