//! The kinds of tools and the fields of each: one table, read by [`super::task`].

/// How a field's value is read and what it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
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
pub(super) struct Key {
    pub(super) names: &'static [&'static str],
    pub(super) shape: Shape,
    pub(super) required: bool,
}

const fn key(names: &'static [&'static str], shape: Shape) -> Key {
    Key {
        names,
        shape,
        required: false,
    }
}

const fn needed(names: &'static [&'static str], shape: Shape) -> Key {
    Key {
        names,
        shape,
        required: true,
    }
}

/// A kind of tool.
#[derive(Debug)]
pub(super) struct Kind {
    /// What the worker sees.
    pub(super) name: &'static str,
    pub(super) aliases: &'static [&'static str],
    pub(super) keys: &'static [Key],
}

/// Fields that every kind takes, beside `name`, `kind`, `spec`, `set`, `set_ctx` and `set_iter`.
pub(super) const COMMON: &[Key] = &[
    key(&["description", "desc"], Shape::Any),
    key(&["args", "input"], Shape::Map),
    key(&["auth", "credential"], Shape::Any),
    key(
        &["timeout", "timeout_s", "timeout_seconds"],
        Shape::Duration,
    ),
    key(&["assert"], Shape::Map),
    key(&["select", "output_select"], Shape::Commands),
];

const SQL: Key = needed(&["commands", "command", "query", "sql"], Shape::Commands);
/// Stands in for what is needed of its kind: the code, the SQL.
pub(super) const SCRIPT: Key = key(&["script"], Shape::Script);

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "http",
        aliases: &[],
        keys: &[
            key(&["method"], Shape::Method),
            needed(&["url", "endpoint"], Shape::Text),
            key(&["params", "query"], Shape::Any),
            key(&["headers"], Shape::Any),
            key(&["json"], Shape::Any),
            key(&["body", "data", "payload"], Shape::Any),
            key(&["form"], Shape::Any),
            key(&["follow_redirects"], Shape::Flag),
            key(&["verify_ssl"], Shape::Flag),
        ],
    },
    Kind {
        name: "shell",
        aliases: &[],
        keys: &[
            needed(&["cmds", "cmd", "command", "commands"], Shape::Commands),
            key(&["cwd"], Shape::Text),
            key(&["env"], Shape::Map),
        ],
    },
    Kind {
        name: "python",
        aliases: &[],
        keys: &[
            needed(&["code"], Shape::Code),
            SCRIPT,
            key(&["libs"], Shape::Any),
            key(&["env"], Shape::Map),
            key(&["cwd"], Shape::Text),
        ],
    },
    Kind {
        name: "postgres",
        aliases: &[],
        keys: &[SQL, SCRIPT, key(&["params"], Shape::Any)],
    },
    Kind {
        name: "sqlite",
        aliases: &[],
        keys: &[
            needed(&["database", "path", "file"], Shape::Text),
            SQL,
            SCRIPT,
            key(&["params"], Shape::Any),
        ],
    },
    Kind {
        name: "duckdb",
        aliases: &[],
        keys: &[
            key(&["database"], Shape::Text),
            SQL,
            SCRIPT,
            key(&["params"], Shape::Any),
        ],
    },
    Kind {
        name: "noop",
        aliases: &[],
        keys: &[],
    },
    Kind {
        name: "sleep",
        aliases: &[],
        keys: &[needed(&["duration", "seconds"], Shape::Duration)],
    },
    Kind {
        name: "playbook",
        aliases: &["workflow"],
        keys: &[
            needed(&["path"], Shape::Text),
            key(&["return_step"], Shape::Text),
            key(&["args", "input", "payload"], Shape::Map),
        ],
    },
    Kind {
        name: "workbook",
        aliases: &[],
        keys: &[],
    },
    Kind {
        name: "wait",
        aliases: &[],
        keys: &[needed(&["event", "event_type"], Shape::Plain)],
    },
    Kind {
        name: "manual",
        aliases: &[],
        keys: &[],
    },
];

impl Key {
    /// Whether a script can stand in for it.
    pub(super) fn may_be_script(&self) -> bool {
        matches!(self.names.first(), Some(&"code" | &"commands"))
    }
}

impl Kind {
    /// Whether it takes `script`.
    pub(super) fn has_script(&self) -> bool {
        self.keys.iter().any(|key| key.shape == Shape::Script)
    }

    /// All its fields: its own, and the common ones that it does not read in its own way.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static Key> + use<> {
        let own = self.keys;
        let name = |key: &Key| key.names.first().copied();
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
pub(super) fn find(name: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|kind| kind.name == name || kind.aliases.contains(&name))
}
