//! Sinks that deliver the events of runs to other systems: webhooks.

mod retry_after;
mod webhook;

pub use webhook::{Webhook, WebhookFault, WebhookOptions, signature};
