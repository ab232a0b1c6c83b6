//! Kafka. A message goes to a topic with the id of its run as its key, by an idempotent producer that waits for all
//! replicas, so that a retry of the client is no repeat.

mod proxy;
mod source;

use std::time::Duration;

use krafka::auth::{AuthConfig, TlsConfig};
use krafka::error::{ErrorCode, KrafkaError};

use krafka::producer::{Acks, Producer};
use krafka::{Kafka, ProxyConfig, Record};

use crate::address::{AddressFault, BrokerAddress, denied_host};
use crate::cloud_event::{Format, Message, Prefix};
use crate::credentials::Credentials;
use crate::kinds::Surroundings;
use crate::link::{Broker, Failure, Link};
use proxy::CheckedProxy;

pub(crate) use source::KafkaSource;

/// How the password is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sasl {
    Plain,
    Scram256,
    Scram512,
}

/// A cluster, as an address names it.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    address: BrokerAddress,
    around: Surroundings,
    topic: String,
    sasl: Option<Sasl>,
}

impl Cluster {
    pub(crate) fn new(
        address: BrokerAddress,
        around: &Surroundings,
    ) -> Result<Cluster, AddressFault> {
        let is_name = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
        let topic = address.path.clone();
        if !(1..=240).contains(&topic.len()) || !topic.chars().all(is_name) {
            return Err(AddressFault::new(
                "the path names the topic, with letters, digits, `.`, `_` and `-`: kafka://HOST/TOPIC",
            ));
        }
        let sasl = match address.param("sasl") {
            None => None,
            Some("plain") => Some(Sasl::Plain),
            Some("scram-sha-256") => Some(Sasl::Scram256),
            Some("scram-sha-512") => Some(Sasl::Scram512),
            Some(_) => {
                return Err(AddressFault::new(
                    "`sasl` is plain, scram-sha-256 or scram-sha-512",
                ));
            }
        };
        if sasl.is_some() && address.param("auth").is_none() {
            return Err(AddressFault::new(
                "`sasl` needs `auth`, the name of a secret",
            ));
        }
        Ok(Cluster {
            topic,
            sasl,
            around: around.clone(),
            address,
        })
    }

    /// A connection to the cluster. The proxy, if there is one, lives as long as the connection.
    async fn connect(&self) -> Result<(Kafka, Option<CheckedProxy>), Failure> {
        let credentials = Credentials::resolve(&self.address, &*self.around.secrets).await;
        let credentials = credentials.map_err(Failure::Refused)?;
        let mut builder = Kafka::builder(self.address.servers())
            .client_id("stepwell")
            // The brokers decide whether a topic is created (`auto.create.topics.enable`).
            .allow_auto_create_topics(true)
            .connect_timeout(self.around.timeout / 2)
            .request_timeout(self.around.timeout)
            .security(self.security(&credentials)?);
        let mut proxy = None;
        if !self.around.hosts.is_empty() {
            // Brokers name each other: each of their addresses is checked, not only those of this sink.
            let opened = CheckedProxy::open(&self.around.hosts).await;
            let opened = opened.map_err(|error| Failure::Down(error.to_string()))?;
            let (address, user, password) = opened.access();
            builder = builder.proxy(ProxyConfig::with_credentials(address, user, password));
            proxy = Some(opened);
        }
        match builder.connect().await {
            Ok(kafka) => Ok((kafka, proxy)),
            Err(error) => Err(match proxy.as_ref().and_then(CheckedProxy::denied) {
                Some(denied) => Failure::Refused(denied_host(&denied)),
                None => Failure::Down(format!("{}: {error}", self.address.servers())),
            }),
        }
    }

