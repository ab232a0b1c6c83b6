//! Assignments to variables, in both vocabularies: `set_ctx: {x: …}`, `set_iter: {x: …}`, and
//! `set: {ctx.x: …, iter.x: …, step.x: …}`.

use serde_json::{Map, Value as Json};

use crate::codes;
use crate::field::Field;
use crate::problem::Problems;
use crate::source::Span;
use crate::template;
use crate::tree::{MapEntry, Node};
use crate::words::{list, quote};

/// Where a variable lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VarScope {
    /// For the whole run.
    Ctx,
    /// For one iteration of a loop.
    Iter,
    /// For one run of the step's tasks.
    Step,
    /// Bound to the token.
    Args,
}

impl VarScope {
    fn of(word: &str) -> Option<VarScope> {
        match word {
            "ctx" => Some(VarScope::Ctx),
            "iter" => Some(VarScope::Iter),
            "step" => Some(VarScope::Step),
            "args" | "input" => Some(VarScope::Args),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            VarScope::Ctx => "ctx",
            VarScope::Iter => "iter",
            VarScope::Step => "step",
            VarScope::Args => "args",
        }
    }
}

/// Assignments in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct Assignments<'n> {
    pub(crate) all: Vec<(VarScope, &'n str, &'n Node)>,
}

impl<'n> Assignments<'n> {
    /// Reads `set_ctx` or `set_iter`: bare names, all of one scope.
    pub(crate) fn bare(&mut self, field: &Field<'n>, scope: VarScope, p: &mut Problems) {
        for entry in field.map(p).unwrap_or_default() {
            // `set_ctx: {ctx.x: …}` mixes the two vocabularies but can mean only one thing.
            let prefix = format!("{}.", scope.word());
            let name = entry.key.strip_prefix(&prefix).unwrap_or(&entry.key);
            self.push(scope, name, entry, p);
        }
    }

    /// Reads `set`: names that say their scope, which must be one of these.
    pub(crate) fn scoped(&mut self, field: &Field<'n>, allowed: &[VarScope], p: &mut Problems) {
        for entry in field.map(p).unwrap_or_default() {
            let (word, name) = match entry.key.split_once('.') {
                Some((word, name)) => (word, Some(name)),
                None => (entry.key.as_str(), None),
            };
            let scope = VarScope::of(word);
            match (scope.filter(|it| allowed.contains(it)), name) {
                (Some(scope), Some(name)) => self.push(scope, name, entry, p),
                (Some(scope), None) if entry.node.as_map().is_some() => {
                    self.bare(&Field::of(entry), scope, p);
                }
                // `set: {page: …}` on a task names something for the tasks after it.
                (None, None) if allowed.contains(&VarScope::Step) => {
                    self.push(VarScope::Step, &entry.key, entry, p);
                }
                _ => refuse(entry, scope, allowed, p),
            }
        }
    }

    fn push(&mut self, scope: VarScope, name: &'n str, entry: &'n MapEntry, p: &mut Problems) {
        if name.is_empty() || name.contains(['.', ' ', '[', ']', '{', '}']) {
            p.error(
                codes::SET_SCOPE,
                entry.key_span,
                format!("{} is not the name of one variable", quote(&entry.key)),
            )
            .help("assign to a whole variable, such as `ctx.page`; nested values go into it as a mapping");
            return;
        }
        if template::check(&entry.node, p) {
            self.all.push((scope, name, &entry.node));
        }
    }

    /// The assignments of one scope as a JSON mapping, if there are any.
    pub(crate) fn json(&self, scope: VarScope) -> Option<Json> {
        let map: Map<String, Json> = self
            .of(scope)
            .map(|(name, node)| (name.to_owned(), node.to_json()))
            .collect();
        (!map.is_empty()).then_some(Json::Object(map))
    }

    /// The assignments of one scope.
    pub(crate) fn of(&self, scope: VarScope) -> impl Iterator<Item = (&'n str, &'n Node)> + '_ {
        self.all
            .iter()
            .filter(move |(it, ..)| *it == scope)
            .map(|(_, name, node)| (*name, *node))
    }

    /// Writes the assignments into a normalised task or rule.
    pub(super) fn write(&self, into: &mut Map<String, Json>) {
        let keys = [
            ("set_ctx", VarScope::Ctx),
            ("set_iter", VarScope::Iter),
            ("set_step", VarScope::Step),
        ];
        for (key, scope) in keys {
            if let Some(json) = self.json(scope) {
                into.insert(key.to_owned(), json);
            }
        }
    }
}

fn refuse(entry: &MapEntry, scope: Option<VarScope>, allowed: &[VarScope], p: &mut Problems) {
    let words: Vec<&str> = allowed.iter().map(|scope| scope.word()).collect();
    let span: Span = entry.key_span;
    let name = entry.key.rsplit('.').next().unwrap_or(&entry.key);
    let first = words.first().copied().unwrap_or("ctx");
    let message = match scope {
        Some(scope) => format!("`{}` variables cannot be set here", scope.word()),
        None => format!(
            "{} does not say where the variable lives",
            quote(&entry.key)
        ),
    };
    p.error(codes::SET_SCOPE, span, message).help(format!(
        "write {}; the scopes that can be set here are {}",
        quote(&format!("{first}.{name}")),
        list(&words)
    ));
}
