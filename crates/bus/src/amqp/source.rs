//! Messages from a RabbitMQ queue. All servers are consumers of the queue, and the broker gives each message to one of them.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt as _;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Acker, Channel, Connection, Consumer};
use sha2::{Digest as _, Sha256};
use stepwell_kernel::keys;

use super::{connect, ensure_queue, failure, properties, publish};
use crate::address::{AddressFault, BrokerAddress};
use crate::cloud_event::{self, Headers};
use crate::kinds::Surroundings;
use crate::link::Failure;
use crate::source::{MessageSource, Received, SourceFuture, SourceOpener, opened};

/// How many messages at a time.
const BATCH: u16 = 64;
/// How long a call waits for messages.
const WAIT: Duration = Duration::from_secs(1);
/// How long a call waits for more, once it has one.
const MORE: Duration = Duration::from_millis(2);

/// A queue that messages come from.
#[derive(Debug)]
pub(crate) struct AmqpSource {
    address: BrokerAddress,
    around: Surroundings,
    queue: String,
}

impl AmqpSource {
    pub(crate) fn new(
        address: BrokerAddress,
        around: &Surroundings,
    ) -> Result<AmqpSource, AddressFault> {
        let queue = address.param("queue");
        let queue = queue.ok_or_else(|| AddressFault::new("`queue` names the queue to read"))?;
        if queue.len() > 200 {
            return Err(AddressFault::new("`queue` has at most 200 bytes"));
        }
        Ok(AmqpSource {
            queue: queue.to_owned(),
            around: around.clone(),
            address,
        })
    }

    fn dead(&self) -> String {
        format!("{}.dead", self.queue)
    }

    async fn connected(&self) -> Result<AmqpMessages, Failure> {
        let (connection, channel) = connect(&self.address, &self.around).await?;
        ensure_queue(&connection, &self.queue).await?;
        let qos = channel.basic_qos(BATCH, BasicQosOptions::default()).await;
        qos.map_err(|error| failure(&error))?;
        let consume = channel.basic_consume(
            self.queue.as_str().into(),
            "".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let consumer = consume.await.map_err(|error| failure(&error))?;
        Ok(AmqpMessages {
            connection,
            consumer,
            dead_channel: None,
            queue: self.queue.clone(),
            dead: self.dead(),
            open: HashMap::new(),
        })
    }
}

impl SourceOpener for AmqpSource {
    fn open<'a>(&'a self, _group: &'a str) -> SourceFuture<'a, Box<dyn MessageSource>> {
        Box::pin(opened(self.connected()))
    }

    fn dead_letter_place(&self) -> String {
        format!("the queue {}", self.dead())
    }
}

/// A connection that gives messages.
#[derive(Debug)]
struct AmqpMessages {
    connection: Connection,
    consumer: Consumer,
    /// For dead letters; opened with the first one.
    dead_channel: Option<Channel>,
    queue: String,
    dead: String,
    /// The messages of the last call that are not done, by their place.
    open: HashMap<String, Acker>,
}

impl AmqpMessages {
    async fn fetch(&mut self) -> Result<Vec<Received>, String> {
        self.open.clear();
        let mut received = Vec::new();
        while received.len() < usize::from(BATCH) {
            let wait = if received.is_empty() { WAIT } else { MORE };
            match tokio::time::timeout(wait, self.consumer.next()).await {
                Err(_) => break,
                Ok(None) => return Err("RabbitMQ ended the consumer".to_owned()),
                Ok(Some(Err(error))) => return Err(failure(&error).why()),
                Ok(Some(Ok(delivery))) => received.push(self.received(delivery)),
            }
        }
        Ok(received)
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the kinds of values of the protocol; others are of no use as text"
    )]
    fn received(&mut self, delivery: Delivery) -> Received {
        let properties = &delivery.properties;
        let mut headers = Headers::new();
        for (name, value) in properties.headers().iter().flat_map(|it| it.inner()) {
            let text = match value {
                AMQPValue::LongString(text) => {
                    String::from_utf8_lossy(text.as_bytes()).into_owned()
                }
                AMQPValue::ShortString(text) => text.to_string(),
                AMQPValue::Boolean(value) => value.to_string(),
                AMQPValue::LongInt(value) => value.to_string(),
                AMQPValue::LongLongInt(value) => value.to_string(),
                // Other kinds are of no use as text.
                _ => continue,
            };
            headers.push((name.to_string(), text));
        }
        let own = properties.message_id().as_ref().map(ToString::to_string);
        let content_type = properties.content_type().as_ref().map(ToString::to_string);
        // A message without an id is known by its content: a delivery tag is another one in the next connection.
        let mut hash = Sha256::new();
        hash.update(properties.timestamp().unwrap_or_default().to_be_bytes());
        hash.update(&delivery.data);
        let known = own.clone().unwrap_or_else(|| keys::hex(&hash.finalize()));
        let mut place = format!("{}/{known}", self.queue);
        if self.open.contains_key(&place) {
            place = format!("{place}#{}", delivery.delivery_tag);
        }
        self.open.insert(place.clone(), delivery.acker);
        let id = own.unwrap_or(known);
        cloud_event::message(
            place,
            Some(&id),
            content_type.as_deref(),
            &headers,
            delivery.data,
        )
    }

    async fn acknowledge(&mut self, place: &str) -> Result<(), String> {
        let Some(acker) = self.open.remove(place) else {
            return Ok(());
        };
        let done = acker.ack(BasicAckOptions::default()).await;
        done.map(drop).map_err(|error| failure(&error).why())
    }

    async fn keep_dead(&mut self, message: &Received, why: &str) -> Result<(), Failure> {
        let channel = match self.dead_channel.take() {
            Some(channel) => channel,
            None => {
                let channel = self.connection.create_channel().await;
                let channel = channel.map_err(|error| failure(&error))?;
                let confirms = channel
                    .confirm_select(ConfirmSelectOptions::default())
                    .await;
                confirms.map_err(|error| failure(&error))?;
                ensure_queue(&self.connection, &self.dead).await?;
                channel
            }
        };
        let mut headers = vec![
            ("stepwell-dead-reason".to_owned(), why.to_owned()),
            ("stepwell-dead-place".to_owned(), message.place.clone()),
        ];
        for (name, value) in &message.attributes {
            if let Some(value) = value.as_str() {
                headers.push((name.clone(), value.to_owned()));
            }
        }
        let id: String = message.id.chars().take(60).collect();
        let properties = properties(&id, "application/octet-stream", &headers);
        publish(&channel, "", &self.dead, &message.body, properties).await?;
        self.dead_channel = Some(channel);
        Ok(())
    }
}

impl MessageSource for AmqpMessages {
    fn next(&mut self) -> SourceFuture<'_, Vec<Received>> {
        Box::pin(self.fetch())
    }

    fn done<'a>(&'a mut self, message: &'a Received) -> SourceFuture<'a, ()> {
        Box::pin(self.acknowledge(&message.place))
    }

    fn bury<'a>(&'a mut self, message: &'a Received, why: &'a str) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            self.keep_dead(message, why).await.map_err(Failure::why)?;
            self.acknowledge(&message.place).await
        })
    }
}
