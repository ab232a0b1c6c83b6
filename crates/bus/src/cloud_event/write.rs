//! A delivery as CloudEvents: one message for each event of the contract, each event that a step sent, and each change of
//! state, in the order of the log. A message has the same id in each attempt.

use serde_json::{Map, Value as Json, json};
use stepwell_engine::outbox::Delivery;

use crate::address::{AddressFault, BrokerAddress};

/// What the types of events begin with.
const TYPE: &str = "dev.stepwell.";
/// Where the JSON Schemas of the contract's events are.
const SCHEMAS: &str = "https://stepwell.dev/schemas/events/";

/// The content mode of CloudEvents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// The whole event is the body.
    #[default]
    Structured,
    /// The data is the body, and the attributes are headers.
    Binary,
}

impl Format {
    /// What the address asks for.
    pub(crate) fn of(address: &BrokerAddress) -> Result<Format, AddressFault> {
        match address.param("format") {
            None | Some("structured") => Ok(Format::Structured),
            Some("binary") => Ok(Format::Binary),
            Some(_) => Err(AddressFault::new("`format` is structured or binary")),
        }
    }
}

/// How a protocol marks headers that are attributes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// `ce-id`, as on HTTP: values have visible ASCII only.
    Dash,
    /// `ce_id`, as on Kafka.
    Underscore,
    /// `cloudEvents_id`, as on AMQP.
    Word,
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// An event of the log.
    Event,
    /// An event that a step sent to the outside.
    Outbound,
    /// A change of state, in the words of the run's language.
    State,
}

/// One message of a delivery.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    /// Unique, and the same in each attempt.
    pub(crate) id: String,
    pub(crate) about: About,
    pub(crate) run_id: String,
    pub(crate) seq: u64,
    /// The place among the messages of one event of the log: 0 is the event itself.
    pub(crate) place: u32,
    /// The attributes besides `specversion` and `datacontenttype`.
    attributes: Vec<(&'static str, String)>,
    pub(crate) data: Json,
}

/// A message as a broker carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// The messages of a delivery, in order.
    pub(crate) fn all(delivery: &Delivery) -> Vec<Message> {
        let run = delivery.run_id.as_str();
        let mut all: Vec<Message> = Vec::with_capacity(delivery.events.len());
        for event in &delivery.events {
            all.push(Message::of_event(run, event));
        }
        for it in &delivery.outbound {
            let data = json!({"runId": run, "runSeq": it.seq, "index": it.place, "stepId": it.step_id, "event": it.event});
            let id = format!("{run}/{}/{}", it.seq, it.place);
            let mut message = Message::new(run, it.seq, id, "Outbound", data);
            message.about = About::Outbound;
            message.attributes.push(("subject", it.step_id.clone()));
            all.push(message);
        }
        for (no, it) in delivery.telemetry.iter().enumerate() {
            let seq = it.get("seq").and_then(Json::as_u64);
            let seq = seq.unwrap_or(delivery.last_seq);
            let id = format!("{run}/{seq}/state-{}-{no}", delivery.first_seq);
            let mut message = Message::new(run, seq, id, "StateChanged", it.clone());
            message.about = About::State;
            all.push(message);
        }
        // Stable: the event of the log comes before what goes with it.
        all.sort_by_key(|it| it.seq);
        let mut before = None;
        for message in &mut all {
            message.place = match before {
                Some((seq, place)) if seq == message.seq => place + 1,
                _ => 0,
            };
            before = Some((message.seq, message.place));
        }
        all
    }

    fn new(run: &str, seq: u64, id: String, kind: &str, data: Json) -> Message {
        Message {
            attributes: vec![
                ("id", id.clone()),
                ("source", format!("/stepwell/runs/{run}")),
                ("type", format!("{TYPE}{kind}")),
                ("sequence", seq.to_string()),
                ("partitionkey", run.to_owned()),
            ],
            id,
            about: About::Event,
            run_id: run.to_owned(),
            seq,
            place: 0,
            data,
        }
    }

    fn of_event(run: &str, event: &Json) -> Message {
        let text = |name: &str| event.get(name).and_then(Json::as_str);
        let seq = event.get("runSeq").and_then(Json::as_u64);
        let seq = seq.unwrap_or_default();
        let kind = text("eventType").unwrap_or("Event");
        let id = text("eventId").map_or_else(|| format!("{run}/{seq}"), str::to_owned);
        let mut message = Message::new(run, seq, id, kind, event.clone());
        let mut add = |name: &'static str, value: Option<&str>| {
            if let Some(value) = value {
                message.attributes.push((name, value.to_owned()));
            }
        };
        add("time", text("emittedAt"));
        add("subject", text("stepId"));
        let schema = format!("{SCHEMAS}{kind}.schema.json");
        add("dataschema", Some(&schema));
        message
    }

    /// The message in a content mode, with headers as a protocol writes them.
    pub(crate) fn encode(&self, format: Format, prefix: Prefix) -> Encoded {
        match format {
            Format::Structured => {
                let mut event = Map::new();
                event.insert("specversion".into(), "1.0".into());
                for (name, value) in &self.attributes {
                    event.insert((*name).into(), value.clone().into());
                }
                event.insert("datacontenttype".into(), "application/json".into());
                event.insert("data".into(), self.data.clone());
                Encoded {
                    headers: Vec::new(),
                    content_type: "application/cloudevents+json",
                    body: Json::Object(event).to_string().into_bytes(),
                }
            }
            Format::Binary => {
                let header = |(name, value): (&str, &str)| match prefix {
                    Prefix::Dash => (format!("ce-{name}"), visible(value)),
                    Prefix::Underscore => (format!("ce_{name}"), value.to_owned()),
                    Prefix::Word => (format!("cloudEvents_{name}"), value.to_owned()),
                };
                let attributes = self.attributes.iter().map(|it| (it.0, it.1.as_str()));
                let all = [("specversion", "1.0")].into_iter().chain(attributes);
                Encoded {
                    headers: all.map(header).collect(),
                    content_type: "application/json",
                    body: self.data.to_string().into_bytes(),
                }
            }
        }
    }
}

