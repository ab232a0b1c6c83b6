//! Sends a command to the process that can decide it: the owner of the store or of the run, or, if there
//! is none, an engine here that works on nothing.

use std::collections::HashSet;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use stepwell_engine::clock::SystemClock;
use stepwell_engine::coordinator::{Config, Message};
use stepwell_engine::port::Clock as _;
use stepwell_engine::service::{NoWorker, Service, Setup};
use stepwell_engine::store::{Delivered, MessageNo, MessageState, OutsideEvent, RunNo, Store};
use stepwell_engine::{Error, run_id_for};
use stepwell_kernel::command::{Command, EarlierResult, Reply};
use stepwell_kernel::event::Body;
use stepwell_stores::OpenMode;

use crate::run_view::RunView;
use crate::store::StoreArgs;

/// How often an answer is looked for.
const LOOK: Duration = Duration::from_millis(30);
/// How often the engine here looks for messages and for runs of dead processes, in milliseconds.
const POLL_MS: u64 = 100;
/// How long the consequences of a command for other runs are waited for. What is left then is in their
/// mailboxes.
const CONSEQUENCES: Duration = Duration::from_secs(10);
/// How long an engine that decides one command may take to be thought dead.
const SESSION_MS: u64 = 5_000;

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Done,
    /// The same had been done before.
    Before,
    /// The owner of the run has not answered yet.
    Unanswered,
}

/// A refused command: `CODE: reason`.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) String);

impl Refused {
    pub(super) fn new(code: &str, why: &str) -> Refused {
        Refused(format!("{code}: {why}"))
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// Sends a run the command that `make` makes of it.
pub(super) fn send(
    place: &StoreArgs,
    run_id: &str,
    patience: Duration,
    make: impl FnOnce(&dyn Store, &RunView) -> Result<Command, Error>,
) -> Result<Sent> {
    let (store, mode) = place.own_or_visit()?;
    let view = RunView::read(&*store, run_id)?;
    let command = make(&*store, &view)?;
    let until = Instant::now() + patience;
    let sent = match mode {
        OpenMode::Guest => ask(&*store, view.run, &command, until)?,
        OpenMode::Own | OpenMode::ReadOnly => decide(store.clone(), &view, &command, until)?,
    };
    if sent == Sent::Done {
        must_be_accepted(&*store, run_id, &command)?;
    }
    Ok(sent)
}

/// Delivers an event to the run that waits for its key. Also returns the id of that run.
pub(super) fn deliver(
    place: &StoreArgs,
    event: &OutsideEvent,
) -> Result<(Delivered, Option<String>)> {
    let (store, mode) = place.own_or_visit()?;
    let delivered = store.deliver(event, SystemClock.now())?;
    let to = match delivered {
        Delivered::ToRun(run) => store.load(run)?.map(|stored| stored.run_id),
        Delivered::Kept | Delivered::Again => None,
    };
    if mode == OpenMode::Own && delivered != Delivered::Again {
        // Nobody else may be there to read what now lies in the run's mailbox.
        let engine = engine(store)?;
        engine.handle().flush(CONSEQUENCES)?;
        engine.stop(Duration::ZERO)?;
    }
    Ok((delivered, to))
}

/// An engine that starts and executes nothing: it only decides commands and reads messages.
fn engine(store: Arc<dyn Store>) -> Result<Service> {
    let config = Config {
        name: "stepwell runs".into(),
        only: Some(HashSet::new()),
        session_ms: SESSION_MS,
        poll_ms: POLL_MS,
        ..Config::default()
    };
    Ok(Service::start(Setup {
        config,
        ..Setup::new(store, NoWorker)
    })?)
}

/// Decides the command here, unless a living process has the run.
fn decide(
    store: Arc<dyn Store>,
    view: &RunView,
    command: &Command,
    until: Instant,
) -> Result<Sent> {
    let run = view.run;
    let session = || -> Result<_> {
        let stored = store.load(run)?;
        Ok(stored.and_then(|stored| stored.head.session))
    };
    let engine = engine(store.clone())?;
    let handle = engine.handle();
    let decided = (|| {
        while let Some(other) = session()? {
            if !store.dead_sessions(SystemClock.now())?.contains(&other) {
                // If the other process turns out to be dead, the engine here takes the run over and reads
                // its mailbox.
                return ask(&*store, run, command, until);
            }
            // The engine here takes over everything that the dead process had, page by page.
            std::thread::sleep(LOOK);
        }
        let reply = handle.submit(view.state.run_id(), command.clone())?;
        // Consequences for other runs lie in their mailboxes.
        handle.flush(CONSEQUENCES)?;
        match reply {
            Reply::Refused(rejection) => Err(Error::from(rejection).into()),
            Reply::Duplicate(already) => match *already {
                EarlierResult::SignalRejected(code) => {
                    Err(Refused(format!("{code}: it had been refused before")).into())
                }
                _ => Ok(Sent::Before),
            },
            Reply::Done | Reply::Created { .. } | Reply::Claimed(_) | Reply::RetryRun { .. } => {
                Ok(Sent::Done)
            }
        }
    })();
    let stopped = engine.stop(Duration::ZERO);
    let sent = decided?;
    stopped?;
    Ok(sent)
}

/// Asks the process that has the run, and waits for its answer.
fn ask(store: &dyn Store, run: RunNo, command: &Command, until: Instant) -> Result<Sent> {
    let message = Message::Command {
        command: Box::new(command.clone()),
        reply: true,
    };
    let mail = store.post(run, &message.body(), SystemClock.now())?;
    let live = io::stderr().is_terminal();
    let mut told = false;
    let sent = loop {
        if let Some(sent) = heard(store, mail)? {
            break sent;
        }
        if Instant::now() >= until {
            break Sent::Unanswered;
        }
        if live && !told {
            told = true;
            write!(io::stderr(), "waiting for the process that has the run…")?;
        }
        std::thread::sleep(LOOK);
    };
    if told {
        write!(io::stderr(), "\r\u{1b}[2K")?;
    }
    Ok(sent)
}

fn heard(store: &dyn Store, mail: MessageNo) -> Result<Option<Sent>> {
    match store.take_answer(mail)? {
        MessageState::Waiting => Ok(None),
        MessageState::Taken => Ok(Some(Sent::Done)),
        MessageState::Answered(why) => Err(Refused(why).into()),
    }
}

/// A refused signal is taken like any other, and recorded as refused: that is not what was wanted.
fn must_be_accepted(store: &dyn Store, run_id: &str, command: &Command) -> Result<()> {
    let Command::Signal {
        signal_id, signal, ..
    } = command
    else {
        return Ok(());
    };
    let view = RunView::read(store, run_id)?;
    for event in view.events.iter().rev() {
        if let Body::SignalRejected {
            signal_id: id,
            code,
            message,
            ..
        } = &event.body
            && id == signal_id
        {
            return Err(Refused(format!("{code}: {message}")).into());
        }
    }
    if signal == "RETRY_RUN" && view.state.phase().is_ended() {
        let repeated = run_id_for(&format!("{run_id}|RETRY_RUN|{signal_id}"));
        let until = Instant::now() + Duration::from_secs(2);
        while store.find(&repeated)?.is_none() {
            if Instant::now() > until {
                anyhow::bail!("the run {repeated}, which repeats {run_id}, was not started");
            }
            std::thread::sleep(LOOK);
        }
    }
    Ok(())
}
