//! Readers of streams: many that are told nothing, and some that read slowly what they are told. They speak plain HTTP over
//! plain connections, so that nothing is read for them in advance.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How many connections are opened at a time: the line of those that wait to be accepted is short.
const AT_A_TIME: usize = 64;
/// How long a stream may take to begin.
const PATIENCE: Duration = Duration::from_secs(60);
/// How much a slow reader reads, and how often.
const SIP: (usize, Duration) = (256, Duration::from_millis(250));

/// Opens a stream, and waits for the head of its answer and for what it begins with.
async fn open(host: &str, path: &str, begins: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(host).await?;
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {host}\r\naccept: text/event-stream\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut read = Vec::new();
    let begun = async {
        loop {
            let mut some = [0; 1024];
            let many = stream.read(&mut some).await?;
            anyhow::ensure!(many > 0, "the server closed the connection");
            read.extend_from_slice(&some[..many]);
            let text = String::from_utf8_lossy(&read);
            anyhow::ensure!(text.starts_with("HTTP/1.1 200"), "{text}");
            if text.contains("\r\n\r\n") && text.contains(begins) {
                return anyhow::Ok(());
            }
        }
    };
    let begun = tokio::time::timeout(PATIENCE, begun).await;
    begun.context("a stream did not begin in time")??;
    Ok(stream)
}

/// Opens streams of runs that wait, as many as possible, each told what there is of its run. Says how many there are and
/// why not more.
pub(super) async fn open_idle(
    host: &str,
    runs: &[String],
    many: usize,
) -> (Vec<TcpStream>, Option<String>) {
    let mut opened = Vec::with_capacity(many);
    let mut opening = JoinSet::new();
    let mut next = 0;
    let mut why = None;
    while opened.len() + opening.len() < many || !opening.is_empty() {
        while why.is_none() && next < many && opening.len() < AT_A_TIME {
            let path = format!("/api/v1/runs/{}/stream", runs[next % runs.len()]);
            let host = host.to_owned();
            opening.spawn(async move { open(&host, &path, "event: ").await });
            next += 1;
        }
        match opening.join_next().await {
            Some(Ok(Ok(stream))) => opened.push(stream),
            Some(Ok(Err(error))) => why = Some(format!("{error:#}")),
            Some(Err(error)) => why = Some(error.to_string()),
            None => break,
        }
    }
    (opened, why)
}

/// Readers that read the stream of all runs slowly, until they are stopped.
#[derive(Debug)]
pub(super) struct SlowReaders {
    readers: JoinSet<Result<()>>,
    over: Arc<AtomicBool>,
    read: Arc<AtomicU64>,
}

impl SlowReaders {
    /// Opens one stream of all runs for each reader and begins to read them.
    pub(super) async fn open(host: &str, many: usize) -> Result<SlowReaders> {
        let mut slow = SlowReaders {
            readers: JoinSet::new(),
            over: Arc::default(),
            read: Arc::default(),
        };
        for _ in 0..many {
            let mut stream = open(host, "/api/v1/stream", "").await?;
            let (over, read) = (Arc::clone(&slow.over), Arc::clone(&slow.read));
            slow.readers.spawn(async move {
                let mut sip = vec![0; SIP.0];
                while !over.load(Ordering::Relaxed) {
                    tokio::time::sleep(SIP.1).await;
                    // Where nothing happens, nothing is told.
                    let sipped = tokio::time::timeout(SIP.1, stream.read(&mut sip)).await;
                    let Ok(many) = sipped else { continue };
                    let many = many.context("the stream of a slow reader broke")?;
                    anyhow::ensure!(many > 0, "the server ended the stream of a slow reader");
                    read.fetch_add(many as u64, Ordering::Relaxed);
                }
                Ok(())
            });
        }
        Ok(slow)
    }

    /// Ends the readers. Says how many bytes they read, and which of them the server dropped.
    pub(super) async fn close(mut self) -> (u64, Vec<String>) {
        self.over.store(true, Ordering::Relaxed);
        let mut errors = Vec::new();
        while let Some(ended) = self.readers.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => errors.push(format!("{error:#}")),
                Err(error) => errors.push(error.to_string()),
            }
        }
        (self.read.load(Ordering::Relaxed), errors)
    }
}
