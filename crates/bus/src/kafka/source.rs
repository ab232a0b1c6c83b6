//! Messages from a Kafka topic, by a consumer group that all servers share. Offsets are committed up to the last message that
//! is done, in the order of each partition.

use std::time::Duration;

use krafka::consumer::{AutoOffsetReset, Consumer, OffsetAndMetadata, TopicPartition};
use krafka::producer::Producer;
use krafka::{Kafka, Record};

use super::proxy::CheckedProxy;
use super::{Cluster, failure, producer};
use crate::address::{AddressFault, BrokerAddress};
use crate::cloud_event::{self, Headers};
use crate::kinds::Surroundings;
use crate::link::Failure;
use crate::source::{MessageSource, Received, SourceFuture, SourceOpener, opened};

/// How many messages at a time.
const BATCH: i32 = 64;
/// How long a call waits for messages.
const WAIT: Duration = Duration::from_secs(1);

/// How long a server may be silent before others get its partitions.
const SESSION: Duration = Duration::from_secs(10);

/// A topic that messages come from.
#[derive(Debug)]
pub(crate) struct KafkaSource {
    cluster: Cluster,
}

impl KafkaSource {
    pub(crate) fn new(
        address: BrokerAddress,
        around: &Surroundings,
    ) -> Result<KafkaSource, AddressFault> {
        Ok(KafkaSource {
            cluster: Cluster::new(address, around)?,
        })
    }

    fn dead(&self) -> String {
        format!("{}.dead", self.cluster.topic)
    }

    async fn connected(&self, group: &str) -> Result<KafkaMessages, Failure> {
        let (kafka, proxy) = self.cluster.connect().await?;
        let consumer = kafka
            .consumer(group)
            .enable_auto_commit(false)
            .auto_offset_reset(AutoOffsetReset::Earliest)
            .max_poll_records(BATCH)
            .session_timeout(SESSION)
            .heartbeat_interval(SESSION / 4)
            .build()
            .await;
        let consumer = consumer.map_err(|error| failure(&error))?;
        let subscribed = consumer.subscribe([self.cluster.topic.as_str()]).await;
        subscribed.map_err(|error| failure(&error))?;
        Ok(KafkaMessages {
            kafka,
            consumer,
            producer: None,
            dead: self.dead(),
            timeout: self.cluster.around.timeout,
            _proxy: proxy,
        })
    }
}

impl SourceOpener for KafkaSource {
    fn open<'a>(&'a self, group: &'a str) -> SourceFuture<'a, Box<dyn MessageSource>> {
        Box::pin(opened(self.connected(group)))
    }

    fn dead_letter_place(&self) -> String {
        format!("the topic {}", self.dead())
    }
}

/// A connection that gives messages.
struct KafkaMessages {
    kafka: Kafka,
    consumer: Consumer,
    /// For dead letters; opened with the first one.
    producer: Option<Producer>,
    dead: String,
    timeout: Duration,
    _proxy: Option<CheckedProxy>,
}

impl std::fmt::Debug for KafkaMessages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaMessages").finish_non_exhaustive()
    }
}

impl KafkaMessages {
    async fn fetch(&mut self) -> Result<Vec<Received>, String> {
        let records = self.consumer.poll(WAIT).await;
        let records = records.map_err(|error| failure(&error).why())?;
        let mut received = Vec::with_capacity(records.len());
        for record in records {
            let mut headers = Headers::new();
            for (name, value) in &record.headers {
                let value = value
                    .as_ref()
                    .map(|it| String::from_utf8_lossy(it).into_owned());
                headers.push((name.to_string(), value.unwrap_or_default()));
            }
            let place = format!("{}/{}/{}", record.topic, record.partition, record.offset);
            let body = record.value.map(|it| it.to_vec()).unwrap_or_default();
            received.push(cloud_event::message(place, None, None, &headers, body));
        }
        Ok(received)
    }

    /// Messages are done in the order in which they were given, so the offset behind one is behind all before it.
    async fn commit(&mut self, place: &str) -> Result<(), String> {
        let mut parts = place.rsplitn(3, '/');
        let mut number = || parts.next().and_then(|it| it.parse::<i64>().ok());
        let (offset, partition) = (number(), number());
        let topic = parts.next();
        let (Some(offset), Some(partition), Some(topic)) = (offset, partition, topic) else {
            return Err(format!("{place} is no place of a message"));
        };
        let partition = i32::try_from(partition).map_err(|error| error.to_string())?;
        let at = TopicPartition::new(topic, partition);
        let committed = self
            .consumer
            .commit_offsets([(at, OffsetAndMetadata::new(offset + 1))])
            .await;
        committed.map_err(|error| failure(&error).why())
    }

    async fn keep_dead(&mut self, message: &Received, why: &str) -> Result<(), String> {
        if self.producer.is_none() {
            let opened = producer(&self.kafka, self.timeout).await;
            self.producer = Some(opened.map_err(Failure::why)?);
        }
        let Some(producer) = &self.producer else {
            return Err("there is no producer".to_owned());
        };
        let mut record = Record::new(self.dead.as_str(), message.body.clone())
            .key(message.id.clone())
            .header("stepwell-dead-reason", why.to_owned())
            .header("stepwell-dead-place", message.place.clone());
        for (name, value) in &message.attributes {
            if let Some(value) = value.as_str() {
                record = record.header(name.clone(), value.to_owned());
            }
        }
        let sent = producer.send(record).await;
        sent.map(drop).map_err(|error| failure(&error).why())
    }
}

impl MessageSource for KafkaMessages {
    fn next(&mut self) -> SourceFuture<'_, Vec<Received>> {
        Box::pin(self.fetch())
    }

    fn done<'a>(&'a mut self, message: &'a Received) -> SourceFuture<'a, ()> {
        Box::pin(self.commit(&message.place))
    }

    fn bury<'a>(&'a mut self, message: &'a Received, why: &'a str) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            self.keep_dead(message, why).await?;
            self.commit(&message.place).await
        })
    }

    fn close(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async move {
            let closed = self.consumer.close().await;
            if let Some(producer) = self.producer.take() {
                // Every dead letter was waited for: only connections are left to close.
                let _ = producer.close().await;
            }
            closed.map_err(|error| failure(&error).why())
        })
    }
}
