//! RabbitMQ (AMQP 0.9.1). A message is persistent and mandatory, and the publisher waits until the broker has confirmed it: a
//! message that no queue gets is returned and counts as refused.

mod source;

use std::sync::Arc;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::tcp::{AsyncTcpStream, RustlsConnector};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Error, ErrorKind,
};

use crate::address::{AddressFault, BrokerAddress, bracketed};
use crate::cloud_event::{Format, Message, Prefix};
use crate::credentials::Credentials;
use crate::dial;
use crate::kinds::Surroundings;
use crate::link::{Broker, Failure, Link};

pub(crate) use source::AmqpSource;

/// The port of AMQP with TLS.
const TLS_PORT: u16 = 5671;
/// The longest name of AMQP, in bytes.
const MAX_NAME: usize = 255;
/// Written to the disk.
const PERSISTENT: u8 = 2;

/// An exchange or a queue of a RabbitMQ server.
#[derive(Clone, Debug)]
pub(crate) struct Amqp {
    address: BrokerAddress,
    around: Surroundings,
    place: Place,
    format: Format,
}

/// What messages are published to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// An exchange that is there; the routing key is `stepwell.RUN` if there is none.
    Exchange { name: String, key: Option<String> },
    /// A queue, by the default exchange.
    Queue(String),
}

impl Amqp {
    pub(crate) fn new(address: BrokerAddress, around: &Surroundings) -> Result<Amqp, AddressFault> {
        let own = |name: &str| address.param(name).map(str::to_owned);
        let place = match (own("exchange"), own("queue"), own("key")) {
            (Some(name), None, key) => Place::Exchange { name, key },
            (None, Some(queue), None) => Place::Queue(queue),
            _ => {
                return Err(AddressFault::new(
                    "`exchange` (with or without `key`), or `queue`, says where messages go",
                ));
            }
        };
        let names = ["exchange", "queue", "key"].map(|it| address.param(it).unwrap_or_default());
        if names.iter().any(|it| it.len() > MAX_NAME) {
            return Err(AddressFault::new(format!(
                "names have at most {MAX_NAME} bytes"
            )));
        }
        Ok(Amqp {
            place,
            format: Format::of(&address)?,
            around: around.clone(),
            address,
        })
    }
}

