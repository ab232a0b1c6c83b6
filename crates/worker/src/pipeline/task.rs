//! Tasks as the worker runs them: read once per plan from the normalised form that the dialects write,
//! with every template compiled.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value as Json};
use stepwell_dialects::backoff;
use stepwell_dialects::tools::{self, RuleAction, RunBy, TASK_KEYS, ToolKind};
use stepwell_kernel::codes;
use stepwell_kernel::expr::{Scope, Template, TemplateError, TemplateValue, has_template};
use stepwell_kernel::plan::{Backoff, BackoffKind};

use crate::outcome::ToolError;
use crate::report::millis;

/// One task of a pipeline.
#[derive(Debug)]
pub(crate) struct PipelineTask {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// What does its work. A kind that is not in the table is a tool that this worker was given.
    pub(crate) run_by: RunBy,
    /// The fields of its kind.
    pub(crate) fields: TemplateValue,
    /// Program text, which is never rendered.
    pub(crate) code: Option<String>,
    pub(crate) args: TemplateValue,
    pub(crate) auth: TemplateValue,
    pub(crate) timeout: Timeout,
    pub(crate) rules: Vec<TaskRule>,
    pub(crate) sets: Assignments,
    pub(crate) assert: Json,
    /// What stays in the log of a result that is too large for it.
    pub(crate) select: Vec<String>,
    /// A second name for the result of the task.
    pub(crate) alias: Option<String>,
    /// As the author wrote it: only here are references to secrets looked for.
    pub(crate) written: Json,
    /// Why the task is refused where values from outside need a guard; absent if all have one.
    pub(crate) unguarded: Option<String>,
}

/// How long a task may take.
#[derive(Debug)]
pub(crate) enum Timeout {
    /// As long as the worker allows.
    Default,
    Fixed(Duration),
    Computed(Template),
}

/// What to do after a task, if the condition is true.
#[derive(Debug)]
pub(crate) struct TaskRule {
    /// The condition; absent means always true.
    pub(crate) when: Option<Template>,
    pub(crate) act: RuleAction,
    pub(crate) attempts: TemplateValue,
    pub(crate) backoff: BackoffKind,
    pub(crate) delay: TemplateValue,
    /// The value of `delay` in milliseconds if it is not computed.
    pub(crate) delay_ms: Option<u64>,
    pub(crate) to: Option<String>,
    pub(crate) sets: Assignments,
}

/// Values to set: for the run, for the iteration, for the tasks that follow.
#[derive(Debug)]
pub(crate) struct Assignments {
    pub(crate) ctx: TemplateValue,
    pub(crate) iter: TemplateValue,
    pub(crate) step: TemplateValue,
}

/// A task that the worker cannot read: the plan was not made by this version's dialects.
fn broken(what: impl std::fmt::Display) -> ToolError {
    ToolError::invalid(
        codes::PIPELINE_BROKEN,
        format!("the plan's tasks cannot be read: {what}"),
    )
}

/// Reads the tasks of a block.
pub(crate) fn read(tasks: &Json) -> Result<Vec<PipelineTask>, ToolError> {
    let list = tasks.as_array().ok_or_else(|| broken("no list"))?;
    list.iter().map(PipelineTask::read).collect()
}

impl PipelineTask {
    pub(crate) fn read(json: &Json) -> Result<PipelineTask, ToolError> {
        let map = json.as_object().ok_or_else(|| broken("no mapping"))?;
        let text = |key: &str| map.get(key).and_then(Json::as_str).map(str::to_owned);
        let name = text("name").ok_or_else(|| broken("a task without a name"))?;
        let kind = text("kind").ok_or_else(|| broken("a task without a kind"))?;
        let known = tools::find(&kind);
        // A program's text is the program's own, whatever braces it has.
        let program = known.and_then(ToolKind::program_field);
        let code = program.and_then(|field| text(field).or_else(|| inline(map)));
        let fields: Map<String, Json> = map
            .iter()
            .filter(|(key, _)| !TASK_KEYS.contains(&key.as_str()))
            .filter(|(key, _)| {
                code.is_none() || (Some(key.as_str()) != program && key.as_str() != "script")
            })
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let rules = match map.get("rules") {
            Some(Json::Array(rules)) => {
                rules.iter().map(TaskRule::read).collect::<Result<_, _>>()?
            }
            _ => Vec::new(),
        };
        let select = match map.get("select") {
            Some(Json::Array(paths)) => paths
                .iter()
                .filter_map(|it| it.as_str().map(str::to_owned))
                .collect(),
            _ => Vec::new(),
        };
        Ok(PipelineTask {
            name,
            run_by: known.map_or(RunBy::Tool, |it| it.run_by),
            kind,
            fields: value(&Json::Object(fields))?,
            code,
            args: value(map.get("args").unwrap_or(&Json::Null))?,
            auth: value(map.get("auth").unwrap_or(&Json::Null))?,
            timeout: timeout(map)?,
            rules,
            sets: Assignments::of_task(map)?,
            assert: map.get("assert").cloned().unwrap_or_default(),
            select,
            alias: None,
            written: json.clone(),
            unguarded: None,
        })
    }
}

