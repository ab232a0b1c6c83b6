//! A collector of traces for tests: it takes OTLP over HTTP, and reads the spans out of the protobuf messages.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::PATIENCE;

/// A span as it arrived.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SeenSpan {
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    /// 0 unset, 1 good, 2 failed.
    pub(crate) status: u64,
    pub(crate) service: String,
}

/// Listens until the test ends.
pub(crate) struct Collector {
    pub(crate) url: String,
    spans: Arc<Mutex<Vec<SeenSpan>>>,
}

impl Collector {
    pub(crate) fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::<Mutex<Vec<SeenSpan>>>::default();
        let seen = Arc::clone(&spans);
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || serve(connection, &seen));
            }
        });
        Collector { url, spans }
    }

    pub(crate) fn spans(&self) -> Vec<SeenSpan> {
        self.spans.lock().unwrap().clone()
    }

    /// All spans once they are as wanted.
    pub(crate) fn wait_for(&self, wanted: impl Fn(&[SeenSpan]) -> bool) -> Vec<SeenSpan> {
        let until = Instant::now() + PATIENCE;
        loop {
            let spans = self.spans();
            if wanted(&spans) {
                return spans;
            }
            assert!(Instant::now() < until, "{spans:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn serve(connection: TcpStream, seen: &Mutex<Vec<SeenSpan>>) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    loop {
        let (mut length, mut head) = (0, String::new());
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
            head.push_str(&line);
            head.push('\n');
        }
        assert!(head.starts_with("post /v1/traces "), "{head}");
        assert!(
            head.contains("content-type: application/x-protobuf"),
            "{head}"
        );
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        seen.lock().unwrap().extend(spans_of(&body));
        let _ = (&connection).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    }
}

/// A field of a protobuf message.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            Value::Number(_) => panic!("a number where bytes are expected"),
        }
    }

    fn number(&self) -> u64 {
        match self {
            Value::Number(number) => *number,
            Value::Bytes(_) => panic!("bytes where a number is expected"),
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }
}

fn varint(from: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = from[0];
        *from = &from[1..];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
        shift += 7;
    }
}

fn fields(mut message: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut all = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut message)),
            1 => {
                let (bytes, rest) = message.split_at(8);
                message = rest;
                Value::Number(u64::from_le_bytes(bytes.try_into().unwrap()))
            }
            2 => {
                let length = usize::try_from(varint(&mut message)).unwrap();
                let (bytes, rest) = message.split_at(length);
                message = rest;
                Value::Bytes(bytes)
            }
            other => panic!("wire type {other}"),
        };
        all.push((tag >> 3, value));
    }
    all
}

/// The fields of a message with this number.
fn all(message: &[u8], number: u64) -> Vec<Value<'_>> {
    let fields = fields(message).into_iter();
    let found = fields.filter(|(it, _)| *it == number);
    found.map(|(_, value)| value).collect()
}

fn attributes(message: &[u8], number: u64) -> BTreeMap<String, String> {
    let pair = |it: Value<'_>| {
        let name = all(it.bytes(), 1)[0].text();
        let value = all(it.bytes(), 2)[0].bytes();
        let (kind, value) = fields(value).remove(0);
        let text = match kind {
            1 => value.text(),
            _ => value.number().to_string(),
        };
        (name, text)
    };
    all(message, number).into_iter().map(pair).collect()
}

fn spans_of(body: &[u8]) -> Vec<SeenSpan> {
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|it| format!("{it:02x}"))
            .collect::<String>()
    };
    let mut spans = Vec::new();
    for resource_spans in all(body, 1) {
        let resource = all(resource_spans.bytes(), 1)[0].bytes();
        let service = attributes(resource, 1)["service.name"].clone();
        for scope_spans in all(resource_spans.bytes(), 2) {
            for span in all(scope_spans.bytes(), 2) {
                let mut seen = SeenSpan {
                    service: service.clone(),
                    attributes: attributes(span.bytes(), 9),
                    ..SeenSpan::default()
                };
                for (number, value) in fields(span.bytes()) {
                    match number {
                        1 => seen.trace = hex(value.bytes()),
                        2 => seen.id = hex(value.bytes()),
                        4 => seen.parent = hex(value.bytes()),
                        5 => seen.name = value.text(),
                        7 => seen.start = value.number(),
                        8 => seen.end = value.number(),
                        15 => {
                            let code = all(value.bytes(), 3);
                            seen.status = code.first().map_or(0, Value::number);
                        }
                        _ => {}
                    }
                }
                spans.push(seen);
            }
        }
    }
    spans
}
