//! The table of sinks and sources: address, parameters, what a repeat does. Reading addresses, dispatch, help and
//! documents derive from it. A new kind is a folder, and a row here.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use stepwell_engine::outbox::Sink;
use stepwell_engine::store::SinkRow;
use stepwell_http::hosts::HostRules;

use crate::address::{AddressFault, BrokerAddress, COMMON};
use crate::credentials::{NoSecrets, SecretSource};
use crate::source::SourceOpener;
use crate::{Webhook, WebhookOptions};

/// The environment variable with the secret that signs the bodies of webhooks. Not an option, because all users of a
/// machine can see command lines.
const SECRET: &str = "STEPWELL_SINK_SECRET";

/// Where an account of Snowflake is that is named without its domain.
const SNOWFLAKE_DOMAIN: &str = "snowflakecomputing.com";

/// What a sink or a source needs from the process that opens it.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The longest time of one delivery.
    pub timeout: Duration,
    /// Which hosts may be connected to.
    pub hosts: Arc<HostRules>,
    /// Resolves the secrets that addresses name.
    pub secrets: Arc<dyn SecretSource>,
}

impl Default for Surroundings {
    fn default() -> Surroundings {
        Surroundings {
            timeout: Duration::from_secs(10),
            hosts: Arc::default(),
            secrets: Arc::new(NoSecrets),
        }
    }
}

type OpenSink = fn(&SinkRow, BrokerAddress, &Surroundings) -> Result<Box<dyn Sink>, String>;
type OpenSource = fn(BrokerAddress, &Surroundings) -> Result<Box<dyn SourceOpener>, String>;
/// Parameters of addresses, each with what it says.
type Params = &'static [(&'static str, &'static str)];

/// What a broker is asked to do, as far as this program can.
#[derive(Clone, Copy, Debug)]
struct Openers {
    sink: Option<OpenSink>,
    source: Option<OpenSource>,
}

/// A kind of sink, which may be a source too.
#[derive(Clone, Copy, Debug)]
pub struct SinkKind {
    /// In small letters; also the name of the feature that builds it.
    pub name: &'static str,
    /// What addresses begin with.
    pub schemes: &'static [&'static str],
    /// How the address of a sink is written.
    pub sink_form: &'static str,
    /// How the address of a source is written; empty if the kind is no source.
    pub source_form: &'static str,
    /// The parameters of a sink, besides those of all brokers.
    pub sink_params: Params,
    /// The parameters of a source, besides those of all brokers.
    pub source_params: Params,
    /// The fields of the secret that `auth` names.
    pub auth: &'static str,
    /// How the events of a run keep their order.
    pub order: &'static str,
    /// The result of sending a message again.
    pub repeats: &'static str,
    port: u16,
    openers: Openers,
}

/// A row is there also if this program is built without the kind, so that its message can say so.
macro_rules! openers {
    ($feature:literal, $sink:expr, $source:expr) => {{
        #[cfg(feature = $feature)]
        let openers = Openers {
            sink: $sink,
            source: $source,
        };
        #[cfg(not(feature = $feature))]
        let openers = Openers {
            sink: None,
            source: None,
        };
        openers
    }};
}

