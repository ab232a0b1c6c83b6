//! Messages from a Redis stream, by a consumer group that all servers share. A server is one consumer, also when it connects
//! again: it begins with what it had taken and not finished. What another server has taken and not finished is taken over
//! after half a minute.

use std::time::Duration;

use redis::{RedisError, Value};

use super::{RedisConnection, connect};
use crate::address::{AddressFault, BrokerAddress};
use crate::cloud_event::{self, Headers};
use crate::kinds::Surroundings;
use crate::link::Failure;
use crate::source::{MessageSource, Received, SourceFuture, SourceOpener, opened};

/// How many messages at a time.
const BATCH: usize = 64;
/// How long a call waits for messages.
const WAIT: Duration = Duration::from_secs(1);
/// After this time a message that is not done may be taken by another server.
const IDLE: Duration = Duration::from_secs(30);
/// How often what others left is looked for, in calls.
const CLAIM_EVERY: u32 = 10;
/// After this time without a call, a consumer that has nothing is removed from the group.
const FORGOTTEN: Duration = Duration::from_secs(3_600);
/// How the names of consumers begin.
const CONSUMER: &str = "stepwell-";

/// A stream that messages come from.
#[derive(Debug)]
pub(crate) struct RedisSource {
    address: BrokerAddress,
    around: Surroundings,
    stream: String,
    /// The name of this server in the group.
    consumer: String,
}

impl RedisSource {
    pub(crate) fn new(
        address: BrokerAddress,
        around: &Surroundings,
    ) -> Result<RedisSource, AddressFault> {
        super::database(&address)?;
        let stream = address.param("stream");
        let stream =
            stream.ok_or_else(|| AddressFault::new("`stream` names the stream to read"))?;
        Ok(RedisSource {
            stream: stream.to_owned(),
            around: around.clone(),
            consumer: format!("{CONSUMER}{}", uuid::Uuid::now_v7()),
            address,
        })
    }

    fn dead(&self) -> String {
        format!("{}:dead", self.stream)
    }

    async fn connected(&self, group: &str) -> Result<RedisMessages, Failure> {
        let mut connection = connect(&self.address, &self.around).await?;
        let mut create = redis::cmd("XGROUP");
        create
            .arg("CREATE")
            .arg(&self.stream)
            .arg(group)
            .arg("0")
            .arg("MKSTREAM");
        let created: Result<(), RedisError> = create.query_async(&mut connection.commands).await;
        if let Err(error) = created
            && error.code() != Some("BUSYGROUP")
        {
            return Err(super::failure(&error));
        }
        let mut messages = RedisMessages {
            connection,
            stream: self.stream.clone(),
            dead: self.dead(),
            group: group.to_owned(),
            consumer: self.consumer.clone(),
            begins: true,
            calls: 0,
            open: Vec::new(),
        };
        messages.forget_others().await.map_err(Failure::Down)?;
        Ok(messages)
    }
}

impl SourceOpener for RedisSource {
    fn open<'a>(&'a self, group: &'a str) -> SourceFuture<'a, Box<dyn MessageSource>> {
        Box::pin(opened(self.connected(group)))
    }

    fn dead_letter_place(&self) -> String {
        format!("the stream {}", self.dead())
    }
}

/// A connection that gives messages.
#[derive(Debug)]
struct RedisMessages {
    connection: RedisConnection,
    stream: String,
    dead: String,
    group: String,
    consumer: String,
    /// Whether this consumer may still have messages of an earlier connection.
    begins: bool,
    calls: u32,
    /// The ids of the messages that are not done.
    open: Vec<String>,
}

/// An entry of a stream: its id and its fields.
type Entry = (String, Vec<(String, Vec<u8>)>);

impl RedisMessages {
    async fn ask(&mut self, command: &redis::Cmd) -> Result<Value, String> {
        let answer = command.query_async(&mut self.connection.commands).await;
        answer.map_err(|error: RedisError| super::failure(&error).why())
    }

