//! A thousand readers of one run that come and go, and a server that is killed meanwhile: each is told every event once.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{PATIENCE, TestServer, asked, chain};

const READERS: usize = 1_000;

/// A reader: what it was told, in order.
struct Reader<'a> {
    run: &'a str,
    port: &'a AtomicU64,
    seen: Vec<u64>,
}

impl Reader<'_> {
    /// Reads until the run has ended. Leaves after so many events each time, and comes back with the last id.
    fn read(&mut self, patience: usize) {
        let until = Instant::now() + 4 * PATIENCE;
        while !self.once(patience).unwrap_or(false) {
            assert!(Instant::now() < until, "{} events", self.seen.len());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// One connection; whether the run has ended.
    fn once(&mut self, patience: usize) -> std::io::Result<bool> {
        let port = self.port.load(Ordering::SeqCst);
        let mut stream = TcpStream::connect(("127.0.0.1", u16::try_from(port).unwrap()))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let last = self.seen.last().copied().unwrap_or(0);
        write!(
            stream,
            "GET /api/v1/runs/{}/stream HTTP/1.1\r\nhost: localhost\r\nlast-event-id: {last}\r\n\r\n",
            self.run
        )?;
        let mut told = 0;
        let mut id = None;
        for line in BufReader::new(stream).lines() {
            let line = line?;
            if let Some(number) = line.strip_prefix("id: ") {
                id = number.trim().parse().ok();
            }
            if line.starts_with("event: end") {
                return Ok(true);
            }
            // An event counts when it is whole.
            if line.is_empty()
                && let Some(seq) = id.take()
            {
                self.seen.push(seq);
                told += 1;
                if told == patience {
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }
}

fn port(server: &TestServer) -> u64 {
    server
        .url
        .rsplit(':')
        .next()
        .unwrap()
        .trim_end_matches('/')
        .parse()
        .unwrap()
}

#[test]
fn a_thousand_readers_that_come_and_go_are_told_every_event_once() {
    let mut server = Some(TestServer::start());
    let steps = 20;
    let run = server
        .as_ref()
        .unwrap()
        .start_run(&chain(steps, "0.3"), &json!({}));
    let place = AtomicU64::new(port(server.as_ref().unwrap()));
    let begun = AtomicUsize::new(0);
    let seen: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|number| {
                let (run, port, begun) = (&run, &place, &begun);
                std::thread::Builder::new()
                    .stack_size(128 * 1024)
                    .spawn_scoped(scope, move || {
                        let mut reader = Reader {
                            run,
                            port,
                            seen: Vec::new(),
                        };
                        begun.fetch_add(1, Ordering::SeqCst);
                        // A third stays, the others leave after a few events.
                        reader.read(match number % 3 {
                            0 => usize::MAX,
                            1 => 3,
                            _ => 1 + number % 17,
                        });
                        reader.seen
                    })
                    .unwrap()
            })
            .collect();
        while begun.load(Ordering::SeqCst) < READERS {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_secs(1));
        let folder = server.take().unwrap().kill();
        let next = TestServer::in_folder(folder, &[]);
        place.store(port(&next), Ordering::SeqCst);
        server = Some(next);
        readers.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let (_, page) = asked(
        server
            .as_ref()
            .unwrap()
            .get(&format!("/api/v1/runs/{run}/events?limit=1000")),
    );
    let last = page["lastSeq"].as_u64().unwrap();
    assert!(last > 2 * steps as u64, "{last}");
    let all: Vec<u64> = (1..=last).collect();
    let wrong = seen.iter().filter(|it| **it != all).count();
    assert_eq!(wrong, 0, "of {READERS} readers");
}
