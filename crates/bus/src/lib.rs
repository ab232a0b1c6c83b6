//! Sinks that deliver the events of runs to other systems: webhooks.

#![warn(clippy::wildcard_enum_match_arm)]

mod webhook;

pub use webhook::{Webhook, WebhookFault, WebhookOptions, signature};