    async fn fetch(&mut self) -> Result<Vec<Received>, String> {
        self.open.clear();
        let mut entries = Vec::new();
        if self.begins {
            entries = self.taken().await?;
            self.begins = !entries.is_empty();
        }
        if entries.is_empty() && self.calls.is_multiple_of(CLAIM_EVERY) {
            let mut claim = redis::cmd("XAUTOCLAIM");
            let idle = u64::try_from(IDLE.as_millis()).unwrap_or(u64::MAX);
            claim
                .arg(&self.stream)
                .arg(&self.group)
                .arg(&self.consumer)
                .arg(idle);
            claim.arg("0").arg("COUNT").arg(BATCH);
            if let Value::Array(parts) = self.ask(&claim).await? {
                entries = parts.get(1).map(read_entries).unwrap_or_default();
            }
        }
        self.calls = self.calls.wrapping_add(1);
        if entries.is_empty() {
            entries = self.read(">").await?;
        }
        let mut received = Vec::with_capacity(entries.len());
        for (id, fields) in entries {
            received.push(self.received(&id, fields));
            self.open.push(id);
        }
        Ok(received)
    }

    /// Entries for this consumer: those that nobody has, `>`, or those that it has and are not done, `0`.
    async fn read(&mut self, after: &str) -> Result<Vec<Entry>, String> {
        let mut read = redis::cmd("XREADGROUP");
        let wait = u64::try_from(WAIT.as_millis()).unwrap_or(1_000);
        read.arg("GROUP").arg(&self.group).arg(&self.consumer);
        read.arg("COUNT").arg(BATCH).arg("BLOCK").arg(wait);
        read.arg("STREAMS").arg(&self.stream).arg(after);
        Ok(first_stream(&self.ask(&read).await?))
    }

    /// What this consumer has taken and not finished.
    async fn taken(&mut self) -> Result<Vec<Entry>, String> {
        self.read("0").await
    }

    /// Removes consumers of servers that are gone from the group: each start of a server makes a new one.
    async fn forget_others(&mut self) -> Result<(), String> {
        let mut list = redis::cmd("XINFO");
        list.arg("CONSUMERS").arg(&self.stream).arg(&self.group);
        let consumers = self.ask(&list).await?;
        for name in forgotten(&consumers) {
            let mut remove = redis::cmd("XGROUP");
            remove.arg("DELCONSUMER").arg(&self.stream);
            remove.arg(&self.group).arg(name);
            self.ask(&remove).await?;
        }
        Ok(())
    }

    /// The body is the field `event`, `data` or `payload`, or else all fields as one object.
    fn received(&self, id: &str, fields: Vec<(String, Vec<u8>)>) -> Received {
        let is_body =
            |it: &(String, Vec<u8>)| matches!(it.0.as_str(), "event" | "data" | "payload");
        let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
        let body = match fields.iter().find(|it| is_body(it)) {
            Some((_, body)) => body.clone(),
            None => {
                let all = fields.iter().map(|it| (it.0.clone(), text(&it.1).into()));
                serde_json::Value::Object(all.collect())
                    .to_string()
                    .into_bytes()
            }
        };
        let headers: Headers = fields
            .iter()
            .filter(|it| !is_body(it))
            .map(|it| (it.0.clone(), text(&it.1)))
            .collect();
        let own = headers
            .iter()
            .find(|it| it.0 == "id")
            .map(|it| it.1.clone());
        let place = format!("{}/{id}", self.stream);
        cloud_event::message(place, own.as_deref(), None, &headers, body)
    }

    async fn acknowledge(&mut self, message: &Received) -> Result<(), String> {
        let id = message
            .place
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned();
        let mut ack = redis::cmd("XACK");
        ack.arg(&self.stream).arg(&self.group).arg(&id);
        self.ask(&ack).await?;
        self.open.retain(|it| *it != id);
        Ok(())
    }
}

