//! Reads from a broker and writes to it, for `cargo xtask brokers`:
//!
//! - `broker drain SOURCE_ADDRESS GROUP COUNT SECONDS`: prints one line for each message, `ID RUN SEQ`, until COUNT messages
//!   came and none followed for 2 seconds, or for at most SECONDS.
//! - `broker produce SINK_ADDRESS RUN COUNT [POISON]`: sends COUNT events of a run; message POISON has a body of 4 KiB.
//!
//! `auth=NAME` in an address names an environment variable with the secret.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepwell_bus::{CredentialFuture, SecretSource, Surroundings, open_sink, open_source};
use stepwell_engine::outbox::Delivery;
use stepwell_engine::store::SinkRow;
use stepwell_kernel::time::Time;

/// The secret `NAME` is the environment variable NAME: JSON, or else a text.
#[derive(Debug)]
struct Variables;

impl SecretSource for Variables {
    fn credential<'a>(&'a self, name: &'a str) -> CredentialFuture<'a> {
        Box::pin(async move {
            let text = std::env::var(name).map_err(|error| error.to_string())?;
            Ok(serde_json::from_str(&text).unwrap_or(Value::String(text)))
        })
    }
}

fn around() -> Surroundings {
    Surroundings {
        secrets: Arc::new(Variables),
        ..Surroundings::default()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["drain", address, group, count, seconds] => {
            drain(address, group, count.parse()?, Duration::from_secs(seconds.parse()?))
        }
        ["produce", address, run, count] => produce(address, run, count.parse()?, None),
        ["produce", address, run, count, poison] => {
            produce(address, run, count.parse()?, Some(poison.parse()?))
        }
        _ => Err("usage: broker drain ADDRESS GROUP COUNT SECONDS | broker produce ADDRESS RUN COUNT [POISON]".into()),
    }
}

fn drain(
    address: &str,
    group: &str,
    count: usize,
    most: Duration,
) -> Result<(), Box<dyn std::error::Error>> {
    let opener = open_source(address, &around())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut source = opener.open(group).await?;
        let (begun, mut last, mut seen) = (Instant::now(), Instant::now(), 0);
        let mut out = std::io::stdout().lock();
        while begun.elapsed() < most && (seen < count || last.elapsed() < Duration::from_secs(2)) {
            for message in source.next().await? {
                let text = |name: &str| message.attributes.get(name).and_then(Value::as_str);
                let (run, seq) = (text("partitionkey"), text("sequence"));
                writeln!(
                    out,
                    "{} {} {}",
                    message.id,
                    run.unwrap_or("-"),
                    seq.unwrap_or("-")
                )?;
                source.done(&message).await?;
                (last, seen) = (Instant::now(), seen + 1);
            }
        }
        source.close().await?;
        Ok(())
    })
}

fn produce(
    address: &str,
    run: &str,
    count: u64,
    poison: Option<u64>,
) -> Result<(), Box<dyn std::error::Error>> {
    let row = SinkRow {
        name: "produce".into(),
        address: address.into(),
        since: Time(0),
    };
    let sink = open_sink(&row, &around())?;
    for seq in 1..=count {
        let filling = if poison == Some(seq) {
            "x".repeat(4096)
        } else {
            String::new()
        };
        let event = json!({
            "eventId": format!("{run}-{seq}"), "eventType": "Produced", "runSeq": seq, "runId": run, "filling": filling,
        });
        let delivery = Delivery {
            run_id: run.into(),
            first_seq: seq,
            last_seq: seq,
            attempt: 1,
            events: vec![event],
            outbound: Vec::new(),
            telemetry: Vec::new(),
        };
        // A broker that is killed meanwhile comes back.
        let begun = Instant::now();
        while let Err(error) = sink.deliver(&delivery) {
            if begun.elapsed() > Duration::from_secs(60) {
                return Err(error.into());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    Ok(())
}