/// All kinds, those that this program is built without too.
pub const KINDS: &[SinkKind] = &[
    SinkKind {
        name: "webhook",
        schemes: &["webhook:"],
        sink_form: "webhook:https://HOST/PATH",
        source_form: "",
        sink_params: &[],
        source_params: &[],
        auth: "the variable `STEPWELL_SINK_SECRET` signs bodies",
        order: "one request after the other",
        repeats: "arrives twice, with the same `Idempotency-Key`",
        port: 443,
        openers: Openers {
            sink: None,
            source: None,
        },
    },
    SinkKind {
        name: "nats",
        schemes: &["nats://", "nats+tls://"],
        sink_form: "nats://HOST[:4222]/STREAM",
        source_form: "nats://HOST[:4222]/STREAM",
        sink_params: &[(
            "subject",
            "what the subject begins with; the id of the run follows; `stepwell.events` if absent",
        )],
        source_params: &[(
            "subject",
            "only messages of this subject, which may have `*` and `>`",
        )],
        auth: "`username` and `password`; or `token`, `nkey` (its seed), `creds` (the content of a credentials file); a text is the token",
        order: "one subject for each run; each message waits for the confirmation of the one before",
        repeats: "dropped by the server within the duplicate window of the stream (`Nats-Msg-Id`; 10 minutes in a stream that the sink creates); later it arrives twice",
        port: 4222,
        openers: openers!(
            "nats",
            Some(|row, address, around| {
                let broker = crate::nats::Nats::new(address, around).map_err(text)?;
                crate::link::BrokerSink::open(&row.name, around.timeout, broker)
            }),
            Some(|address, around| {
                let source = crate::nats::NatsSource::new(address, around).map_err(text)?;
                Ok(Box::new(source))
            })
        ),
    },
    SinkKind {
        name: "redis",
        schemes: &["redis://", "rediss://"],
        sink_form: "redis://HOST[:6379][/DATABASE]",
        source_form: "redis://HOST[:6379][/DATABASE]?stream=KEY",
        sink_params: &[
            (
                "prefix",
                "what the key of the stream of a run begins with; `stepwell:` if absent",
            ),
            (
                "keep",
                "how many seconds the stream of a run is kept after its last event; forever if absent",
            ),
        ],
        source_params: &[("stream", "the key of the stream; required")],
        auth: "`username` and `password`; a text is the password",
        order: "one stream for each run; a commit is written by one script",
        repeats: "dropped by the server: the entry has the id `SEQ-PLACE`, which is there already with the same content",
        port: 6379,
        openers: openers!(
            "redis",
            Some(|row, address, around| {
                let broker = crate::redis::Redis::new(address, around).map_err(text)?;
                crate::link::BrokerSink::open(&row.name, around.timeout, broker)
            }),
            Some(|address, around| {
                let source = crate::redis::RedisSource::new(address, around).map_err(text)?;
                Ok(Box::new(source))
            })
        ),
    },
    SinkKind {
        name: "kafka",
        schemes: &["kafka://", "kafka+tls://"],
        sink_form: "kafka://HOST[:9092][,HOST…]/TOPIC",
        source_form: "kafka://HOST[:9092][,HOST…]/TOPIC",
        sink_params: &[(
            "sasl",
            "`plain`, `scram-sha-256` or `scram-sha-512`, with the user and the password of `auth`",
        )],
        source_params: &[(
            "sasl",
            "`plain`, `scram-sha-256` or `scram-sha-512`, with the user and the password of `auth`",
        )],
        auth: "`username` and `password`; a text is the password",
        order: "the id of the run is the key, so a run has one partition",
        repeats: "dropped by the brokers while the connection lasts (idempotent producer, `acks=all`); after a new connection it arrives twice",
        port: 9092,
        openers: openers!(
            "kafka",
            Some(|row, address, around| {
                let broker = crate::kafka::KafkaTopic::new(address, around).map_err(text)?;
                crate::link::BrokerSink::open(&row.name, around.timeout, broker)
            }),
            Some(|address, around| {
                let source = crate::kafka::KafkaSource::new(address, around).map_err(text)?;
                Ok(Box::new(source))
            })
        ),
    },
    SinkKind {
        name: "amqp",
        schemes: &["amqp://", "amqps://"],
        sink_form: "amqp://HOST[:5672][/VHOST]?queue=NAME",
        source_form: "amqp://HOST[:5672][/VHOST]?queue=NAME",
        sink_params: &[
            (
                "exchange",
                "the exchange that messages go to; it must be there",
            ),
            (
                "key",
                "with `exchange`: the routing key; `stepwell.RUN` if absent",
            ),
            (
                "queue",
                "instead of `exchange`: the queue that messages go to; a durable one is created if it is not there",
            ),
        ],
        source_params: &[(
            "queue",
            "the queue; required. A durable one is created if it is not there",
        )],
        auth: "`username` and `password`; a text is the password",
        order: "one channel; each message waits for the confirmation of the one before",
        repeats: "arrives twice, with the same message id: RabbitMQ knows no repeats",
        port: 5672,
        openers: openers!(
            "amqp",
            Some(|row, address, around| {
                let broker = crate::amqp::Amqp::new(address, around).map_err(text)?;
                crate::link::BrokerSink::open(&row.name, around.timeout, broker)
            }),
            Some(|address, around| {
                let source = crate::amqp::AmqpSource::new(address, around).map_err(text)?;
                Ok(Box::new(source))
            })
        ),
    },
    SinkKind {
        name: "snowflake",
        schemes: &["snowflake://", "snowflake+http://"],
        sink_form: "snowflake://USER@ACCOUNT/DATABASE/SCHEMA?auth=NAME",
        source_form: "",
        sink_params: &[
            ("warehouse", "the warehouse that computes"),
            ("role", "the role of the user"),
            (
                "account",
                "the name of the account, if the host does not begin with it",
            ),
            (
                "create",
                "`false`: the tables are not created if they are not there",
            ),
        ],
        source_params: &[],
        auth: "`privateKey`: an RSA key as PKCS#8 in PEM form, not encrypted; a text is the key",
        order: "one statement after the other; the column `RUN_SEQ` has the order",
        repeats: "changes nothing: `MERGE` on the idempotency key",
        port: 443,
        openers: openers!(
            "snowflake",
            Some(|row, address, around| {
                let broker = crate::snowflake::Snowflake::new(address, around).map_err(text)?;
                crate::link::BrokerSink::open(&row.name, around.timeout, broker)
            }),
            None
        ),
    },
];

