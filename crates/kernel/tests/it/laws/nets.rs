//! Random nets of every shape: lists, graphs, token graphs with guards and joins, loops, waits, gates,
//! children, undos, and every policy.

use proptest::prelude::*;
use serde_json::json;
use stepwell_kernel::expr::{Template, TemplateValue};
use stepwell_kernel::plan::*;

fn template(text: &str) -> Template {
    Template::parse(text).expect("a template of the test")
}

fn value(json: serde_json::Value) -> TemplateValue {
    TemplateValue::parse(&json).expect("a value of the test")
}

fn any_retry() -> impl Strategy<Value = RetryPolicy> {
    let kind = prop_oneof![
        Just(BackoffKind::None),
        Just(BackoffKind::Constant),
        Just(BackoffKind::Linear),
        Just(BackoffKind::Exponential)
    ];
    let classes = prop::sample::subsequence(ErrorClass::ALL.to_vec(), 0..6);
    (1u32..4, kind, 0u64..5_000, classes).prop_map(|(max_executions, kind, initial_ms, classes)| {
        RetryPolicy {
            max_executions,
            backoff: Backoff {
                kind,
                initial_ms,
                multiplier: 2.0,
                max_ms: 10_000,
            },
            classes,
        }
    })
}

fn any_work() -> impl Strategy<Value = Work> {
    let deadline = prop::option::of(1_000u64..100_000);
    prop_oneof![
        6 => Just(Work::Task { queue: "q".into(), operation: "op".into(), config: json!(null) }),
        1 => deadline.clone().prop_map(|deadline_ms| Work::Wait(WaitSpec { on: WaitOn::Approval, deadline_ms })),
        1 => deadline.clone().prop_map(|deadline_ms| Work::Wait(WaitSpec { on: WaitOn::Manual, deadline_ms })),
        1 => deadline.prop_map(|deadline_ms| Work::Wait(WaitSpec {
            on: WaitOn::Event { event_type: "ping".into() },
            deadline_ms,
        })),
        1 => (0u64..5_000).prop_map(|millis| Work::Wait(WaitSpec { on: WaitOn::Timer { millis }, deadline_ms: None })),
        1 => Just(Work::Child(ChildSpec { path: "child".into(), return_step: None, input: value(json!({"x": "{{ ctx.n }}"})) })),
    ]
}

fn any_loop() -> impl Strategy<Value = Loop> {
    let items = prop_oneof![
        Just(json!([])),
        Just(json!([1, 2, 3])),
        Just(json!("{{ workload.items }}")),
        Just(json!("{{ ctx.items or [7] }}")),
        Just(json!("{{ workload.text }}")),
    ];
    let most = prop_oneof![
        (1u32..4).prop_map(MaxInFlight::Fixed),
        Just(MaxInFlight::Computed(template("{{ workload.limit }}")))
    ];
    (items, any::<bool>(), most, any::<bool>()).prop_map(
        |(items, parallel, max_in_flight, go_on)| Loop {
            items: value(items),
            iterator: "item".into(),
            mode: if parallel {
                LoopMode::Parallel
            } else {
                LoopMode::Sequential
            },
            max_in_flight,
            on_failure: if go_on {
                OnLoopFailure::Continue
            } else {
                OnLoopFailure::Fail
            },
        },
    )
}

fn any_duties() -> impl Strategy<Value = Vec<Duty>> {
    prop_oneof![
        4 => Just(vec![]),
        1 => Just(vec![Duty::MakerChecker]),
        1 => Just(vec![Duty::DistinctApprovers { count: 2 }]),
        1 => Just(vec![Duty::IncompatibleDuties { keys: vec!["s0".into(), "s1".into()] }]),
    ]
}

fn any_failure(routed: bool) -> impl Strategy<Value = OnFailure> {
    if routed {
        Just(OnFailure::Route).boxed()
    } else {
        prop_oneof![
            any::<bool>().prop_map(|compensate| OnFailure::Stop { compensate }),
            Just(OnFailure::Skip),
            (1_000u64..50_000).prop_map(|timeout_ms| OnFailure::Hold { timeout_ms }),
        ]
        .boxed()
    }
}

fn any_undo() -> impl Strategy<Value = Option<Undo>> {
    prop::option::of((any_retry(), prop::option::of(1_000u64..20_000)).prop_map(
        |(retry, timeout_ms)| Undo {
            queue: "q".into(),
            operation: "undo".into(),
            input: json!(null),
            tasks: json!(null),
            retry,
            timeout_ms,
        },
    ))
}

