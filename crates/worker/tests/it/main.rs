//! The worker's tools against the real things.
#![allow(clippy::unwrap_used)]

mod http;
