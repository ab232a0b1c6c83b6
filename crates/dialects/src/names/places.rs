//! Where the templates of a plan stand in the source: found by their text, first in the step that they belong to.

use std::collections::HashMap;

use stepwell_kernel::expr::has_template;

use crate::document::Document;
use crate::source::Span;
use crate::tree::{Node, Value};

/// The fields that name a step, in all languages.
const STEP_NAMES: [&str; 5] = ["step", "actionId", "stepId", "name", "stepType"];

/// The texts with templates, by the step that they stand in.
pub(crate) struct Places<'n> {
    by_step: HashMap<&'n str, Texts<'n>>,
    all: Texts<'n>,
}

type Texts<'n> = HashMap<&'n str, Vec<Span>>;

impl<'n> Places<'n> {
    pub(crate) fn of(document: &Document<'n>) -> Places<'n> {
        let mut all = Texts::new();
        collect(document.root, &mut all);
        let mut by_step = HashMap::new();
        let root = document.root;
        let lists = [
            root.get("workflow"),
            root.get("actions"),
            root.get("steps"),
            root.get("spec").and_then(|it| it.get("steps")),
        ];
        for item in lists
            .into_iter()
            .flatten()
            .filter_map(Node::as_seq)
            .flatten()
        {
            let name = STEP_NAMES
                .iter()
                .find_map(|key| item.get(key).and_then(Node::as_str));
            let mut texts = Texts::new();
            collect(item, &mut texts);
            by_step.insert(name.unwrap_or_default(), texts);
        }
        Places { by_step, all }
    }

    /// The place of a text in a step, or else anywhere; `nth` counts equal texts.
    pub(crate) fn of_text(&self, step: Option<&str>, text: &str, nth: usize) -> Option<Span> {
        let own = step.and_then(|step| self.by_step.get(step)?.get(text));
        let spans = own.or_else(|| self.all.get(text))?;
        spans.get(nth).or_else(|| spans.last()).copied()
    }
}

fn collect<'n>(node: &'n Node, texts: &mut Texts<'n>) {
    match &node.value {
        Value::Str(text) if has_template(text) => {
            texts.entry(text).or_default().push(node.span);
        }
        Value::Seq(items) => items.iter().for_each(|it| collect(it, texts)),
        Value::Map(entries) => entries.iter().for_each(|it| collect(&it.node, texts)),
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) => {}
    }
}
