//! The engine with a worker beside it: real work, done by the tools of this process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::Result;
use stepwell_engine::coordinator::Assignment;
use stepwell_engine::engine::Ask;
use stepwell_kernel::command::Command;
use stepwell_worker::Crew;
use stepwell_worker::logs::LogEntry;
use tokio::sync::broadcast::{self, error::TryRecvError};

use super::RunEngine;

/// The engine and its worker.
pub(super) struct Native {
    pub(super) engine: RunEngine,
    crew: Crew,
    report: Sender<(Assignment, Command)>,
    reports: Receiver<(Assignment, Command)>,
    /// What came while nobody could take it.
    early: VecDeque<(Assignment, Command)>,
    said: broadcast::Receiver<Arc<LogEntry>>,
}

impl Native {
    pub(super) fn new(mut engine: RunEngine, crew: Crew) -> Native {
        engine.config().serves = crew.serves();
        let (report, reports) = mpsc::channel();
        let said = crew.resources().logs.subscribe();
        Native {
            engine,
            crew,
            report,
            reports,
            early: VecDeque::new(),
            said,
        }
    }

    /// Hands out what is to be done, takes in what was done, and lets time pass. Says whether anything
    /// happened.
    pub(super) fn act(&mut self) -> Result<bool> {
        let mut acted = self.hand_out();
        acted |= self.take_in()?;
        if !acted {
            acted = self.engine.fire_due()?;
            self.hand_out();
        }
        Ok(acted)
    }

    fn hand_out(&mut self) -> bool {
        let mut any = false;
        while let Some(job) = self.engine.jobs.pop_front() {
            let report = self.report.clone();
            self.crew.begin(job, move |job, command| {
                // With nobody there to hear it the work's lease ends by itself.
                let _ = report.send((job.clone(), command));
            });
            any = true;
        }
        // Only now: what is to stop may have begun this very moment.
        for (run_id, ask) in self.engine.asks.drain(..).collect::<Vec<_>>() {
            // Whoever else is asked answers through the store.
            if let Ask::Stop { target, execution } = ask
                && let Some(hot) = self.engine.run(&run_id)
            {
                self.crew.stop(hot.run, target, execution);
            }
        }
        any
    }

    fn take_in(&mut self) -> Result<bool> {
        let mut any = false;
        while let Some((job, command)) = self
            .early
            .pop_front()
            .or_else(|| self.reports.try_recv().ok())
        {
            self.engine.finish(&job, command)?;
            any = true;
        }
        Ok(any)
    }

    /// Rests until something is reported, and no longer than this.
    pub(super) fn rest(&mut self, nap: Duration) {
        match self.reports.recv_timeout(nap) {
            Ok(report) => self.early.push_back(report),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }

    /// What steps have said since this was asked last. Who says too much is not heard in full; the log
    /// has it.
    pub(super) fn said(&mut self) -> Option<Arc<LogEntry>> {
        loop {
            match self.said.try_recv() {
                Ok(entry) => return Some(entry),
                Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }

    /// Whether nothing is being done.
    pub(super) fn is_idle(&self) -> bool {
        self.early.is_empty() && self.crew.busy() == 0
    }

    /// How many steps are being done.
    pub(super) fn busy(&self) -> usize {
        self.crew.busy()
    }

    /// Takes no new work, lets what runs end by itself for as long as `patience`, then stops it.
    pub(super) fn settle(&mut self, patience: Duration) -> Result<()> {
        self.engine.stop();
        // What was claimed and has not begun would be taken for lost.
        self.hand_out();
        let until = Instant::now() + patience;
        while !self.is_idle() && Instant::now() < until {
            self.rest(Duration::from_millis(50));
            self.take_in()?;
            self.engine.fire_due()?;
        }
        self.crew.stop_all();
        let killed = Instant::now() + self.crew.resources().limits.grace + Duration::from_secs(2);
        while !self.is_idle() && Instant::now() < killed {
            self.rest(Duration::from_millis(50));
            self.take_in()?;
        }
        self.take_in()?;
        Ok(())
    }
}
