//! Any bytes as a definition: a plan or problems that can be shown, never a crash or a hang.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stepwell_dialects::{Source, load, problem};

fuzz_target!(|bytes: &[u8]| {
    let Ok(source) = Source::from_bytes("fuzz.yaml", bytes) else { return };
    let loaded = load(&source);
    assert!(loaded.plan.is_some() || !loaded.problems.is_empty(), "a plan or a reason");
    let shown = problem::render(&source, &loaded.problems, false);
    assert!(shown.len() < 1 << 20, "what is shown stays small");
});
