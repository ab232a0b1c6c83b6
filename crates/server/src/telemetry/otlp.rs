//! Spans in the form of OTLP: the protobuf messages of `ExportTraceServiceRequest`. Only the few fields that are used are
//! written, by the rules of the wire format: <https://protobuf.dev/programming-guides/encoding>.

/// A span, ready to be sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    /// 32 digits.
    pub(crate) trace: String,
    /// 16 digits.
    pub(crate) id: String,
    /// 16 digits; absent for the first span of a trace.
    pub(crate) parent: Option<String>,
    pub(crate) state: Option<String>,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Nanoseconds since 1970.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    pub(crate) status: Status,
}

/// The kinds of the standard that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Internal = 1,
    Server = 2,
    Consumer = 5,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Unset,
    Good,
    /// With the code of the error.
    Failed(String),
}

/// The body of a request that sends spans of a service.
pub(super) fn request(service: &str, resource: &[(String, String)], spans: &[Span]) -> Vec<u8> {
    let mut described = Message::default();
    let name = [("service.name", service)];
    let more = resource
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in name.into_iter().chain(more) {
        described.message(1, |it| attribute(it, name, &Value::Text(value.to_owned())));
    }
    let mut body = Message::default();
    body.message(1, |resource_spans| {
        resource_spans.bytes(1, &described.0);
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.text(1, "stepwell");
                scope.text(2, env!("CARGO_PKG_VERSION"));
            });
            for span in spans {
                scope_spans.message(2, |it| write(it, span));
            }
        });
    });
    body.0
}

fn write(to: &mut Message, span: &Span) {
    to.bytes(1, &unhex(&span.trace));
    to.bytes(2, &unhex(&span.id));
    if let Some(state) = &span.state {
        to.text(3, state);
    }
    if let Some(parent) = &span.parent {
        to.bytes(4, &unhex(parent));
    }
    to.text(5, &span.name);
    to.number(6, span.kind as u64);
    to.fixed(7, span.start);
    to.fixed(8, span.end.max(span.start));
    for (name, value) in &span.attributes {
        to.message(9, |it| attribute(it, name, value));
    }
    match &span.status {
        Status::Unset => {}
        Status::Good => to.message(15, |it| it.number(3, 1)),
        Status::Failed(code) => to.message(15, |it| {
            it.text(2, code);
            it.number(3, 2);
        }),
    }
}

fn attribute(to: &mut Message, name: &str, value: &Value) {
    to.text(1, name);
    to.message(2, |it| match value {
        Value::Text(text) => it.text(1, text),
        // Negative numbers have all their bits, as protobuf wants it.
        Value::Number(number) => it.number(3, *number as u64),
    });
}

fn unhex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).unwrap_or_default();
        u8::from_str_radix(text, 16).unwrap_or(0)
    };
    pairs.map(byte).collect()
}

/// A protobuf message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number as u8 & 0x7f) | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn tag(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    fn number(&mut self, field: u64, number: u64) {
        self.tag(field, 0);
        self.varint(number);
    }

    fn fixed(&mut self, field: u64, number: u64) {
        self.tag(field, 1);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u64, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared with what the classes of `opentelemetry-proto` (PyPI) make of the same span.
    #[test]
    fn a_span_has_the_bytes_that_the_definition_of_the_messages_gives() {
        let span = Span {
            trace: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
            id: "00f067aa0ba902b7".to_owned(),
            parent: None,
            state: None,
            name: "run a".to_owned(),
            kind: Kind::Internal,
            start: 1,
            end: 300,
            attributes: vec![("n", Value::Number(-1))],
            status: Status::Failed("E".to_owned()),
        };
        let mut message = Message::default();
        write(&mut message, &span);
        let hex: String = message.0.iter().map(|it| format!("{it:02x}")).collect();
        let parts = [
            "0a104bf92f3577b34da6a3ce929d0e0e4736",
            "120800f067aa0ba902b7",
            "2a0572756e2061",
            "3001",
            "390100000000000000",
            "412c01000000000000",
            "4a100a016e120b18ffffffffffffffffff01",
            "7a051201451802",
        ]
        .concat();
        assert_eq!(hex, parts);
    }
}
