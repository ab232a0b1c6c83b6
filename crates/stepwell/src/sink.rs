//! The option `--sink`, and the publishers that deliver events to the sinks of the store while a command runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use stepwell_bus::{
    NoSecrets, SecretSource, SinkKind, Surroundings, is_sink_name, open_sink, sink_forms,
};
use stepwell_engine::outbox::{self, Config, Notify, Publishers};
use stepwell_engine::store::{SinkRow, SinkStart, Store};
use stepwell_kernel::time::Time;
use stepwell_server::SinkSecrets;
use stepwell_worker::secrets::Secrets;

use crate::usage;

/// How often to check whether the outbox is empty.
const LOOK: Duration = Duration::from_millis(20);
/// Timeout of one delivery. A command that ends waits for the delivery in flight.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than one delivery, so that no other publisher takes it in flight; short, because the next process
/// waits for the leases of a crashed process.
const LEASE: Duration = Duration::from_secs(25);
/// The maximum delay between attempts; `stepwell outbox flush` waits for it too.
const MAX_BACKOFF: Duration = Duration::from_secs(5);
const BACKOFF: Duration = Duration::from_millis(200);

/// The options for sinks.
#[derive(Clone, Debug, Args)]
pub(crate) struct SinkArgs {
    /// Deliver events to this webhook or broker; can be repeated: `webhook:https://…`, `nats://…`, `redis://…`,
    /// `kafka://…`, `amqp://…`, `snowflake://…` (docs/sinks.md). `run` and `resume` register it in the store, as
    /// `stepwell sinks add` does, so that later commands deliver to it too. NAME identifies the sink (default: its kind,
    /// such as webhook). The secret in STEPWELL_SINK_SECRET signs the bodies of webhooks
    #[arg(long = "sink", value_name = "[NAME=]ADDRESS")]
    sinks: Vec<String>,
    /// Number of failed attempts after which a delivery becomes a dead letter
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..))]
    sink_attempts: u32,
}

impl SinkArgs {
    /// Whether there is no sink.
    pub(crate) fn is_empty(&self) -> bool {
        self.sinks.is_empty()
    }

    /// The names of the sinks; an error if a name is used twice.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        for text in &self.sinks {
            let (name, _) = parse(text)?;
            if names.iter().any(|it| it == name) {
                return usage(format!(
                    "the sink name {name} is used twice; give each sink its own name: --sink NAME=ADDRESS"
                ));
            }
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// Checks the options before the command starts any work.
    pub(crate) fn check(&self) -> Result<()> {
        self.rows(Time(0)).map(drop)
    }

    /// The sinks that the options name.
    fn rows(&self, now: Time) -> Result<Vec<SinkRow>> {
        self.names()?;
        let row = |text: &String| {
            let (name, address) = parse(text)?;
            row(name, address, now)
        };
        self.sinks.iter().map(row).collect()
    }

    /// Registers the sinks that the options name; those that the store knows with the same address stay as they are.
    pub(crate) fn register(&self, store: &dyn Store, now: Time) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let known = store.sinks()?;
        for sink in self.rows(now)? {
            let same = |it: &SinkRow| it.name == sink.name && it.address == sink.address;
            if !known.iter().any(same) {
                store.add_sink(&sink, SinkStart::Now, now)?;
            }
        }
        Ok(())
    }

    /// Starts the publishers that deliver the outbox to these sinks: those that the options name, or else all that the
    /// store knows.
    pub(crate) fn publish(&self, store: &Arc<dyn Store>) -> Result<SinkPublishers> {
        let sinks = match self.is_empty() {
            true => store.sinks()?,
            false => self.rows(Time(0))?,
        };
        let config = Config {
            name: format!("stepwell-{}", uuid::Uuid::now_v7()),
            max_attempts: self.sink_attempts,
            backoff: BACKOFF,
            max_backoff: MAX_BACKOFF,
            lease: LEASE,
            // A delivery that is taken but not tried at the end of the command would stay leased.
            batch: 1,
            seed: u64::from(std::process::id()),
            ..Config::default()
        };
        let mut publishers = SinkPublishers {
            store: store.clone(),
            names: Vec::new(),
            config,
            publishers: Vec::new(),
            all: false,
        };
        publishers.start(&sinks)?;
        Ok(publishers)
    }

    /// The same for all sinks that the store knows, also if the options name some of them.
    pub(crate) fn publish_all(&self, store: &Arc<dyn Store>) -> Result<SinkPublishers> {
        let mut publishers = self.publish(store)?;
        publishers.start(&store.sinks()?)?;
        publishers.all = true;
        Ok(publishers)
    }

    /// ` --sink …` for the command that continues a run. Addresses may contain secrets and are left out.
    pub(crate) fn flags(&self) -> String {
        let names = self.names().unwrap_or_default();
        names.iter().map(|name| flag(name)).collect()
    }
}

