//! A slow or broken line to a server: what a test puts between the binary and PostgreSQL.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A line that passes bytes on in both directions, each after a delay.
pub(crate) struct SlowLine {
    pub(crate) address: SocketAddr,
    dead: Arc<AtomicBool>,
}

impl SlowLine {
    /// A line to a server; the threads end with the test's process.
    pub(crate) fn to(server: &str, delay: Duration) -> SlowLine {
        let server = server.to_socket_addrs().unwrap().next().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let dead = Arc::<AtomicBool>::default();
        let cut = dead.clone();
        thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(server).unwrap());
                for stream in [&near, &far] {
                    stream.set_nodelay(true).unwrap();
                }
                carry(
                    near.try_clone().unwrap(),
                    far.try_clone().unwrap(),
                    delay,
                    &cut,
                );
                carry(far, near, delay, &cut);
            }
        });
        SlowLine { address, dead }
    }

    /// From now on nothing arrives, and nobody is told: connections stay open.
    pub(crate) fn go_dead(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    /// The address of the database behind the line.
    pub(crate) fn url(&self, url: &str) -> String {
        let (host, rest) = split(url);
        url.replacen(
            &format!("{host}{rest}"),
            &format!("{}{rest}", self.address),
            1,
        )
    }
}

/// The host and port of an address, and what comes after it.
pub(crate) fn split(url: &str) -> (String, String) {
    let after = url.split_once("://").unwrap().1;
    let after = after.split_once('@').map_or(after, |(_, it)| it);
    let (host, _) = after.split_once('/').unwrap();
    (host.to_owned(), after[host.len()..].to_owned())
}

/// Passes bytes on in one direction.
fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration, dead: &Arc<AtomicBool>) {
    let (queue, bytes) = mpsc::channel::<(Instant, Vec<u8>)>();
    let dead = dead.clone();
    thread::spawn(move || {
        for (at, bytes) in bytes {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if !dead.load(Ordering::SeqCst) && to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if queue
                .send((Instant::now() + delay, buffer[..count].to_vec()))
                .is_err()
            {
                break;
            }
        }
    });
}
