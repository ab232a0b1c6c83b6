//! Messages from a stream of a NATS server, by a durable pull consumer that all servers share.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, pull};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Config as StreamConfig;
use async_nats::jetstream::{AckKind, Context, Message};
use futures_util::StreamExt as _;

use super::{connect, publish_one, stream_name, word};
use crate::address::{AddressFault, BrokerAddress};
use crate::cloud_event::{self, Headers};
use crate::kinds::Surroundings;
use crate::link::Failure;
use crate::source::{MessageSource, Received, SourceFuture, SourceOpener, opened};

/// How many messages at a time.
const BATCH: usize = 64;
/// How long a call waits for messages.
const WAIT: Duration = Duration::from_secs(1);
/// After this time a message that is not done is given again, unless it is held.
const ACK_WAIT: Duration = Duration::from_secs(30);

/// A stream that messages come from.
#[derive(Debug)]
pub(crate) struct NatsSource {
    address: BrokerAddress,
    around: Surroundings,
    stream: String,
    filter: String,
}

impl NatsSource {
    pub(crate) fn new(
        address: BrokerAddress,
        around: &Surroundings,
    ) -> Result<NatsSource, AddressFault> {
        Ok(NatsSource {
            stream: stream_name(&address.path)?,
            filter: address.param("subject").unwrap_or_default().to_owned(),
            around: around.clone(),
            address,
        })
    }

    fn dead(&self) -> String {
        format!("{}-dead", self.stream)
    }

    async fn connected(&self, group: &str) -> Result<NatsMessages, Failure> {
        let context = connect(&self.address, &self.around).await?;
        let down = |error: &dyn std::fmt::Display| {
            Failure::Down(format!(
                "the stream {} cannot be read: {error}",
                self.stream
            ))
        };
        let stream = context.get_stream(&self.stream).await;
        let stream = stream.map_err(|error| down(&error))?;
        let name = word(group);
        let config = pull::Config {
            durable_name: Some(name.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            filter_subject: self.filter.clone(),
            ..pull::Config::default()
        };
        let consumer = stream.get_or_create_consumer(&name, config).await;
        let consumer = consumer.map_err(|error| down(&error))?;
        Ok(NatsMessages {
            context,
            consumer,
            stream: self.stream.clone(),
            dead: self.dead(),
            open: HashMap::new(),
        })
    }
}

impl SourceOpener for NatsSource {
    fn open<'a>(&'a self, group: &'a str) -> SourceFuture<'a, Box<dyn MessageSource>> {
        Box::pin(opened(self.connected(group)))
    }

    fn dead_letter_place(&self) -> String {
        format!("the stream {}", self.dead())
    }
}

/// A connection that gives messages.
#[derive(Debug)]
struct NatsMessages {
    context: Context,
    consumer: Consumer<pull::Config>,
    stream: String,
    dead: String,
    /// The messages of the last call that are not done, by their place.
    open: HashMap<String, Message>,
}

impl NatsMessages {
    async fn fetch(&mut self) -> Result<Vec<Received>, String> {
        self.open.clear();
        // What is there at once, or else one message that is waited for.
        let at_once = self.consumer.fetch().max_messages(BATCH).messages().await;
        let mut all = gathered(at_once.map_err(|error| error.to_string())?).await?;
        if all.is_empty() {
            let later = self.consumer.batch().max_messages(1).expires(WAIT);
            let later = later.messages().await.map_err(|error| error.to_string())?;
            all = gathered(later).await?;
        }
        let mut received = Vec::with_capacity(all.len());
        for message in all {
            let info = message.info().map_err(|error| error.to_string())?;
            let place = format!("{}/{}", self.stream, info.stream_sequence);
            let mut headers = Headers::new();
            for (name, values) in message.headers.iter().flat_map(HeaderMap::iter) {
                for value in values {
                    headers.push((name.to_string(), value.as_str().to_owned()));
                }
            }
            let own = headers
                .iter()
                .find(|it| it.0.eq_ignore_ascii_case("nats-msg-id"));
            let own = own.map(|it| it.1.clone());
            let body = message.payload.to_vec();
            received.push(cloud_event::message(
                place.clone(),
                own.as_deref(),
                None,
                &headers,
                body,
            ));
            self.open.insert(place, message);
        }
        Ok(received)
    }

    async fn acknowledge(&mut self, place: &str) -> Result<(), String> {
        match self.open.remove(place) {
            // The server answers: an acknowledgement that is lost would be noticed only as a repeat.
            Some(message) => message
                .double_ack()
                .await
                .map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    async fn keep_dead(&mut self, message: &Received, why: &str) -> Result<(), String> {
        let config = StreamConfig {
            name: self.dead.clone(),
            subjects: vec![self.dead.clone()],
            ..StreamConfig::default()
        };
        let stream = self.context.get_or_create_stream(config).await;
        stream.map_err(|error| format!("the stream {}: {error}", self.dead))?;
        let mut headers = HeaderMap::new();
        let own = self
            .open
            .get(&message.place)
            .and_then(|it| it.headers.as_ref());
        for (name, values) in own.iter().flat_map(|it| it.iter()) {
            // Those of the server are about the stream that the message was in.
            if !name.to_string().to_ascii_lowercase().starts_with("nats-") {
                values
                    .iter()
                    .for_each(|it| headers.append(name.clone(), it.clone()));
            }
        }
        headers.insert("stepwell-dead-reason", cloud_event::visible(why).as_str());
        headers.insert("stepwell-dead-place", message.place.as_str());
        let publish = PublishMessage::build()
            .payload(message.body.clone().into())
            .headers(headers)
            .message_id(format!("dead-{}", message.place));
        let sent = publish_one(&self.context, self.dead.clone(), publish).await;
        sent.map_err(Failure::why)
    }
}

async fn gathered(mut batch: pull::Batch) -> Result<Vec<Message>, String> {
    let mut all = Vec::new();
    while let Some(message) = batch.next().await {
        all.push(message.map_err(|error| error.to_string())?);
    }
    Ok(all)
}

impl MessageSource for NatsMessages {
    fn next(&mut self) -> SourceFuture<'_, Vec<Received>> {
        Box::pin(self.fetch())
    }

    fn done<'a>(&'a mut self, message: &'a Received) -> SourceFuture<'a, ()> {
        Box::pin(self.acknowledge(&message.place))
    }

    fn bury<'a>(&'a mut self, message: &'a Received, why: &'a str) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            self.keep_dead(message, why).await?;
            self.acknowledge(&message.place).await
        })
    }

    fn hold(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async move {
            for message in self.open.values() {
                let held = message.ack_with(AckKind::Progress).await;
                held.map_err(|error| error.to_string())?;
            }
            Ok(())
        })
    }

    fn close(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async move {
            for message in self.open.values() {
                let given_back = message.ack_with(AckKind::Nak(None)).await;
                given_back.map_err(|error| error.to_string())?;
            }
            let flushed = self.context.client().flush().await;
            flushed.map_err(|error| error.to_string())
        })
    }
}
