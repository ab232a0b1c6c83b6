//! Deliveries to the sinks that the store knows: a publisher for each sink, started and stopped as sinks are registered
//! and removed, by whichever process.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stepwell_bus::{Surroundings, open_sink};
use stepwell_engine::outbox::{self, Config, Notify, Publishers};
use stepwell_engine::store::{SinkRow, Store};

/// How often the store is asked for its sinks.
const LOOK: Duration = Duration::from_secs(2);
/// Timeout of one delivery.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than one delivery, so that no other server takes it in flight.
const LEASE: Duration = Duration::from_secs(25);
const BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// After so many failures a delivery becomes a dead letter.
const ATTEMPTS: u32 = 25;

/// Tells publishers that something was committed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bell(Arc<Mutex<Vec<Notify>>>);

impl Bell {
    pub(crate) fn ring(&self) {
        let notify = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notify.iter().for_each(Notify::notify);
    }

    fn set(&self, all: Vec<Notify>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// Why sinks get nothing from this server, by their names. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct SinkFaults(Arc<Mutex<HashMap<String, String>>>);

impl SinkFaults {
    /// Why this sink gets nothing; none if it can be delivered to.
    pub(crate) fn of(&self, sink: &str) -> Option<String> {
        self.lock().get(sink).cloned()
    }

    fn set(&self, sink: &str, why: Option<String>) {
        match why {
            Some(why) => self.lock().insert(sink.to_owned(), why),
            None => self.lock().remove(sink),
        };
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The publishers of a server, with the thread that looks after them.
pub(crate) struct Deliveries {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliveries").finish_non_exhaustive()
    }
}

impl Deliveries {
    pub(crate) fn start(
        store: Arc<dyn Store>,
        bell: Bell,
        around: Surroundings,
        faults: SinkFaults,
    ) -> io::Result<Deliveries> {
        let (stop, stopped) = mpsc::channel();
        let mut table = SinkTable {
            config: Config {
                name: format!("stepwell-{}", uuid::Uuid::now_v7()),
                max_attempts: ATTEMPTS,
                backoff: BACKOFF,
                max_backoff: MAX_BACKOFF,
                lease: LEASE,
                seed: u64::from(std::process::id()),
                ..Config::default()
            },
            store,
            bell,
            around,
            faults,
            running: HashMap::new(),
        };
        let thread = thread::Builder::new().name("stepwell-sinks".into());
        let thread = thread.spawn(move || {
            loop {
                table.look();
                match stopped.recv_timeout(LOOK) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            table.stop();
        })?;
        Ok(Deliveries { stop, thread })
    }

    /// Stops; a delivery in flight may end. What is left is delivered by another server, or by the next one.
    pub(crate) fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

struct SinkTable {
    store: Arc<dyn Store>,
    config: Config,
    bell: Bell,
    /// Which hosts may be asked, and what resolves secrets.
    around: Surroundings,
    faults: SinkFaults,
    /// By the name of the sink: the row that the publisher was started for. None if it cannot be delivered to.
    running: HashMap<String, (SinkRow, Option<Publishers>)>,
}

impl SinkTable {
    /// Makes the publishers those of the sinks that the store knows.
    fn look(&mut self) {
        let sinks = match self.store.sinks() {
            Ok(sinks) => sinks,
            // Looked at again soon; the engine tells that the store is away.
            Err(_) => return,
        };
        let is_there = |row: &SinkRow| {
            sinks
                .iter()
                .any(|it| it.address == row.address && it.name == row.name)
        };
        let gone = self.running.extract_if(|_, (row, _)| !is_there(row));
        let gone: Vec<_> = gone.collect();
        let mut changed = !gone.is_empty();
        for (name, (_, publishers)) in gone {
            self.faults.set(&name, None);
            stop(publishers);
        }
        for sink in sinks {
            if self.running.contains_key(&sink.name) {
                continue;
            }
            changed = true;
            let publishers = open_sink(&sink, &self.around).and_then(|open| {
                let started = outbox::spawn(&self.store, vec![open], &self.config);
                started.map_err(|error| error.to_string())
            });
            let publishers = publishers
                .inspect_err(|why| {
                    tracing::warn!(
                        "the sink {} gets nothing from this server: {why}",
                        sink.name
                    );
                    self.faults.set(&sink.name, Some(why.clone()));
                })
                .ok();
            self.running.insert(sink.name.clone(), (sink, publishers));
        }
        if changed {
            let all = self.running.values().filter_map(|it| it.1.as_ref());
            self.bell.set(all.map(Publishers::notify).collect());
        }
    }

    fn stop(self) {
        for (_, (_, publishers)) in self.running {
            stop(publishers);
        }
    }
}

fn stop(publishers: Option<Publishers>) {
    if let Some(publishers) = publishers {
        publishers.stop(Duration::from_secs(1));
    }
}
