//! The step of each measured tool, as a playbook and as a call of the tool alone.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde_json::{Map, Value as Json, json};
use stepwell_dialects::{Source, load};
use stepwell_kernel::plan::{Plan, Work};
use stepwell_worker::tool::{Tool, ToolCall};
use stepwell_worker::tools::http::Http;
use stepwell_worker::tools::postgres::Postgres;
use stepwell_worker::tools::python::{Python, PythonOptions};
use stepwell_worker::tools::shell::Shell;
use stepwell_worker::tools::sqlite::Sqlite;
use stepwell_worker::{Failure, Handlers};

use crate::bench::workload::{self, Workload};

/// A tool that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum MeasuredTool {
    Noop,
    Handler,
    Shell,
    Python,
    PythonCold,
    Http,
    Postgres,
    Sqlite,
}

/// The servers and files that tools use.
pub(super) struct ToolSetting {
    /// The address of the local HTTP server.
    pub(super) server: String,
    /// The address of a PostgreSQL server, if there is one.
    pub(super) postgres: Option<String>,
    /// The file that `sqlite` reads.
    pub(super) database: PathBuf,
}

impl MeasuredTool {
    /// The given tools, or all tools.
    pub(super) fn chosen(named: &[MeasuredTool]) -> Vec<MeasuredTool> {
        match named {
            [] => MeasuredTool::value_variants().to_vec(),
            named => named.to_vec(),
        }
    }

    pub(super) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |it| it.get_name().to_owned())
    }

    /// The reason why the tool cannot be measured; none if it can.
    pub(super) fn left_out(self, setting: &ToolSetting) -> Option<&'static str> {
        let missing = self == MeasuredTool::Postgres && setting.postgres.is_none();
        missing.then_some("a server is required: --postgres URL")
    }

    /// The `tool` block of a step; none for handlers.
    fn block(self, setting: &ToolSetting) -> Option<Json> {
        Some(match self {
            MeasuredTool::Handler => return None,
            MeasuredTool::Noop => json!({ "kind": "noop" }),
            MeasuredTool::Shell => json!({ "kind": "shell", "cmds": ["true"] }),
            MeasuredTool::Python | MeasuredTool::PythonCold => {
                json!({ "kind": "python", "code": "result = 1" })
            }
            MeasuredTool::Http => json!({ "kind": "http", "method": "GET", "url": setting.server }),
            MeasuredTool::Postgres => json!({
                "kind": "postgres",
                "auth": { "dsn": setting.postgres },
                "query": "SELECT 1",
            }),
            MeasuredTool::Sqlite => json!({
                "kind": "sqlite",
                "database": setting.database,
                "query": "SELECT 1",
            }),
        })
    }

    /// A plan of sequential steps with this tool.
    pub(super) fn plan(self, setting: &ToolSetting, steps: u32) -> Result<Arc<Plan>> {
        let Some(block) = self.block(setting) else {
            return Ok(Workload::Chain(steps).plan()?);
        };
        let name = |no: u32| format!("step_{no}");
        let step = |no: u32| {
            let mut step = json!({ "step": name(no), "tool": block });
            if no + 1 < steps {
                step["next"] = json!({ "arcs": [{ "step": name(no + 1) }] });
            }
            step
        };
        let playbook = json!({
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": { "name": "bench", "path": "bench" },
            "workflow": (0..steps).map(step).collect::<Vec<_>>(),
        });
        let text = playbook.to_string();
        let loaded = match Source::from_bytes("bench.json", text.as_bytes()) {
            Ok(source) => load(&source),
            Err(problem) => bail!("{}", problem.message),
        };
        match (loaded.plan, loaded.problems.first()) {
            (Some(plan), _) => Ok(Arc::new(plan)),
            (None, Some(problem)) => bail!("{}: {}", problem.code, problem.message),
            (None, None) => bail!("the playbook of the benchmark cannot be loaded"),
        }
    }

    /// A tool that replaces a built-in tool of the worker.
    pub(super) fn own_tool(self) -> Option<(&'static str, Arc<dyn Tool>)> {
        (self == MeasuredTool::PythonCold).then(|| ("python", cold()))
    }

    pub(super) fn handlers(self) -> Handlers {
        let none = Handlers::new();
        match self {
            MeasuredTool::Handler => none.on(
                workload::QUEUE,
                workload::OPERATION,
                |_, _: Json| async move { Ok::<(), Failure>(()) },
            ),
            MeasuredTool::Noop
            | MeasuredTool::Shell
            | MeasuredTool::Python
            | MeasuredTool::PythonCold
            | MeasuredTool::Http
            | MeasuredTool::Postgres
            | MeasuredTool::Sqlite => none,
        }
    }

    /// The tool and the call of a step; none if there is no tool to call.
    pub(super) fn alone(self, plan: &Plan) -> Option<(Arc<dyn Tool>, ToolCall)> {
        let tool: Arc<dyn Tool> = match self {
            MeasuredTool::Noop | MeasuredTool::Handler => return None,
            MeasuredTool::Shell => Arc::new(Shell::new(Default::default())),
            MeasuredTool::Python => Arc::new(Python::new(PythonOptions::default())),
            MeasuredTool::PythonCold => cold(),
            MeasuredTool::Http => Arc::new(Http::default()),
            MeasuredTool::Postgres => Arc::new(Postgres::new(Default::default())),
            MeasuredTool::Sqlite => Arc::new(Sqlite::new(Default::default())),
        };
        let Work::Pipeline { tasks } = &plan.net().steps.first()?.work else {
            return None;
        };
        let task = tasks.get(0)?.as_object()?;
        let auth = task.get("auth").and_then(Json::as_object).cloned();
        let apart = ["name", "kind", "auth", "args", "rules"];
        let fields: Map<String, Json> = task
            .iter()
            .filter(|(name, _)| !apart.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let call = ToolCall {
            name: "alone".to_owned(),
            fields,
            args: Map::new(),
            auth,
        };
        Some((tool, call))
    }
}

fn cold() -> Arc<dyn Tool> {
    Arc::new(Python::new(PythonOptions {
        warm: false,
        ..PythonOptions::default()
    }))
}