fn any_admission() -> impl Strategy<Value = Option<Admission>> {
    let rule = |text: &'static str, allow| AdmitRule {
        when: Some(template(text)),
        allow,
    };
    prop_oneof![
        5 => Just(None),
        1 => any::<bool>().prop_map(move |discard| Some(Admission {
            rules: vec![rule("{{ ctx.open }}", true), AdmitRule { when: None, allow: false }],
            denied: if discard { OnDenied::Discard } else { OnDenied::Pending },
        })),
        1 => Just(Some(Admission { rules: vec![rule("{{ 1 < 'x' }}", true)], denied: OnDenied::Pending })),
    ]
}

fn any_step(name: String, order: u32, routed: bool) -> impl Strategy<Value = Step> {
    let shape = (
        any_work(),
        any_retry(),
        prop::option::of(500u64..50_000),
        any_failure(routed),
        any_undo(),
    );
    let each = if routed {
        prop::option::weighted(0.3, any_loop()).boxed()
    } else {
        Just(None).boxed()
    };
    let admit = if routed {
        any_admission().boxed()
    } else {
        Just(None).boxed()
    };
    let gate = prop::option::weighted(0.15, (any_duties(), prop::option::of(1_000u64..50_000)));
    let rest = (
        each,
        admit,
        gate,
        any::<bool>(),
        any_duties(),
        0u8..4,
        any::<bool>(),
        (
            prop::bool::weighted(0.2),
            prop::option::weighted(0.4, 1u32..4),
        ),
    );
    (shape, rest).prop_map(move |((work, retry, timeout_ms, on_failure, undo), rest)| {
        let (each, admit, gate, manual, duties, effect, sets, losses) = rest;
        let mut step = Step::new(name.clone(), work);
        step.order = order;
        step.retry = retry;
        step.timeout_ms = timeout_ms;
        (step.at_most_once, step.max_losses) = losses;
        step.on_failure = on_failure;
        step.undo = undo;
        step.each = each;
        step.admit = admit;
        step.gate = gate.map(|(duties, deadline_ms)| Gate {
            duties,
            deadline_ms,
        });
        step.completion = if manual && order % 4 == 3 {
            Completion::Manual
        } else {
            Completion::Automatic
        };
        step.duties = duties;
        step.side_effect = [
            SideEffect::Unknown,
            SideEffect::Pure,
            SideEffect::Compensable,
            SideEffect::Irreversible,
        ][effect as usize];
        if sets && routed {
            step.set_ctx = vec![("n".into(), value(json!("{{ (ctx.n | default(0)) + 1 }}")))];
        }
        step
    })
}

fn any_policy(steps: usize, routed: bool) -> impl Strategy<Value = RunPolicy> {
    let flags = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    let times = (
        prop::option::weighted(0.3, 10_000u64..500_000),
        1_000u64..100_000,
        1_000u64..100_000,
    );
    let modes = (
        0u8..3,
        any::<bool>(),
        any::<bool>(),
        0u8..3,
        prop::option::weighted(0.2, 0..steps as u32),
    );
    (flags, times, modes, any_duties()).prop_map(move |(flags, times, modes, duties)| {
        let (must_queue, needs_approval, no_next, skip_unreached, timeout_compensates) = flags;
        let (timeout_ms, stall_timeout_ms, drain_timeout_ms) = times;
        let (unhandled, final_partial, undo_stop, wait, entry) = modes;
        RunPolicy {
            must_queue,
            needs_approval,
            entry: match entry {
                Some(no) if routed => EntryPoint::Step(StepNo(no)),
                _ if routed => EntryPoint::Step(StepNo(0)),
                _ => EntryPoint::Roots,
            },
            final_step: None,
            final_failure: if final_partial {
                FinalFailure::Partial
            } else {
                FinalFailure::Fail
            },
            no_next_is_error: no_next,
            unhandled: [Unhandled::Fail, Unhandled::Partial, Unhandled::Stop][unhandled as usize],
            timeout_ms,
            timeout_compensates,
            stall_timeout_ms,
            drain_timeout_ms,
            undo_mode: if undo_stop {
                UndoMode::Stop
            } else {
                UndoMode::Continue
            },
            skip_unreached: skip_unreached && !routed,
            wait_timeout: [WaitTimeout::Fail, WaitTimeout::Claim, WaitTimeout::Ignore]
                [wait as usize],
            duties,
            losses_are_attempts: undo_stop && final_partial,
            ..RunPolicy::default()
        }
    })
}

