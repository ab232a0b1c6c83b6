//! Pipelines in a real engine: what the rules of tasks lead to.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use stepwell_dialects::{Source, load};
use stepwell_engine::StartRequest;
use stepwell_engine::clock::SystemClock;
use stepwell_engine::engine::Engine;
use stepwell_engine::keeper::Config;
use stepwell_engine::port::NoCatalog;
use stepwell_engine::store::MemoryStore;
use stepwell_kernel::event::{Body, StepError};
use stepwell_kernel::plan::{ErrorClass, Plan};
use stepwell_worker::artifacts::Artifacts;
use stepwell_worker::log::Stream;
use stepwell_worker::logs::Logs;
use stepwell_worker::secrets::Secrets;
use stepwell_worker::{Crew, Handlers, Means};

/// What became of a run of one step.
#[derive(Debug)]
struct Ran {
    /// What the step returned.
    output: Option<Json>,
    /// Why it failed.
    error: Option<StepError>,
    ctx: Json,
    /// How long it waited before each further attempt of a task, in seconds.
    waits: Vec<f64>,
    /// Executions of the step itself.
    executions: usize,
}

impl Ran {
    fn code(&self) -> &str {
        self.error.as_ref().map_or("", |error| error.code.as_str())
    }
}

/// Runs a playbook of one step with this block of tools.
fn run(tool: Json) -> Ran {
    let text = json!({
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": { "name": "one" },
        "workload": { "trail": "" },
        "workflow": [{ "step": "s", "set_ctx": { "done": true }, "tool": tool }],
    });
    let source = Source::from_bytes("one.yaml", text.to_string().as_bytes()).unwrap();
    let loaded = load(&source);
    let plan = loaded
        .plan
        .unwrap_or_else(|| panic!("{:?}", loaded.problems));
    drive(&Arc::new(plan))
}

/// Runs a plan to its end, with an engine in line and a crew.
fn drive(plan: &Arc<Plan>) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::open("memory:").unwrap();
    let secrets = Secrets::new(Vec::new());
    let means = Means::new(secrets, artifacts, Logs::open(folder.path())).with_all_tools();
    let crew = Crew::new(means, Handlers::new()).unwrap();
    let mut said = crew.means().logs.subscribe();
    let config = Config {
        serves: crew.serves(),
        ..Config::default()
    };
    let store = Arc::new(MemoryStore::with_secret([7; 32]));
    let mut engine = Engine::new(store, SystemClock, NoCatalog, config).unwrap();
    let request = StartRequest {
        run_id: "run_a".into(),
        ..StartRequest::default()
    };
    engine.trigger(plan, request).unwrap();
    let (report, reports) = mpsc::channel();
    let until = Instant::now() + Duration::from_secs(20);
    while !engine.run("run_a").unwrap().state.phase.is_ended() {
        assert!(Instant::now() < until, "the run does not end");
        while let Some(job) = engine.jobs.pop_front() {
            let report = report.clone();
            crew.begin(job, move |job, command| {
                report.send((job.clone(), command)).unwrap();
            });
        }
        match reports.recv_timeout(Duration::from_millis(20)) {
            Ok((job, command)) => engine.finish(&job, command).unwrap(),
            Err(_) => drop(engine.fire_due().unwrap()),
        }
    }
    let mut ran = Ran {
        output: None,
        error: None,
        ctx: json!(engine.run("run_a").unwrap().state.ctx),
        waits: Vec::new(),
        executions: 0,
    };
    for event in engine.events("run_a", 0).unwrap() {
        match event.body {
            Body::StepCompleted { output, .. } => ran.output = output.map(|it| Json::clone(&it)),
            Body::StepFailed { error, .. } => ran.error = Some(error),
            Body::StepStarted { .. } | Body::StepExecutionStarted { .. } => ran.executions += 1,
            _ => {}
        }
    }
    while let Ok(entry) = said.try_recv() {
        let note = entry.line.text.strip_suffix(" s");
        let wait: Option<f64> =
            note.and_then(|note| note.rsplit_once("another in ")?.1.parse().ok());
        if entry.line.stream == Stream::Note {
            ran.waits.extend(wait);
        }
    }
    ran
}

/// A task that succeeds and returns these arguments.
fn good(name: &str, args: Json, rules: Json) -> Json {
    task(json!({ "kind": "noop", "args": args }), name, rules)
}

