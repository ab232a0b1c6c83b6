//! What each real playbook must come to: its end, its way through its steps, and facts that only hold if
//! the work was really done.

use super::sandbox::{FinishedRun, Sandbox};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// A playbook of the corpus and the checks of its run.
pub(super) struct Case {
    pub(super) file: &'static str,
    /// Over the file's workload; `{stub}` is the stub's address.
    pub(super) inputs: &'static [(&'static str, &'static str)],
    pub(super) right: fn(&FinishedRun<'_>) -> Result<()>,
}

const fn case(file: &'static str, right: fn(&FinishedRun<'_>) -> Result<()>) -> Case {
    Case {
        file,
        inputs: &[],
        right,
    }
}

const STUB: &[(&str, &str)] = &[("api_url", "{stub}")];

/// The slow ones first, so that they do not run alone at the end.
pub(super) const CASES: &[Case] = &[
    Case {
        file: "v2-playbook_composition.yaml",
        inputs: &[],
        right: composition,
    },
    case("v10-python_retry_exception.yaml", python_retry),
    Case {
        file: "v2-retry_simple_config.yaml",
        inputs: STUB,
        right: retries,
    },
    Case {
        file: "v2-pagination_basic.yaml",
        // Long enough to meet the quick ones.
        inputs: &[("api_url", "{stub}"), ("slow_delay_seconds", "1.5")],
        right: overlap,
    },
    Case {
        file: "v10-loop_with_pagination.yaml",
        inputs: STUB,
        right: pages,
    },
    Case {
        file: "v10-canonical_example.yaml",
        inputs: STUB,
        right: canonical,
    },
    Case {
        file: "v10-http_retry_status_code.yaml",
        inputs: &[("test_url", "{stub}/api/v1/flaky?page=7&fail_on=7")],
        right: retry_by_status,
    },
    case("local-parent_playbook.yaml", parent),
    case("local-build_child.yaml", build_alone),
    case("local-deploy_child.yaml", deploy_alone),
    case("local-conditional_flow.yaml", conditions),
    case("v10-args_passing.yaml", sum_of_arguments),
    case("v2-args_passing.yaml", sum_of_arguments),
    case("v10-transient_vars.yaml", variables),
    case("v2-actions_test.yaml", actions),
    case("v2-hello_world.yaml", hello),
    case("v2-loop_test.yaml", loops),
    case("v2-user_profile_scorer.yaml", scorer),
];

/// What a file takes for granted.
pub(super) fn prepare(sandbox: &Sandbox) -> Result<()> {
    sandbox.rows("CREATE TABLE results (item_id integer PRIMARY KEY, data jsonb NOT NULL)")?;
    Ok(())
}

/// Each user is scored by a run of its own, and the score is in the database.
fn composition(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    ran.went_through(&[
        "start",
        "setup_storage",
        "process_users",
        "validate_results",
        "end",
    ])?;
    ran.looped("process_users", 4)?;
    let children = ran.children()?;
    ensure!(children.len() == 4, "{} runs were started", children.len());
    for (child, user) in children.iter().zip(["Alice", "Bob", "Charlie", "Diana"]) {
        let steps = child["ext"]["steps"].as_array();
        let last = steps.and_then(|steps| steps.last());
        let name = last.map_or(&Value::Null, |last| &last["output"]["user_name"]);
        ensure!(*name == user, "{name} was scored, not {user}");
    }
    let rows = ran.sandbox.rows(
        "SELECT user_name, score_category, round(profile_score)::int AS score \
         FROM public.user_profile_results ORDER BY user_name",
    )?;
    let row = |name: &str, score: u32| json!({"user_name": name, "score_category": "Junior", "score": score});
    let expected = json!([
        row("Alice", 16),
        row("Bob", 17),
        row("Charlie", 16),
        row("Diana", 21)
    ]);
    ensure!(rows == expected, "the database has {rows}");
    ran.returned("validate_results", "/total_users", json!(4))?;
    ran.returned("end", "/pipeline_status", json!("completed"))?;
    ran.returned("end", "/users_processed", json!(4))
}

