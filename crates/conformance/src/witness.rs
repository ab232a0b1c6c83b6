//! A tiny HTTP server on this machine: it records requests and answers as the scenario says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value as Json, json};

use crate::scenario::ServerAnswer;

/// The largest body that is read.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// A server, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Witness {
    pub(crate) url: String,
    address: std::net::SocketAddr,
    notes: Arc<Mutex<Notes>>,
    is_over: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Notes {
    requests: Vec<Json>,
    answers: Vec<ServerAnswer>,
}

impl Witness {
    pub(crate) fn start(answers: Vec<ServerAnswer>) -> std::io::Result<Witness> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let notes = Arc::new(Mutex::new(Notes {
            requests: Vec::new(),
            answers,
        }));
        let is_over = Arc::new(AtomicBool::new(false));
        let (shared, over) = (Arc::clone(&notes), Arc::clone(&is_over));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(stream) = stream {
                    let notes = Arc::clone(&shared);
                    thread::spawn(move || {
                        // A client that goes away in the middle is not an error of the witness.
                        let _ = serve(stream, &notes);
                    });
                }
            }
        });
        Ok(Witness {
            url: format!("http://{address}"),
            address,
            notes,
            is_over,
        })
    }

    pub(crate) fn requests(&self) -> Vec<Json> {
        lock(&self.notes).requests.clone()
    }

    pub(crate) fn answer(&self, answers: Vec<ServerAnswer>) {
        lock(&self.notes).answers = answers;
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The listener waits for a connection; this one lets it see that it is over.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(500));
    }
}

fn lock(notes: &Mutex<Notes>) -> MutexGuard<'_, Notes> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves one connection, one request after the other.
fn serve(mut stream: TcpStream, notes: &Mutex<Notes>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read(&mut reader)? {
        let (method, path) = (text(&request, "method"), text(&request, "path"));
        let answer = {
            let mut notes = lock(notes);
            notes.requests.push(request);
            let fits =
                |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|it| it == is);
            let found = notes.answers.iter_mut().find(|it| {
                fits(&it.method, &method) && fits(&it.path, &path) && it.times != Some(0)
            });
            found.map(|answer| {
                answer.times = answer.times.map(|it| it - 1);
                answer.clone()
            })
        };
        let Some(answer) = answer else {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
            )?;
            continue;
        };
        thread::sleep(answer.delay);
        if answer.is_dropped {
            return Ok(());
        }
        let (body, kind) = match &answer.body {
            Json::String(text) => (text.clone(), "text/plain"),
            Json::Null => (String::new(), "text/plain"),
            other => (other.to_string(), "application/json"),
        };
        let mut head = format!("HTTP/1.1 {} Answer\r\n", answer.status);
        if !answer
            .headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        {
            head.push_str(&format!("content-type: {kind}\r\n"));
        }
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        stream.write_all(head.as_bytes())?;
        stream.flush()?;
    }
    Ok(())
}

/// Reads one request; nothing at the end of the connection.
fn read(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Json>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut parts = line.split_whitespace();
    let (method, target) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (method, path, query) = (method.to_owned(), path.to_owned(), query.to_owned());
    let mut headers = Map::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim_end().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.trim().to_lowercase(), Json::from(value.trim()));
        }
    }
    let length = headers.get("content-length").and_then(Json::as_str);
    let body = match length.and_then(|it| it.parse::<usize>().ok()) {
        Some(length) => {
            let mut body = vec![0; length.min(MAX_BODY)];
            reader.read_exact(&mut body)?;
            body
        }
        None if headers.get("transfer-encoding") == Some(&json!("chunked")) => chunks(reader)?,
        None => Vec::new(),
    };
    let body = String::from_utf8_lossy(&body).into_owned();
    let body = serde_json::from_str(&body).unwrap_or(Json::String(body));
    Ok(Some(json!({
        "method": method, "path": path, "query": query, "headers": headers, "body": body,
    })))
}

fn chunks(reader: &mut BufReader<TcpStream>) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
        let mut chunk = vec![0; size.min(MAX_BODY)];
        reader.read_exact(&mut chunk)?;
        reader.read_line(&mut line)?;
        if size == 0 || body.len() > MAX_BODY {
            return Ok(body);
        }
        body.extend(chunk);
    }
}

fn text(request: &Json, field: &str) -> String {
    let value = request.get(field).and_then(Json::as_str);
    value.unwrap_or_default().to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "in a test it is the shortest assertion")]
mod tests {
    use super::*;

    #[test]
    fn requests_are_recorded_and_answered_as_told() {
        let answer = ServerAnswer {
            method: None,
            path: Some("/pay".to_owned()),
            status: 503,
            headers: Vec::new(),
            body: json!({"a": 1}),
            delay: Duration::ZERO,
            is_dropped: false,
            times: Some(1),
        };
        let witness = Witness::start(vec![answer]).unwrap();
        let ask = |path: &str| {
            let mut stream = TcpStream::connect(witness.address).unwrap();
            write!(stream, "POST {path}?q=1 HTTP/1.1\r\nX-Key: k\r\nContent-Length: 7\r\nConnection: close\r\n\r\n{{\"b\":2}}").unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        assert!(ask("/pay").starts_with("HTTP/1.1 503"));
        assert!(ask("/pay").starts_with("HTTP/1.1 200"));
        let requests = witness.requests();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[0]["path"], "/pay");
        assert_eq!(requests[0]["query"], "q=1");
        assert_eq!(requests[0]["headers"]["x-key"], "k");
        assert_eq!(requests[0]["body"], json!({"b": 2}));
    }
}