/// A text for a header that carries visible ASCII only: other characters are written as `%XX`.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'%' && byte != b'"' => shown.push(char::from(byte)),
            _ => shown.push_str(&format!("%{byte:02X}")),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use stepwell_engine::outbox::Outbound;

    use super::*;

    fn delivery() -> Delivery {
        Delivery {
            run_id: "run_ä".into(),
            first_seq: 7,
            last_seq: 8,
            attempt: 1,
            events: vec![
                json!({"eventId": "e7", "eventType": "StepStarted", "runSeq": 7, "stepId": "a", "emittedAt": "t"}),
                json!({"eventId": "e8", "eventType": "StepCompleted", "runSeq": 8}),
            ],
            outbound: vec![Outbound {
                seq: 7,
                place: 0,
                step_id: "a".into(),
                event: json!({"type": "asked"}),
            }],
            telemetry: vec![json!({"seq": 7}), json!({"seq": 8})],
        }
    }

    #[test]
    fn messages_are_in_the_order_of_the_log_and_have_stable_ids() {
        let all = Message::all(&delivery());
        let places: Vec<_> = all
            .iter()
            .map(|it| (it.seq, it.place, it.id.as_str()))
            .collect();
        let expected = [
            (7, 0, "e7"),
            (7, 1, "run_ä/7/0"),
            (7, 2, "run_ä/7/state-7-0"),
            (8, 0, "e8"),
            (8, 1, "run_ä/8/state-7-1"),
        ];
        assert_eq!(places, expected);
        assert_eq!(all, Message::all(&delivery()), "the same in each attempt");
    }

    #[test]
    fn both_content_modes_say_the_same() {
        let message = &Message::all(&delivery())[0];
        let structured = message.encode(Format::Structured, Prefix::Dash);
        let event: Json = serde_json::from_slice(&structured.body).unwrap();
        let expected = json!({
            "specversion": "1.0", "id": "e7", "source": "/stepwell/runs/run_ä", "type": "dev.stepwell.StepStarted",
            "sequence": "7", "partitionkey": "run_ä", "time": "t", "subject": "a", "datacontenttype": "application/json",
            "dataschema": "https://stepwell.dev/schemas/events/StepStarted.schema.json", "data": delivery().events[0],
        });
        assert_eq!(event, expected);
        for (prefix, name, value) in [
            (Prefix::Dash, "ce-partitionkey", "run_%C3%A4"),
            (Prefix::Underscore, "ce_partitionkey", "run_ä"),
            (Prefix::Word, "cloudEvents_partitionkey", "run_ä"),
        ] {
            let binary = message.encode(Format::Binary, prefix);
            assert!(
                binary.headers.contains(&(name.into(), value.into())),
                "{binary:?}"
            );
            let data: Json = serde_json::from_slice(&binary.body).unwrap();
            assert_eq!(data, delivery().events[0]);
        }
    }
}
