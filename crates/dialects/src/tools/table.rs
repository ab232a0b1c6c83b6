//! The table of tools: one row for each kind, with its fields. Validation ([`super::task`]), the JSON
//! Schemas ([`crate::schema`]), the tables in the documents, the pages of error codes and the worker's
//! dispatch derive from it.
//!
//! A new tool is a row here and a module of the worker. Not here: running anything.

use super::kinds::{CodeFamily, FieldShape, FieldSpec, PipelineKind, RunBy, ToolKind};

const fn key(names: &'static [&'static str], shape: FieldShape, help: &'static str) -> FieldSpec {
    FieldSpec {
        names,
        shape,
        required: false,
        help,
    }
}

const fn needed(
    names: &'static [&'static str],
    shape: FieldShape,
    help: &'static str,
) -> FieldSpec {
    FieldSpec {
        names,
        shape,
        required: true,
        help,
    }
}

/// Fields that every kind takes, beside `name`, `kind`, `spec`, `set`, `set_ctx` and `set_iter`.
pub const COMMON: &[FieldSpec] = &[
    key(
        &["description", "desc"],
        FieldShape::Any,
        "What the task is for.",
    ),
    key(
        &["args", "input"],
        FieldShape::Map,
        "Arguments, rendered by the worker.",
    ),
    key(
        &["auth", "credential"],
        FieldShape::Any,
        "The name of a credential, an address, or a mapping.",
    ),
    key(
        &["timeout", "timeout_s", "timeout_seconds"],
        FieldShape::Duration,
        "Longest time that one execution may take.",
    ),
    key(
        &["assert"],
        FieldShape::Map,
        "`expects` and `returns`: keys that must be present.",
    ),
    key(
        &["select", "output_select"],
        FieldShape::Commands,
        "Paths of a large result that stay in the log, such as `rows.0.id`.",
    ),
];

const SQL: FieldSpec = needed(
    &["commands", "command", "query", "sql"],
    FieldShape::Commands,
    "SQL statements.",
);
const PARAMS: FieldSpec = key(
    &["params"],
    FieldShape::Any,
    "Values for the placeholders of the statements.",
);
/// Stands in for what is needed of its kind: the code, the SQL.
pub(super) const SCRIPT: FieldSpec = key(
    &["script"],
    FieldShape::Script,
    "The path of a file with the program or the statements, or `{uri, source: {type: file}}`.",
);
const CWD: FieldSpec = key(&["cwd"], FieldShape::Text, "The working directory.");
const ENV: FieldSpec = key(&["env"], FieldShape::Map, "Environment variables.");

