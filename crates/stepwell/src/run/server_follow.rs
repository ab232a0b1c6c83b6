//! Follows a run of a server until the run has ended, needs someone, or the user presses Ctrl-C. The stream of the run says
//! that something happened; what happened is read from the log, as for a run of a store.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use stepwell_client::Connection;
use stepwell_engine::clock::SystemClock;
use stepwell_engine::port::Clock as _;
use stepwell_kernel::command::{Actor, Command};
use stepwell_kernel::event::{Event, Patch};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_views::stuck::End;
use stepwell_views::why::WorkName;
use stepwell_worker::logs::LogEntry;

use super::args::GoArgs;
use super::follow::{EventSink, Followed, Follower};
use super::supervise::{interrupts, tell_queued};
use super::view::View;
use super::{input, who};
use crate::log;
use crate::remote::Remote;
use crate::runs::logs::{LogReader as _, ServerLogs};
use crate::runs::send_to_server;

/// How long the loop sleeps at most before it looks up: for Ctrl-C and for the tree.
const NAP: Duration = Duration::from_millis(50);
/// How often the log is read if the stream says nothing: the stream is only of the run itself, not of those below it.
const LOOK: Duration = Duration::from_millis(500);
/// How long a run may be in the queue before the user is told why.
const QUEUED: Duration = Duration::from_secs(1);
/// How long a step may wait for a worker before the server is asked whether there is one, and how often again.
const UNSERVED: Duration = Duration::from_secs(3);
/// How often the lines of steps under way are read.
const LOOK_AT_LINES: Duration = Duration::from_millis(500);
/// How long a stream that broke stays away before it is opened again.
const REST: Duration = Duration::from_millis(500);

/// A run of a server that is followed.
pub(super) struct Following<'a> {
    server: &'a Arc<Remote>,
    pub(super) follower: Follower,
    pub(super) view: View,
    lines: StepLines,
    changes: Receiver<()>,
    stop: Arc<AtomicBool>,
    actor: Actor,
    approves: bool,
    patch: Patch,
    max_events: u64,
    /// Work of which the user knows that nobody serves it.
    told_unserved: Vec<WorkName>,
    /// The user knows why the run has not started.
    pub(super) told_queued: bool,
}

impl<'a> Following<'a> {
    pub(super) fn begin(
        args: &GoArgs,
        server: &'a Arc<Remote>,
        run: &str,
        view: View,
    ) -> Result<Following<'a>> {
        let patch = input::patch(&args.patch)?;
        // Before any output: a user who sees the run may interrupt the command.
        let stop = interrupts(None)?.stop;
        server.stops_with(&stop);
        let follower = Follower::new(Arc::clone(server) as _, run)?;
        let (tell, changes) = mpsc::channel();
        server.spawn(listen(server.connection(), run.to_owned(), tell));
        Ok(Following {
            server,
            follower,
            lines: StepLines {
                logs: view.shows_lines().then(|| ServerLogs(Arc::clone(server))),
                places: HashMap::new(),
            },
            view,
            changes,
            stop,
            actor: who(args, "following a run")?,
            approves: args.approve,
            patch,
            max_events: args.max_events.unwrap_or(u64::MAX),
            told_unserved: Vec::new(),
            told_queued: false,
        })
    }

    /// Shows what happens until nothing will.
    pub(super) fn until_end(&mut self) -> Result<End> {
        match self.show_all() {
            // The wait for the server was ended.
            Err(_) if self.stop.load(Ordering::SeqCst) => Ok(End::Interrupted),
            end => end,
        }
    }

    fn show_all(&mut self) -> Result<End> {
        self.look()?;
        self.approve()?;
        let begin = Instant::now();
        let (mut looked, mut read, mut moved) = (begin, begin, begin);
        while !self.follower.root()?.state.phase().is_ended() {
            if self.stop.load(Ordering::SeqCst) {
                return Ok(End::Interrupted);
            }
            let changed = self.changes.recv_timeout(NAP).is_ok();
            // What came together is read together.
            while self.changes.try_recv().is_ok() {}
            if changed {
                moved = Instant::now();
            }
            if changed || looked.elapsed() > LOOK {
                self.look()?;
                looked = Instant::now();
            }
            // A run that starts at once is in the queue for a moment.
            let root = self.follower.root()?;
            let later = root
                .state
                .start_after()
                .is_some_and(|at| at > SystemClock.now());
            if !self.told_queued && (later || begin.elapsed() > QUEUED) {
                self.told_queued = true;
                tell_queued(root, SystemClock.now());
            }
            if moved.elapsed() > UNSERVED {
                moved = Instant::now();
                self.tell_unserved()?;
            }
            if read.elapsed() > LOOK_AT_LINES {
                let open = self
                    .follower
                    .all()
                    .filter(|it| !it.state.phase().is_ended());
                let open: Vec<String> = open.map(|it| it.state.run_id().to_owned()).collect();
                for run in open {
                    self.lines.read(&run, &mut self.view)?;
                }
                read = Instant::now();
            }
            self.view.update(&self.follower, SystemClock.now())?;
            if self.follower.events() > self.max_events {
                return Ok(End::GaveUp(self.max_events));
            }
            if self.follower.root()?.state.stalled().is_some() && !self.revive()? {
                break;
            }
        }
        Ok(End::Over)
    }

    fn look(&mut self) -> Result<()> {
        let mut sink = WithLines {
            view: &mut self.view,
            lines: &mut self.lines,
        };
        self.follower.follow_all(&mut sink)
    }

    /// Says which work nobody serves, once for each kind of work. The server knows the workers.
    fn tell_unserved(&mut self) -> Result<()> {
        let waits = |run: &&Followed| {
            let sources = wake_sources(&run.plan, &run.state);
            let is_task = |it: &WakeSource| matches!(it, WakeSource::Task { .. });
            sources.iter().any(is_task)
        };
        let runs = self.follower.all().filter(waits);
        let runs: Vec<String> = runs.map(|it| it.state.run_id().to_owned()).collect();
        for run in runs {
            let reasons = self.server.waits_for(&run)?;
            for reason in reasons.iter().filter(|it| it["unserved"] == true) {
                let text = |name: &str| reason[name].as_str().unwrap_or_default();
                let work = WorkName {
                    queue: text("queue").to_owned(),
                    operation: text("operation").to_owned(),
                };
                if self.told_unserved.contains(&work) {
                    continue;
                }
                log::line(&format!(
                    "nobody serves {work}, which step {} waits for: {}",
                    text("stepId"),
                    work.how_to_serve(self.server.url())
                ));
                self.told_unserved.push(work);
            }
        }
        Ok(())
    }

    /// Approves the run where that was asked for.
    fn approve(&mut self) -> Result<()> {
        let root = self.follower.root()?;
        let waits = root.plan.policy().needs_approval && !root.state.approved();
        if self.approves && waits {
            let approve = Command::ApproveRun {
                actor: self.actor.clone(),
                reason: None,
            };
            send_to_server(self.server, root.state.run_id(), &approve)
                .context("the run cannot be approved")?;
        }
        Ok(())
    }

    /// Changes ctx as it was asked for, once. Says whether that was asked for.
    fn revive(&mut self) -> Result<bool> {
        let ctx = std::mem::take(&mut self.patch);
        if ctx.is_empty() {
            return Ok(false);
        }
        let patch = Command::PatchCtx {
            actor: self.actor.clone(),
            ctx,
        };
        let root = self.follower.root()?;
        send_to_server(self.server, root.state.run_id(), &patch).context("--patch was refused")?;
        self.look()?;
        Ok(true)
    }
}