fn net(steps: Vec<Step>, edges: Vec<Edge>, policy: RunPolicy) -> Net {
    Net {
        dialect: Dialect::Plan,
        plan_id: "random".into(),
        plan_version: "1".into(),
        schema_version: "v1.0".into(),
        source: SourceRef {
            uri: "test:random".into(),
            sha256: "0".repeat(64),
        },
        workload: json!({"items": [1, 2], "limit": 2, "text": "no list"}),
        steps,
        edges,
        policy,
        library: Default::default(),
        extra: json!(null),
    }
}

fn any_steps(routed: bool) -> impl Strategy<Value = Vec<Step>> {
    (1usize..7).prop_flat_map(move |count| {
        (0..count)
            .map(|no| any_step(format!("s{no}"), no as u32, routed).boxed())
            .collect::<Vec<_>>()
    })
}

/// A list or a graph: edges point forward, every join waits for all.
fn any_graph() -> impl Strategy<Value = Net> {
    any_steps(false).prop_flat_map(|steps| {
        let count = steps.len();
        let pairs: Vec<(u32, u32)> = (0..count as u32)
            .flat_map(|from| (from + 1..count as u32).map(move |to| (from, to)))
            .collect();
        let chosen = prop::sample::subsequence(pairs.clone(), 0..=pairs.len());
        (Just(steps), chosen, any_policy(count, false)).prop_map(|(steps, pairs, policy)| {
            let edges = pairs
                .into_iter()
                .map(|(from, to)| Edge::plain(StepNo(from), StepNo(to)))
                .collect();
            net(steps, edges, policy)
        })
    })
}

fn any_guard() -> impl Strategy<Value = Option<Template>> {
    prop_oneof![
        3 => Just(None),
        1 => Just(Some(template("{{ event.name == 'step.done' }}"))),
        1 => Just(Some(template("{{ event.name == 'call.error' }}"))),
        1 => Just(Some(template("{{ outcome.status == 'error' }}"))),
        1 => Just(Some(template("{{ (ctx.n | default(0)) < 3 }}"))),
        1 => Just(Some(template("{{ ctx.open }}"))),
        1 => Just(Some(template("{{ 1 < 'x' }}"))),
        1 => Just(Some(template("{{ false }}"))),
    ]
}

/// A token graph: any edges, cycles included, guards, joins, perhaps a final step.
fn any_token_graph() -> impl Strategy<Value = Net> {
    any_steps(true).prop_flat_map(|steps| {
        let count = steps.len() as u32;
        let edge = (
            0..count,
            0..count,
            any_guard(),
            any::<bool>(),
            any::<bool>(),
        );
        let edges = prop::collection::vec(edge, 0..10);
        let joins = prop::collection::vec((any::<bool>(), 0u8..5), count as usize);
        (
            Just(steps),
            edges,
            joins,
            any_policy(count as usize, true),
            any::<bool>(),
        )
            .prop_map(move |(mut steps, edges, joins, mut policy, finish)| {
                for (step, (inclusive, join)) in steps.iter_mut().zip(joins) {
                    step.join = if join == 0 { Join::All } else { Join::Each };
                    step.route = if inclusive {
                        Route::Inclusive
                    } else {
                        Route::Exclusive
                    };
                }
                let mut edges: Vec<Edge> = edges
                    .into_iter()
                    .map(|(from, to, when, args, set)| Edge {
                        from: StepNo(from),
                        to: StepNo(to),
                        when,
                        args: args.then(|| value(json!({"n": "{{ ctx.n }}", "k": 1}))),
                        set_ctx: if set {
                            vec![("open".into(), value(json!(true)))]
                        } else {
                            vec![]
                        },
                    })
                    .collect();
                if finish && count > 1 {
                    let last = StepNo(count - 1);
                    policy.final_step = Some(last);
                    if policy.entry == EntryPoint::Step(last) {
                        policy.entry = EntryPoint::Step(StepNo(0));
                    }
                    edges.retain(|edge| edge.from != last && edge.to != last);
                    steps[last.0 as usize].admit = None;
                    steps[last.0 as usize].join = Join::Each;
                }
                net(steps, edges, policy)
            })
    })
}

pub(super) fn any_net() -> impl Strategy<Value = Net> {
    prop_oneof![any_graph(), any_token_graph()]
}
