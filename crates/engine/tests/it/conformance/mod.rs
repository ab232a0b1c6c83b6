//! The numbered statements that the engine can decide alone. Those that a store has a part in are
//! proven with all stores, in `crates/stores/tests/it/conformance`.

mod engine;
