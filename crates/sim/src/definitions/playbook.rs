//! Drawn playbooks: tokens that fan out, meet, are denied and come back, loops of all kinds, failures that arcs handle
//! or not, a final step. Bounded: arcs lead forward, but for at most one that comes back twice at the most.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use crate::rng::Rng;

/// A condition, as the file says it and as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// The boundary event has this name.
    Event(&'static str),
    /// The step ended with `ok` or `error`.
    Status(&'static str),
    /// The step returned at least this number.
    Output(u64),
    /// The loop of the step had at least so many failed items.
    FailedItems(u64),
    /// A variable of the run is at least this number.
    Ctx(usize, u64),
    /// An argument of the token is at least this number.
    Args(u64),
    /// A parameter of the run is at least this number.
    Workload(u64),
    /// The arc that leads back was taken less than twice.
    Laps,
}

impl Guard {
    /// Whether the guard looks at what happened, so that it can mean to handle a failure.
    pub(crate) fn looks_at_the_outcome(&self) -> bool {
        matches!(
            self,
            Guard::Event(_) | Guard::Status(_) | Guard::Output(_) | Guard::FailedItems(_)
        )
    }

    fn text(&self, later: bool) -> String {
        let (outcome, data) = match later {
            true => ("output", "output.data"),
            false => ("outcome", "outcome.result"),
        };
        match self {
            Guard::Event(name) => format!("event.name == '{name}'"),
            Guard::Status(status) => format!("{outcome}.status == '{status}'"),
            Guard::Output(least) => format!("({data}.v | default(0)) >= {least}"),
            Guard::FailedItems(least) => format!("({data}.failed | default(0)) >= {least}"),
            Guard::Ctx(key, least) => format!("(ctx.c{key} | default(0)) >= {least}"),
            Guard::Args(least) => format!("(args.n | default(0)) >= {least}"),
            Guard::Workload(least) => format!("workload.n >= {least}"),
            Guard::Laps => "(ctx.laps | default(0)) < 2".to_owned(),
        }
    }
}

/// A value that is set or passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// A number of the file.
    Fixed(u64),
    /// What the step returned.
    Output,
    /// A variable of the run.
    Ctx(usize),
    /// A parameter of the run.
    Workload,
    /// How often the arc that leads back was taken, with this time.
    NextLap,
}

impl Value {
    fn text(&self, later: bool) -> String {
        let data = match later {
            true => "output.data",
            false => "outcome.result",
        };
        match self {
            Value::Fixed(number) => number.to_string(),
            Value::Output => format!("\"{{{{ {data}.v | default(0) }}}}\""),
            Value::Ctx(key) => format!("\"{{{{ ctx.c{key} | default(0) }}}}\""),
            Value::Workload => "\"{{ workload.n }}\"".to_owned(),
            Value::NextLap => "\"{{ (ctx.laps | default(0)) + 1 }}\"".to_owned(),
        }
    }
}

/// Who may enter a step.
#[derive(Clone, Debug)]
pub(crate) struct AdmitDefinition {
    /// The first rule that matches decides.
    pub(crate) rules: Vec<(Guard, bool)>,
    /// What holds if no rule matches; absent: the token may enter.
    pub(crate) otherwise: Option<bool>,
    /// A denied token is removed.
    pub(crate) discards: bool,
}

/// A step that is done for each item.
#[derive(Clone, Debug)]
pub(crate) struct EachDefinition {
    /// The items of the file; absent: those of the parameters.
    pub(crate) own: Option<Vec<u64>>,
    /// The most items at a time; absent: one after the other.
    pub(crate) parallel: Option<u32>,
    /// A failed item does not end the loop.
    pub(crate) goes_on: bool,
}

/// Where a token may go.
#[derive(Clone, Debug)]
pub(crate) struct ArcDefinition {
    pub(crate) to: usize,
    pub(crate) when: Option<Guard>,
    /// The argument `n` of the token.
    pub(crate) args: Option<Value>,
    /// Variables of the run that taking the arc sets.
    pub(crate) sets: Vec<(String, Value)>,
}

