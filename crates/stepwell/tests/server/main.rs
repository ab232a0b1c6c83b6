//! The server as a process: what is asked and answered over HTTP.

mod access;
mod harness;
mod issuer;
mod listening;
mod oidc;
mod operations;
mod runs;
mod several;
