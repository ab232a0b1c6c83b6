//! NATS JetStream. A message goes to the subject `SUBJECT.RUN` of a stream with its id as `Nats-Msg-Id`, so that the server
//! knows a repeat within the duplicate window of the stream.

mod source;

use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config as StreamConfig, StorageType};
use async_nats::jetstream::{self, Context};
use async_nats::{ConnectOptions, HeaderMap, ServerAddr};
use stepwell_http::hosts::HostRules;

use crate::address::{AddressFault, BrokerAddress, bracketed};
use crate::cloud_event::{Format, Message, Prefix};
use crate::credentials::Credentials;
use crate::dial;
use crate::kinds::Surroundings;
use crate::link::{Broker, Failure, Link};

pub(crate) use source::NatsSource;

/// How long the server knows a message by its id, in a stream that this sink creates.
const DUPLICATES: Duration = Duration::from_secs(600);

/// A stream of a NATS server.
#[derive(Clone, Debug)]
pub(crate) struct Nats {
    address: BrokerAddress,
    around: Surroundings,
    stream: String,
    subject: String,
    format: Format,
}

impl Nats {
    pub(crate) fn new(address: BrokerAddress, around: &Surroundings) -> Result<Nats, AddressFault> {
        let subject = address.param("subject").unwrap_or("stepwell.events");
        Ok(Nats {
            stream: stream_name(&address.path)?,
            subject: good_subject(subject)?,
            format: Format::of(&address)?,
            around: around.clone(),
            address,
        })
    }
}

/// The name of a stream, which the path of the address is.
pub(crate) fn stream_name(path: &str) -> Result<String, AddressFault> {
    let odd = |it: char| ".*>/\\".contains(it);
    match path.is_empty() || path.contains(odd) {
        true => Err(AddressFault::new(
            "the path names the stream, without dots: nats://HOST/STREAM",
        )),
        false => Ok(path.to_owned()),
    }
}

fn good_subject(subject: &str) -> Result<String, AddressFault> {
    let is_good = |it: &str| !it.is_empty() && !it.contains(['*', '>']);
    match subject.split('.').all(is_good) {
        true => Ok(subject.to_owned()),
        false => Err(AddressFault::new(
            "`subject` is words with dots between them, without `*` and `>`",
        )),
    }
}

/// A run as one word of a subject: what cannot stand there is written as `=XX`.
fn word(run: &str) -> String {
    let mut word = String::with_capacity(run.len());
    for byte in run.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => word.push(char::from(byte)),
            _ => word.push_str(&format!("={byte:02X}")),
        }
    }
    word
}