/// A task that fails: there is no such table.
fn bad(name: &str, rules: Json) -> Json {
    let sql = json!({ "kind": "sqlite", "database": ":memory:", "query": "SELECT 1 FROM nowhere" });
    task(sql, name, rules)
}

fn task(mut task: Json, name: &str, rules: Json) -> Json {
    task["name"] = json!(name);
    task["set_ctx"] = json!({ "trail": format!("{{{{ ctx.trail | default('') }}}}{name} ") });
    if rules != json!([]) {
        task["spec"] = json!({ "policy": { "rules": rules } });
    }
    task
}

fn rule(when: &str, then: Json) -> Json {
    json!({ "when": format!("{{{{ {when} }}}}"), "then": then })
}

/// The tasks that ended well, in order.
fn trail(ran: &Ran) -> &str {
    ran.ctx["trail"].as_str().unwrap_or_default().trim()
}

#[test]
fn p24_rules_are_looked_at_after_success_and_after_an_error_of_a_single_tool() {
    let rules = json!([rule("outcome.status == 'ok'", json!({ "do": "fail" }))]);
    let ran = run(good("a", json!({ "message": "too few rows" }), rules));
    assert_eq!(ran.code(), "TASK_FAILED");
    assert_eq!(ran.error.unwrap().message, "too few rows");

    let rules = json!([rule(
        "outcome.error.code == 'SQLITE_ERROR'",
        json!({ "do": "continue" })
    )]);
    let ran = run(bad("a", rules));
    assert!(ran.error.is_none(), "{ran:?}");
    assert_eq!(ran.ctx["done"], true);
}

#[test]
fn p24_rules_are_looked_at_after_success_and_after_an_error_in_a_list() {
    let on_success = json!([rule("outcome.status == 'ok'", json!({ "do": "break" }))]);
    let on_error = json!([rule(
        "outcome.status == 'error'",
        json!({ "do": "continue" })
    )]);
    let ran = run(json!([
        bad("a", on_error),
        good("b", json!({ "x": 1 }), on_success),
        good("c", json!({ "x": 2 }), json!([])),
    ]));
    assert_eq!(trail(&ran), "b");
    assert_eq!(ran.output, Some(json!({ "x": 1 })));
}

#[test]
fn p24_the_first_rule_that_matches_decides() {
    let ran = run(bad(
        "a",
        json!([
            rule("outcome.status == 'ok'", json!({ "do": "fail" })),
            rule("true", json!({ "do": "continue", "set_ctx": { "by": 2 } })),
            rule("true", json!({ "do": "fail", "set_ctx": { "by": 3 } })),
            { "else": { "then": { "do": "fail", "set_ctx": { "by": 4 } } } },
        ]),
    ));
    assert!(ran.error.is_none(), "{ran:?}");
    assert_eq!(ran.ctx["by"], 2);
}

#[test]
fn p24_the_last_resort_is_taken_when_no_other_matches() {
    let ran = run(bad(
        "a",
        json!([
            rule("outcome.status == 'ok'", json!({ "do": "fail" })),
            { "else": { "then": { "do": "continue", "set_ctx": { "by": "else" } } } },
        ]),
    ));
    assert_eq!((ran.code(), &ran.ctx["by"]), ("", &json!("else")));
}

#[test]
fn p24_a_retry_stops_as_soon_as_its_rule_no_longer_matches() {
    let rules = json!([rule(
        "outcome.result.n < 3",
        json!({ "do": "retry", "attempts": 10, "delay": 0.01 })
    )]);
    let ran = run(good("a", json!({ "n": "{{ _attempt }}" }), rules));
    assert_eq!(ran.waits, [0.01, 0.01]);
    assert_eq!(ran.output.as_ref().unwrap()["n"], 3);
    // It is one execution of the step, whatever its tasks do.
    assert_eq!(ran.executions, 1);
    // What a task sets is set once, by the attempt that counts.
    assert_eq!(trail(&ran), "a");
}

#[test]
fn p24_attempts_count_in_all_and_are_three_unless_it_is_said() {
    let again = |more: Json| {
        let mut then = json!({ "do": "retry", "delay": 0 });
        then.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        run(bad("a", json!([rule("outcome.status == 'error'", then)])))
    };
    for (more, waits) in [
        (json!({}), 2),
        (json!({ "attempts": 1 }), 0),
        (json!({ "attempts": 5 }), 4),
    ] {
        let ran = again(more.clone());
        assert_eq!(
            (ran.waits.len(), ran.code()),
            (waits, "SQLITE_ERROR"),
            "{more}"
        );
    }
}