/// Connects to a server of an address, and opens a channel.
pub(crate) async fn connect(
    address: &BrokerAddress,
    around: &Surroundings,
) -> Result<(Connection, Channel), Failure> {
    let credentials = Credentials::resolve(address, &*around.secrets).await;
    let credentials = credentials.map_err(Failure::Refused)?;
    let mut last = Failure::Down("the address names no host".to_owned());
    for (host, port) in &address.hosts {
        match connect_to(address, around, &credentials, (host, *port)).await {
            Ok(connection) => {
                let channel = connection.create_channel().await;
                let channel = channel.map_err(|error| failure(&error))?;
                return Ok((connection, channel));
            }
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

async fn connect_to(
    address: &BrokerAddress,
    around: &Surroundings,
    credentials: &Credentials,
    (host, port): (&str, u16),
) -> Result<Connection, Failure> {
    let server = format!("{}:{port}", bracketed(host));
    let is_encrypted = address.scheme == "amqps";
    let tls = match is_encrypted {
        true => Some(RustlsConnector::from(Arc::new(dial::tls(
            address,
            credentials,
        )?))),
        false => None,
    };
    let port = match is_encrypted && port == 5672 {
        true => TLS_PORT,
        false => port,
    };
    let found = around.hosts.lookup(host, port).await;
    let found = found.map_err(|error| dial::unreachable(&server, &*error))?;
    let uri = AMQPUri {
        scheme: match is_encrypted {
            true => AMQPScheme::AMQPS,
            false => AMQPScheme::AMQP,
        },
        authority: AMQPAuthority {
            userinfo: AMQPUserInfo {
                username: credentials
                    .username
                    .clone()
                    .unwrap_or_else(|| "guest".to_owned()),
                password: credentials
                    .password
                    .clone()
                    .unwrap_or_else(|| "guest".to_owned()),
            },
            host: host.to_owned(),
            port,
        },
        vhost: match address.path.as_str() {
            "" => "/".to_owned(),
            path => path.to_owned(),
        },
        query: AMQPQueryString {
            heartbeat: Some(10),
            ..AMQPQueryString::default()
        },
    };
    let runtime = lapin::runtime::default_runtime().map_err(|error| failure(&error))?;
    let properties = ConnectionProperties::default().with_connection_name("stepwell".into());
    // The addresses that were checked are the ones that are connected to.
    let connector = async move |uri: AMQPUri, runtime| {
        let stream = AsyncTcpStream::connect(&runtime, found.clone()).await?;
        match &tls {
            None => Ok(stream),
            Some(tls) => Ok(stream.into_rustls(tls, &uri.authority.host).await?),
        }
    };
    let connected = Connection::connector(uri, runtime, connector, properties).await;
    connected.map_err(|error| Failure::Down(format!("{server}: {error}")))
}

/// What an error of the client means for a delivery.
fn failure(error: &Error) -> Failure {
    let why = format!("RabbitMQ: {error}");
    match error.kind() {
        ErrorKind::SerialisationError(_) => Failure::Never(why),
        // A channel that the broker closed is replaced too.
        _ => Failure::Down(why),
    }
}

impl Broker for Amqp {
    type Link = AmqpLink;

    fn servers(&self) -> String {
        self.address.servers()
    }

    async fn connect(&self) -> Result<AmqpLink, Failure> {
        let (connection, channel) = connect(&self.address, &self.around).await?;
        if let Place::Queue(queue) = &self.place {
            ensure_queue(&connection, queue).await?;
        }
        let confirms = channel
            .confirm_select(ConfirmSelectOptions::default())
            .await;
        confirms.map_err(|error| failure(&error))?;
        Ok(AmqpLink {
            _connection: connection,
            channel,
            place: self.place.clone(),
            format: self.format,
        })
    }
}

/// A channel to an exchange.
#[derive(Debug)]
pub(crate) struct AmqpLink {
    _connection: Connection,
    channel: Channel,
    place: Place,
    format: Format,
}

impl Link for AmqpLink {
    async fn send(&mut self, messages: &[Message], confirmed: &mut usize) -> Result<(), Failure> {
        for message in messages {
            let encoded = message.encode(self.format, Prefix::Word);
            let (exchange, key) = match &self.place {
                Place::Queue(queue) => ("", queue.clone()),
                Place::Exchange {
                    name,
                    key: Some(key),
                } => (name.as_str(), key.clone()),
                Place::Exchange { name, key: None } => {
                    (name.as_str(), format!("stepwell.{}", message.run_id))
                }
            };
            if key.len() > MAX_NAME || message.id.len() > MAX_NAME {
                return Err(Failure::Never(format!(
                    "the id of the run is longer than AMQP allows ({MAX_NAME} bytes)"
                )));
            }
            let properties = properties(&message.id, encoded.content_type, &encoded.headers);
            publish(&self.channel, exchange, &key, &encoded.body, properties).await?;
            *confirmed += 1;
        }
        Ok(())
    }
}

fn properties(id: &str, content_type: &str, headers: &[(String, String)]) -> BasicProperties {
    let mut table = FieldTable::default();
    for (name, value) in headers {
        let value = AMQPValue::LongString(LongString::from(value.as_bytes()));
        table.insert(ShortString::from(name.as_str()), value);
    }
    BasicProperties::default()
        .with_content_type(content_type.into())
        .with_message_id(id.into())
        .with_delivery_mode(PERSISTENT)
        .with_headers(table)
}

/// Makes a queue that is not there; one that is there stays as it is.
pub(crate) async fn ensure_queue(connection: &Connection, queue: &str) -> Result<(), Failure> {
    // The broker closes a channel that asks for a queue that is not there.
    let channel = connection
        .create_channel()
        .await
        .map_err(|error| failure(&error))?;
    let passive = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let asked = channel.queue_declare(queue.into(), passive, FieldTable::default());
    if asked.await.is_ok() {
        return Ok(());
    }
    let channel = connection
        .create_channel()
        .await
        .map_err(|error| failure(&error))?;
    let options = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel.queue_declare(queue.into(), options, FieldTable::default());
    declared.await.map(drop).map_err(|error| failure(&error))
}

/// Publishes a message and waits until the broker has it in a queue.
async fn publish(
    channel: &Channel,
    exchange: &str,
    key: &str,
    body: &[u8],
    properties: BasicProperties,
) -> Result<(), Failure> {
    let options = BasicPublishOptions {
        mandatory: true,
        ..BasicPublishOptions::default()
    };
    let sent = channel.basic_publish(exchange.into(), key.into(), options, body, properties);
    let confirm = sent.await.map_err(|error| failure(&error))?;
    match confirm.await.map_err(|error| failure(&error))? {
        Confirmation::Ack(None) | Confirmation::NotRequested => Ok(()),
        Confirmation::Ack(Some(returned)) => Err(Failure::Refused(format!(
            "RabbitMQ returned the message, no queue gets it: {} {}",
            returned.reply_code, returned.reply_text
        ))),
        Confirmation::Nack(_) => Err(Failure::Refused(
            "RabbitMQ did not accept the message; a queue may be full".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_an_exchange_or_a_queue() {
        let open = |text: &str| {
            let address = crate::kinds::sink_address(text)?;
            Amqp::new(address, &Surroundings::default())
        };
        let amqp = open("amqps://u@h/orders%2Feu?exchange=events&key=a.b").unwrap();
        assert_eq!(amqp.address.path, "orders/eu");
        let place = Place::Exchange {
            name: "events".into(),
            key: Some("a.b".into()),
        };
        assert_eq!(amqp.place, place);
        assert!(open("amqp://h?queue=q").is_ok());
        for wrong in [
            "amqp://h",
            "amqp://h?key=k",
            "amqp://h?queue=q&exchange=e",
            "amqp://h?queue=q&key=k",
        ] {
            assert!(open(wrong).is_err(), "{wrong}");
        }
    }
}
