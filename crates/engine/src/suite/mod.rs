//! The store conformance suite: every rule of the port as a case that fails where the rule is missing.
//!
//! Any store can run it: `run` gets a factory of fresh, empty stores, and tells which cases fail. Times
//! are pretended, so a store with a clock of its own must be opened in the mode in which the times of
//! its callers count. `differential` drives several stores with the same random calls and compares
//! everything they answer and hold.
// These are tests that stores in other crates run: a failed expectation is a panic here as there.
#![allow(clippy::unwrap_used)]

mod chance;
mod change_feed;
mod concurrency;
mod differential;
mod fixture;
mod guards;
mod installation;
mod log;
mod mailbox;
mod outbox;
mod reading;
mod retention;
mod run_list;
mod sessions;
mod slots;
mod tasks;
mod unique_keys;
mod values;

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use differential::{Compared, differential};
pub use fixture::Fixture;

use crate::store::Store;

/// A fresh, empty store.
#[derive(Debug)]
pub struct Fresh {
    pub store: Box<dyn Store>,
    /// A second way into the same store, as another server has it; none where one process owns it.
    pub second: Option<Box<dyn Store>>,
}

impl Fresh {
    /// A store that one process owns.
    pub fn alone(store: impl Store + 'static) -> Fresh {
        Fresh {
            store: Box::new(store),
            second: None,
        }
    }
}

/// What must hold, and what shows it.
pub type Case = (&'static str, fn(&Fixture));

/// All cases, by what must hold.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        log::CASES,
        guards::CASES,
        sessions::CASES,
        slots::CASES,
        unique_keys::CASES,
        tasks::CASES,
        mailbox::CASES,
        outbox::CASES,
        reading::CASES,
        run_list::CASES,
        change_feed::CASES,
        installation::CASES,
        retention::CASES,
        values::CASES,
        concurrency::CASES,
    ]
    .concat()
}

/// Runs every case whose name contains `wanted`, each on a store of its own.
///
/// # Panics
///
/// If a case fails, after all have run, with the names of those that did.
pub fn run(wanted: &str, fresh: &dyn Fn() -> Fresh) {
    let mut failed = String::new();
    for (name, case) in cases() {
        if !name.contains(wanted) {
            continue;
        }
        let ran = catch_unwind(AssertUnwindSafe(|| case(&Fixture::new(fresh()))));
        if let Err(panic) = ran {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            // Writing to a string cannot fail.
            let _ = writeln!(failed, "{name}: {}", text.unwrap_or("panicked"));
        }
    }
    assert!(failed.is_empty(), "the store breaks rules:\n{failed}");
}

/// The table of a module's cases; one that is missing from it is dead code, which the compiler tells.
macro_rules! table {
    ($($name:ident),* $(,)?) => {
        pub(super) const CASES: &[super::Case] = &[$((stringify!($name), $name)),*];
    };
}
use table;
