//! Drawn definitions of actions, dag and linear: few attempts, every answer to a failure, undos that fail, graphs of
//! all shapes.

use std::fmt::Write as _;

use super::Language;
use crate::rng::Rng;

/// What a failure for good leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Abort,
    Skip,
    Compensate,
}

/// How the wait before a retry grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    Constant,
    Linear,
    Exponential,
}

/// A step of a definition.
#[derive(Clone, Debug)]
pub(crate) struct StepDefinition {
    pub(crate) name: String,
    /// The steps that it depends on, by index.
    pub(crate) needs: Vec<usize>,
    /// The most executions that fail, the first included.
    pub(crate) max_attempts: u32,
    pub(crate) growth: Growth,
    pub(crate) initial_ms: u64,
    pub(crate) max_ms: u64,
    timeout_ms: u64,
    pub(crate) answer: Answer,
    /// The most executions of its undo; none if it has no undo. Absent in the file: the default of the language.
    pub(crate) undo: Option<Option<u32>>,
}

/// A definition of steps that depend on each other.
#[derive(Clone, Debug)]
pub(crate) struct StepsDefinition {
    pub(crate) language: Language,
    pub(crate) steps: Vec<StepDefinition>,
    /// The file names the dependencies; otherwise each step depends on the one before it.
    graph: bool,
    /// Longest time of the run; only in graphs.
    pub(crate) timeout_ms: Option<u64>,
    /// What a run timeout leads to.
    pub(crate) timeout_compensates: bool,
}

impl StepsDefinition {
    pub(crate) fn draw(language: Language, rng: &mut Rng) -> StepsDefinition {
        let count = rng.between(1, 6);
        let graph = match language {
            Language::Actions => rng.one_in(2),
            Language::Dag => true,
            Language::Linear | Language::Playbook => false,
        };
        let mut steps: Vec<StepDefinition> = Vec::new();
        for index in 0..usize::try_from(count).unwrap_or(1) {
            let needs = match graph {
                true => (0..index).filter(|_| rng.one_in(2)).collect(),
                false => index.checked_sub(1).into_iter().collect(),
            };
            steps.push(step(language, index, needs, rng));
        }
        StepsDefinition {
            language,
            steps,
            graph,
            timeout_ms: (language == Language::Dag && rng.one_in(3))
                .then(|| rng.between(600, 7_200) * 1_000),
            timeout_compensates: language == Language::Dag && rng.one_in(2),
        }
    }

    /// The definition as a file of its language.
    pub(crate) fn text(&self) -> String {
        match self.language {
            Language::Actions => self.actions(),
            Language::Dag => self.dag(),
            Language::Linear | Language::Playbook => self.linear(),
        }
    }

    fn needs(&self, step: &StepDefinition) -> String {
        let names = step.needs.iter().map(|it| self.steps[*it].name.as_str());
        names.collect::<Vec<_>>().join(", ")
    }

