//! Sends a command to the process that can decide it: the owner of the store or of the run, or, if there
//! is none, an engine here that works on nothing.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use stepwell_engine::clock::SystemClock;
use stepwell_engine::coordinator::{Config, Message, MessageAnswer};
use stepwell_engine::port::Clock as _;
use stepwell_engine::service::{NoWorker, Service, Setup};
use stepwell_engine::store::{Delivered, MessageNo, MessageState, OutsideEvent, RunNo, Store};
use stepwell_engine::{Error, run_id_for};
use stepwell_kernel::command::{Command, EarlierResult, Reply};
use stepwell_kernel::event::Body;
use stepwell_kernel::time::Time;
use stepwell_stores::{Address, OpenMode};

use crate::outside_engine;
use crate::progress::Progress;
use crate::store::{OpenStore, StoreArgs};
use stepwell_views::RunView;

/// How often an answer is looked for.
const LOOK: Duration = Duration::from_millis(30);
/// How often it is asked whether the owner of the store is still there.
const OWNER: Duration = Duration::from_millis(500);
/// How often the engine here looks for messages and for runs of dead processes, in milliseconds.
const POLL_MS: u64 = 100;
/// How long the consequences of a command for other runs are waited for. What is left then is in their
/// mailboxes.
const CONSEQUENCES: Duration = Duration::from_secs(10);
/// How long an engine that decides one command may take to be thought dead.
const SESSION_MS: u64 = 5_000;

/// How many kept events are read at a time.
const PAGE: usize = 500;

/// The result of a command.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Sent {
    Done,
    /// The same had been done before; this is what it came to.
    Before(EarlierResult),
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
    send_if(place, run_id, patience, |store, view| {
        make(store, view).map(Ok)
    })
}

/// Sends a run the command that `make` makes of it, unless `make` knows the answer.
pub(super) fn send_if(
    place: &StoreArgs,
    run_id: &str,
    patience: Duration,
    make: impl FnOnce(&dyn Store, &RunView) -> Result<Result<Command, Sent>, Error>,
) -> Result<Sent> {
    let (open, mode) = place.own_or_visit()?;
    let store = open.patient();
    let view = RunView::read(&*store, run_id)?;
    for note in view.unknown_to_this_version() {
        tracing::warn!("a newer version wrote the run: {note}");
    }
    let command = match make(&*store, &view)? {
        Ok(command) => command,
        Err(known) => return Ok(known),
    };
    let until = Instant::now() + patience;
    let sent = match mode {
        OpenMode::Guest => ask_owner(place, &*store, view.run, &command, until)?,
        OpenMode::Own | OpenMode::ReadOnly => decide(&open, &view, &command, until)?,
    };
    if sent == Sent::Done {
        must_be_accepted(&*store, run_id, &command)?;
    }
    Ok(sent)
}

/// Delivers an event to the run that waits for its key. Also returns the id of that run: with `Kept` the run had waited
/// and ended before it could take the event. An event may come before its run, and before the store.
pub(super) fn deliver(
    place: &StoreArgs,
    event: &OutsideEvent,
) -> Result<(Delivered, Option<String>)> {
    let (open, mode) = place.own_new_or_visit()?;
    let store = open.patient();
    let delivered = store.deliver(event, SystemClock.now())?;
    let to = match delivered {
        Delivered::ToRun(run) => store.load(run)?.map(|stored| stored.run_id),
        Delivered::Kept | Delivered::Again => None,
    };
    if mode == OpenMode::Own && delivered != Delivered::Again {
        // Nobody else may be there to read what now lies in the run's mailbox.
        let engine = engine(&open)?;
        engine.handle().flush(CONSEQUENCES)?;
        if to.is_some() && is_kept(&*store, event)? {
            return Ok((Delivered::Kept, to));
        }
    }
    Ok((delivered, to))
}

/// Whether an event waits in the store for a run.
fn is_kept(store: &dyn Store, event: &OutsideEvent) -> Result<bool> {
    let mut after = (Time(0), String::new());
    loop {
        let from = (after.0, after.1.as_str());
        let page = store.kept(&event.tenant, &event.event_type, &event.key, from, PAGE)?;
        let Some(last) = page.last() else {
            return Ok(false);
        };
        if page.iter().any(|it| it.id == event.id) {
            return Ok(true);
        }
        after = (last.since, last.id.clone());
    }
}

/// Whether the store has a run of this id; a store that is not there has none.
pub(super) fn has_run(place: &StoreArgs, run_id: &str) -> Result<bool> {
    if let Address::Sqlite(path) = place.address()?
        && !path.exists()
    {
        return Ok(false);
    }
    Ok(place.read()?.find(run_id)?.is_some())
}