/// Says when the stream of a run says something. A stream that breaks is opened again after the last event that was seen.
async fn listen(server: Connection, run: String, tell: Sender<()>) {
    let mut seen = 0;
    loop {
        if let Ok(mut stream) = server.follow(&run, seen).await {
            while let Ok(Some(event)) = stream.next().await {
                seen = event.id.and_then(|it| it.parse().ok()).unwrap_or(seen);
                if tell.send(()).is_err() || event.name == "end" {
                    return;
                }
            }
        }
        tokio::time::sleep(REST).await;
    }
}

/// The lines of steps as far as they were read.
struct StepLines {
    /// Absent if nobody sees the lines.
    logs: Option<ServerLogs>,
    /// For each run, step and execution: the place after the last line, and the size of the log then.
    places: HashMap<(String, String, u32), (u64, u64)>,
}

impl StepLines {
    /// Reads what the steps of a run have written since.
    fn read(&mut self, run: &str, view: &mut View) -> Result<()> {
        let Some(logs) = &self.logs else {
            return Ok(());
        };
        for log in logs.list(run)? {
            let key = (run.to_owned(), log.step_id.clone(), log.execution);
            let (from, size) = self.places.get(&key).copied().unwrap_or_default();
            if size == log.bytes {
                continue;
            }
            let (lines, next) = logs.read(run, &log.step_id, log.execution, from)?;
            self.places.insert(key, (next, log.bytes));
            for line in lines {
                view.say(Arc::new(LogEntry {
                    run_id: run.to_owned(),
                    step_id: log.step_id.clone(),
                    execution: log.execution,
                    line,
                }));
            }
        }
        Ok(())
    }
}

/// Shows events, and the lines of a step before its end.
struct WithLines<'a> {
    view: &'a mut View,
    lines: &'a mut StepLines,
}

/// The ends of the names of events that an execution does not go on after.
const ENDS: [&str; 4] = ["Completed", "Failed", "Waiting", "Compensated"];

impl EventSink for WithLines<'_> {
    fn before(&mut self, run: &Followed, event: &Event) -> Result<()> {
        let name = event.body.name();
        if name.starts_with("Step") && ENDS.iter().any(|end| name.ends_with(end)) {
            self.lines.read(run.state.run_id(), self.view)?;
        }
        self.view.before(run, event)
    }

    fn after(&mut self, run: &mut Followed, event: &Event) -> Result<()> {
        self.view.after(run, event)
    }
}
