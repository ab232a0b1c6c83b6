//! The HTTP service that real playbooks call: pages, slow answers that count their overlap, and answers
//! that fail every other time. It remembers what it was asked.
//!
//! Only as much HTTP as a well-behaved client needs; one answer for each connection.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Result, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How many items there are to page through.
const TOTAL: usize = 35;
/// Probes are held back for at least this long, so that those sent together meet, and no longer than
/// that, whatever the request says.
const PROBE_SECONDS: (f64, f64) = (0.2, 10.0);
const FLAKY: &str = "/api/v1/flaky";

/// A running service. It takes no more requests once it is dropped.
#[derive(Debug)]
pub(super) struct Stub {
    address: SocketAddr,
    memory: Arc<Mutex<Memory>>,
    over: Arc<AtomicBool>,
}

/// What it was asked so far.
#[derive(Debug, Default)]
struct Memory {
    /// Path and query of each request, and the status of its answer.
    answered: Vec<(String, u16)>,
    probes: Probes,
}

/// Requests for `probe` since the last `reset`.
#[derive(Clone, Copy, Debug, Default)]
struct Probes {
    started: u64,
    completed: u64,
    active: u64,
    max_active: u64,
}

impl Stub {
    pub(super) fn start() -> Result<Stub> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stub = Stub {
            address: listener.local_addr()?,
            memory: Arc::default(),
            over: Arc::default(),
        };
        let (memory, over) = (Arc::clone(&stub.memory), Arc::clone(&stub.over));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let memory = Arc::clone(&memory);
                // Who hangs up gets no answer; nobody else is concerned.
                thread::spawn(move || stream.and_then(|stream| serve(stream, &memory)));
            }
        });
        Ok(stub)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The statuses of the answers about this flaky page, in order.
    pub(super) fn flaky(&self, page: &str) -> Vec<u16> {
        let memory = lock(&self.memory);
        let asked = memory.answered.iter().filter(|(target, _)| {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            path == FLAKY && field(query, "page") == Some(page)
        });
        asked.map(|(_, status)| *status).collect()
    }

    /// How many probes were answered at the same time.
    pub(super) fn overlap(&self) -> u64 {
        lock(&self.memory).probes.max_active
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the listener; if nobody listens any more there is nobody to wake.
        let _ = TcpStream::connect(self.address);
    }
}

fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: TcpStream, memory: &Mutex<Memory>) -> Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let target = line.split(' ').nth(1).unwrap_or("/").to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
    let (status, body) = answer(&target, memory);
    lock(memory).answered.push((target, status));
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Stub\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    let mut stream = reader.into_inner();
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

fn answer(target: &str, memory: &Mutex<Memory>) -> (u16, Value) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match path {
        "/api/v1/assessments" => (200, page(query)),
        "/api/v1/concurrency/reset" => {
            lock(memory).probes = Probes::default();
            (200, json!({"status": "reset"}))
        }
        "/api/v1/concurrency/stats" => (200, stats(lock(memory).probes)),
        "/api/v1/concurrency/probe" => (200, probe(query, memory)),
        FLAKY => flaky(target, query, memory),
        "/get" => (200, json!({"path": path, "query": query})),
        "/data" => (200, json!([{"id": 1}, {"id": 2}, {"id": 3}])),
        _ => (404, json!({"error": "there is nothing here"})),
    }
}

/// A field of the query, as it stands there.
fn field<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .into_iter()
        .find(|(key, _)| *key == name)
        .map(|it| it.1)
}

fn page(query: &str) -> Value {
    let number = |name: &str, default: usize| {
        let given = field(query, name).and_then(|text| text.parse().ok());
        given.unwrap_or(default).clamp(1, 1000)
    };
    let (page, size) = (number("page", 1), number("pageSize", 10));
    let first = ((page - 1) * size).min(TOTAL);
    let last = (first + size).min(TOTAL);
    let items = (first..last).map(|at| {
        // A quote in the text shows whether it reaches SQL unharmed.
        json!({"id": at + 1, "name": format!("Reader's item {}", at + 1), "score": at * 2})
    });
    json!({
        "data": items.collect::<Vec<_>>(),
        "paging": {"hasMore": last < TOTAL, "page": page, "pageSize": size, "total": TOTAL},
    })
}

fn stats(probes: Probes) -> Value {
    json!({
        "started": probes.started,
        "completed": probes.completed,
        "active": probes.active,
        "max_active": probes.max_active,
    })
}

fn probe(query: &str, memory: &Mutex<Memory>) -> Value {
    {
        let probes = &mut lock(memory).probes;
        probes.started += 1;
        probes.active += 1;
        probes.max_active = probes.max_active.max(probes.active);
    }
    let delay: Option<f64> = field(query, "delay_seconds").and_then(|text| text.parse().ok());
    let delay = delay.filter(|it| it.is_finite()).unwrap_or(0.0);
    thread::sleep(Duration::from_secs_f64(
        delay.clamp(PROBE_SECONDS.0, PROBE_SECONDS.1),
    ));
    let probes = &mut lock(memory).probes;
    probes.active -= 1;
    probes.completed += 1;
    json!({"status": "ok", "label": field(query, "label")})
}

/// Fails each odd time that the page to fail on is asked for, so that every step that asks must try twice.
fn flaky(target: &str, query: &str, memory: &Mutex<Memory>) -> (u16, Value) {
    let fails = field(query, "fail_on").is_some_and(|on| field(query, "page") == Some(on));
    let before = lock(memory)
        .answered
        .iter()
        .filter(|it| it.0 == target)
        .count();
    match fails && before.is_multiple_of(2) {
        true => (500, json!({"error": "flaky"})),
        false => (200, page(query)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(target: &str, memory: &Mutex<Memory>) -> (u16, Value) {
        let (status, body) = answer(target, memory);
        lock(memory).answered.push((target.to_owned(), status));
        (status, body)
    }

    #[test]
    fn the_last_page_has_what_is_left_and_says_so() {
        let memory = Mutex::default();
        let (_, first) = ask("/api/v1/assessments?page=1&pageSize=30", &memory);
        let (_, second) = ask("/api/v1/assessments?page=2&pageSize=30", &memory);
        let count = |page: &Value| page["data"].as_array().unwrap().len();
        assert_eq!((count(&first), count(&second)), (30, 5));
        assert_eq!(first["paging"]["hasMore"], true);
        assert_eq!(second["paging"]["hasMore"], false);
    }

    #[test]
    fn a_flaky_page_fails_every_other_time() {
        let memory = Mutex::default();
        let status = |target: &str| ask(target, &memory).0;
        let flaky = "/api/v1/flaky?page=1&fail_on=1";
        assert_eq!(
            [status(flaky), status(flaky), status(flaky)],
            [500, 200, 500]
        );
        assert_eq!(status("/api/v1/flaky?page=2&fail_on=1"), 200);
    }

    #[test]
    fn it_answers_over_the_network_and_remembers() {
        let stub = Stub::start().unwrap();
        let mut stream = TcpStream::connect(stub.address).unwrap();
        let request = "POST /api/v1/flaky?fail_on=3&page=3 HTTP/1.1\r\n\
                       content-length: 2\r\n\r\n{}";
        stream.write_all(request.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 500 "), "{said}");
        assert_eq!(stub.flaky("3"), [500]);
        assert_eq!(stub.overlap(), 0);
    }
}