/// The text of a script that stands in the task itself.
fn inline(task: &Map<String, Json>) -> Option<String> {
    let script = task.get("script")?;
    let is_inline = script.get("type").and_then(Json::as_str) == Some("inline");
    let code = script.get("code").filter(|_| is_inline)?;
    code.as_str().map(str::to_owned)
}

impl PipelineTask {
    /// The paths that its templates read.
    pub(super) fn reads(&self) -> BTreeSet<String> {
        let own = [&self.fields, &self.args, &self.auth];
        let rules = self.rules.iter();
        let timeout = match &self.timeout {
            Timeout::Computed(template) => Some(template),
            Timeout::Default | Timeout::Fixed(_) => None,
        };
        let whens = rules.clone().filter_map(|rule| rule.when.as_ref());
        let values = rules.flat_map(|rule| {
            let sets = rule.sets.all();
            [&rule.attempts, &rule.delay].into_iter().chain(sets)
        });
        let values = own.into_iter().chain(self.sets.all()).chain(values);
        let templates = whens.chain(timeout);
        values
            .flat_map(TemplateValue::reads)
            .chain(templates.flat_map(|it| it.reads().iter().cloned()))
            .collect()
    }
}

impl TaskRule {
    /// The wait after `attempt` attempts. The jitter of a backoff that has one follows from `key`.
    pub(crate) fn wait(&self, delay: Duration, attempt: u32, key: &str) -> Duration {
        /// No single wait is longer: a slip in a file must not stop a run for years.
        const LONGEST: Duration = Duration::from_secs(24 * 3600);
        let backoff = Backoff {
            kind: self.backoff,
            initial_ms: millis(delay),
            multiplier: 2.0,
            max_ms: millis(LONGEST),
        };
        Duration::from_millis(backoff.delay_ms(attempt, || Backoff::seed(key)))
    }

    fn read(json: &Json) -> Result<TaskRule, ToolError> {
        let map = json
            .as_object()
            .ok_or_else(|| broken("a rule that is no mapping"))?;
        let text = |key: &str| map.get(key).and_then(Json::as_str);
        let act = match text("do") {
            Some(word) => RuleAction::of(word)
                .ok_or_else(|| broken(format!("there is no rule that does {word:?}")))?,
            None => RuleAction::Continue,
        };
        let backoff = match text("backoff") {
            Some(word) => backoff::of_task(word)
                .ok_or_else(|| broken(format!("there is no backoff {word:?}")))?,
            None => BackoffKind::Constant,
        };
        Ok(TaskRule {
            when: text("when").map(template).transpose()?,
            act,
            attempts: value(map.get("attempts").unwrap_or(&Json::from(3)))?,
            backoff,
            delay: value(map.get("delay").unwrap_or(&Json::Null))?,
            delay_ms: map.get("delay_ms").and_then(Json::as_u64),
            to: text("to").map(str::to_owned),
            sets: Assignments::read(map)?,
        })
    }
}

impl Assignments {
    fn all(&self) -> [&TemplateValue; 3] {
        [&self.ctx, &self.iter, &self.step]
    }

    /// Of a task itself. It is looked at only when the task went well, and `{{ output }}` alone then is
    /// what the task returned, as its authors know it.
    fn of_task(map: &Map<String, Json>) -> Result<Assignments, ToolError> {
        let mut map = map.clone();
        for key in ["set_ctx", "set_iter", "set_step"] {
            let values = map.get_mut(key).and_then(Json::as_object_mut);
            for value in values.into_iter().flat_map(Map::values_mut) {
                let text = value.as_str().filter(|it| has_template(it));
                let whole = text.map(template).transpose()?;
                let path = whole.as_ref().and_then(Template::as_path);
                if path.is_some_and(|path| path == ["output"]) {
                    *value = Json::from("{{ outcome.result }}");
                }
            }
        }
        Assignments::read(&map)
    }

    fn read(map: &Map<String, Json>) -> Result<Assignments, ToolError> {
        let of = |key: &str| value(map.get(key).unwrap_or(&Json::Null));
        Ok(Assignments {
            ctx: of("set_ctx")?,
            iter: of("set_iter")?,
            step: of("set_step")?,
        })
    }
}

fn template(text: &str) -> Result<Template, ToolError> {
    // `when: ready` is an expression too, as its authors know it.
    let text = match has_template(text) {
        true => text.to_owned(),
        false => format!("{{{{ {text} }}}}"),
    };
    Template::parse(&text).map_err(broken)
}

