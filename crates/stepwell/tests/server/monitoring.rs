//! What Prometheus reads, and that the dashboard and the alerts that are shipped ask for nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::harness::{TestServer, asked};

fn quick(name: &str, cmd: &str) -> String {
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: {name}}}\nworkflow:\n\
         - {{step: start, tool: {{kind: shell, cmds: ['{cmd}']}}}}\n"
    )
}

/// The samples of a text in the format OpenMetrics, by name and labels. Panics if the text is not in this format.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let (mut kinds, mut all) = (BTreeMap::new(), BTreeMap::new());
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in text.lines().filter(|it| *it != "# EOF") {
        if let Some(described) = line.strip_prefix("# ") {
            let words: Vec<&str> = described.splitn(3, ' ').collect();
            let [word, name, rest] = words[..] else {
                panic!("{line}");
            };
            assert!(["HELP", "TYPE", "UNIT"].contains(&word), "{line}");
            if word == "TYPE" {
                let known = kinds.insert(name.to_owned(), rest.to_owned());
                assert_eq!(known, None, "{name} is described twice");
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let bare = name.split('{').next().unwrap();
        let family = kinds.iter().find(|(family, kind)| {
            let endings: &[&str] = match kind.as_str() {
                "counter" => &["_total"],
                "gauge" => &[""],
                "histogram" => &["_bucket", "_sum", "_count"],
                other => panic!("{other}"),
            };
            endings
                .iter()
                .any(|ending| bare == format!("{family}{ending}"))
        });
        assert!(family.is_some(), "{line} belongs to no described metric");
        assert_eq!(
            all.insert(name.to_owned(), value),
            None,
            "{name} is there twice"
        );
    }
    all
}

fn metrics(server: &TestServer) -> BTreeMap<String, f64> {
    let request = server.get("/metrics");
    let request = request.header("accept", "application/openmetrics-text");
    let answer = request.send().unwrap();
    assert_eq!(answer.status(), 200);
    samples(&answer.text().unwrap())
}

/// A server that has counted something of everything that is counted with labels.
fn busy() -> TestServer {
    let server = TestServer::start();
    for cmd in ["true", "exit 3"] {
        let run = server.start_run(&quick("busy", cmd), &json!({}));
        server.wait_for(&run, |seen| seen["completedAt"].is_string());
    }
    server
}

#[test]
fn metrics_say_what_a_server_does() {
    let server = busy();
    let seen = metrics(&server);
    let number = |name: &str| {
        let found = seen.get(name);
        *found.unwrap_or_else(|| panic!("{name} is not in {seen:#?}"))
    };
    assert_eq!(
        number(r#"stepwell_runs_ended_total{plan="busy",outcome="Succeeded"}"#),
        1.0
    );
    assert_eq!(
        number(r#"stepwell_runs_ended_total{plan="busy",outcome="Failed"}"#),
        1.0
    );
    assert!(number("stepwell_commits_total") >= 2.0);
    assert_eq!(
        number("stepwell_commit_appends_count"),
        number("stepwell_commits_total")
    );
    assert_eq!(
        number("stepwell_commit_appends_sum"),
        number("stepwell_appends_total")
    );
    assert_eq!(
        number(r#"stepwell_commit_appends_bucket{le="+Inf"}"#),
        number("stepwell_commit_appends_count")
    );
    assert_eq!(number("stepwell_claim_duration_seconds_count"), 2.0);
    assert_eq!(
        (number("stepwell_store_up"), number("stepwell_sessions")),
        (1.0, 1.0)
    );
    for name in [
        "stepwell_queued_runs",
        "stepwell_tasks_offered",
        "stepwell_leases",
        "stepwell_dead_letters",
    ] {
        assert_eq!(number(name), 0.0, "{name}");
    }
    assert!(number("process_resident_memory_bytes") > 1e6);
    assert!(number("process_open_fds") > 3.0);
    assert!(number("process_threads") > 2.0);
}

#[test]
fn what_waits_for_workers_is_counted_on_both_stores() {
    let servers = [
        Some(TestServer::with(&["--no-worker"])),
        TestServer::on_postgres(&["--no-worker"]),
    ];
    for server in servers.into_iter().flatten() {
        let text = "workflowType: order\nworkflowVersion: 1\nsteps:\n  - {stepType: PACK}\n";
        for _ in 0..3 {
            server.start_run(text, &json!({}));
        }
        let poll = json!({
            "protocol": 1, "workerId": "w", "max": 1, "waitSeconds": 20,
            "serves": [{ "queue": "order", "operation": "PACK" }],
        });
        let (status, polled) = asked(server.post("/api/v1/worker/poll", &poll));
        assert_eq!(
            (status, polled["tasks"].as_array().unwrap().len()),
            (200, 1)
        );
        let seen = metrics(&server);
        for (name, value) in [
            ("stepwell_tasks_offered", 2.0),
            ("stepwell_leases", 1.0),
            ("stepwell_workers", 1.0),
            ("stepwell_sessions", 1.0),
            ("stepwell_worker_claim_duration_seconds_count", 1.0),
        ] {
            assert_eq!(seen.get(name), Some(&value), "{name}: {seen:#?}");
        }
    }
}

#[test]
fn only_so_many_plans_have_labels_as_the_configuration_says() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("stepwell.toml"),
        "[metrics]\nplans = 1\n",
    )
    .unwrap();
    let server = TestServer::in_folder(folder, &[]);
    for name in ["one", "two", "three"] {
        let run = server.start_run(&quick(name, "true"), &json!({}));
        server.wait_for(&run, |seen| seen["status"] == "COMPLETED");
    }
    let seen = metrics(&server);
    let of = |plan: &str| {
        let name = format!(r#"stepwell_runs_ended_total{{plan="{plan}",outcome="Succeeded"}}"#);
        seen.get(&name).copied()
    };
    assert_eq!(
        (of("one"), of("two"), of("other")),
        (Some(1.0), None, Some(2.0))
    );
}

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(name)
}

/// The names of metrics of this program in a query.
fn named(query: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = query.split(|c: char| !is_name(c));
    let ours = |it: &&str| it.starts_with("stepwell_") || it.starts_with("process_");
    words.filter(ours).map(str::to_owned).collect()
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_metrics_that_exist() {
    let server = busy();
    // A store that fails is counted by code; nothing has failed here.
    let mut known: BTreeSet<String> = metrics(&server)
        .into_keys()
        .map(|it| it.split('{').next().unwrap().to_owned())
        .collect();
    known.insert("stepwell_store_errors_total".to_owned());
    let dashboard = std::fs::read_to_string(shipped("grafana.json")).unwrap();
    let dashboard: Json = serde_json::from_str(&dashboard).unwrap();
    let mut asked_for = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let names = named(target["expr"].as_str().unwrap());
            assert!(!names.is_empty(), "{target}");
            asked_for.extend(names);
        }
    }
    let alerts = std::fs::read_to_string(shipped("alerts.yml")).unwrap();
    asked_for.extend(named(&alerts));
    let unknown: Vec<_> = asked_for.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?} are not in {known:#?}");
    // And everything that is counted can be seen.
    let family = |name: &str| {
        let endings = ["_bucket", "_sum", "_count"];
        let ending = endings.iter().find_map(|it| name.strip_suffix(it));
        ending.unwrap_or(name).to_owned()
    };
    let shown: BTreeSet<String> = asked_for.iter().map(|it| family(it)).collect();
    let unseen: Vec<_> = known
        .iter()
        .map(|it| family(it))
        .filter(|it| !shown.contains(it))
        .collect();
    assert!(
        unseen.iter().all(|it| it == "process_virtual_memory_bytes"),
        "not on the dashboard: {unseen:?}"
    );
}