    fn actions(&self) -> String {
        let mut text = String::from(
            "schemaVersion: 1\nworkflowId: drawn-actions\nworkspaceId: sim\nname: Drawn\nversion: 1\nactive: true\n\
             executionTier: Auto\nactions:\n",
        );
        for (index, step) in self.steps.iter().enumerate() {
            let (name, order) = (&step.name, index + 1);
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "  - actionId: {name}\n    order: {order}\n    portFamily: drawn\n    operation: do:{name}\n    \
                 input: {{n: \"{{{{ workload.n }}}}\"}}\n    timeoutMs: {}\n    retryPolicy: {{maxAttempts: {}, \
                 initialBackoffMs: {}, backoffMultiplier: 2.0, maxBackoffMs: {}}}\n",
                step.timeout_ms, step.max_attempts, step.initial_ms, step.max_ms
            );
            if self.graph {
                let _ = writeln!(text, "    dependsOn: [{}]", self.needs(step));
            }
            if let Some(attempts) = step.undo {
                let _ = write!(
                    text,
                    "    compensation:\n      compensationOperation: undo:{name}\n      compensationInput: {{n: \
                     \"{{{{ workload.n }}}}\"}}\n"
                );
                if let Some(attempts) = attempts {
                    let _ = writeln!(text, "      retryPolicy: {{maxAttempts: {attempts}}}");
                }
            }
        }
        text
    }

    fn dag(&self) -> String {
        let mut text = String::from(
            "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: drawn-dag, owner: sim}\nspec:\n",
        );
        if let Some(timeout) = self.timeout_ms {
            let _ = writeln!(text, "  timeout: {}s", timeout / 1_000);
        }
        let policy = match self.timeout_compensates {
            true => "compensate",
            false => "abort",
        };
        let _ = write!(text, "  failurePolicy: {policy}\n  steps:\n");
        for step in &self.steps {
            let name = &step.name;
            let answer = match step.answer {
                Answer::Abort => "abort",
                Answer::Skip => "skip",
                Answer::Compensate => "compensate",
            };
            let growth = match step.growth {
                Growth::Constant => "constant",
                Growth::Linear => "linear",
                Growth::Exponential => "exponential",
            };
            let _ = write!(
                text,
                "    - name: {name}\n      agent: drawn\n      action: do:{name}\n      timeout: {}s\n      onFailure: \
                 {answer}\n      retryPolicy: {{maxRetries: {}, backoff: {growth}, initialDelay: {}s, maxDelay: {}s}}\n",
                step.timeout_ms / 1_000,
                step.max_attempts - 1,
                step.initial_ms / 1_000,
                step.max_ms / 1_000,
            );
            if !step.needs.is_empty() {
                let _ = writeln!(text, "      dependsOn: [{}]", self.needs(step));
            }
        }
        if self.steps.iter().any(|it| it.undo.is_some()) {
            text.push_str("  compensation:\n");
        }
        for step in self.steps.iter().filter(|it| it.undo.is_some()) {
            let name = &step.name;
            let _ = writeln!(
                text,
                "    - {{step: {name}, agent: drawn, action: \"undo:{name}\", timeout: 10m}}"
            );
        }
        text
    }

    fn linear(&self) -> String {
        let mut text = String::from("workflowType: drawn.linear\nworkflowVersion: 1\nsteps:\n");
        for step in &self.steps {
            let _ = write!(
                text,
                "  - stepType: {}\n    maxAttempts: {}\n    timeout: {}s\n    backoff: {{initial: {}s, max: {}s}}\n",
                step.name,
                step.max_attempts,
                step.timeout_ms / 1_000,
                step.initial_ms / 1_000,
                step.max_ms / 1_000,
            );
        }
        text
    }
}

fn step(language: Language, index: usize, needs: Vec<usize>, rng: &mut Rng) -> StepDefinition {
    let answers = [Answer::Abort, Answer::Skip, Answer::Compensate];
    let growths = [Growth::Constant, Growth::Linear, Growth::Exponential];
    let initial_ms = rng.between(1, 5) * 1_000;
    let has_undo = language != Language::Linear && !rng.one_in(3);
    StepDefinition {
        name: match language {
            Language::Linear | Language::Playbook => format!("STEP_{index}"),
            Language::Actions | Language::Dag => format!("step-{index}"),
        },
        needs,
        max_attempts: u32::try_from(rng.between(1, 4)).unwrap_or(1),
        growth: match language {
            Language::Dag => growths[rng.index(growths.len())],
            Language::Actions | Language::Linear | Language::Playbook => Growth::Exponential,
        },
        initial_ms,
        max_ms: initial_ms * rng.between(1, 8),
        timeout_ms: rng.between(60, 3_600) * 1_000,
        answer: match language {
            Language::Actions => Answer::Compensate,
            Language::Dag => answers[rng.index(answers.len())],
            Language::Linear | Language::Playbook => Answer::Abort,
        },
        undo: has_undo.then(|| {
            let own = language == Language::Actions && rng.one_in(2);
            own.then(|| u32::try_from(rng.between(1, 4)).unwrap_or(1))
        }),
    }
}
