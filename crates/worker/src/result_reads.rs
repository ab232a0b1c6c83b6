//! Which steps of a plan have the results of their single tasks read (`step.results`), gathered once for the whole plan:
//! looking through a plan for each of its steps would take the square of its length.

use std::collections::HashSet;

use serde_json::Value as Json;
use stepwell_kernel::plan::{MaxInFlight, Plan, Work};

const RESULTS: &str = ".results";

/// What the templates of a plan read of the results of single tasks. A word in a text is enough, since keeping too much
/// is harmless.
#[derive(Debug, Default)]
pub(crate) struct ResultReads {
    /// The names before `.results`.
    names: HashSet<String>,
    /// The texts with them, for steps whose names are more than one word.
    texts: Vec<String>,
}

impl ResultReads {
    /// Reads all templates of a plan.
    pub(crate) fn of(plan: &Plan) -> ResultReads {
        let mut reads = ResultReads::default();
        let net = plan.net();
        for edge in net.edges.iter() {
            edge.when.iter().for_each(|it| reads.see(it.source()));
            let set = edge.set_ctx.iter().map(|(_, it)| it);
            for value in edge.args.iter().chain(set) {
                reads.see_all(&value.to_json());
            }
        }
        for step in net.steps.iter() {
            match &step.work {
                Work::Pipeline { tasks } => reads.see_all(tasks),
                Work::Task { config, .. } => reads.see_all(config),
                Work::Child(child) => reads.see_all(&child.input.to_json()),
                Work::Wait(_) => {}
            }
            if let Some(each) = &step.each {
                if let MaxInFlight::Computed(template) = &each.max_in_flight {
                    reads.see(template.source());
                }
                reads.see_all(&each.items.to_json());
            }
            let rules = step.admit.iter().flat_map(|admit| &admit.rules);
            for when in rules.filter_map(|rule| rule.when.as_ref()) {
                reads.see(when.source());
            }
            if let Some(undo) = &step.undo {
                reads.see_all(&undo.input);
                reads.see_all(&undo.tasks);
            }
            reads.see_all(&step.input);
            let set = step.set_ctx.iter().map(|(_, it)| it);
            for value in set.chain(&step.outbound) {
                reads.see_all(&value.to_json());
            }
        }
        net.library.values().for_each(|it| reads.see_all(it));
        reads
    }

    /// Whether anything in the plan reads the results of single tasks of the step of this name.
    pub(crate) fn has(&self, step: &str) -> bool {
        let name = step.replace(['-', '.', ' ', ':', '/'], "_");
        if name.chars().all(is_word) {
            return self.names.contains(&name);
        }
        let wanted = format!("{name}{RESULTS}");
        self.texts.iter().any(|text| text.contains(&wanted))
    }

    fn see_all(&mut self, json: &Json) {
        match json {
            Json::String(text) => self.see(text),
            Json::Array(items) => items.iter().for_each(|it| self.see_all(it)),
            Json::Object(map) => map.values().for_each(|it| self.see_all(it)),
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }

    fn see(&mut self, text: &str) {
        let mut found = false;
        for (at, _) in text.match_indices(RESULTS) {
            let before = &text[..at];
            let name = before.trim_end_matches(is_word).len();
            self.names.insert(before[name..].to_owned());
            found = true;
        }
        if found {
            self.texts.push(text.to_owned());
        }
    }
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_found_by_the_name_that_templates_use() {
        let mut reads = ResultReads::default();
        reads.see("{{ fetch.results[0] }} and {{ steps.load_all.results.first }}");
        reads.see("{{ a+b.results }} {{ other.data }}");
        assert!(reads.has("fetch") && reads.has("load-all") && reads.has("load.all"));
        assert!(
            reads.has("a+b"),
            "a name that is no word is looked for in the texts"
        );
        assert!(!reads.has("other") && !reads.has("all") && !reads.has("etch"));
    }
}
