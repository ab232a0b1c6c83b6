//! A playbook with the tool `redis`, run by the real binary against a real server.

use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::stepwell;

const QUEUE: &str = "examples/playbook/redis-queue.yaml";

#[test]
fn an_order_goes_through_a_stream_and_is_booked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let mut server = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--save", "", "--port"])
        .arg(port.to_string())
        .arg("--dir")
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is there: `cargo xtask test` installs it");
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it answers");
        std::thread::sleep(Duration::from_millis(20));
    }
    let redis = format!("redis=redis://127.0.0.1:{port}");
    let run = || stepwell(&["run", QUEUE, "--input", &redis]);
    // Twice: the group of the second run is there already, which its rule knows.
    let (first, second) = (run(), run());
    let booked = Command::new("redis-cli")
        .args(["-p", &port.to_string(), "HGET", "booked:7", "state"])
        .output()
        .unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!((first.code, second.code), (0, 0), "{first:?} {second:?}");
    assert_eq!(String::from_utf8_lossy(&booked.stdout).trim(), "booked");
    let gone = run();
    assert_ne!(gone.code, 0, "the server is gone");
    assert!(
        gone.out.contains("REDIS_UNREACHABLE") || gone.err.contains("REDIS_UNREACHABLE"),
        "{gone:?}"
    );
}