#[allow(dead_code, reason = "a program without any broker opens none")]
fn text(fault: AddressFault) -> String {
    fault.to_string()
}

impl SinkKind {
    /// The kind that an address is of.
    #[must_use]
    pub fn of(address: &str) -> Option<&'static SinkKind> {
        let begins = |it: &&SinkKind| it.schemes.iter().any(|scheme| address.starts_with(scheme));
        KINDS.iter().find(begins)
    }

    /// Whether this program was built with it.
    #[must_use]
    pub fn is_built(&self) -> bool {
        self.name == "webhook" || self.openers.sink.is_some()
    }
}

/// The forms of the addresses of sinks, for messages: `webhook:https://…, nats://…`.
#[must_use]
pub fn sink_forms() -> String {
    forms(|it| it.is_built().then_some(it.sink_form))
}

/// The forms of the addresses of sources, for messages.
#[must_use]
pub fn source_forms() -> String {
    forms(|it| it.openers.source.map(|_| it.source_form))
}

fn forms(form: impl Fn(&SinkKind) -> Option<&'static str>) -> String {
    let forms: Vec<&str> = KINDS.iter().filter_map(form).collect();
    forms.join(", ")
}

/// Whether a sink or a source may have this name: letters, digits, `-`, `_` and `.`.
#[must_use]
pub fn is_sink_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=100).contains(&name.len()) && name.chars().all(plain)
}

/// The kind of an address that this program may be built without.
fn kind_of(address: &str, forms: &str) -> Result<&'static SinkKind, String> {
    SinkKind::of(address).ok_or_else(|| {
        text(AddressFault::new(format!(
            "this is no address; there are {forms}"
        )))
    })
}

fn not_built(kind: &SinkKind) -> String {
    let name = kind.name;
    text(AddressFault::new(format!(
        "this program is built without {name}; build it with `--features {name}`"
    )))
}