/// A step of a playbook.
#[derive(Clone, Debug)]
pub(crate) struct PlaybookStep {
    pub(crate) name: String,
    /// Waits for a token on every arc that leads here.
    pub(crate) joins: bool,
    pub(crate) admit: Option<AdmitDefinition>,
    pub(crate) each: Option<EachDefinition>,
    /// A variable of the run that the end of the step sets.
    pub(crate) sets: Option<(usize, Value)>,
    pub(crate) inclusive: bool,
    pub(crate) arcs: Vec<ArcDefinition>,
    pub(crate) at_most_once: bool,
    pub(crate) max_losses: u32,
    /// A failure of this step stops the run.
    pub(crate) fails_fast: bool,
    /// The variable of the run that the work reads.
    pub(crate) reads: usize,
    later_words: bool,
}

/// A playbook that was drawn from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Playbook {
    /// In the order of the file.
    pub(crate) steps: Vec<PlaybookStep>,
    pub(crate) entry: usize,
    pub(crate) final_step: Option<usize>,
    pub(crate) no_next_is_error: bool,
    pub(crate) fails_fast: bool,
    pub(crate) partial: bool,
    pub(crate) final_partial: bool,
    /// The parameter `items`.
    pub(crate) items: Vec<u64>,
    stall_minutes: u64,
}

impl Playbook {
    pub(crate) fn draw(rng: &mut Rng) -> Playbook {
        let count = usize::try_from(rng.between(1, 6)).unwrap_or(1);
        let mut steps: Vec<PlaybookStep> = (0..count).map(|index| step(index, rng)).collect();
        for index in 1..count {
            // Every step can be reached; some from several places.
            let from = rng.index(index);
            let arc = arc(index, rng);
            steps[from].arcs.push(arc);
            if rng.one_in(3) {
                let other = rng.index(index);
                if other != from {
                    let arc = self::arc(index, rng);
                    steps[other].arcs.push(arc);
                    let joins = rng.one_in(2);
                    steps[index].joins = joins;
                    if joins {
                        steps[index].admit = None;
                    }
                }
            }
        }
        if count > 1 && rng.one_in(3) {
            let from = rng.between(1, count as u64 - 1);
            let from = usize::try_from(from).unwrap_or(1);
            let back = ArcDefinition {
                to: rng.index(from + 1),
                when: Some(Guard::Laps),
                args: None,
                sets: vec![("laps".to_owned(), Value::NextLap)],
            };
            if !steps[back.to].joins {
                steps[from].arcs.insert(0, back);
            }
        }
        let fails_fast = rng.one_in(4);
        let mut playbook = Playbook {
            steps,
            entry: 0,
            final_step: None,
            no_next_is_error: rng.one_in(5),
            fails_fast,
            partial: !fails_fast && rng.one_in(2),
            final_partial: rng.one_in(2),
            items: (0..rng.below(5)).map(|it| it * 10).collect(),
            stall_minutes: rng.between(30, 1_440),
        };
        if rng.one_in(3) {
            let mut last = step(count, rng);
            last.name = "last".to_owned();
            (last.admit, last.each, last.fails_fast) = (None, None, false);
            playbook.final_step = Some(playbook.steps.len());
            playbook.steps.push(last);
        }
        if rng.one_in(3) {
            playbook.move_entry(rng.index(count));
        }
        playbook
    }

    /// Writes the entry at another place of the file.
    fn move_entry(&mut self, place: usize) {
        self.steps.swap(0, place);
        self.entry = place;
        let arcs = self.steps.iter_mut().flat_map(|it| &mut it.arcs);
        for arc in arcs {
            if arc.to == 0 {
                arc.to = place;
            } else if arc.to == place {
                arc.to = 0;
            }
        }
    }

    /// The arcs in the order of the file, each with the step that it leaves.
    pub(crate) fn arcs(&self) -> impl Iterator<Item = (usize, &ArcDefinition)> {
        let steps = self.steps.iter().enumerate();
        steps.flat_map(|(from, step)| step.arcs.iter().map(move |arc| (from, arc)))
    }

