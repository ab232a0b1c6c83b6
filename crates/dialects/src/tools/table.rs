//! The table of tools: one row for each kind, with its fields. Validation ([`super::task`]), the JSON
//! Schemas ([`crate::schema`]), the tables in the documents, the pages of error codes and the worker's
//! dispatch derive from it.
//!
//! A new tool is a row here and a module of the worker. Not here: running anything.

use super::kinds::{CodeFamily, FieldReach, FieldShape, FieldSpec, PipelineKind, RunBy, ToolKind};

const fn key(
    names: &'static [&'static str],
    shape: FieldShape,
    reach: FieldReach,
    help: &'static str,
) -> FieldSpec {
    FieldSpec {
        names,
        shape,
        reach,
        required: false,
        help,
    }
}

const fn needed(
    names: &'static [&'static str],
    shape: FieldShape,
    reach: FieldReach,
    help: &'static str,
) -> FieldSpec {
    FieldSpec {
        names,
        shape,
        reach,
        required: true,
        help,
    }
}

/// Fields that every kind takes, beside `name`, `kind`, `spec`, `set`, `set_ctx` and `set_iter`.
pub const COMMON: &[FieldSpec] = &[
    key(
        &["description", "desc"],
        FieldShape::Any,
        FieldReach::Data,
        "What the task is for.",
    ),
    key(
        &["args", "input"],
        FieldShape::Map,
        FieldReach::Data,
        "Arguments, rendered by the worker.",
    ),
    key(
        &["auth", "credential"],
        FieldShape::Any,
        FieldReach::Data,
        "The name of a credential, an address, or a mapping.",
    ),
    key(
        &["timeout", "timeout_s", "timeout_seconds"],
        FieldShape::Duration,
        FieldReach::Data,
        "Longest time that one execution may take.",
    ),
    key(
        &["assert"],
        FieldShape::Map,
        FieldReach::Data,
        "`expects` and `returns`: keys that must be present.",
    ),
    key(
        &["select", "output_select"],
        FieldShape::Commands,
        FieldReach::Data,
        "Paths of a large result that stay in the log, such as `rows.0.id`.",
    ),
];

const SQL: FieldSpec = needed(
    &["commands", "command", "query", "sql"],
    FieldShape::Commands,
    FieldReach::Sql,
    "SQL statements.",
);
const PARAMS: FieldSpec = key(
    &["params"],
    FieldShape::Any,
    FieldReach::Data,
    "Values for the placeholders of the statements.",
);
/// Stands in for what is needed of its kind: the code, the SQL.
const fn script(reach: FieldReach) -> FieldSpec {
    key(
        &["script"],
        FieldShape::Script,
        reach,
        "The path of a file with the program or the statements, or `{uri, source: {type: file}}`.",
    )
}
const SQL_SCRIPT: FieldSpec = script(FieldReach::SqlScript);
const CWD: FieldSpec = key(
    &["cwd"],
    FieldShape::Text,
    FieldReach::Path,
    "The working directory.",
);
const ENV: FieldSpec = key(
    &["env"],
    FieldShape::Map,
    FieldReach::Environment,
    "Environment variables.",
);

