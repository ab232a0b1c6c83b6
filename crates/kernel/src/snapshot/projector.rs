//! The projector: a snapshot that follows a log. On a gap it says so once, stops, asks for a resync and
//! goes on only when that has reached everything it had seen before. It never invents what it misses.

use std::collections::{BTreeMap, BTreeSet};

use super::{ContractEvent, RunSnapshot, StepStatus, detect_non_contiguous, incremental, project};
use crate::codes;
use crate::effect::Priority;
use crate::plan::{Join, Plan, Route};

/// Something to tell an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectorAlert {
    pub code: &'static str,
    pub priority: Priority,
    /// What happened and what to do, for people.
    pub message: String,
}

/// What the projector asks the store for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resync {
    /// Every event of the run.
    Full,
    /// The latest snapshot that is not later than this, and every event after it.
    FromSnapshot {
        /// The projector's own watermark.
        snapshot_seq: u64,
    },
}

/// What the store answers. Without a snapshot the events are all of the run's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResyncAnswer {
    /// The snapshot that the events follow.
    pub snapshot: Option<RunSnapshot>,
    /// The events after it.
    pub events: Vec<ContractEvent>,
}

/// What came of feeding the projector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedResult {
    /// The alerts that the caller must raise.
    pub alerts: Vec<ProjectorAlert>,
    /// The request that the caller must send to the store. The projector applies nothing until the answer comes.
    pub resync: Option<Resync>,
}

/// Which step must have succeeded, or been skipped, before which other starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    needs: BTreeMap<String, Vec<String>>,
}

impl Dependencies {
    /// The plan's edges, where an edge means that: into a step that waits for all, from one that does
    /// not choose.
    #[must_use]
    pub fn of(plan: &Plan) -> Dependencies {
        let mut needs = BTreeMap::new();
        for no in plan.numbers() {
            let step = plan.step(no);
            if step.join != Join::All {
                continue;
            }
            let from = plan.incoming(no).iter().map(|edge| plan.edge(*edge).from);
            let plain = from.filter(|from| plan.step(*from).route == Route::Edges);
            let names: Vec<String> = plain.map(|from| plan.step(from).name.clone()).collect();
            if !names.is_empty() {
                needs.insert(step.name.clone(), names);
            }
        }
        Dependencies { needs }
    }

    fn of_step(&self, step_id: &str) -> &[String] {
        let name = step_id.split(['#', '[']).next().unwrap_or(step_id);
        self.needs.get(name).map(Vec::as_slice).unwrap_or_default()
    }
}

/// A gap was seen and is not bridged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stale {
    /// The highest sequence number observed so far.
    observed: u64,
}

/// A snapshot that follows a log.
#[derive(Clone, Debug)]
pub struct SnapshotProjector {
    dependencies: Dependencies,
    snapshot: RunSnapshot,
    stale: Option<Stale>,
}

impl SnapshotProjector {
    /// For a run of which nothing was seen, or from a snapshot that was kept.
    #[must_use]
    pub fn new(snapshot: RunSnapshot, dependencies: Dependencies) -> SnapshotProjector {
        SnapshotProjector {
            dependencies,
            snapshot,
            stale: None,
        }
    }

    /// The run as far as it was projected.
    #[must_use]
    pub fn snapshot(&self) -> &RunSnapshot {
        &self.snapshot
    }