#[test]
fn p24_a_retry_waits_a_second_unless_it_is_said() {
    let then = json!({ "do": "retry", "attempts": 2 });
    let ran = run(bad("a", json!([rule("outcome.status == 'error'", then)])));
    assert_eq!(ran.waits, [1.0]);
}

#[test]
fn p24_waits_stay_or_grow_as_their_backoff_says() {
    for (backoff, waits) in [
        ("none", [0.0, 0.0, 0.0, 0.0]),
        ("fixed", [0.01, 0.01, 0.01, 0.01]),
        ("constant", [0.01, 0.01, 0.01, 0.01]),
        ("linear", [0.01, 0.02, 0.03, 0.04]),
        ("exponential", [0.01, 0.02, 0.04, 0.08]),
    ] {
        let then = json!({ "do": "retry", "attempts": 5, "backoff": backoff, "delay": 0.01 });
        let ran = run(bad("a", json!([rule("outcome.status == 'error'", then)])));
        assert_eq!(ran.waits, waits, "{backoff}");
    }
}

#[test]
fn p24_a_jump_goes_to_the_task_that_it_names() {
    let over = json!([rule("true", json!({ "do": "jump", "to": "c" }))]);
    let ran = run(json!([
        good("a", json!({ "x": 1 }), over),
        good("b", json!({ "x": 2 }), json!([])),
        good("c", json!({ "x": 3 }), json!([])),
    ]));
    assert_eq!(trail(&ran), "a c");
    assert_eq!(ran.output, Some(json!({ "x": 3 })));
}

#[test]
fn p24_a_jump_can_go_back_and_to_the_task_before() {
    let back = json!([rule(
        "(ctx.trail | default('')) | length < 6",
        json!({ "do": "jump", "to": "previous" })
    )]);
    let ran = run(json!([
        good("a", json!({ "x": 1 }), json!([])),
        good("b", json!({ "x": 2 }), back),
        good("c", json!({ "x": 3 }), json!([])),
    ]));
    assert_eq!(trail(&ran), "a b a b c");
}

#[test]
fn p24_a_jump_can_follow_an_error() {
    let mend = json!([rule(
        "outcome.status == 'error'",
        json!({ "do": "jump", "to": "mend" })
    )]);
    let ran = run(json!([
        bad("a", mend),
        good("b", json!({ "x": 2 }), json!([])),
        good("mend", json!({ "x": 3 }), json!([])),
    ]));
    assert_eq!((ran.code(), trail(&ran)), ("", "mend"));
}

#[test]
fn p24_a_jump_that_never_ends_is_ended() {
    let same = json!([rule("true", json!({ "do": "jump", "to": "a" }))]);
    let ran = run(json!([
        good("a", json!({}), same),
        good("b", json!({}), json!([]))
    ]));
    assert_eq!(ran.code(), "PIPELINE_ENDLESS");
}

#[test]
fn p24_a_break_ends_the_block_well() {
    let stop = json!([rule("outcome.status == 'error'", json!({ "do": "break" }))]);
    let ran = run(json!([bad("a", stop), good("b", json!({}), json!([]))]));
    assert_eq!((ran.code(), trail(&ran)), ("", ""));
    assert_eq!(ran.ctx["done"], true);
}

#[test]
fn p24_a_fail_fails_the_step_with_what_the_task_has_said() {
    let fail = json!([rule("outcome.status == 'error'", json!({ "do": "fail" }))]);
    let ran = run(json!([bad("a", fail), good("b", json!({}), json!([]))]));
    let error = ran.error.unwrap();
    assert_eq!(
        (error.class, error.code.as_str()),
        (ErrorClass::Validation, "SQLITE_ERROR")
    );
    assert!(error.message.starts_with("task `a`: "), "{}", error.message);
    assert_eq!(ran.ctx.get("done"), None);
}

#[test]
fn p25_an_error_that_no_rule_matches_fails_the_step() {
    let ran = run(bad("a", json!([])));
    assert_eq!(ran.code(), "SQLITE_ERROR");
    let other = json!([rule(
        "outcome.error.class == 'transport'",
        json!({ "do": "continue" })
    )]);
    let ran = run(json!([bad("a", other), good("b", json!({}), json!([]))]));
    assert_eq!((ran.code(), trail(&ran)), ("SQLITE_ERROR", ""));
    // Nobody asked for another attempt.
    assert_eq!((ran.waits.len(), ran.executions), (0, 1));
}
