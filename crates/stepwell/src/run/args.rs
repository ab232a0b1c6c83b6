//! The options of `stepwell run` and `stepwell resume`, and the command that continues a run with the same options.

use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::Args;

use crate::actor::ActorArgs;
use crate::output_format::OutputFormat;
use crate::patience::WriteBudget;
use crate::place::PlaceArgs;
use crate::sink::SinkArgs;
use crate::store::word;
use crate::work::{ConfigArgs, DataArgs};

use super::start_options::{IdleArgs, LimitArgs, StartArgs};

/// Run a definition to its end
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell run order.yaml
  stepwell run --plan-ref order.ref.json                               fetch the definition, check its hash
  stepwell run order.yaml --resume                                     continue the latest open run
  stepwell run order.yaml --input customer.id=42 --input express=true
  stepwell run order.yaml --store postgresql://me@db/stepwell --parallel 64
  stepwell run order.yaml --request-id order-7                         start once, however often called
  stepwell run order.yaml --start-at 10m --priority 5
  stepwell run order.yaml --max-runs 4 --when-full reject
  stepwell run nightly.yaml --idle                                     wait for the trigger, run after run
  stepwell run order.yaml --events > log.jsonl
  stepwell run order.yaml --sink hook=webhook:https://example.com/events
  stepwell run order.yaml --engine temporal://127.0.0.1:7233/default   a Temporal server moves the run
  stepwell run order.yaml --engine mock --virtual-time                 simulate work, skip waits
  stepwell run order.yaml --engine mock --fail charge-card=external    a step fails in every attempt
  stepwell run order.yaml --engine mock --fail charge-card@1           a step fails in its first attempt
  stepwell run order.yaml --engine mock --fail ship~undo               the undo of a step fails

Every step of the run is recorded in the store (see --store). After Ctrl-C no new step starts, the
command waits up to 10 seconds for running steps, and then prints the command that continues the
run; a second Ctrl-C stops immediately. A store that does not answer is waited for (see
--store-patience), and so is a SQLite store that another process owns. After a crash, --resume continues the latest open run of
the same definition: completed steps stay completed, and steps in flight are executed again unless
they are `atMostOnce`, or their time limit is over by then. Other runs of the store are not executed; only their messages and
expired leases are handled, and on SQLite their timers.

Steps with a tool (docs/tools lists the tools) are executed by this process. STEPWELL_PYTHON sets
the Python interpreter or virtual environment, STEPWELL_DUCKDB the program duckdb,
STEPWELL_SECRETS the secret providers (docs/secrets.md). A step without a tool needs a program
with a handler for its operation (docs/handlers.md); such a definition is refused here. Programs
that a step starts see which execution started them: STEPWELL_RUN_ID, STEPWELL_STEP_ID,
STEPWELL_EXECUTION, STEPWELL_ATTEMPT, STEPWELL_IDEMPOTENCY_KEY, STEPWELL_TASK_KEY and
STEPWELL_FENCE (docs/effects.md).
The output of steps is shown and stored: `stepwell runs logs RUN STEP`.

The mock engine uses the real kernel and log and simulates the work: steps succeed with an empty
result unless --fail makes them fail; people approve and events arrive after one second. The tasks of
a step and their policy rules (retry, jump, …) are not simulated: a step is executed as a whole.

With --sink every event is also delivered to a webhook or a broker, at least once and in order. At the end of the
run there are 5 seconds for pending deliveries; the rest is kept and reported (`stepwell outbox
--help`).

Classes of --fail: timeout, rate_limit, transient, transport, validation, policy, auth, conflict,
agent, external, governance, lease_lost, expression, rejected, cancelled, unknown (the default),
and crash: the worker crashes. STEP is the name of a step, or one visit or item: `fetch#2`, `load[3]`.

Exit codes: 0 the run succeeded (or partially), 1 the definition has errors or the store cannot
be used, 2 wrong usage or no worker serves a step, 3 the run failed, 4 the run was cancelled, 5 the run did not end and needs
a person, an event or a worker, 130 interrupted.")]
pub(crate) struct RunArgs {
    /// File with the definition; `-` reads standard input
    #[arg(value_name = "FILE", required_unless_present = "plan_ref")]
    pub(super) file: Option<String>,
    /// JSON file with a reference to the definition: uri (file:, https:, s3:, gs:, az:), sha256, schemaVersion, planId,
    /// planVersion. `[plans] allow` in stepwell.toml lists the places that it may be fetched from
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "resume"])]
    pub(super) plan_ref: Option<String>,
    /// Parameter of the run; VALUE is JSON if it is valid JSON, else text; dots in KEY make nested keys
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub(super) input: Vec<String>,
    /// YAML or JSON file with parameters; `--input` has priority
    #[arg(long, value_name = "FILE")]
    pub(super) input_file: Option<PathBuf>,
    /// Skip waiting times: use a virtual clock from 2026-01-01T00:00:00Z and a memory store
    #[arg(long)]
    pub(super) virtual_time: bool,
    /// Continue the latest open run of this definition, or the run of --run-id
    #[arg(long, conflicts_with_all = ["virtual_time", "input", "input_file"])]
    pub(super) resume: bool,
    /// Id of the new run: `run_` and 1 to 200 letters, digits, `-` or `_`
    #[arg(long, value_name = "ID")]
    pub(super) run_id: Option<String>,
    #[command(flatten)]
    pub(super) start: StartArgs,
    #[command(flatten)]
    pub(super) idle: IdleArgs,
    #[command(flatten)]
    pub(super) go: GoArgs,
}