impl MessageSource for RedisMessages {
    fn next(&mut self) -> SourceFuture<'_, Vec<Received>> {
        Box::pin(self.fetch())
    }

    fn done<'a>(&'a mut self, message: &'a Received) -> SourceFuture<'a, ()> {
        Box::pin(self.acknowledge(message))
    }

    fn bury<'a>(&'a mut self, message: &'a Received, why: &'a str) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            let mut add = redis::cmd("XADD");
            add.arg(&self.dead)
                .arg("*")
                .arg("place")
                .arg(&message.place);
            add.arg("id").arg(&message.id).arg("why").arg(why);
            add.arg("event").arg(message.body.as_slice());
            self.ask(&add).await?;
            self.acknowledge(message).await
        })
    }

    fn hold(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async move {
            if self.open.is_empty() {
                return Ok(());
            }
            // Taking its own messages again makes them young.
            let mut claim = redis::cmd("XCLAIM");
            claim
                .arg(&self.stream)
                .arg(&self.group)
                .arg(&self.consumer)
                .arg(0);
            claim.arg(&self.open).arg("JUSTID");
            self.ask(&claim).await.map(drop)
        })
    }

    fn close(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async move {
            // Also those of an answer that nobody read any more.
            let taken = self.taken().await?;
            self.open = taken.into_iter().map(|it| it.0).collect();
            if self.open.is_empty() {
                return Ok(());
            }
            // Messages that are old enough may be taken by others.
            let mut claim = redis::cmd("XCLAIM");
            let idle = u64::try_from(IDLE.as_millis()).unwrap_or(u64::MAX);
            claim
                .arg(&self.stream)
                .arg(&self.group)
                .arg(&self.consumer)
                .arg(0);
            claim.arg(&self.open).arg("IDLE").arg(idle).arg("JUSTID");
            self.ask(&claim).await.map(drop)
        })
    }
}

/// The consumers of an answer that have nothing and have not called for long.
fn forgotten(consumers: &Value) -> Vec<String> {
    let of_one = |consumer: &Value| {
        let fields = fields(consumer)?;
        let number = |name: &str| fields.iter().find(|it| it.0 == name)?.1.parse::<u64>().ok();
        let name = &fields.iter().find(|it| it.0 == "name")?.1;
        let is_gone = number("pending")? == 0
            && u128::from(number("idle")?) > FORGOTTEN.as_millis()
            && name.starts_with(CONSUMER);
        is_gone.then(|| name.clone())
    };
    let consumers = consumers.as_sequence().unwrap_or_default();
    consumers.iter().filter_map(of_one).collect()
}

/// The fields of one consumer as texts.
fn fields(consumer: &Value) -> Option<Vec<(String, String)>> {
    let text = |value: &Value| {
        if let Value::Int(number) = value {
            return Some(number.to_string());
        }
        Some(String::from_utf8_lossy(&bytes(value)?).into_owned())
    };
    let pairs = pairs(consumer)?.into_iter();
    Some(
        pairs
            .filter_map(|it| Some((text(it.0)?, text(it.1)?)))
            .collect(),
    )
}

/// Names and values: with the older protocol a list in which they alternate, with the newer one a map.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kinds of values of the protocol"
)]
fn pairs(value: &Value) -> Option<Vec<(&Value, &Value)>> {
    Some(match value {
        Value::Map(pairs) => pairs.iter().map(|it| (&it.0, &it.1)).collect(),
        list => {
            let pairs = list.as_sequence()?.chunks_exact(2);
            pairs
                .filter_map(|it| Some((it.first()?, it.get(1)?)))
                .collect()
        }
    })
}

/// The entries of the first stream of an answer: with the older protocol a list of [key, entries], with the newer one a map.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kinds of values of the protocol"
)]
fn first_stream(answer: &Value) -> Vec<Entry> {
    let entries = match answer {
        Value::Array(streams) => streams.first().and_then(|it| it.as_sequence()?.get(1)),
        Value::Map(streams) => streams.first().map(|it| &it.1),
        _ => None,
    };
    entries.map(read_entries).unwrap_or_default()
}

/// The entries of an answer; one that was deleted meanwhile is left out.
fn read_entries(value: &Value) -> Vec<Entry> {
    let entries = value.as_sequence().unwrap_or_default();
    entries.iter().filter_map(read_entry).collect()
}

fn read_entry(value: &Value) -> Option<Entry> {
    let parts = value.as_sequence()?;
    let text = |it: Vec<u8>| String::from_utf8_lossy(&it).into_owned();
    let id = text(bytes(parts.first()?)?);
    let fields = pairs(parts.get(1)?)?.into_iter();
    let field = |it: (&Value, &Value)| Some((text(bytes(it.0)?), bytes(it.1)?));
    Some((id, fields.filter_map(field).collect()))
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kinds of values of the protocol"
)]
fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes.clone()),
        Value::SimpleString(text) => Some(text.clone().into_bytes()),
        _ => None,
    }
}