/// Connects to a server of an address.
pub(crate) async fn connect(
    address: &BrokerAddress,
    around: &Surroundings,
) -> Result<Context, Failure> {
    let credentials = Credentials::resolve(address, &*around.secrets).await;
    let credentials = credentials.map_err(Failure::Refused)?;
    let mut last = Failure::Down("the address names no host".to_owned());
    for (host, port) in &address.hosts {
        match connect_to(address, around, &credentials, (host, *port)).await {
            Ok(context) => return Ok(context),
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
) -> Result<Context, Failure> {
    let server = format!("{}:{port}", bracketed(host));
    let (servers, is_checked) = checked(host, port, &around.hosts).await?;
    let is_encrypted = address.scheme == "nats+tls";
    let mut options = ConnectOptions::new()
        .name("stepwell")
        .connection_timeout(around.timeout / 2)
        .request_timeout(Some(around.timeout))
        // A connection that is lost is given up, and made again by the next delivery.
        .max_reconnects(1)
        // Servers that are not in the address were not checked.
        .ignore_discovered_servers()
        .require_tls(is_encrypted);
    // A server may ask for TLS also where the address does not.
    options = options.tls_client_config(match is_checked {
        true => dial::tls_of_name(address, credentials, host)?,
        false => dial::tls(address, credentials)?,
    });
    if let (Some(user), Some(password)) = (&credentials.username, &credentials.password) {
        options = options.user_and_password(user.clone(), password.clone());
    } else if let Some(token) = credentials
        .field(&["token"])
        .or(credentials.password.as_deref())
    {
        options = options.token(token.to_owned());
    } else if let Some(seed) = credentials.field(&["nkey"]) {
        options = options.nkey(seed.to_owned());
    } else if let Some(file) = credentials.field(&["creds"]) {
        let read = options.credentials(file);
        options = read.map_err(|_| {
            Failure::Refused("`creds` of the secret is no content of a credentials file".to_owned())
        })?;
    }
    let client = options.connect(servers).await;
    let client = client.map_err(|error| Failure::Down(format!("{server}: {error}")))?;
    let mut context = jetstream::new(client);
    context.set_timeout(around.timeout);
    Ok(context)
}

/// The addresses to connect to: those that the rules allow, or the host itself where there are no rules.
async fn checked(
    host: &str,
    port: u16,
    rules: &HostRules,
) -> Result<(Vec<ServerAddr>, bool), Failure> {
    let server = format!("{}:{port}", bracketed(host));
    let hosts = match rules.is_empty() {
        true => vec![server.clone()],
        false => {
            let found = rules.lookup(host, port).await;
            let found = found.map_err(|error| dial::unreachable(&server, &*error))?;
            found.iter().map(ToString::to_string).collect()
        }
    };
    let parsed = hosts.iter().map(|it| format!("nats://{it}").parse());
    let parsed = parsed.collect::<Result<Vec<ServerAddr>, _>>();
    let parsed = parsed.map_err(|error| Failure::Never(format!("{server}: {error}")))?;
    Ok((parsed, !rules.is_empty()))
}

impl Broker for Nats {
    type Link = NatsLink;

    fn servers(&self) -> String {
        self.address.servers()
    }

    async fn connect(&self) -> Result<NatsLink, Failure> {
        let context = connect(&self.address, &self.around).await?;
        let config = StreamConfig {
            name: self.stream.clone(),
            subjects: vec![format!("{}.>", self.subject)],
            storage: StorageType::File,
            duplicate_window: DUPLICATES,
            ..StreamConfig::default()
        };
        // A stream that is there stays as it is.
        let stream = context.get_or_create_stream(config).await;
        stream.map_err(|error| {
            Failure::Down(format!(
                "the stream {} cannot be used: {error}",
                self.stream
            ))
        })?;
        Ok(NatsLink {
            context,
            subject: self.subject.clone(),
            stream: self.stream.clone(),
            format: self.format,
        })
    }
}

/// A connection to a stream.
#[derive(Debug)]
pub(crate) struct NatsLink {
    context: Context,
    subject: String,
    stream: String,
    format: Format,
}

impl Link for NatsLink {
    async fn send(&mut self, messages: &[Message], confirmed: &mut usize) -> Result<(), Failure> {
        for message in messages {
            let encoded = message.encode(self.format, Prefix::Dash);
            let mut headers = HeaderMap::new();
            for (name, value) in &encoded.headers {
                headers.insert(name.as_str(), value.as_str());
            }
            headers.insert("content-type", encoded.content_type);
            let publish = PublishMessage::build()
                .payload(encoded.body.into())
                .headers(headers)
                .message_id(crate::cloud_event::visible(&message.id))
                .expected_stream(&self.stream);
            let subject = format!("{}.{}", self.subject, word(&message.run_id));
            publish_one(&self.context, subject, publish).await?;
            *confirmed += 1;
        }
        Ok(())
    }
}

/// Publishes a message and waits until the stream has it.
async fn publish_one(
    context: &Context,
    subject: String,
    message: PublishMessage,
) -> Result<(), Failure> {
    let sent = async { context.send_publish(subject, message).await?.await };
    match sent.await {
        // Also a repeat.
        Ok(_) => Ok(()),
        Err(error) => Err(match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => {
                Failure::Never(format!("NATS takes no message of this size: {error}"))
            }
            PublishErrorKind::StreamNotFound
            | PublishErrorKind::WrongLastMessageId
            | PublishErrorKind::WrongLastSequence => {
                Failure::Refused(format!("NATS refused a message: {error}"))
            }
            // The stream says no, for example because it is full.
            PublishErrorKind::Other if context.client().connection_state() == State::Connected => {
                Failure::Refused(format!("NATS refused a message: {error}"))
            }
            PublishErrorKind::TimedOut
            | PublishErrorKind::BrokenPipe
            | PublishErrorKind::MaxAckPending
            | PublishErrorKind::Other => Failure::Down(error.to_string()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_one_word_of_a_subject() {
        assert_eq!(word("run_0-9"), "run_0-9");
        assert_eq!(word("a.b ä*"), "a=2Eb=20=C3=A4=2A");
    }

    #[test]
    fn addresses_name_a_stream_and_a_subject() {
        let open = |text: &str| {
            let address = crate::kinds::sink_address(text)?;
            Nats::new(address, &Surroundings::default())
        };
        let nats = open("nats://h/EVENTS?subject=a.b").unwrap();
        assert_eq!(
            (nats.stream.as_str(), nats.subject.as_str()),
            ("EVENTS", "a.b")
        );
        for wrong in [
            "nats://h",
            "nats://h/a.b",
            "nats://h/S?subject=a.*",
            "nats://h/S?subject=a..b",
        ] {
            assert!(open(wrong).is_err(), "{wrong}");
        }
    }
}
