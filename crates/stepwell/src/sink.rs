//! Where events go while a command runs: `--sink`, and the publishers behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use stepwell_bus::{Webhook, WebhookOptions};
use stepwell_engine::outbox::{self, Config, Notify, Publishers, Sink};
use stepwell_engine::store::Store;

use crate::usage;

/// What bodies are signed with. Not an option: command lines are for everyone on the machine to see.
const SECRET: &str = "STEPWELL_SINK_SECRET";
const SCHEME: &str = "webhook:";
const FORM: &str = "[NAME=]webhook:https://…";
/// How often it is looked whether the outbox is empty.
const LOOK: Duration = Duration::from_millis(20);
/// A command that ends waits for a delivery under way, and somebody waits for the command.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Less would be someone else's before the webhook has answered; more makes the next process wait for
/// what a dead one had.
const LEASE: Duration = Duration::from_secs(25);
/// Failed deliveries wait for this at most, and so does who flushes.
const MAX_BACKOFF: Duration = Duration::from_secs(5);
const BACKOFF: Duration = Duration::from_millis(200);

/// Where events go.
#[derive(Clone, Debug, Args)]
pub(crate) struct SinkArgs {
    /// Where the events go as well; may be given more than once. NAME, `webhook` if there is none, is
    /// what the outbox knows it by: the same each time. Bodies are signed with STEPWELL_SINK_SECRET
    #[arg(long = "sink", value_name = "[NAME=]webhook:URL")]
    sinks: Vec<String>,
    /// After how many failures a delivery is given up and becomes a dead letter
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..))]
    sink_attempts: u32,
}

impl SinkArgs {
    /// Whether events go nowhere.
    pub(crate) fn is_empty(&self) -> bool {
        self.sinks.is_empty()
    }

    /// The names, each once.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        for text in &self.sinks {
            let (name, _) = parse(text)?;
            if names.iter().any(|it| it == name) {
                return usage(format!(
                    "two sinks are called {name}; give each a name: --sink NAME=webhook:https://…"
                ));
            }
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// Says what is wrong with them before anything starts.
    pub(crate) fn check(&self) -> Result<()> {
        self.open().map(drop)
    }

    fn open(&self) -> Result<Vec<Box<dyn Sink>>> {
        self.names()?;
        let secret = std::env::var(SECRET).ok().filter(|it| !it.is_empty());
        let mut open: Vec<Box<dyn Sink>> = Vec::new();
        for text in &self.sinks {
            let (name, address) = parse(text)?;
            let options = WebhookOptions {
                name: name.to_owned(),
                secret: secret.clone().map(String::into_bytes),
                timeout: TIMEOUT,
                ..WebhookOptions::default()
            };
            match Webhook::new(address, options) {
                Ok(webhook) => open.push(Box::new(webhook)),
                Err(fault) => return usage(format!("--sink {name}: {fault}")),
            }
        }
        Ok(open)
    }

    /// Starts to publish what is in the outbox for them.
    pub(crate) fn publish(&self, store: &Arc<dyn Store>) -> Result<SinkPublishers> {
        let config = Config {
            name: format!("stepwell-{}", uuid::Uuid::now_v7()),
            max_attempts: self.sink_attempts,
            backoff: BACKOFF,
            max_backoff: MAX_BACKOFF,
            lease: LEASE,
            // What is taken and not tried when the command ends would be nobody's for a while.
            batch: 1,
            seed: u64::from(std::process::id()),
            ..Config::default()
        };
        Ok(SinkPublishers {
            store: store.clone(),
            names: self.names()?,
            publishers: outbox::spawn(store, self.open()?, &config)?,
        })
    }

    /// ` --sink …` where a command that goes on needs it. Addresses may hold secrets: they stay out.
    pub(crate) fn flags(&self) -> String {
        let names = self.names().unwrap_or_default();
        names.iter().map(|name| flag(name)).collect()
    }
}

/// ` --sink …` of one, without its address.
pub(crate) fn flag(name: &str) -> String {
    format!(" --sink {name}={SCHEME}URL")
}

/// A name and an address.
fn parse(text: &str) -> Result<(&str, &str)> {
    // An address may have a `=` too, but has a `:` before it.
    let (name, address) = match text.split_once('=') {
        Some((name, address)) if !name.contains(':') => (name, address),
        _ => ("webhook", text),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return usage(format!(
            "a sink's name has letters, digits, `-`, `_` and `.`; a sink is written as {FORM}"
        ));
    }
    match address.strip_prefix(SCHEME) {
        Some(address) => Ok((name, address)),
        None => usage(format!("a sink is written as {FORM}")),
    }
}

/// Publishers at work.
#[derive(Debug)]
pub(crate) struct SinkPublishers {
    store: Arc<dyn Store>,
    names: Vec<String>,
    publishers: Publishers,
}

impl SinkPublishers {
    /// A way to tell that there is something in the outbox.
    pub(crate) fn notify(&self) -> Notify {
        self.publishers.notify()
    }

    /// Gives what waits some time to go out, unless somebody stops it. What is left, by sink.
    pub(crate) fn empty(self, patience: Duration, stop: &AtomicBool) -> Result<Vec<(String, u64)>> {
        let until = Instant::now() + patience;
        self.publishers.notify().notify();
        let wait = || -> Result<()> {
            while !left(&*self.store, &self.names)?.is_empty()
                && Instant::now() < until
                && !stop.load(Ordering::SeqCst)
            {
                std::thread::sleep(LOOK);
            }
            Ok(())
        };
        let waited = wait();
        // A delivery under way is waited for: nobody could say whether it arrived.
        self.publishers.stop(Duration::from_secs(1));
        waited?;
        left(&*self.store, &self.names)
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
        let (name, address) = parse("a=webhook:https://x/?k=v").unwrap();
        assert_eq!((name, address), ("a", "https://x/?k=v"));
        let (name, address) = parse("webhook:https://x/?k=v").unwrap();
        assert_eq!((name, address), ("webhook", "https://x/?k=v"));
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
