//! Clients that start runs and watch them to their ends, one run after the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use stepwell_client::{ClientError, Connection};
use tokio::task::JoinSet;

use super::super::percentile::Times;

/// How many steps a run has.
pub(super) const STEPS: u64 = 3;
/// The most errors that are told in words.
const TOLD: usize = 10;

/// The figures of all clients of one measurement together.
#[derive(Debug, Default)]
pub(super) struct ClientFigures {
    /// From the request to the answer that the run is started.
    pub(super) start: Times,
    /// From the request to the first step, as the stream of the run tells it.
    pub(super) first_step: Times,
    /// From the request to the end of the run, as the stream tells it.
    pub(super) end: Times,
    pub(super) failures: u64,
    /// The first failures in words.
    pub(super) errors: Vec<String>,
}

impl ClientFigures {
    fn failed(&mut self, error: String) {
        self.failures += 1;
        if self.errors.len() < TOLD {
            self.errors.push(error);
        }
    }

    fn add(&mut self, other: ClientFigures) {
        self.start.extend(other.start);
        self.first_step.extend(other.first_step);
        self.end.extend(other.end);
        self.failures += other.failures;
        let left = TOLD.saturating_sub(self.errors.len());
        self.errors.extend(other.errors.into_iter().take(left));
    }
}

/// Steps that do nothing, in sequence.
fn definition() -> Json {
    let steps =
        (1..=STEPS).map(|step| format!("  - {{stepType: STEP_{step}, tool: {{kind: noop}}}}\n"));
    let steps: String = steps.collect();
    let text = format!("workflowType: bench.server\nworkflowVersion: 1\nsteps:\n{steps}");
    json!({ "definition": { "text": text } })
}

/// So many clients for so long.
pub(super) async fn start_and_watch(
    connection: &Connection,
    clients: usize,
    seconds: Duration,
) -> ClientFigures {
    let body = Arc::new(definition());
    let until = Instant::now() + seconds;
    let mut all = JoinSet::new();
    for _ in 0..clients {
        let (connection, body) = (connection.clone(), Arc::clone(&body));
        all.spawn(async move {
            let mut figures = ClientFigures::default();
            while Instant::now() < until {
                if let Err(error) = one_run(&connection, &body, &mut figures).await {
                    figures.failed(error.to_string());
                    // A server that cannot be reached is not asked without a pause.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
            figures
        });
    }
    let mut sum = ClientFigures::default();
    while let Some(ended) = all.join_next().await {
        match ended {
            Ok(figures) => sum.add(figures),
            Err(error) => sum.failed(error.to_string()),
        }
    }
    sum
}

async fn one_run(
    connection: &Connection,
    body: &Json,
    figures: &mut ClientFigures,
) -> Result<(), ClientError> {
    let begin = Instant::now();
    let started = connection.start(body).await?;
    figures.start.push(begin.elapsed());
    let mut stream = connection.follow(&started.run_id, 0).await?;
    let mut is_first = true;
    while let Some(event) = stream.next().await? {
        match event.name.as_str() {
            "StepStarted" if is_first => {
                is_first = false;
                figures.first_step.push(begin.elapsed());
            }
            "end" => {
                figures.end.push(begin.elapsed());
                return Ok(());
            }
            "problem" => {
                figures.failed(format!("{}: {}", started.run_id, event.data));
                return Ok(());
            }
            _ => {}
        }
    }
    figures.failed(format!(
        "{}: the stream ended before the run",
        started.run_id
    ));
    Ok(())
}
