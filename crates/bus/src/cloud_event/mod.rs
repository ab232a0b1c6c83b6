//! Events as CloudEvents 1.0: what sinks send, and what sources understand.

mod read;
mod write;

pub(crate) use read::{Headers, message};
pub(crate) use write::{About, Format, Message, Prefix, visible};