/// The code fails seven times in ten, so all five attempts can fail: both outcomes are right.
fn python_retry(ran: &FinishedRun<'_>) -> Result<()> {
    let log = ran.log(ran.id()?)?;
    let notes = log.iter().filter(|line| line["stream"] == "note");
    let again = notes.filter(|line| {
        let text = line["text"].as_str().unwrap_or_default();
        text.contains("is followed by another")
    });
    let attempts = 1 + again.count();
    if ran.ended("FAILED", 3) {
        ensure!(attempts == 5, "it gave up after {attempts} attempts");
        let code = ran.error_code("start")?;
        ensure!(code == "PY_Exception", "it failed with {code}");
        return Ok(());
    }
    ran.succeeded()?;
    ran.went_through(&["start", "end"])?;
    ensure!(attempts <= 5, "there were {attempts} attempts");
    ran.returned("start", "/success", json!(true))
}

/// Three steps ask a page that fails every other time.
fn retries(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    let steps = ["boolean_retry", "integer_retry", "full_config_retry"];
    ran.went_through(&["start", steps[0], steps[1], steps[2], "end"])?;
    for step in steps {
        ran.returned(step, "/status_code", json!(200))?;
    }
    let answers = ran.sandbox.stub.flaky("1");
    ensure!(
        answers == [500, 200, 500, 200, 500, 200],
        "it was answered {answers:?}"
    );
    Ok(())
}

/// A slow request and quick ones are under way at the same time.
fn overlap(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    let before = ["start", "reset_probe_stats", "build_probe_plan"];
    let after = ["run_probes", "validate_results", "end"];
    ran.went_through(&[before, after].concat())?;
    ran.looped("run_probes", 5)?;
    ran.returned("validate_results", "/completed", json!(5))?;
    let most = ran.sandbox.stub.overlap();
    ensure!(most >= 2, "at most {most} probes were under way at a time");
    Ok(())
}

/// Two pages, each stored as it comes, texts with quotes and all.
fn pages(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    ran.went_through(&[
        "start",
        "init_endpoint_loop",
        "init_endpoint_loop#2",
        "fetch_page",
        "fetch_page#2",
        "next_endpoint",
        "validate_results",
        "check_results",
        "end",
    ])?;
    ran.returned("check_results", "/total_items_fetched", json!(35))?;
    let rows = ran.sandbox.rows(
        "SELECT page_number, items_count, has_more, items->0->>'name' AS first \
         FROM pagination_test_results ORDER BY page_number",
    )?;
    let expected = json!([
        {"page_number": 1, "items_count": 30, "has_more": true, "first": "Reader's item 1"},
        {"page_number": 2, "items_count": 5, "has_more": false, "first": "Reader's item 31"},
    ]);
    ensure!(rows == expected, "the database has {rows}");
    Ok(())
}

/// The loop is over the count of the step before, which is one number.
fn canonical(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    ran.went_through(&[
        "start",
        "fetch_data",
        "process_data",
        "store_results",
        "end",
    ])?;
    ran.looped("store_results", 1)?;
    ran.returned("end", "/context/fetch_completed", json!(true))?;
    ran.returned("end", "/context/transform_done", json!(true))?;
    let rows = ran.sandbox.rows("SELECT item_id FROM results")?;
    ensure!(rows == json!([{"item_id": 3}]), "the database has {rows}");
    Ok(())
}

fn retry_by_status(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    ran.went_through(&["start", "end"])?;
    let answers = ran.sandbox.stub.flaky("7");
    ensure!(answers == [500, 200], "it was answered {answers:?}");
    Ok(())
}