impl RunArgs {
    /// The words of the command line that name the definition.
    pub(super) fn definition_words(&self) -> String {
        match (&self.file, &self.plan_ref) {
            (_, Some(reference)) => format!("--plan-ref {}", word(reference)),
            (file, None) => word(file.as_deref().unwrap_or_default()),
        }
    }

    /// The command that waits for the trigger again.
    pub(super) fn idle_command(&self) -> String {
        let mut text = format!("stepwell run {} --idle", self.definition_words());
        for input in &self.input {
            text.push_str(&format!(" --input {}", word(input)));
        }
        if let Some(file) = &self.input_file {
            text.push_str(&format!(" --input-file {}", word(&file.to_string_lossy())));
        }
        text.push_str(&self.go.flags());
        text
    }
}

/// Continue a run of the store
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell resume run_0199f3a2-...
  stepwell resume run_0199f3a2-... --store postgresql://me@db/stepwell
  stepwell resume run_0199f3a2-... --patch approved=true     continue a stalled run

The definition is in the store, so its file is not needed. The definitions of child runs that have
not started yet are searched near the original file. On PostgreSQL a run of a killed process can
be resumed after 5 seconds.

A paused run stays paused until `stepwell runs resume RUN`.

Exit codes: as `stepwell run`.")]
pub(crate) struct ResumeArgs {
    /// Run id; `stepwell runs list --open` lists the open runs
    #[arg(value_name = "RUN")]
    pub(super) run: String,
    #[command(flatten)]
    pub(super) go: GoArgs,
}

/// Options of `run` and `resume`.
#[derive(Debug, Args)]
pub(super) struct GoArgs {
    /// Engine that moves the run: `native`, `mock` (simulated work), `temporal://HOST:PORT/NAMESPACE`, or
    /// `conductor+http://HOST:PORT/api`
    /// (docs/engines.md); `stepwell engines` lists what each can do
    #[arg(long, value_name = "ENGINE", default_value = "native")]
    pub(super) engine: String,
    #[command(flatten)]
    pub(super) store: PlaceArgs,
    #[command(flatten)]
    pub(super) data: DataArgs,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    #[command(flatten)]
    pub(super) actor: ActorArgs,
    #[command(flatten)]
    pub(super) sinks: SinkArgs,
    /// Maximum number of concurrent steps
    #[arg(long, value_name = "N", default_value = "32")]
    pub(super) parallel: NonZeroU16,
    #[command(flatten)]
    pub(super) limits: LimitArgs,
    /// How long writing the result of a step may take before the step fails with WRITE_LATENCY_EXCEEDED; on Temporal and
    /// Conductor: before work goes on without the store [default: --store-patience; 3s on Temporal and Conductor]
    #[arg(long, value_name = "DURATION")]
    pub(super) write_budget: Option<WriteBudget>,
    /// Make a step fail, or its undo with `STEP~undo`; `run --help` lists the classes
    #[arg(long, value_name = "STEP[=CLASS][@ATTEMPT]")]
    pub(super) fail: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    pub(super) output: OutputFormat,
    /// Print the event log as JSON lines
    #[arg(long)]
    pub(super) events: bool,
    /// Duration of simulated work in milliseconds
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) work_ms: u64,
    /// Approve the run if the definition requires an approval
    #[arg(long)]
    pub(super) approve: bool,
    /// Set a key of ctx as an operator when the run is stalled
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) patch: Vec<String>,
    /// Stop after this many events: simulated results can make a workflow repeat without end
    /// [default: 500000 with --engine mock, else none]
    #[arg(long, value_name = "N")]
    pub(super) max_events: Option<u64>,
}

impl GoArgs {
    /// The command that goes on with a run.
    pub(super) fn resume_command(&self, run_id: &str) -> String {
        format!("stepwell resume {}{}", word(run_id), self.flags())
    }

    /// The options that the continuation of a run needs too.
    fn flags(&self) -> String {
        let mut text = String::new();
        if self.engine != "native" {
            text.push_str(&format!(" --engine {}", word(&self.engine)));
        }
        text.push_str(&self.store.flag());
        text.push_str(&self.data.flag());
        text.push_str(&self.config.flag());
        text.push_str(&self.actor.flags());
        text.push_str(&self.sinks.flags());
        text.push_str(&self.limits.flags());
        if let Some(budget) = self.write_budget {
            text.push_str(&format!(" --write-budget {budget}"));
        }
        if self.work_ms > 0 {
            text.push_str(&format!(" --work-ms {}", self.work_ms));
        }
        for rule in &self.fail {
            text.push_str(&format!(" --fail {}", word(rule)));
        }
        text
    }
}