    fn security(&self, credentials: &Credentials) -> Result<AuthConfig, Failure> {
        let user = credentials.username.clone().unwrap_or_default();
        let password = credentials.password.clone().unwrap_or_default();
        let auth = match self.sasl {
            None => AuthConfig::plaintext(),
            Some(Sasl::Plain) => AuthConfig::sasl_plain(user, password),
            Some(Sasl::Scram256) => AuthConfig::sasl_scram_sha256(user, password),
            Some(Sasl::Scram512) => AuthConfig::sasl_scram_sha512(user, password),
        };
        if self.address.scheme != "kafka+tls" {
            return Ok(auth);
        }
        let mut tls = TlsConfig::new();
        tls = match (self.address.param("ca"), credentials.field(&["ca"])) {
            (Some(path), _) => tls.with_ca_cert(path),
            (None, Some(pem)) => tls.with_ca_cert_pem(pem.as_bytes().to_vec()),
            (None, None) => tls.with_native_roots(),
        };
        if let (Some(certificate), Some(key)) = (
            credentials.field(&["certificate"]),
            credentials.field(&["key"]),
        ) {
            tls =
                tls.with_client_cert_pem(certificate.as_bytes().to_vec(), key.as_bytes().to_vec());
        }
        Ok(match self.sasl {
            None => AuthConfig::ssl(tls),
            Some(_) => auth.with_tls(tls),
        })
    }
}

/// A topic that events go to.
#[derive(Clone, Debug)]
pub(crate) struct KafkaTopic {
    cluster: Cluster,
    format: Format,
}

impl KafkaTopic {
    pub(crate) fn new(
        address: BrokerAddress,
        around: &Surroundings,
    ) -> Result<KafkaTopic, AddressFault> {
        Ok(KafkaTopic {
            format: Format::of(&address)?,
            cluster: Cluster::new(address, around)?,
        })
    }
}

impl Broker for KafkaTopic {
    type Link = KafkaLink;

    fn servers(&self) -> String {
        self.cluster.address.servers()
    }

    async fn connect(&self) -> Result<KafkaLink, Failure> {
        let (kafka, proxy) = self.cluster.connect().await?;
        let producer = producer(&kafka, self.cluster.around.timeout).await?;
        Ok(KafkaLink {
            producer,
            _proxy: proxy,
            topic: self.cluster.topic.clone(),
            format: self.format,
        })
    }
}

async fn producer(kafka: &Kafka, timeout: Duration) -> Result<Producer, Failure> {
    let producer = kafka
        .producer()
        .acks(Acks::All)
        .idempotent(true)
        .linger(Duration::ZERO)
        .delivery_timeout(timeout)
        .max_block(timeout)
        .build()
        .await;
    producer.map_err(|error| failure(&error))
}

/// A connection to a topic.
pub(crate) struct KafkaLink {
    producer: Producer,
    _proxy: Option<CheckedProxy>,
    topic: String,
    format: Format,
}

impl Link for KafkaLink {
    async fn send(&mut self, messages: &[Message], confirmed: &mut usize) -> Result<(), Failure> {
        for message in messages {
            let encoded = message.encode(self.format, Prefix::Underscore);
            let mut record = Record::new(self.topic.as_str(), encoded.body)
                .key(message.run_id.clone())
                .header("content-type", encoded.content_type);
            for (name, value) in encoded.headers {
                record = record.header(name, value);
            }
            let sent = self.producer.send(record).await;
            sent.map(drop).map_err(|error| failure(&error))?;
            *confirmed += 1;
        }
        Ok(())
    }

    async fn close(self) {
        // Everything is confirmed or was told as failed: there is nothing left to lose.
        let _ = self.producer.close().await;
    }
}

/// What an error of Kafka means for a delivery.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the errors of the library; a new one is tried again"
)]
fn failure(error: &KrafkaError) -> Failure {
    let why = format!("Kafka: {error}");
    match error {
        KrafkaError::Broker {
            code: ErrorCode::MessageTooLarge | ErrorCode::InvalidRecord,
            ..
        }
        | KrafkaError::Serialization { .. } => Failure::Never(why),
        // A producer that failed is replaced: what it has queued must not come behind what the next one sends.
        _ => Failure::Down(why),
    }
}