/// The sink of an address, whose deliveries take at most the timeout and go to none but the allowed hosts; or why this
/// program cannot deliver to it. Nothing is connected yet.
pub fn open_sink(sink: &SinkRow, around: &Surroundings) -> Result<Box<dyn Sink>, String> {
    let kind = kind_of(&sink.address, &sink_forms())?;
    if kind.name == "webhook" {
        return open_webhook(sink, around);
    }
    let Some(open) = kind.openers.sink else {
        return Err(not_built(kind));
    };
    crate::webhook::install_provider();
    let mut address =
        BrokerAddress::read(&sink.address, kind.port, kind.sink_params).map_err(text)?;
    if kind.name == "snowflake" {
        address.complete(SNOWFLAKE_DOMAIN);
    }
    address.check(&around.hosts)?;
    open(sink, address, around)
}

/// The parts of the address of a sink.
#[cfg(test)]
pub(crate) fn sink_address(address: &str) -> Result<BrokerAddress, AddressFault> {
    let kind = SinkKind::of(address).ok_or_else(|| AddressFault::new("no kind"))?;
    BrokerAddress::read(address, kind.port, kind.sink_params)
}

/// The source of an address; or why this program cannot read from it. Nothing is connected yet.
pub fn open_source(address: &str, around: &Surroundings) -> Result<Box<dyn SourceOpener>, String> {
    let kind = kind_of(address, &source_forms())?;
    let Some(open) = kind.openers.source else {
        return Err(match kind.source_form {
            "" => text(AddressFault::new(format!(
                "{} gives no messages; there are {}",
                kind.name,
                source_forms()
            ))),
            _ => not_built(kind),
        });
    };
    crate::webhook::install_provider();
    let address = BrokerAddress::read(address, kind.port, kind.source_params).map_err(text)?;
    address.check(&around.hosts)?;
    open(address, around)
}

fn open_webhook(sink: &SinkRow, around: &Surroundings) -> Result<Box<dyn Sink>, String> {
    let secret = std::env::var(SECRET).ok().filter(|it| !it.is_empty());
    let options = WebhookOptions {
        name: sink.name.clone(),
        secret: secret.map(String::into_bytes),
        timeout: around.timeout,
        hosts: Arc::clone(&around.hosts),
        ..WebhookOptions::default()
    };
    match Webhook::new(&sink.address, options) {
        Ok(webhook) => Ok(Box::new(webhook)),
        Err(fault) => Err(fault.to_string()),
    }
}

/// The tables of the page about sinks, in Markdown.
#[must_use]
pub fn tables() -> String {
    let mut page =
        String::from("| kind | address of a sink | address of a source |\n|---|---|---|\n");
    let code = |it: &str| match it {
        "" => "none".to_owned(),
        _ => format!("`{it}`"),
    };
    for kind in KINDS {
        let others = kind
            .schemes
            .get(1)
            .map_or_else(String::new, |it| format!(", `{it}`"));
        // Writing into memory does not fail.
        let _ = writeln!(
            page,
            "| {}{others} | {} | {} |",
            kind.name,
            code(kind.sink_form),
            code(kind.source_form)
        );
    }
    page.push_str("\n| kind | order of a run | a message that is sent again |\n|---|---|---|\n");
    for kind in KINDS {
        let _ = writeln!(
            page,
            "| {} | {} | {} |",
            kind.name, kind.order, kind.repeats
        );
    }
    page.push_str("\n| kind | parameter | |\n|---|---|---|\n");
    for (name, says) in COMMON {
        let _ = writeln!(page, "| all brokers | `{name}` | {says} |");
    }
    for kind in KINDS {
        for (name, says) in kind.sink_params {
            let _ = writeln!(page, "| {}, sink | `{name}` | {says} |", kind.name);
        }
        for (name, says) in kind.source_params {
            let _ = writeln!(page, "| {}, source | `{name}` | {says} |", kind.name);
        }
    }
    page.push_str("\n| kind | fields of the secret that `auth` names |\n|---|---|\n");
    for kind in KINDS {
        let _ = writeln!(page, "| {} | {} |", kind.name, kind.auth);
    }
    page
}