/// Every kind of tool.
pub const KINDS: &[ToolKind] = &[
    ToolKind {
        name: "http",
        aliases: &[],
        summary: "HTTP requests with authentication, redirects, limits, `Retry-After`, and one idempotency key per task",
        run_by: RunBy::Tool,
        keys: &[
            key(
                &["method"],
                FieldShape::OneOf(&["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]),
                FieldReach::Data,
                "`GET` if absent.",
            ),
            needed(
                &["url", "endpoint"],
                FieldShape::Text,
                FieldReach::Address,
                "The address.",
            ),
            key(
                &["params", "query"],
                FieldShape::Any,
                FieldReach::Data,
                "The query string.",
            ),
            key(
                &["headers"],
                FieldShape::Any,
                FieldReach::Data,
                "Request headers.",
            ),
            key(&["json"], FieldShape::Any, FieldReach::Data, "A JSON body."),
            key(
                &["body", "data", "payload"],
                FieldShape::Any,
                FieldReach::Data,
                "A body; a mapping is sent as JSON.",
            ),
            key(&["form"], FieldShape::Any, FieldReach::Data, "A form body."),
            key(
                &["follow_redirects"],
                FieldShape::Flag,
                FieldReach::Data,
                "Whether redirects are followed.",
            ),
            key(
                &["verify_ssl"],
                FieldShape::Flag,
                FieldReach::Data,
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
                FieldReach::Commands,
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
                FieldReach::Data,
                "The program, passed on as written and never rendered; `args` are its variables.",
            ),
            script(FieldReach::ProgramScript),
            key(
                &["libs"],
                FieldShape::Any,
                FieldReach::Data,
                "Modules to import.",
            ),
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
        keys: &[
            needed(
                &["auth", "credential"],
                FieldShape::Any,
                FieldReach::Server,
                "The name of a credential, an address, or a mapping with `dsn`, or with `host`, `user` and others.",
            ),
            SQL,
            SQL_SCRIPT,
            PARAMS,
        ],
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
                FieldReach::Path,
                "The database file.",
            ),
            SQL,
            SQL_SCRIPT,
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
            key(
                &["database"],
                FieldShape::Text,
                FieldReach::PathArgument,
                "The database file.",
            ),
            SQL,
            SQL_SCRIPT,
            PARAMS,
        ],
        family: None,
    },
    ToolKind {
        name: "file",
        aliases: &[],
        summary: "Files below one directory: read, write as a whole, list, delete",
        run_by: RunBy::Tool,
        keys: &[
            needed(
                &["action", "operation"],
                FieldShape::OneOf(&["read", "write", "list", "delete"]),
                FieldReach::Data,
                "What to do.",
            ),
            key(
                &["path"],
                FieldShape::Text,
                FieldReach::PathUnless("root"),
                "The file or directory, relative to `root`; needed except for `list`.",
            ),
            key(
                &["root"],
                FieldShape::Text,
                FieldReach::Path,
                "The directory that paths never lead out of; the worker's directory if absent.",
            ),
            key(
                &["content"],
                FieldShape::Any,
                FieldReach::Data,
                "write: text, `{base64: …}`, or a value that is written as JSON.",
            ),
            key(
                &["overwrite"],
                FieldShape::Flag,
                FieldReach::Data,
                "write: whether an existing file is replaced; true if absent.",
            ),
            key(
                &["format"],
                FieldShape::OneOf(&["text", "json"]),
                FieldReach::Data,
                "read: what the content must be; text or base64 if absent.",
            ),
            key(
                &["recursive"],
                FieldShape::Flag,
                FieldReach::Data,
                "list: whether directories below are listed too.",
            ),
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
                FieldReach::Words,
                "A command as text, or a list of commands, each a text or a list of its arguments.",
            ),
            key(
                &["url"],
                FieldShape::Text,
                FieldReach::Address,
                "The server, such as redis://host:6379/0; otherwise `auth` says where it is.",
            ),
            key(
                &["auth", "credential"],
                FieldShape::Any,
                FieldReach::Server,
                "The name of a credential, an address, or a mapping with `url`, or with `host` and others.",
            ),
            key(
                &["pipeline"],
                FieldShape::Flag,
                FieldReach::Data,
                "Whether all commands are sent at once.",
            ),
            key(
                &["transaction"],
                FieldShape::Flag,
                FieldReach::Data,
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
            FieldReach::Data,
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
            needed(
                &["path"],
                FieldShape::Text,
                FieldReach::Path,
                "The definition to run.",
            ),
            key(
                &["return_step"],
                FieldShape::Text,
                FieldReach::Data,
                "The step whose output is the result.",
            ),
            key(
                &["args", "input", "payload"],
                FieldShape::Map,
                FieldReach::Data,
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
            FieldReach::Data,
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
