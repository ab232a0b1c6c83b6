//! The numbered statements that the memory store and the engine can decide, one module a subject.

mod engine;
// mod linear;
// mod store;