/// An engine that starts and executes nothing: it only decides commands and reads messages.
fn engine(open: &OpenStore) -> Result<Service> {
    let config = Config {
        name: Config::process_name("stepwell"),
        only: Some(HashSet::new()),
        session_ms: SESSION_MS,
        poll_ms: POLL_MS,
        // A run on an engine outside may be repeated.
        engine_place: outside_engine::place_of(&*open.patient())?,
        ..Config::default()
    };
    let setup = |store| Setup {
        config,
        ..Setup::new(store, NoWorker)
    };
    Ok(open.start(|store| Service::start(setup(store)))?)
}

/// Decides the command here, unless a living process has the run.
fn decide(open: &OpenStore, view: &RunView, command: &Command, until: Instant) -> Result<Sent> {
    let store = open.patient();
    let run = view.run;
    let session = || -> Result<_> {
        let stored = store.load(run)?;
        Ok(stored.and_then(|stored| stored.head.session))
    };
    let engine = engine(open)?;
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
        let reply = open
            .patience
            .keep_engine(|| handle.submit(view.state.run_id(), command.clone()))?;
        // Consequences for other runs lie in their mailboxes.
        handle.flush(CONSEQUENCES)?;
        match reply {
            Reply::Refused(rejection) => Err(Error::from(rejection).into()),
            Reply::Duplicate(already) => known(*already),
            Reply::Done | Reply::Created { .. } | Reply::Claimed(_) | Reply::RetryRun { .. } => {
                Ok(Sent::Done)
            }
        }
    })();
    // Dropping the engine ends its session. If that fails, a warning says so: the command is decided all the same.
    drop(engine);
    decided
}

/// Asks the process that has the run, and waits for its answer.
fn ask(store: &dyn Store, run: RunNo, command: &Command, until: Instant) -> Result<Sent> {
    let mail = post(store, run, command)?;
    let sent = wait_for_answer(store, mail, until, &mut None)?;
    Ok(sent.unwrap_or(Sent::Unanswered))
}

/// Asks the process that owns the store, and waits for its answer. An owner that ends before it answers leaves the
/// message in the mailbox: then the store is free, and the message is read here.
fn ask_owner(
    place: &StoreArgs,
    store: &dyn Store,
    run: RunNo,
    command: &Command,
    until: Instant,
) -> Result<Sent> {
    let mail = post(store, run, command)?;
    let mut shown = None;
    while Instant::now() < until {
        let next = until.min(Instant::now() + OWNER);
        if let Some(sent) = wait_for_answer(store, mail, next, &mut shown)? {
            return Ok(sent);
        }
        if let Some(open) = place.own_if_free()? {
            let engine = engine(&open)?;
            let sent = wait_for_answer(store, mail, until, &mut shown)?;
            engine.handle().flush(CONSEQUENCES)?;
            return Ok(sent.unwrap_or(Sent::Unanswered));
        }
    }
    Ok(Sent::Unanswered)
}

fn post(store: &dyn Store, run: RunNo, command: &Command) -> Result<MessageNo> {
    let message = Message::Command {
        command: Box::new(command.clone()),
        reply: true,
    };
    Ok(store.post(run, &message.body(), SystemClock.now())?)
}

/// The answer to a message; nothing if none comes in time. Who waits is shown that.
fn wait_for_answer(
    store: &dyn Store,
    mail: MessageNo,
    until: Instant,
    shown: &mut Option<Progress>,
) -> Result<Option<Sent>> {
    loop {
        if let Some(sent) = heard(store, mail)? {
            return Ok(Some(sent));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        shown.get_or_insert_with(|| Progress::of("waiting for the owner of the run"));
        std::thread::sleep(LOOK);
    }
}

fn heard(store: &dyn Store, mail: MessageNo) -> Result<Option<Sent>> {
    match store.take_answer(mail)? {
        MessageState::Waiting => Ok(None),
        MessageState::Taken => Ok(Some(Sent::Done)),
        MessageState::Answered(text) => match MessageAnswer::read(&text) {
            MessageAnswer::Known(first) => known(first).map(Some),
            MessageAnswer::Refused(why) => Err(Refused(why).into()),
        },
    }
}

/// A command that was decided before.
fn known(first: EarlierResult) -> Result<Sent> {
    match first {
        EarlierResult::SignalRejected(code) => {
            let why = "a signal with this id is known, and it had been refused";
            Err(Refused::new(&code, why).into())
        }
        first @ (EarlierResult::Succeeded
        | EarlierResult::Failed(_)
        | EarlierResult::SucceededOtherwise
        | EarlierResult::FailedOtherwise(_)
        | EarlierResult::Manual(_)
        | EarlierResult::Event
        | EarlierResult::SignalAccepted
        | EarlierResult::Child) => Ok(Sent::Before(first)),
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
