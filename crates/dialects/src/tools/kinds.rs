//! What a row of the table of tools says, and how a kind is found. The rows are in [`super::table`].

use super::table::{COMMON, KINDS};

/// How a field's value is read and what it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldShape {
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
    /// A mapping with keys of the author's choice.
    Map,
    /// `true` or `false`, or a template.
    Flag,
    /// A length of time in seconds or with a unit, or a template; becomes `…_ms` if it is fixed.
    Duration,
    /// One of these words in any case, or a template; becomes the word as written here.
    OneOf(&'static [&'static str]),
    /// Where a program or SQL stands, if not in the task.
    Script,
}

/// What a value in a field can change beside the data of its task. `stepwell check` warns of values from outside in all
/// fields but those of [`FieldReach::Data`]: see [`super::untrusted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldReach {
    /// The value stays data, whatever it is.
    Data,
    /// Command lines. A secret on one is warned of too.
    Commands,
    /// Commands that are split at spaces if they are one text; in a list each value is one argument.
    Words,
    /// SQL text, in which a value can be another statement.
    Sql,
    /// A path, so that a value can name any file.
    Path,
    /// A path, unless the task has the named field, a directory that no path leads out of.
    PathUnless(&'static str),
    /// A path that is an argument of a program. A secret in it is warned of too.
    PathArgument,
    /// The path of a program.
    ProgramScript,
    /// The path of SQL, or SQL text.
    SqlScript,
    /// Environment variables, some of which name files that programs load.
    Environment,
    /// An address; its host is what a value can change.
    Address,
    /// Where a server is and who asks: an address, its parts, or the name of a credential.
    Server,
}

/// One field: its names, the first of which is what the worker sees.
#[derive(Debug)]
pub struct FieldSpec {
    /// The name that the worker sees, then its aliases.
    pub names: &'static [&'static str],
    /// How the value is read.
    pub shape: FieldShape,
    /// What a value in the field can change.
    pub reach: FieldReach,
    /// Whether a task without the field is an error.
    pub required: bool,
    /// What the field means, for the schemas and the documents.
    pub help: &'static str,
}

/// Which part of the system does the work of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunBy {
    /// A tool of the worker.
    Tool,
    /// The pipeline itself, on the worker.
    Pipeline(PipelineKind),
    /// No worker: the engine waits.
    Engine,
}

/// What the pipeline does without a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineKind {
    /// Does nothing: its arguments are its result.
    Noop,
    /// Waits for a time.
    Sleep,
    /// Runs another definition and waits for it.
    Playbook,
    /// Is replaced by the tasks of an entry of the workbook.
    Workbook,
}

/// Error codes that repeat what the other side said, such as `HTTP_404`. They share one page.
#[derive(Debug)]
pub struct CodeFamily {
    /// What the codes begin with.
    pub prefix: &'static str,
    /// Whether the rest of a code is one that the other side can say.
    pub has: fn(&str) -> bool,
    /// The code whose page explains all of them.
    pub page: &'static str,
}

/// A kind of tool.
#[derive(Debug)]
pub struct ToolKind {
    /// The name that the worker sees.
    pub name: &'static str,
    /// Other names that files use.
    pub aliases: &'static [&'static str],
    /// What the tool does, in one line for the tables of the documents.
    pub summary: &'static str,
    /// The part of the system that does the work of the tool.
    pub run_by: RunBy,
    /// The fields of this kind. Every kind also has the [`COMMON`] fields.
    pub keys: &'static [FieldSpec],
    /// Error codes of the tool that share one page of the documents.
    pub family: Option<CodeFamily>,
}

impl FieldSpec {
    /// Whether a script can replace the field.
    pub(crate) fn may_be_script(&self) -> bool {
        matches!(self.names.first(), Some(&"code" | &"commands"))
    }
}

impl ToolKind {
    /// The field of program text that is passed on as written and never rendered.
    #[must_use]
    pub fn program_field(&self) -> Option<&'static str> {
        let program = self.keys.iter().find(|key| key.shape == FieldShape::Code);
        program.and_then(|key| key.names.first().copied())
    }

    /// The field that the text of `script` becomes.
    #[must_use]
    pub fn script_field(&self) -> Option<&'static str> {
        let field = self.keys.iter().find(|key| key.may_be_script());
        let field = field.filter(|_| self.has_script())?;
        field.names.first().copied()
    }

    /// Whether it takes `script`.
    pub(crate) fn has_script(&self) -> bool {
        self.keys.iter().any(|key| key.shape == FieldShape::Script)
    }

    /// All its fields: its own, and the common ones that it does not read in its own way.
    pub fn fields(&self) -> impl Iterator<Item = &'static FieldSpec> + use<> {
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

/// The kind of that name or alias.
#[must_use]
pub fn find(name: &str) -> Option<&'static ToolKind> {
    KINDS
        .iter()
        .find(|kind| kind.name == name || kind.aliases.contains(&name))
}