    /// Whether a gap was seen and the snapshot may be behind.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.stale.is_some()
    }

    /// The highest sequence number that a resync must reach; none if nothing is missing.
    #[must_use]
    pub fn awaited(&self) -> Option<u64> {
        self.stale.map(|stale| stale.observed)
    }

    /// The snapshot is made again: a resync is awaited, which must reach what was projected before.
    pub fn doubt(&mut self) {
        let observed = self.snapshot.last_event_seq;
        self.stale.get_or_insert(Stale { observed });
    }

    /// Takes what was fetched after the watermark.
    pub fn feed(&mut self, events: &[ContractEvent]) -> FeedResult {
        let mut fed = FeedResult::default();
        let mut ordered: Vec<&ContractEvent> = events.iter().collect();
        ordered.sort_by_key(|event| event.run_seq);
        if let Some(stale) = &mut self.stale {
            let highest = ordered.last().map_or(0, |event| event.run_seq);
            stale.observed = stale.observed.max(highest);
            return fed;
        }
        let mut last = self.snapshot.last_event_seq;
        let mut whole = Vec::new();
        for event in &ordered {
            if detect_non_contiguous(last, event.run_seq) {
                let observed = ordered.last().map_or(0, |event| event.run_seq);
                self.stale = Some(Stale { observed });
                fed.alerts.push(gap(last, event.run_seq));
                break;
            }
            last = last.max(event.run_seq);
            whole.push(ContractEvent::clone(event));
        }
        fed.alerts.extend(self.inversions(&whole));
        self.snapshot = incremental(&self.snapshot, &whole);
        if self.stale.is_some() {
            fed.resync = Some(self.wanted());
        }
        fed
    }

    /// Takes the answer to a resync. If it does not reach what was observed before, the projector stays
    /// stale and asks for everything.
    pub fn resync(&mut self, answer: &ResyncAnswer) -> FeedResult {
        let run_id = &self.snapshot.run_id;
        let next = match &answer.snapshot {
            Some(snapshot) => incremental(snapshot, &answer.events),
            None if answer.events.iter().any(|event| event.run_seq == 1) => {
                project(run_id, &answer.events)
            }
            // No snapshot and not from the beginning: it follows the projector's own.
            None => incremental(&self.snapshot, &answer.events),
        };
        let wanted = self.stale.map_or(0, |stale| stale.observed);
        if next.last_event_seq < wanted.max(self.snapshot.last_event_seq) {
            return FeedResult {
                alerts: Vec::new(),
                resync: Some(Resync::Full),
            };
        }
        let alerts = self.inversions(&answer.events);
        self.snapshot = next;
        self.stale = None;
        FeedResult {
            alerts,
            resync: None,
        }
    }

    fn wanted(&self) -> Resync {
        match self.snapshot.last_event_seq {
            0 => Resync::Full,
            snapshot_seq => Resync::FromSnapshot { snapshot_seq },
        }
    }

    /// Steps that start before what they need has ended. Not corruption: a write was delayed.
    fn inversions(&self, events: &[ContractEvent]) -> Vec<ProjectorAlert> {
        let satisfied = |status: &StepStatus| {
            matches!(
                status,
                StepStatus::Success | StepStatus::Skipped | StepStatus::Other(_)
            )
        };
        let ended = self
            .snapshot
            .steps
            .iter()
            .filter(|it| satisfied(&it.status));
        let mut ended: BTreeSet<String> = ended.map(|step| step.step_id.clone()).collect();
        let mut ordered: Vec<&ContractEvent> = events
            .iter()
            .filter(|event| event.run_seq > self.snapshot.last_event_seq)
            .collect();
        ordered.sort_by_key(|event| event.run_seq);
        let mut alerts = Vec::new();
        for event in ordered {
            let Some(step_id) = event.text("stepId") else {
                continue;
            };
            match event.event_type.as_str() {
                "StepCompleted" | "StepSkipped" => {
                    ended.insert(step_id.to_owned());
                }
                "StepStarted" => {
                    let needs = self.dependencies.of_step(step_id).iter();
                    let early = needs.filter(|needed| !ended.contains(needed.as_str()));
                    alerts.extend(early.map(|needed| inversion(event.run_seq, step_id, needed)));
                }
                _ => {}
            }
        }
        alerts
    }
}

fn gap(last: u64, next: u64) -> ProjectorAlert {
    ProjectorAlert {
        code: codes::PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED,
        priority: Priority::P2,
        message: format!("event {next} was fetched after event {last}"),
    }
}

fn inversion(seq: u64, step: &str, needed: &str) -> ProjectorAlert {
    ProjectorAlert {
        code: codes::PROJECTOR_CAUSAL_VIOLATION,
        priority: Priority::P3,
        message: format!("event {seq}: {step} started before {needed} had ended"),
    }
}
