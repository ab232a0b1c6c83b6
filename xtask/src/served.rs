//! A `stepwell serve` that a task starts, and how it is asked: plain HTTP, because tasks have no client for more.

use anyhow::{Context, Result, bail};
use serde_json::Value as Json;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a server may take to start.
const START: Duration = Duration::from_secs(60);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(30);

/// A server that ends with its value.
#[derive(Debug)]
pub(crate) struct Served {
    child: Child,
    /// `http://ADDRESS:PORT`.
    pub(crate) url: String,
}

impl Served {
    pub(crate) fn start(program: &Path, folder: &Path, args: &[&str]) -> Result<Served> {
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(args)
            .current_dir(folder)
            .env_remove("STEPWELL_STORE")
            .env_remove("STEPWELL_CONFIG")
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start stepwell serve")?;
        let err = child.stderr.take().context("no standard error")?;
        let (tell, told) = mpsc::channel();
        // Read to the end, so that the server never waits for its log to be read.
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                match line.split_once("serving on ") {
                    Some((_, url)) => drop(tell.send(url.trim().to_owned())),
                    None => eprintln!("server: {line}"),
                }
            }
        });
        match told.recv_timeout(START) {
            Ok(url) => Ok(Served { child, url }),
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                bail!("stepwell serve did not start")
            }
        }
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Stops the server as an operator does, and waits until it has ended.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.end()
    }

    /// The same, for an owner that goes on with another server in its place.
    pub(crate) fn end(&mut self) -> Result<()> {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status()?;
        if !told.success() {
            bail!("the server could not be told to stop");
        }
        let until = Instant::now() + START;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > until {
                bail!("the server did not stop");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request with a body, or without one, and reads status and body of the answer.
pub(crate) fn ask(url: &str, method: &str, path: &str, body: Option<&Json>) -> Result<(u16, Json)> {
    let address = url.strip_prefix("http://").context("not http")?;
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(ANSWER))?;
    let body = body.map(Json::to_string).unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").context("no whole answer")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    let body = match head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        true => unchunked(body),
        false => body.to_owned(),
    };
    Ok((
        status,
        serde_json::from_str(&body).unwrap_or(Json::String(body)),
    ))
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let Some(part) = rest.get(..size).filter(|it| !it.is_empty()) else {
            break;
        };
        whole.push_str(part);
        body = rest.get(size + 2..).unwrap_or_default();
    }
    whole
}