    /// The number of the first arc of a step, in the order of the file.
    pub(crate) fn first_arc(&self, step: usize) -> usize {
        self.steps[..step].iter().map(|it| it.arcs.len()).sum()
    }

    /// The items of a loop.
    pub(crate) fn items(&self, each: &EachDefinition) -> Vec<Json> {
        let items = each.own.as_ref().unwrap_or(&self.items);
        items.iter().map(|it| json!(it)).collect()
    }

    /// The playbook as a file.
    pub(crate) fn text(&self) -> String {
        let failure = match self.fails_fast {
            true => "fail_fast",
            false => "continue",
        };
        let how = |partial| match partial {
            true => "partial",
            false => "fail",
        };
        let mut text = format!(
            "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: drawn-playbook}}\nexecutor:\n  spec:\n    \
             no_next_is_error: {}\n    policy: {{failure: {{mode: {failure}}}, completion: {}, final: {}, \
             stall_timeout: {}m}}\n",
            self.no_next_is_error,
            how(self.partial),
            how(self.final_partial),
            self.stall_minutes,
        );
        // Writing to a string cannot fail.
        if self.entry > 0 {
            let _ = writeln!(text, "    entry_step: {}", self.steps[self.entry].name);
        }
        if let Some(last) = self.final_step {
            let _ = writeln!(text, "    final_step: {}", self.steps[last].name);
        }
        let _ = write!(
            text,
            "workload: {{items: {:?}, n: 0}}\nworkflow:\n",
            self.items
        );
        for step in &self.steps {
            self.step_text(step, &mut text);
        }
        text
    }

    fn step_text(&self, step: &PlaybookStep, text: &mut String) {
        let later = step.later_words;
        let args = if later { "input" } else { "args" };
        let _ = write!(
            text,
            "- step: {}\n  tool: {{kind: noop, {args}: {{c: \"{{{{ ctx.c{} | default(0) }}}}\"}}}}\n  spec:\n    \
             ",
            step.name, step.reads
        );
        let _ = match step.at_most_once {
            true => writeln!(text, "atMostOnce: true"),
            false => writeln!(text, "maxLosses: {}", step.max_losses),
        };
        if step.fails_fast || step.admit.is_some() {
            text.push_str("    policy:\n");
        }
        if step.fails_fast {
            text.push_str("      failure: {mode: fail_fast}\n");
        }
        if let Some(admit) = &step.admit {
            let denied = if admit.discards { "discard" } else { "pending" };
            let _ = write!(
                text,
                "      admit:\n        denied: {denied}\n        rules:\n"
            );
            for (guard, allow) in &admit.rules {
                let when = guard.text(later);
                let _ = writeln!(
                    text,
                    "          - {{when: \"{{{{ {when} }}}}\", then: {{allow: {allow}}}}}"
                );
            }
            if let Some(allow) = admit.otherwise {
                let _ = writeln!(text, "          - {{else: {{then: {{allow: {allow}}}}}}}");
            }
        }
        if step.joins {
            text.push_str("  join: all\n");
        }
        if let Some(each) = &step.each {
            let items = match &each.own {
                Some(own) => format!("{own:?}"),
                None => "\"{{ workload.items }}\"".to_owned(),
            };
            let mode = match each.parallel {
                Some(window) => format!("mode: parallel, max_in_flight: {window}"),
                None => "mode: sequential".to_owned(),
            };
            let failure = if each.goes_on {
                "continue"
            } else {
                "fail_fast"
            };
            let _ = write!(
                text,
                "  loop:\n    in: {items}\n    iterator: it\n    spec: {{{mode}, policy: {{failure: {{mode: {failure}}}}}}}\n"
            );
        }
        if let Some((key, value)) = &step.sets {
            let value = value.text(later);
            let _ = match later {
                true => writeln!(text, "  set: {{ctx.c{key}: {value}}}"),
                false => writeln!(text, "  set_ctx: {{c{key}: {value}}}"),
            };
        }
        if !step.arcs.is_empty() {
            text.push_str("  next:\n");
            if step.inclusive {
                text.push_str("    spec: {mode: inclusive}\n");
            }
            text.push_str("    arcs:\n");
        }
        for arc in &step.arcs {
            let _ = writeln!(text, "      - step: {}", self.steps[arc.to].name);
            if let Some(when) = &arc.when {
                let _ = writeln!(text, "        when: \"{{{{ {} }}}}\"", when.text(later));
            }
            if let Some(value) = &arc.args {
                let value = value.text(later);
                let _ = match later {
                    true => writeln!(text, "        set: {{args.n: {value}}}"),
                    false => writeln!(text, "        args: {{n: {value}}}"),
                };
            }
            if !arc.sets.is_empty() {
                let sets = arc.sets.iter();
                let sets = sets.map(|(key, value)| format!("{key}: {}", value.text(later)));
                let sets = sets.collect::<Vec<_>>().join(", ");
                let _ = writeln!(text, "        set_ctx: {{{sets}}}");
            }
        }
    }
}