/// ` --sink …` for one sink, without its address.
pub(crate) fn flag(name: &str) -> String {
    format!(" --sink {name}=ADDRESS")
}

/// Splits a sink into name and address.
fn parse(text: &str) -> Result<(&str, &str)> {
    // An address may contain `=` too, but only after a `:`.
    let (name, address) = match text.split_once('=') {
        Some((name, address)) if !name.contains(':') => (Some(name), address),
        _ => (None, text),
    };
    let form = || {
        format!(
            "write a sink as [NAME=]ADDRESS, where ADDRESS is one of {}",
            sink_forms()
        )
    };
    let Some(kind) = SinkKind::of(address) else {
        return usage(format!("invalid sink; {}", form()));
    };
    let name = name.unwrap_or(kind.name);
    match is_sink_name(name) {
        true => Ok((name, address)),
        false => usage(format!(
            "the name of a sink may contain letters from A to Z, digits, `-`, `_` and `.`; {}",
            form()
        )),
    }
}

/// What sinks need from this process.
fn around() -> Surroundings {
    let secrets: Arc<dyn SecretSource> = match Secrets::from_env() {
        Ok(secrets) => Arc::new(SinkSecrets(secrets)),
        Err(error) => {
            tracing::warn!(%error, "sinks cannot use secrets");
            Arc::new(NoSecrets)
        }
    };
    Surroundings {
        timeout: TIMEOUT,
        secrets,
        ..Surroundings::default()
    }
}

/// A sink that is to be registered; an error if this program cannot deliver to the address.
pub(crate) fn row(name: &str, address: &str, since: Time) -> Result<SinkRow> {
    let sink = SinkRow {
        name: name.to_owned(),
        address: address.to_owned(),
        since,
    };
    parse(&format!("{name}={address}"))?;
    match open_sink(&sink, &around()) {
        Ok(_) => Ok(sink),
        Err(fault) => usage(format!("sink {name}: {fault}")),
    }
}

/// The publishers of sinks.
#[derive(Debug)]
pub(crate) struct SinkPublishers {
    store: Arc<dyn Store>,
    names: Vec<String>,
    config: Config,
    publishers: Vec<Publishers>,
    /// Also for sinks that are registered later.
    all: bool,
}

impl SinkPublishers {
    /// Starts the publishers of sinks that have none yet.
    fn start(&mut self, sinks: &[SinkRow]) -> Result<()> {
        let around = around();
        for sink in sinks {
            if self.names.contains(&sink.name) {
                continue;
            }
            match open_sink(sink, &around) {
                Ok(open) => {
                    let started = outbox::spawn(&self.store, vec![open], &self.config)?;
                    self.publishers.push(started);
                }
                Err(fault) => tracing::warn!(
                    "the sink {} gets nothing from this process: {fault}",
                    sink.name
                ),
            }
            self.names.push(sink.name.clone());
        }
        Ok(())
    }

    /// Wakes the publishers when the outbox has new deliveries.
    pub(crate) fn notify(&self) -> Notify {
        Notify::all(self.publishers.iter().map(Publishers::notify))
    }

    /// Delivers pending deliveries until the timeout or a stop. Returns the remaining number per sink, as `store` has it:
    /// that of the caller, which is waited for.
    pub(crate) fn empty(
        mut self,
        store: &dyn Store,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<Vec<(String, u64)>> {
        let until = Instant::now() + patience;
        if self.all {
            let sinks = store.sinks()?;
            self.start(&sinks)?;
        }
        self.notify().notify();
        let wait = || -> Result<()> {
            while !left(store, &self.names)?.is_empty()
                && Instant::now() < until
                && !stop.load(Ordering::SeqCst)
            {
                std::thread::sleep(LOOK);
            }
            Ok(())
        };
        let waited = wait();
        // Wait for the delivery in flight: its result would be unknown otherwise.
        for publishers in self.publishers {
            publishers.stop(Duration::from_secs(1));
        }
        waited?;
        left(store, &self.names)
    }
}

fn left(store: &dyn Store, names: &[String]) -> Result<Vec<(String, u64)>> {
    let mut left = Vec::new();
    for name in names {
        let (count, _) = store.backlog(name)?;
        if count > 0 {
            left.push((name.clone(), count));
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_has_a_name_and_an_address() {
        for (text, name, address) in [
            ("a=webhook:https://x/?k=v", "a", "webhook:https://x/?k=v"),
            (
                "webhook:https://x/?k=v",
                "webhook",
                "webhook:https://x/?k=v",
            ),
            ("nats://x/S?subject=a", "nats", "nats://x/S?subject=a"),
            ("b=kafka://x/t", "b", "kafka://x/t"),
        ] {
            assert_eq!(parse(text).unwrap(), (name, address));
        }
        for odd in [
            "https://x",
            "=webhook:https://x",
            "a b=webhook:x",
            "a=kafka:x",
        ] {
            assert!(parse(odd).is_err(), "{odd}");
        }
    }
}