/// Every kind of tool.
pub const KINDS: &[ToolKind] = &[
    ToolKind {
        name: "http",
        aliases: &[],
        summary: "HTTP requests with authentication, redirects, limits, `Retry-After`, and one idempotency key per task",
        run_by: RunBy::Tool,
        keys: &[
            key(&["method"], FieldShape::Method, "`GET` if absent."),
            needed(&["url", "endpoint"], FieldShape::Text, "The address."),
            key(&["params", "query"], FieldShape::Any, "The query string."),
            key(&["headers"], FieldShape::Any, "Request headers."),
            key(&["json"], FieldShape::Any, "A JSON body."),
            key(
                &["body", "data", "payload"],
                FieldShape::Any,
                "A body; a mapping is sent as JSON.",
            ),
            key(&["form"], FieldShape::Any, "A form body."),
            key(
                &["follow_redirects"],
                FieldShape::Flag,
                "Whether redirects are followed.",
            ),
            key(
                &["verify_ssl"],
                FieldShape::Flag,
                "Whether certificates are checked.",
            ),
        ],
        family: Some(CodeFamily {
            prefix: "HTTP_",
            has: |status| status.len() == 3 && status.parse::<u16>().is_ok(),
            page: "HTTP_STATUS",
        }),
    },
    ToolKind {
        name: "shell",
        aliases: &[],
        summary: "Shell commands in a process group of their own, killed with every process they started",
        run_by: RunBy::Tool,
        keys: &[
            needed(
                &["cmds", "cmd", "command", "commands"],
                FieldShape::Commands,
                "Commands, run in order.",
            ),
            CWD,
            ENV,
        ],
        family: None,
    },
    ToolKind {
        name: "python",
        aliases: &[],
        summary: "Python code, each call in a process forked from a warm interpreter",
        run_by: RunBy::Tool,
        keys: &[
            needed(
                &["code"],
                FieldShape::Code,
                "The program, passed on as written and never rendered; `args` are its variables.",
            ),
            SCRIPT,
            key(&["libs"], FieldShape::Any, "Modules to import."),
            ENV,
            CWD,
        ],
        family: Some(CodeFamily {
            prefix: "PY_",
            has: |exception| !exception.is_empty(),
            page: "PY_EXCEPTION",
        }),
    },
    ToolKind {
        name: "postgres",
        aliases: &[],
        summary: "SQL on PostgreSQL in one transaction, rows with their types, cancelled on the server",
        run_by: RunBy::Tool,
        keys: &[SQL, SCRIPT, PARAMS],
        family: Some(CodeFamily {
            prefix: "PG_",
            has: |state| state.len() == 5 && state.bytes().all(|byte| byte.is_ascii_alphanumeric()),
            page: "PG_SQLSTATE",
        }),
    },
    ToolKind {
        name: "sqlite",
        aliases: &[],
        summary: "SQL on a SQLite file in one transaction, with the engine that is built in",
        run_by: RunBy::Tool,
        keys: &[
            needed(
                &["database", "path", "file"],
                FieldShape::Text,
                "The database file.",
            ),
            SQL,
            SCRIPT,
            PARAMS,
        ],
        family: None,
    },
    ToolKind {
        name: "duckdb",
        aliases: &[],
        summary: "SQL on DuckDB, in a file or in memory, with the program `duckdb`",
        run_by: RunBy::Tool,
        keys: &[
            key(&["database"], FieldShape::Text, "The database file."),
            SQL,
            SCRIPT,
            PARAMS,
        ],
        family: None,
    },
    ToolKind {
        name: "redis",
        aliases: &[],
        summary: "Commands on Redis or Valkey: in order, as a pipeline or as a transaction, streams included",
        run_by: RunBy::Tool,
        keys: &[
            needed(
                &["commands", "command"],
                FieldShape::Any,
                "A command as text, or a list of commands, each a text or a list of its arguments.",
            ),
            key(
                &["url"],
                FieldShape::Text,
                "The server, such as redis://host:6379/0; otherwise `auth` says where it is.",
            ),
            key(
                &["pipeline"],
                FieldShape::Flag,
                "Whether all commands are sent at once.",
            ),
            key(
                &["transaction"],
                FieldShape::Flag,
                "Whether the commands are executed together, with MULTI and EXEC.",
            ),
        ],
        family: Some(CodeFamily {
            prefix: "REDIS_",
            has: |word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase()),
            page: "REDIS_ERROR",
        }),
    },
    ToolKind {
        name: "noop",
        aliases: &[],
        summary: "Nothing; returns its arguments",
        run_by: RunBy::Pipeline(PipelineKind::Noop),
        keys: &[],
        family: None,
    },
    ToolKind {
        name: "sleep",
        aliases: &[],
        summary: "A wait of a given time; a long wait is durable and holds no worker",
        run_by: RunBy::Pipeline(PipelineKind::Sleep),
        keys: &[needed(
            &["duration", "seconds"],
            FieldShape::Duration,
            "How long to wait.",
        )],
        family: None,
    },
    ToolKind {
        name: "playbook",
        aliases: &["workflow"],
        summary: "Another definition, in any language, as a run with its own log",
        run_by: RunBy::Pipeline(PipelineKind::Playbook),
        keys: &[
            needed(&["path"], FieldShape::Text, "The definition to run."),
            key(
                &["return_step"],
                FieldShape::Text,
                "The step whose output is the result.",
            ),
            key(
                &["args", "input", "payload"],
                FieldShape::Map,
                "Arguments, rendered by the worker.",
            ),
        ],
        family: None,
    },
    ToolKind {
        name: "workbook",
        aliases: &[],
        summary: "Tasks that the playbook names once in its `workbook`",
        run_by: RunBy::Pipeline(PipelineKind::Workbook),
        keys: &[],
        family: None,
    },
    ToolKind {
        name: "wait",
        aliases: &[],
        summary: "A wait for an event; durable, and holds no worker",
        run_by: RunBy::Engine,
        keys: &[needed(
            &["event", "event_type"],
            FieldShape::Plain,
            "The type of the event that ends the wait.",
        )],
        family: None,
    },
    ToolKind {
        name: "manual",
        aliases: &[],
        summary: "A wait until a person completes the step; durable, and holds no worker",
        run_by: RunBy::Engine,
        keys: &[],
        family: None,
    },
];