/// How many variables the runs of a playbook have.
const VARIABLES: usize = 3;

fn value(rng: &mut Rng) -> Value {
    match rng.below(5) {
        0 => Value::Fixed(rng.below(5)),
        1 | 2 => Value::Output,
        3 => Value::Ctx(rng.index(VARIABLES)),
        _ => Value::Workload,
    }
}

fn step(index: usize, rng: &mut Rng) -> PlaybookStep {
    let admits = rng.one_in(5);
    let loops = rng.one_in(4);
    PlaybookStep {
        name: format!("s{index}"),
        joins: false,
        admit: admits.then(|| AdmitDefinition {
            rules: (0..rng.between(1, 2))
                .map(|_| {
                    let guard = match rng.one_in(4) {
                        true => Guard::Workload(rng.between(1, 3)),
                        false => Guard::Ctx(rng.index(VARIABLES), rng.between(1, 3)),
                    };
                    (guard, !rng.one_in(4))
                })
                .collect(),
            otherwise: [Some(false), Some(false), Some(true), None][rng.index(4)],
            discards: rng.one_in(3),
        }),
        each: loops.then(|| EachDefinition {
            own: rng
                .one_in(2)
                .then(|| (0..rng.below(5)).map(|it| it + 1).collect()),
            parallel: (!rng.one_in(3)).then(|| u32::try_from(rng.between(1, 3)).unwrap_or(1)),
            goes_on: rng.one_in(2),
        }),
        sets: rng.one_in(2).then(|| (rng.index(VARIABLES), value(rng))),
        inclusive: rng.one_in(2),
        arcs: Vec::new(),
        at_most_once: rng.one_in(10),
        max_losses: u32::try_from(rng.between(1, 10)).unwrap_or(1),
        fails_fast: rng.one_in(10),
        reads: rng.index(VARIABLES),
        later_words: rng.one_in(2),
    }
}

fn arc(to: usize, rng: &mut Rng) -> ArcDefinition {
    let when = match rng.below(16) {
        0..6 => None,
        6 => Some(Guard::Event("step.done")),
        7 => Some(Guard::Event("step.failed")),
        8 => Some(Guard::Event("loop.done")),
        9 => Some(Guard::Status("ok")),
        10 => Some(Guard::Status("error")),
        11 => Some(Guard::Output(rng.between(1, 3))),
        12 => Some(Guard::Ctx(rng.index(VARIABLES), rng.between(1, 3))),
        13 => Some(Guard::Args(rng.between(1, 3))),
        14 => Some(Guard::Workload(rng.between(1, 3))),
        _ => Some(Guard::FailedItems(1)),
    };
    let sets = match rng.one_in(4) {
        true => vec![(format!("c{}", rng.index(VARIABLES)), value(rng))],
        false => Vec::new(),
    };
    ArcDefinition {
        to,
        when,
        args: (!rng.one_in(3)).then(|| value(rng)),
        sets,
    }
}
