//! The address of a registered sink, and the sink that it names.

use std::sync::Arc;
use std::time::Duration;

use stepwell_engine::outbox::Sink;
use stepwell_engine::store::SinkRow;
use stepwell_http::hosts::HostRules;

use crate::{Webhook, WebhookOptions};

/// What the address of a webhook begins with.
pub const WEBHOOK: &str = "webhook:";

/// The environment variable with the secret that signs bodies. Not an option, because all users of a machine can see
/// command lines.
const SECRET: &str = "STEPWELL_SINK_SECRET";

/// Whether a sink may have this name: letters, digits, `-`, `_` and `.`.
#[must_use]
pub fn is_sink_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=100).contains(&name.len()) && name.chars().all(plain)
}

/// The sink of an address, whose deliveries take at most `timeout` and go to none but these hosts; or why this program
/// cannot deliver to it.
pub fn open_sink(
    sink: &SinkRow,
    timeout: Duration,
    hosts: &Arc<HostRules>,
) -> Result<Box<dyn Sink>, String> {
    let Some(address) = sink.address.strip_prefix(WEBHOOK) else {
        return Err(format!("this program delivers to {WEBHOOK} addresses only"));
    };
    let secret = std::env::var(SECRET).ok().filter(|it| !it.is_empty());
    let options = WebhookOptions {
        name: sink.name.clone(),
        secret: secret.map(String::into_bytes),
        timeout,
        hosts: Arc::clone(hosts),
        ..WebhookOptions::default()
    };
    match Webhook::new(address, options) {
        Ok(webhook) => Ok(Box::new(webhook)),
        Err(fault) => Err(fault.to_string()),
    }
}
