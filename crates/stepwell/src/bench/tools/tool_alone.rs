//! Measures a tool without the engine, with the same concurrency.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use stepwell_worker::step_log::StepLog;
use stepwell_worker::tool::{TaskContext, TaskLimits, Tool, ToolCall};
use tokio::runtime::Builder;

use super::tool_report::CallSample;
use crate::bench::resource_usage::{self, CpuUsage};

/// Calls a tool repeatedly for `time`.
pub(super) fn measure(
    tool: &Arc<dyn Tool>,
    call: &ToolCall,
    at_a_time: u32,
    time: Duration,
) -> Result<CallSample> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        // Warm-up: interpreters start and connections open before the measurement.
        callers(tool, call, at_a_time, time.min(Duration::from_secs(1))).await?;
        let (cpu, begin) = (CpuUsage::now(), Instant::now());
        let latencies = callers(tool, call, at_a_time, time).await?;
        Ok(CallSample {
            done: latencies.len() as u64,
            took: begin.elapsed(),
            cpu: CpuUsage::now().since(cpu),
            resident: resource_usage::resident(),
            latencies,
        })
    })
}

/// The duration of each call in microseconds, sorted.
async fn callers(
    tool: &Arc<dyn Tool>,
    call: &ToolCall,
    at_a_time: u32,
    time: Duration,
) -> Result<Vec<u64>> {
    let enough = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..at_a_time)
        .map(|_| tokio::spawn(again(tool.clone(), call.clone(), enough.clone())))
        .collect();
    tokio::time::sleep(time).await;
    enough.store(true, Ordering::Relaxed);
    let mut all = Vec::new();
    for caller in callers {
        all.extend(caller.await??);
    }
    all.sort_unstable();
    Ok(all)
}

async fn again(tool: Arc<dyn Tool>, call: ToolCall, enough: Arc<AtomicBool>) -> Result<Vec<u64>> {
    let limits = TaskLimits::default();
    let mut took = Vec::new();
    loop {
        let begin = Instant::now();
        let cx = TaskContext {
            run_id: "alone".into(),
            step_id: "alone".into(),
            idempotency_key: "alone".into(),
            task_key: "alone".into(),
            attempt: 1,
            execution: 3,
            fence: 41,
            trace: None,
            limits,
            deadline: tokio::time::Instant::now() + limits.timeout,
            cancelled: Default::default(),
            log: StepLog::nowhere(),
            redactor: Default::default(),
        };
        if let Some(error) = tool.run(&call, &cx).await.error {
            bail!("a call failed: {error}");
        }
        took.push(u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX));
        if enough.load(Ordering::Relaxed) {
            return Ok(took);
        }
    }
}
