//! Sinks: where the events of runs go. Webhooks; brokers come behind the same port.

mod retry_after;
mod webhook;

pub use webhook::{Webhook, WebhookFault, WebhookOptions, signature};