fn value(json: &Json) -> Result<TemplateValue, ToolError> {
    TemplateValue::parse(json).map_err(|error| broken(error.error))
}

fn timeout(map: &Map<String, Json>) -> Result<Timeout, ToolError> {
    if let Some(millis) = map.get("timeout_ms").and_then(Json::as_u64) {
        return Ok(Timeout::Fixed(Duration::from_millis(millis)));
    }
    match map.get("timeout").and_then(Json::as_str) {
        Some(text) => Ok(Timeout::Computed(template(text)?)),
        None => Ok(Timeout::Default),
    }
}

/// A value that a task is only handed may be so large: as large as any tool's result.
pub(crate) const MAX_VALUE: usize = 64 << 20;

/// A mapping that a template gave, or nothing.
pub(crate) fn mapping(
    value: &TemplateValue,
    scope: &dyn Scope,
) -> Result<Map<String, Json>, TemplateError> {
    Ok(match value.evaluate_within(scope, MAX_VALUE)? {
        Json::Object(map) => map,
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_) => {
            Map::new()
        }
    })
}

/// A length of time that a template gave: a number of seconds, or text such as `1.5`, `500ms`, `2m`.
pub(crate) fn duration(value: &Json) -> Option<Duration> {
    /// Longer than anyone means.
    const LONGEST: f64 = 366.0 * 24.0 * 3600.0;
    let seconds = match value {
        Json::Number(number) => number.as_f64()?,
        Json::String(text) => {
            let text = text.trim();
            let split = text
                .find(|c: char| c.is_ascii_alphabetic())
                .unwrap_or(text.len());
            let (number, unit) = text.split_at(split);
            let factor = match unit.trim() {
                "" | "s" | "sec" | "seconds" => 1.0,
                "ms" => 0.001,
                "m" | "min" | "minutes" => 60.0,
                "h" | "hours" => 3600.0,
                "d" | "days" => 86_400.0,
                _ => return None,
            };
            number.trim().parse::<f64>().ok()? * factor
        }
        Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => return None,
    };
    (0.0..=LONGEST)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn waits_grow_as_their_rule_says() {
        let after = |word: &str, attempt: u32| {
            let rule = TaskRule::read(&json!({"do": "retry", "backoff": word})).unwrap();
            rule.wait(Duration::from_secs(2), attempt, "run|step")
                .as_secs()
        };
        let first = |word: &str| [1, 2, 3].map(|n| after(word, n));
        assert_eq!(first("none"), [0, 0, 0]);
        assert_eq!(first("constant"), [2, 2, 2]);
        assert_eq!(first("linear"), [2, 4, 6]);
        assert_eq!(first("exponential"), [2, 4, 8]);
        assert_eq!(after("exponential", 1_000), 24 * 3600);
    }

    #[test]
    fn words_of_another_version_are_refused() {
        for rule in [json!({"do": "dance"}), json!({"backoff": "someday"})] {
            let error = TaskRule::read(&rule).unwrap_err();
            assert_eq!(error.code, "PIPELINE_BROKEN", "{rule}");
        }
    }

    #[test]
    fn lengths_of_time_are_numbers_of_seconds_or_have_a_unit() {
        let ms = |value: Json| duration(&value).map(|it| it.as_millis());
        assert_eq!(ms(json!(1.5)), Some(1_500));
        assert_eq!(ms(json!("0.2")), Some(200));
        assert_eq!(ms(json!("500ms")), Some(500));
        assert_eq!(ms(json!("2m")), Some(120_000));
        assert_eq!(ms(json!("soon")), None);
        assert_eq!(ms(json!(-1)), None);
        assert_eq!(ms(json!(f64::MAX)), None);
        assert_eq!(ms(Json::Null), None);
    }

    #[test]
    fn a_task_that_sets_its_whole_output_sets_what_it_returned() {
        let set = json!({"all": "{{ output }}", "part": "{{ output.data.id }}"});
        let task =
            PipelineTask::read(&json!({"name": "a", "kind": "noop", "set_step": set})).unwrap();
        let expected = json!({"all": "{{ outcome.result }}", "part": "{{ output.data.id }}"});
        assert_eq!(task.sets.step.to_json(), expected);
    }

    #[test]
    fn a_program_is_not_rendered() {
        let task =
            PipelineTask::read(&json!({"name": "a", "kind": "python", "code": "x = f'{{{y}}}'"}));
        assert_eq!(task.unwrap().code.as_deref(), Some("x = f'{{{y}}}'"));
        let script = json!({"type": "inline", "code": "x = '{{ data }}'"});
        let task =
            PipelineTask::read(&json!({"name": "a", "kind": "python", "script": script})).unwrap();
        assert_eq!(task.code.as_deref(), Some("x = '{{ data }}'"));
        assert_eq!(task.fields.to_json(), json!({}));
    }
}
