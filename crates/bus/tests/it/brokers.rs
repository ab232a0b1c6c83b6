//! Brokers that misbehave or are not there, and real ones where a test can have them.
//!
//! Needs the program redis-server (Debian package redis-server).

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use stepwell_bus::{Surroundings, open_sink, open_source};
use stepwell_engine::outbox::{Delivery, Sink, SinkError};
use stepwell_engine::store::SinkRow;
use stepwell_http::hosts::{HostRules, Inside};
use stepwell_kernel::time::Time;

fn sink(address: &str, around: &Surroundings) -> Result<Box<dyn Sink>, String> {
    let row = SinkRow {
        name: "s".into(),
        address: address.into(),
        since: Time(0),
    };
    open_sink(&row, around)
}

fn quick() -> Surroundings {
    Surroundings {
        timeout: Duration::from_millis(1_500),
        ..Surroundings::default()
    }
}

fn delivery(run: &str, first: u64, last: u64) -> Delivery {
    let event = |seq| json!({"eventId": format!("{run}-{seq}"), "eventType": "T", "runSeq": seq});
    Delivery {
        run_id: run.into(),
        first_seq: first,
        last_seq: last,
        attempt: 1,
        events: (first..=last).map(event).collect(),
        outbound: Vec::new(),
        telemetry: Vec::new(),
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// One address of each broker that is built, at a port.
fn addresses(port: u16) -> Vec<String> {
    let mut all = Vec::new();
    if cfg!(feature = "nats") {
        all.push(format!("nats://127.0.0.1:{port}/S"));
    }
    if cfg!(feature = "redis") {
        all.push(format!("redis://127.0.0.1:{port}"));
    }
    if cfg!(feature = "kafka") {
        all.push(format!("kafka://127.0.0.1:{port}/t"));
    }
    if cfg!(feature = "amqp") {
        all.push(format!("amqp://127.0.0.1:{port}?queue=q"));
    }
    if cfg!(feature = "snowflake") {
        all.push(format!("snowflake+http://127.0.0.1:{port}/D/S"));
    }
    all
}

#[test]
fn a_broker_that_is_not_there_or_says_nothing_is_down_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for port in [free_port(), silent.local_addr().unwrap().port()] {
        for address in addresses(port) {
            let sink = sink(&address, &quick()).unwrap();
            let begun = Instant::now();
            let error = sink.deliver(&delivery("r", 1, 1)).unwrap_err();
            assert!(error.down && !error.is_final, "{address}: {error}");
            assert!(
                begun.elapsed() < sink.patience(),
                "{address}: {:?}",
                begun.elapsed()
            );
        }
    }
}

#[test]
fn what_may_not_be_connected_to_is_refused_also_behind_a_name() {
    let closed = Surroundings {
        hosts: Arc::new(HostRules::only(Inside::Closed(Vec::new()))),
        ..quick()
    };
    for address in addresses(free_port()) {
        let why = sink(&address, &closed).unwrap_err();
        assert!(why.contains("HOST_DENIED"), "{why}");
        // The name is judged when it is looked up.
        let named = address.replace("127.0.0.1", "localhost");
        let sink = sink(&named, &closed).unwrap();
        let error: SinkError = sink.deliver(&delivery("r", 1, 1)).unwrap_err();
        assert!(
            error.why.contains("HOST_DENIED") && !error.down,
            "{named}: {error}"
        );
    }
}

#[test]
fn a_program_says_which_addresses_it_knows() {
    let why = sink("elsewhere://h", &quick()).unwrap_err();
    assert!(why.contains("webhook:https://HOST/PATH"), "{why}");
    let why = open_source("webhook:https://h/", &quick()).unwrap_err();
    assert!(why.contains("BROKER_ADDRESS_INVALID"), "{why}");
}

/// A Redis, gone when it is dropped.
struct Redis(Child, u16);

impl Redis {
    fn start() -> Redis {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args([
            "--bind",
            "127.0.0.1",
            "--port",
            &port.to_string(),
            "--save",
            "",
        ]);
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Redis(child, port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(feature = "redis")]
#[test]
fn a_repeat_changes_nothing_and_what_is_late_or_of_another_store_comes_at_the_end() {
    let redis = Redis::start();
    let sink = sink(&format!("redis://127.0.0.1:{}", redis.1), &quick()).unwrap();
    sink.deliver(&delivery("r", 1, 2)).unwrap();
    sink.deliver(&delivery("r", 1, 2)).unwrap();
    // The third event was a dead letter, and is sent once more after the fourth.
    sink.deliver(&delivery("r", 4, 4)).unwrap();
    sink.deliver(&delivery("r", 3, 3)).unwrap();
    // A run of another store has the same id.
    let mut other = delivery("r", 2, 2);
    other.events = vec![json!({"eventId": "x-2", "eventType": "T", "runSeq": 2})];
    sink.deliver(&other).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let ids = runtime.block_on(async {
        let address = format!("redis://127.0.0.1:{}?stream=stepwell:r", redis.1);
        let opener = open_source(&address, &quick()).unwrap();
        let mut source = opener.open("g").await.unwrap();
        let messages = source.next().await.unwrap();
        let ids = messages.iter().map(|it| (it.place.clone(), it.id.clone()));
        ids.collect::<Vec<_>>()
    });
    let expected = ["1-0 r-1", "2-0 r-2", "4-0 r-4", "4-1 r-3", "4-2 x-2"].map(|it| {
        let (place, id) = it.split_once(' ').unwrap();
        (
            format!("stepwell:r/{place}"),
            format!("/stepwell/runs/r#{id}"),
        )
    });
    assert_eq!(ids, expected);
}
