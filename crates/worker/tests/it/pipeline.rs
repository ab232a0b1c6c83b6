//! Pipelines in a real engine: what the rules of tasks lead to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use stepwell_dialects::{Source, load};
use stepwell_engine::StartRequest;
use stepwell_engine::coordinator::Config;
use stepwell_engine::read::LoggedRun;
use stepwell_engine::service::{Service, Setup};
use stepwell_engine::store::MemoryStore;
use stepwell_kernel::event::{Body, StepError};
use stepwell_kernel::plan::{ErrorClass, Plan};
use stepwell_worker::artifacts::Artifacts;
use stepwell_worker::logs::Logs;
use stepwell_worker::secrets::{EnvVars, Secrets};
use stepwell_worker::step_log::Stream;
use stepwell_worker::{Crew, Failure, Handlers, Job, WorkerResources};

/// The result of a run of one step.
#[derive(Debug)]
struct Ran {
    /// What the step returned.
    output: Option<Json>,
    /// Absent if the step succeeded.
    error: Option<StepError>,
    ctx: Json,
    /// How long it waited before each further attempt of a task, in seconds.
    waits: Vec<f64>,
    /// Executions of the step itself.
    executions: usize,
    /// All events, and all that was said.
    log: String,
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

/// Runs a plan to its end, on an engine with a crew.
fn drive(plan: &Arc<Plan>) -> Ran {
    drive_with(plan, Json::Null, Handlers::new())
}

/// The one secret that this worker can get.
const SECRET: &str = "hunter2-and-more";

/// The same, with parameters and handlers.
fn drive_with(plan: &Arc<Plan>, params: Json, handlers: Handlers) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::open("memory:").unwrap();
    let vars = |name: &str| (name == "STEPWELL_SECRET_API").then(|| SECRET.to_owned());
    let secrets = Secrets::from_vars(&EnvVars::new(vars)).unwrap();
    let resources =
        WorkerResources::new(secrets, artifacts, Logs::open(folder.path())).with_all_tools();
    let crew = Crew::new(resources, handlers).unwrap();
    let mut said = crew.resources().logs.subscribe();
    let config = Config {
        serves: crew.serves(),
        ..Config::default()
    };
    let store = Arc::new(MemoryStore::with_secret([7; 32]));
    let setup = Setup {
        config,
        ..Setup::new(store.clone(), crew)
    };
    let engine = Service::start(setup).unwrap();
    let request = StartRequest {
        run_id: "run_a".into(),
        params,
        ..StartRequest::default()
    };
    engine.handle().start(plan, request).unwrap();
    let mut run = LoggedRun::open(&*store, "run_a").unwrap();
    let mut events = run.catch_up(&*store).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !run.state.phase().is_ended() {
        assert!(Instant::now() < until, "the run does not end");
        std::thread::sleep(Duration::from_millis(5));
        events.extend(run.catch_up(&*store).unwrap());
    }
    engine.stop(Duration::ZERO).unwrap();
    let mut ran = Ran {
        output: None,
        error: None,
        ctx: json!(run.state.ctx()),
        waits: Vec::new(),
        executions: 0,
        log: serde_json::to_string(&events).unwrap(),
    };
    for event in events {
        match event.body {
            Body::StepCompleted { output, .. } => ran.output = output.map(|it| Json::clone(&it)),
            Body::StepFailed { error, .. } => ran.error = Some(error),
            Body::StepStarted { .. } | Body::StepExecutionStarted { .. } => ran.executions += 1,
            _ => {}
        }
    }
    while let Ok(entry) = said.try_recv() {
        ran.log.push_str(&entry.line.text);
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
    let repair = json!([rule(
        "outcome.status == 'error'",
        json!({ "do": "jump", "to": "repair" })
    )]);
    let ran = run(json!([
        bad("a", repair),
        good("b", json!({ "x": 2 }), json!([])),
        good("repair", json!({ "x": 3 }), json!([])),
    ]));
    assert_eq!((ran.code(), trail(&ran)), ("", "repair"));
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

#[test]
fn a_wait_writes_down_no_secret() {
    let ran = run(json!([
        { "name": "a", "kind": "noop", "args": { "token": "secret://api" } },
        { "name": "b", "kind": "noop", "args": { "x": 1 }, "set": { "step.t": "{{ a.token }}" } },
        { "name": "nap", "kind": "sleep", "duration": 1 },
        { "name": "c", "kind": "noop", "args": { "seen": "{{ step.t }}", "again": "secret://api" } },
    ]));
    assert_eq!(ran.output, Some(json!({ "seen": "***", "again": "***" })));
    assert!(!ran.log.contains(SECRET), "{}", ran.log);
}

#[test]
fn a_secret_is_not_handed_to_another_run() {
    let ran = run(json!([
        { "name": "a", "kind": "noop" },
        { "name": "call", "kind": "playbook", "path": "b", "auth": "api", "args": { "t": "x secret://api" } },
    ]));
    // The reference is handed on as it is written; there is no such definition here.
    assert_eq!(ran.code(), "CHILD_FAILED");
    assert!(ran.log.contains("secret://api") && !ran.log.contains(SECRET));
}

#[test]
fn every_visit_of_a_task_has_a_key_of_its_own_and_a_retry_has_the_same() {
    let said = tempfile::NamedTempFile::new().unwrap();
    let note = format!(
        "python3 -c \"import os; print(os.environ['STEPWELL_IDEMPOTENCY_KEY'])\" >> {}; exit $CODE",
        said.path().display()
    );
    let ran = run(json!([
        { "name": "count", "kind": "noop", "set": { "iter.n": "{{ (iter.n | default(0)) + 1 }}" } },
        { "name": "say", "kind": "shell", "cmds": [note],
          "env": { "CODE": "{{ 1 if iter.n == 1 and _attempt == 1 else 0 }}" },
          "spec": { "policy": { "rules": [
              rule("outcome.status == 'error'", json!({ "do": "retry", "attempts": 2, "delay": 0,
                  "set_ctx": { "lost": "{{ outcome.result.stdout }}" } })),
              rule("iter.n < 2", json!({ "do": "jump", "to": "count" })),
          ] } } },
    ]));
    assert_eq!(ran.ctx.get("lost"), None, "a retried attempt sets nothing");
    let said = std::fs::read_to_string(said.path()).unwrap();
    let keys: Vec<&str> = said.split_whitespace().collect();
    assert_eq!(keys.len(), 3, "{keys:?}");
    assert_eq!(keys[0], keys[1], "a retry is the same request");
    assert_ne!(keys[1], keys[2], "another page is another request");
}

#[test]
fn templates_see_the_execution_under_one_name() {
    let ran = run(json!([
        { "name": "a", "kind": "noop" },
        { "name": "say", "kind": "shell", "cmds": ["echo $F $STEPWELL_FENCE; exit $CODE"],
          "env": { "F": "{{ execution.fence }}", "CODE": "{{ 2 - execution.attempt }}" },
          "set": { "ctx.seen": "{{ execution }}", "ctx.said": "{{ outcome.result.stdout }}" },
          "spec": { "policy": { "rules": [
              rule("outcome.status == 'error'", json!({ "do": "retry", "attempts": 2, "delay": 0 })),
          ] } } },
    ]));
    assert_eq!(ran.error, None);
    let seen = &ran.ctx["seen"];
    let expected = json!({ "run_id": "run_a", "step_id": "s", "number": 1, "attempt": 2,
        "idempotency_key": "run_a:s:1:1.say", "task_key": "run_a:s:1:1.say",
        "fence": seen["fence"] });
    assert_eq!(*seen, expected);
    let fence = &seen["fence"];
    assert_eq!(ran.ctx["said"], format!("{fence} {fence}\n"));
}

#[test]
fn no_input_takes_the_place_of_the_execution_but_names_of_the_definition_do() {
    let playbook = |workload: Json, tool: Json| {
        let text = json!({
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": { "name": "one" },
            "workload": workload,
            "workflow": [{ "step": "s", "tool": tool }],
        });
        let source = Source::from_bytes("one.yaml", text.to_string().as_bytes()).unwrap();
        let plan = load(&source).plan.unwrap();
        let params = json!({ "execution": { "number": "from outside" } });
        drive_with(&Arc::new(plan), params, Handlers::new())
    };
    let read = json!({ "kind": "noop", "set": { "ctx.n": "{{ execution.number }}" } });
    let ran = playbook(json!({}), read.clone());
    assert_eq!(ran.ctx["n"], 1);
    let ran = playbook(json!({ "execution": { "number": "default" } }), read);
    assert_eq!(ran.ctx["n"], "from outside");
    let own = json!({ "kind": "noop", "args": { "execution": { "number": "mine" } },
                      "set": { "ctx.n": "{{ execution.number }}" } });
    assert_eq!(playbook(json!({}), own).ctx["n"], "mine");
}

/// A dag of one step that a handler does, with this input.
fn handled(input: &Json) -> Arc<Plan> {
    let text = json!({
        "apiVersion": "ioa.dev/v0.2",
        "kind": "Workflow",
        "metadata": { "name": "one", "owner": "o", "version": "1" },
        "spec": { "description": "d", "timeout": "1m", "failurePolicy": "abort",
                  "steps": [{ "name": "s", "agent": "q", "action": "op", "input": input }] },
    });
    let source = Source::from_bytes("one.yaml", text.to_string().as_bytes()).unwrap();
    let loaded = load(&source);
    Arc::new(
        loaded
            .plan
            .unwrap_or_else(|| panic!("{:?}", loaded.problems)),
    )
}

async fn echo(_: Job, input: Json) -> Result<Json, Failure> {
    // Not the secret itself, which would be redacted.
    let length = input["token"].as_str().map(str::len);
    Ok(json!({ "length": length, "other": input["other"] }))
}

#[test]
fn a_handler_gets_secrets_that_the_file_names_and_none_that_data_names() {
    let handlers = || Handlers::new().on("q", "op", echo);
    let input = json!({ "token": "secret://api", "other": "{{ workload.other }}" });
    let given = json!({ "other": "env://STEPWELL_SECRET_API" });
    let ran = drive_with(&handled(&input), given.clone(), handlers());
    let expected = json!({ "length": SECRET.len(), "other": "env://STEPWELL_SECRET_API" });
    assert_eq!(ran.output, Some(expected));
    assert!(!ran.log.contains(SECRET));
    let ran = drive_with(&handled(&Json::Null), given, handlers());
    assert_eq!(
        ran.output.unwrap()["other"],
        "env://STEPWELL_SECRET_API",
        "parameters are data"
    );
}

#[test]
fn a_panic_of_a_handler_is_the_steps_error_and_tells_no_secret() {
    async fn panics(_: Job, input: Json) -> Result<Json, Failure> {
        panic!("cannot connect with {}", input["token"]);
    }
    let handlers = Handlers::new().on("q", "op", panics);
    let ran = drive_with(
        &handled(&json!({ "token": "secret://api" })),
        Json::Null,
        handlers,
    );
    assert_eq!(ran.code(), "WORKER_PANIC");
    assert!(ran.error.unwrap().message.contains("***"));
    assert!(!ran.log.contains(SECRET));
}

#[test]
fn a_large_value_goes_from_task_to_task_and_step_to_step_by_reference() {
    let text = json!({
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": { "name": "large" },
        "workflow": [
            { "step": "make", "tool": { "kind": "python",
                "code": "return {'rows': [{'i': i, 't': 'x' * 500} for i in range(400)], 'n': 400}" },
              "next": { "arcs": [{ "step": "each", "when": "{{ make.n == 400 and make.rows | length == 400 }}",
                "args": { "rows": "{{ make.rows }}" } }] } },
            { "step": "each", "loop": { "in": "{{ make.rows }}", "iterator": "row",
                "spec": { "mode": "parallel", "max_in_flight": 50 } },
              "tool": { "kind": "noop", "args": { "i": "{{ row.i }}" } }, "next": ["sum"] },
            { "step": "sum", "tool": { "kind": "python",
                "args": { "made": "{{ make }}", "all": "{{ each.data }}" },
                "code": "return [len(made['rows']), sum(it['i'] for it in all)]" } },
        ],
    });
    let source = Source::from_bytes("large.yaml", text.to_string().as_bytes()).unwrap();
    let loaded = load(&source);
    let plan = loaded
        .plan
        .unwrap_or_else(|| panic!("{:?}", loaded.problems));
    let ran = drive(&Arc::new(plan));
    assert_eq!(
        ran.output,
        Some(json!([400, 400 * 399 / 2])),
        "{:?}",
        ran.error
    );
    assert!(
        ran.log.len() < 400_000,
        "the log has {} bytes",
        ran.log.len()
    );
}
