//! Sinks that deliver the events of runs to other systems: webhooks.

#![warn(clippy::wildcard_enum_match_arm)]

mod address;
mod webhook;

pub use address::{WEBHOOK, is_sink_name, open_sink};
pub use webhook::{Webhook, WebhookFault, WebhookOptions, signature};
