//! The host: this process as a worker of a Temporal server, on threads of its own.

use std::sync::Arc;
use std::time::Duration;

use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{
    Client, WorkflowDescribeOptions, WorkflowExecutionStatus, WorkflowSignalOptions,
    WorkflowStartOptions,
};
use temporalio_common::search_attributes::SearchAttributes;
use temporalio_sdk::runtime::worker_tuner::{FixedSizeSlotSupplier, TunerHolder};
use temporalio_sdk::{Runtime, Worker, WorkerOptions};

use super::activities::EngineActivities;
use super::connection::{connect, register_attributes, watch_health};
use super::interpreter::{DEFINITION, STATUS, TENANT};
use super::workflow::{RunInput, RunWorkflow};
use crate::address::TemporalAddress;
use crate::bell::{Bell, Ring, RunNews};
use crate::driver::Driver;
use crate::host_thread::{HostError, HostParts, HostThread, Ready, Stopped};

/// How long the worker rests before it begins again after a failure.
const REST: Duration = Duration::from_secs(1);
/// How long a workflow task may lie in the queue of one worker before any worker gets it: the time until others notice that a worker
/// is gone.
const STICKY: Duration = Duration::from_secs(2);
/// How long a worker that stops waits for the end of workflows, and for its own.
const CLOSING: Duration = Duration::from_secs(3);
/// How long the last news of a run may take to come here.
const LAST_NEWS: Duration = Duration::from_millis(100);
/// Local activities at a time: turns are short.
const TURNS: usize = 100;

/// This process as a worker of a Temporal server.
#[derive(Debug)]
pub struct TemporalHost {
    _thread: HostThread,
}

impl TemporalHost {
    /// Connects and starts to work.
    pub fn start(address: TemporalAddress, parts: HostParts) -> Result<TemporalHost, HostError> {
        let serve = move |ready, stopped| serve(address, parts, ready, stopped);
        Ok(TemporalHost {
            _thread: HostThread::start("stepwell-temporal", serve)?,
        })
    }
}

async fn serve(address: TemporalAddress, setup: HostParts, ready: Ready, mut stopped: Stopped) {
    let client = match connect(&address, &setup.identity).await {
        Ok(client) => client,
        Err(error) => return drop(ready.send(Err(error))),
    };
    let core = match Runtime::from_current_tokio(Default::default()) {
        Ok(core) => core,
        Err(error) => {
            return drop(ready.send(Err(HostError::Unreachable(error.to_string()))));
        }
    };
    let searchable = register_attributes(&client, &address.namespace).await;
    let place = setup.place;
    let queue = format!("stepwell-{}", place.trim_end_matches('/'));
    let bell = Bell::new(
        setup.driver.clone(),
        setup.changes,
        Workflows {
            client: client.clone(),
            queue: queue.clone(),
            place: place.clone(),
            heartbeat_ms: u64::try_from(address.heartbeat.as_millis()).unwrap_or(u64::MAX),
            searchable,
        },
    );
    let bell = tokio::spawn(bell.run());
    let asked = (client.clone(), address.namespace.clone());
    let health = tokio::spawn(watch_health(asked, setup.health));
    let _ = ready.send(Ok(()));
    loop {
        let options = options(&queue, &setup.driver, (setup.parallel, setup.grace));
        let worker = options.and_then(|options| {
            Worker::new(&core, client.clone(), options).map_err(|error| error.to_string())
        });
        match worker {
            Ok(mut worker) => {
                let shutdown = worker.shutdown_handle();
                let run = worker.run();
                tokio::pin!(run);
                let ended = tokio::select! {
                    ended = &mut run => ended,
                    _ = &mut stopped => {
                        // Workflows of runs that have ended end now: there may be no worker for them later.
                        let closing = close_ended(&client, &place, &setup.driver);
                        let closing = tokio::time::timeout(CLOSING, closing);
                        tokio::select! {
                            _ = closing => {}
                            _ = &mut run => {}
                        }
                        shutdown();
                        tokio::select! {
                            () = setup.driver.until_idle(setup.grace, CLOSING) => {}
                            _ = &mut run => {}
                        }
                        break;
                    }
                };
                if let Err(error) = ended {
                    tracing::warn!(%error, "the worker of Temporal ended; it begins again");
                }
            }
            Err(error) => tracing::warn!(error, "the worker of Temporal cannot begin yet"),
        }
        tokio::select! {
            () = tokio::time::sleep(REST) => {}
            _ = &mut stopped => break,
        }
    }
    bell.abort();
    health.abort();
}

/// Waits until the workflows of runs that have ended have ended, too.
async fn close_ended(client: &Client, place: &str, driver: &Driver) {
    tokio::time::sleep(LAST_NEWS).await;
    for run_id in driver.take_ended() {
        let workflow = client.get_workflow_handle::<RunWorkflow>(format!("{place}{run_id}"));
        while let Ok(found) = workflow.describe(WorkflowDescribeOptions::default()).await {
            if found.status() != WorkflowExecutionStatus::Running {
                break;
            }
            tokio::time::sleep(LAST_NEWS / 2).await;
        }
    }
}

fn options(
    queue: &str,
    driver: &Arc<Driver>,
    (parallel, grace): (usize, Duration),
) -> Result<WorkerOptions, String> {
    let slots = FixedSizeSlotSupplier::new;
    let tuner = TunerHolder::builder()
        .workflow_task_slot_supplier(slots(TURNS))
        .activity_task_slot_supplier(slots(parallel.max(1)))
        .local_activity_task_slot_supplier(slots(TURNS))
        .nexus_task_slot_supplier(slots(1))
        .build();
    let activities = EngineActivities {
        driver: driver.clone(),
    };
    let options = WorkerOptions::new(queue)
        .tuner(tuner)
        .sticky_queue_schedule_to_start_timeout(STICKY)
        .graceful_shutdown_period(grace)
        .register_activities(activities)
        .register_workflow::<RunWorkflow>()
        .map_err(|error| error.to_string())?;
    Ok(options.build())
}

/// Tells the workflow of a run, and starts it if there is none.
struct Workflows {
    client: Client,
    queue: String,
    place: String,
    heartbeat_ms: u64,
    searchable: bool,
}

impl Ring for Workflows {
    async fn ring(&self, news: &RunNews) -> Result<(), String> {
        let id = format!("{}{}", self.place, news.run_id);
        if news.ended {
            let workflow = self.client.get_workflow_handle::<RunWorkflow>(id);
            let told = workflow.signal(
                RunWorkflow::look,
                "ended".to_owned(),
                WorkflowSignalOptions::default(),
            );
            return match told.await {
                // It has ended too, or never was.
                Ok(()) | Err(WorkflowInteractionError::NotFound(_)) => Ok(()),
                Err(error) => Err(error.to_string()),
            };
        }
        let input = RunInput {
            run_id: news.run_id.clone(),
            seen: None,
            status: news.status.clone(),
            rotation: 0,
            heartbeat_ms: self.heartbeat_ms,
            searchable: self.searchable,
        };
        let attributes = self.searchable.then(|| {
            SearchAttributes::new([
                STATUS.value_set(news.status.clone()),
                TENANT.value_set(news.tenant.clone()),
                DEFINITION.value_set(news.definition.clone()),
            ])
        });
        let options = WorkflowStartOptions::new(&*self.queue, id)
            .maybe_search_attributes(attributes)
            .build();
        let started = self.client.signal_with_start_workflow(
            RunWorkflow::run,
            input,
            RunWorkflow::look,
            "changed".to_owned(),
            options,
        );
        started.await.map(drop).map_err(|error| error.to_string())
    }
}
