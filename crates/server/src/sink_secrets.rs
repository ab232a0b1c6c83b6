//! The secrets that addresses of sinks and sources name, as the worker resolves them. What was resolved is kept out of logs.

use stepwell_bus::{CredentialFuture, SecretSource};
use stepwell_worker::secrets::{Redactor, Secrets};

/// The secrets of this process, for sinks and sources.
#[derive(Clone, Debug)]
pub struct SinkSecrets(pub Secrets);

impl SecretSource for SinkSecrets {
    fn credential<'a>(&'a self, name: &'a str) -> CredentialFuture<'a> {
        Box::pin(async move {
            let value = self.0.credential(name).await;
            let value = value.map_err(|error| format!("{}: {error}", error.code()))?;
            Redactor::of_process().add_value(&value);
            Ok(value)
        })
    }
}
