//! What the engine promises over the memory store: slots, and runs that start runs.
#![allow(clippy::unwrap_used)]

mod support;

mod children;
mod slots;
