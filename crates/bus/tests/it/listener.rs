//! A small HTTP server for tests that can be slow, rude, or gone.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    /// Header names are in lower case.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

/// What the server does with a request. What it writes is an answer or the beginning of one; then it
/// closes the connection.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "not every crate that has this needs all of it")]
pub(crate) enum Answer {
    Write(&'static str),
    Wait(Duration),
}

pub(crate) const OK: Answer = Answer::Write("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");

/// The server, gone when it is dropped.
pub(crate) struct Listener {
    pub(crate) port: u16,
    heard: Arc<Mutex<Vec<Heard>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// At a port, or at any if it is 0.
    pub(crate) fn start(port: u16, answer: Answer) -> Listener {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (heard, stop) = (heard.clone(), stop.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    match listener.accept() {
                        Ok((stream, _)) => serve(stream, &answer, &heard, &stop),
                        Err(_) => thread::sleep(Duration::from_millis(2)),
                    }
                }
            }
        });
        Listener {
            port,
            heard,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/events", self.port)
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: TcpStream, answer: &Answer, heard: &Mutex<Vec<Heard>>, stop: &AtomicBool) {
    stream.set_nonblocking(false).unwrap();
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let mut reader = BufReader::new(&stream);
    let mut headers = HashMap::new();
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some((name, value)) = line.trim_end().split_once(": ") {
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        line.clear();
    }
    let length = headers.get("content-length").and_then(|it| it.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let body = String::from_utf8(body).unwrap();
    heard.lock().unwrap().push(Heard { headers, body });
    match answer {
        Answer::Write(text) => {
            let _ = (&stream).write_all(text.as_bytes());
        }
        Answer::Wait(time) => {
            let slice = Duration::from_millis(5);
            let mut left = *time;
            while !left.is_zero() && !stop.load(Ordering::Relaxed) {
                thread::sleep(slice);
                left = left.saturating_sub(slice);
            }
        }
    }
}
