//! Sinks that deliver the events of runs to other systems, and sources that take messages from them: webhooks, NATS
//! JetStream, Redis Streams, Kafka, RabbitMQ and Snowflake. Each broker is a feature.

#![warn(clippy::wildcard_enum_match_arm)]

mod address;
#[cfg(feature = "amqp")]
mod amqp;
#[cfg(feature = "brokers")]
mod cloud_event;
mod credentials;
#[cfg(feature = "brokers")]
mod dial;
#[cfg(feature = "kafka")]
mod kafka;
mod kinds;
#[cfg(feature = "brokers")]
mod link;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "snowflake")]
mod snowflake;
mod source;
mod webhook;

pub use address::{AddressFault, shown_address};
pub use credentials::{CredentialFuture, NoSecrets, SecretSource};
pub use kinds::{
    KINDS, SinkKind, Surroundings, is_sink_name, open_sink, open_source, sink_forms, source_forms,
    tables,
};
pub use source::{MessageSource, Received, SourceFuture, SourceOpener};
pub use webhook::{Webhook, WebhookFault, WebhookOptions, signature};
