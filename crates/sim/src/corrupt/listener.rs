//! A webhook that takes every delivery and keeps its body.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::Result;

/// A webhook on a port of its own, as long as the process lives.
#[derive(Debug)]
pub(super) struct Listener {
    port: u16,
    bodies: Receiver<String>,
}

impl Listener {
    pub(super) fn start() -> Result<Listener> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let (sender, bodies) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                thread::spawn(move || serve(stream, &sender));
            }
        });
        Ok(Listener { port, bodies })
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// What has come so far.
    pub(super) fn bodies(&self) -> Vec<String> {
        self.bodies.try_iter().collect()
    }
}

/// Answers requests until the client goes away.
fn serve(stream: TcpStream, bodies: &Sender<String>) -> Option<()> {
    let mut answers = stream.try_clone().ok()?;
    let mut requests = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if requests.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        requests.read_exact(&mut body).ok()?;
        bodies
            .send(String::from_utf8_lossy(&body).into_owned())
            .ok()?;
        answers
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .ok()?;
    }
}
