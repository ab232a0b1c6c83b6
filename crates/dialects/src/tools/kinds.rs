//! The kinds of tools and the fields of each: one table, read by [`super::task`].

/// How a field's value is read and what it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldShape {
    /// Anything; templates in it are checked.
    Any,
    /// Text that is not blank; may be a template.
    Text,
    /// Text that is not a template.
    Plain,
    /// A program text, handed on as written and never rendered.
    Code,
    /// One text or a list of texts; becomes a list.
    Commands,
    /// A mapping.
    Map,
    /// `true` or `false`, or a template.
    Flag,
    /// A length of time in seconds or with a unit, or a template; becomes `…_ms` if it is fixed.
    Duration,
    /// An HTTP method.
    Method,
    /// Where a program or SQL stands, if not in the task.
    Script,
}

/// One field: its names, the first of which is what the worker sees.
#[derive(Debug)]
pub(super) struct FieldSpec {
    pub(super) names: &'static [&'static str],
    pub(super) shape: FieldShape,
    pub(super) required: bool,
}

const fn key(names: &'static [&'static str], shape: FieldShape) -> FieldSpec {
    FieldSpec {
        names,
        shape,
        required: false,
    }
}

const fn needed(names: &'static [&'static str], shape: FieldShape) -> FieldSpec {
    FieldSpec {
        names,
        shape,
        required: true,
    }
}

/// A kind of tool.
#[derive(Debug)]
pub(super) struct ToolKind {
    /// What the worker sees.
    pub(super) name: &'static str,
    pub(super) aliases: &'static [&'static str],
    pub(super) keys: &'static [FieldSpec],
}

/// Fields that every kind takes, beside `name`, `kind`, `spec`, `set`, `set_ctx` and `set_iter`.
pub(super) const COMMON: &[FieldSpec] = &[
    key(&["description", "desc"], FieldShape::Any),
    key(&["args", "input"], FieldShape::Map),
    key(&["auth", "credential"], FieldShape::Any),
    key(
        &["timeout", "timeout_s", "timeout_seconds"],
        FieldShape::Duration,
    ),
    key(&["assert"], FieldShape::Map),
    key(&["select", "output_select"], FieldShape::Commands),
];

const SQL: FieldSpec = needed(
    &["commands", "command", "query", "sql"],
    FieldShape::Commands,
);
/// Stands in for what is needed of its kind: the code, the SQL.
pub(super) const SCRIPT: FieldSpec = key(&["script"], FieldShape::Script);

pub(super) const KINDS: &[ToolKind] = &[
    ToolKind {
        name: "http",
        aliases: &[],
        keys: &[
            key(&["method"], FieldShape::Method),
            needed(&["url", "endpoint"], FieldShape::Text),
            key(&["params", "query"], FieldShape::Any),
            key(&["headers"], FieldShape::Any),
            key(&["json"], FieldShape::Any),
            key(&["body", "data", "payload"], FieldShape::Any),
            key(&["form"], FieldShape::Any),
            key(&["follow_redirects"], FieldShape::Flag),
            key(&["verify_ssl"], FieldShape::Flag),
        ],
    },
    ToolKind {
        name: "shell",
        aliases: &[],
        keys: &[
            needed(
                &["cmds", "cmd", "command", "commands"],
                FieldShape::Commands,
            ),
            key(&["cwd"], FieldShape::Text),
            key(&["env"], FieldShape::Map),
        ],
    },
    ToolKind {
        name: "python",
        aliases: &[],
        keys: &[
            needed(&["code"], FieldShape::Code),
            SCRIPT,
            key(&["libs"], FieldShape::Any),
            key(&["env"], FieldShape::Map),
            key(&["cwd"], FieldShape::Text),
        ],
    },
    ToolKind {
        name: "postgres",
        aliases: &[],
        keys: &[SQL, SCRIPT, key(&["params"], FieldShape::Any)],
    },
    ToolKind {
        name: "sqlite",
        aliases: &[],
        keys: &[
            needed(&["database", "path", "file"], FieldShape::Text),
            SQL,
            SCRIPT,
            key(&["params"], FieldShape::Any),
        ],
    },
    ToolKind {
        name: "duckdb",
        aliases: &[],
        keys: &[
            key(&["database"], FieldShape::Text),
            SQL,
            SCRIPT,
            key(&["params"], FieldShape::Any),
        ],
    },
    ToolKind {
        name: "noop",
        aliases: &[],
        keys: &[],
    },
    ToolKind {
        name: "sleep",
        aliases: &[],
        keys: &[needed(&["duration", "seconds"], FieldShape::Duration)],
    },
    ToolKind {
        name: "playbook",
        aliases: &["workflow"],
        keys: &[
            needed(&["path"], FieldShape::Text),
            key(&["return_step"], FieldShape::Text),
            key(&["args", "input", "payload"], FieldShape::Map),
        ],
    },
    ToolKind {
        name: "workbook",
        aliases: &[],
        keys: &[],
    },
    ToolKind {
        name: "wait",
        aliases: &[],
        keys: &[needed(&["event", "event_type"], FieldShape::Plain)],
    },
    ToolKind {
        name: "manual",
        aliases: &[],
        keys: &[],
    },
];

impl FieldSpec {
    /// Whether a script can stand in for it.
    pub(super) fn may_be_script(&self) -> bool {
        matches!(self.names.first(), Some(&"code" | &"commands"))
    }
}

impl ToolKind {
    /// Whether it takes `script`.
    pub(super) fn has_script(&self) -> bool {
        self.keys.iter().any(|key| key.shape == FieldShape::Script)
    }

    /// All its fields: its own, and the common ones that it does not read in its own way.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static FieldSpec> + use<> {
        let own = self.keys;
        let name = |key: &FieldSpec| key.names.first().copied();
        let common = COMMON
            .iter()
            .filter(move |key| own.iter().all(|mine| name(mine) != name(key)));
        own.iter().chain(common)
    }
}

/// The names of all kinds, aliases included.
#[must_use]
pub fn names() -> Vec<&'static str> {
    KINDS
        .iter()
        .flat_map(|kind| std::iter::once(&kind.name).chain(kind.aliases))
        .copied()
        .collect()
}

/// The kind of that name.
pub(super) fn find(name: &str) -> Option<&'static ToolKind> {
    KINDS
        .iter()
        .find(|kind| kind.name == name || kind.aliases.contains(&name))
}