/// Two runs, one after the other, each with what the parent gives it.
fn parent(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    ran.went_through(&["start", "call_build", "call_deploy", "end"])?;
    let children = ran.children()?;
    let names: Vec<&Value> = children.iter().map(|it| &it["ext"]["planId"]).collect();
    ensure!(
        names == ["build_child", "deploy_child"],
        "these ran: {names:?}"
    );
    let id = |at: usize| children[at]["runId"].as_str().unwrap_or_default();
    ran.said(id(0), "build_image", "Building image with tag: v2.5.3")?;
    ran.said(id(0), "build_image", "Build environment: production")?;
    ran.said(id(1), "deploy", "Deploying image: v2.5.3")?;
    ran.said(id(1), "deploy", "Target environment: production")
}

fn build_alone(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    ran.went_through(&["start", "build_image", "end"])?;
    ran.said(ran.id()?, "build_image", "Build completed successfully")
}

fn deploy_alone(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    ran.went_through(&["start", "deploy", "end"])?;
    ran.said(ran.id()?, "deploy", "Deployment completed successfully")
}

fn conditions(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    let setup = ["start", "prod_setup", "check_deploy"];
    let deploy = ["deploy_app", "verify_deployment", "end"];
    ran.went_through(&[setup, deploy].concat())?;
    ran.said(
        ran.id()?,
        "deploy_app",
        "Deploying application to production",
    )
}

fn sum_of_arguments(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    ran.went_through(&["start", "use_vars", "end"])?;
    ran.returned("use_vars", "/result", json!(300))
}

fn variables(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    let first = ["start", "test_set_var", "test_get_var"];
    let then = ["test_update_var", "verify_updates", "end"];
    ran.went_through(&[first, then].concat())?;
    let read = ["counter_correct", "status_correct", "config_correct"];
    for check in read {
        let pointer = format!("/data/verification/{check}");
        ran.returned("test_get_var", &pointer, json!(true))?;
    }
    ran.returned("verify_updates", "/all_checks_passed", json!(true))
}

/// Nothing in the file ever sets the list that it adds up, so that its sum is of nothing.
fn actions(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    let first = ["start", "process_loop", "aggregate"];
    ran.went_through(&[first, ["helper", "verify", "end"]].concat())?;
    ran.looped("process_loop", 3)?;
    ran.said(ran.id()?, "process_loop[2]", "[LOOP] Processing 30")?;
    ran.returned("aggregate", "/count", json!(0))?;
    let message = "Aggregate completed with 0 items";
    ran.returned("helper", "/message", json!(message))?;
    ran.returned("verify", "/helper/helper_called", json!(true))?;
    ran.returned("end", "/status", json!("completed"))
}

fn hello(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    ran.went_through(&["start", "test_step", "end"])?;
    ran.said(ran.id()?, "test_step", "HELLO_WORLD: Hello World")?;
    ran.returned("test_step", "/data/message", json!("Hello World"))
}

fn loops(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    ran.went_through(&["start", "process", "user_loop", "verify", "end"])?;
    ran.looped("start", 5)?;
    ran.looped("user_loop", 3)?;
    let last = "[LOOP] Processing number 5 at index 4";
    ran.said(ran.id()?, "start[4]", last)?;
    let user = "[USER_LOOP] Processing user Charlie (age 35) at index 2";
    ran.said(ran.id()?, "user_loop[2]", user)?;
    ran.returned("end", "/test_passed", json!(true))
}

/// The parts of the score come from the file's workbook.
fn scorer(ran: &FinishedRun<'_>) -> Result<()> {
    ran.succeeded()?;
    ran.went_through(&[
        "start",
        "extract_user_data",
        "score_experience",
        "score_performance",
        "score_department",
        "score_age",
        "compute_total_score",
        "determine_score_category",
        "finalize_result",
    ])?;
    ran.returned("score_department", "/department_score", json!(15.0))?;
    ran.returned("finalize_result", "/user_name", json!("TestUser"))?;
    ran.returned("finalize_result", "/profile_score", json!(15.8))?;
    ran.returned("finalize_result", "/score_category", json!("Junior"))?;
    let context = json!("standalone_execution");
    ran.returned("finalize_result", "/execution_id", context)
}
