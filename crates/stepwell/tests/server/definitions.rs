//! Definitions by name over HTTP, and `stepwell dev`.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::harness::{PATIENCE, TestServer, asked};

fn playbook(name: &str, cmd: &str) -> String {
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: {name}}}\n\
         workload: {{who: you}}\nworkflow:\n- step: start\n  tool: {{kind: shell, cmds: [\"{cmd}\"]}}\n"
    )
}

/// Calls another playbook by its name.
fn parent(name: &str, child: &str) -> String {
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: {name}}}\nworkflow:\n\
         - step: start\n  tool: {{kind: playbook, path: {child}}}\n"
    )
}

fn register(server: &TestServer, text: &str) -> (u16, Json) {
    asked(server.post("/api/v1/definitions", &json!({ "text": text })))
}

fn run_of(server: &TestServer, definition: &Json) -> (u16, Json) {
    let body = json!({ "definition": definition, "waitSeconds": 30 });
    asked(server.post("/api/v1/runs", &body))
}

fn witness(server: &TestServer) -> String {
    std::fs::read_to_string(server.folder.path().join("witness")).unwrap_or_default()
}

#[test]
fn each_new_content_is_a_revision_and_known_content_is_not() {
    let server = TestServer::start();
    let (one, two) = (
        playbook("hello", "echo one >> witness"),
        playbook("hello", "echo two >> witness"),
    );
    let (status, first) = register(&server, &one);
    assert_eq!((status, &first["revision"]), (201, &json!(1)), "{first}");
    assert_eq!(
        (&first["current"], &first["created"]),
        (&json!(true), &json!(true))
    );
    let put = server
        .client
        .put(format!("{}/api/v1/definitions", server.url));
    let (status, again) = asked(put.json(&json!({ "text": one })));
    assert_eq!((status, &again["revision"]), (200, &json!(1)), "{again}");
    let (status, second) = register(&server, &two);
    assert_eq!((status, &second["revision"]), (201, &json!(2)), "{second}");

    let (status, run) = run_of(&server, &json!({ "name": "hello" }));
    assert_eq!(
        (status, &run["run"]["status"]),
        (201, &json!("COMPLETED")),
        "{run}"
    );
    run_of(&server, &json!({ "name": "hello", "revision": 1 }));
    assert_eq!(witness(&server), "two\none\n");
    // The first content again: no new revision, and the current one.
    let (status, back) = register(&server, &one);
    assert_eq!(
        (status, &back["revision"], &back["current"]),
        (200, &json!(1), &json!(true)),
        "{back}"
    );
    run_of(&server, &json!({ "name": "hello" }));
    assert_eq!(witness(&server), "two\none\none\n");

    let (_, known) = asked(server.get("/api/v1/definitions/hello"));
    assert_eq!(known["revisions"].as_array().unwrap().len(), 2, "{known}");
    assert_eq!(
        (&known["current"], &known["revisions"][1]["current"]),
        (&json!(1), &json!(false))
    );
    let (_, text) = asked(server.get("/api/v1/definitions/hello/revisions/2"));
    assert_eq!(
        (&text["source"], &text["inputs"]),
        (&json!(two), &json!({ "who": "you" })),
        "{text}"
    );
    let (_, net) = asked(server.get("/api/v1/definitions/hello/revisions/1/net"));
    assert_eq!(
        (&net["hash"], &net["net"]["plan_id"]),
        (&first["planHash"], &json!("hello")),
        "{net}"
    );
    let (_, diff) = asked(server.get("/api/v1/definitions/hello/diff?from=1&to=2"));
    let diff = diff["diff"].as_str().unwrap();
    assert!(
        diff.contains("\n-  tool:") && diff.contains("\n+  tool:"),
        "{diff}"
    );

    for path in [
        "/nobody",
        "/hello/revisions/3",
        "/hello/revisions/0/net",
        "/hello/diff?from=1&to=9",
    ] {
        let (status, problem) = asked(server.get(&format!("/api/v1/definitions{path}")));
        assert_eq!(
            (status, &problem["code"]),
            (404, &json!("DEFINITION_UNKNOWN")),
            "{path}: {problem}"
        );
        let (seen, _) = asked(server.get(problem["type"].as_str().unwrap()));
        assert_eq!(seen, 200);
    }
    let (status, problem) = run_of(&server, &json!({ "name": "nobody" }));
    assert_eq!(
        (status, &problem["code"]),
        (404, &json!("DEFINITION_UNKNOWN")),
        "{problem}"
    );
    let (status, problem) = run_of(&server, &json!({ "name": "hello", "text": "x" }));
    assert_eq!(
        (status, &problem["code"]),
        (400, &json!("REQUEST_INVALID")),
        "{problem}"
    );
}

#[test]
fn a_list_has_pages_and_another_tenant_has_its_own_names() {
    let server = TestServer::start();
    for name in ["a", "b", "c"] {
        register(&server, &playbook(name, "true"));
    }
    let mut names = Vec::new();
    let mut path = "/api/v1/definitions?limit=2".to_owned();
    loop {
        let (status, page) = asked(server.get(&path));
        assert_eq!(status, 200, "{page}");
        let rows = page["definitions"].as_array().unwrap();
        names.extend(
            rows.iter()
                .map(|it| it["name"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/v1/definitions?limit=2&after={next}");
    }
    assert_eq!(names, ["a", "b", "c"]);
    let other = |it: reqwest::blocking::RequestBuilder| it.header("stepwell-tenant", "umbrella");
    let (_, page) = asked(other(server.get("/api/v1/definitions")));
    assert_eq!(page["definitions"], json!([]));
    let (status, theirs) = asked(other(server.get("/api/v1/definitions/a")));
    let (_, none) = asked(other(server.get("/api/v1/definitions/none")));
    assert_eq!(status, 404);
    assert_eq!(
        theirs
            .to_string()
            .replace("definition a", "definition none"),
        none.to_string()
    );
    let (status, _) = asked(other(server.get("/api/v1/definitions/a?tenant=local")));
    assert_eq!(status, 403);
    let body = json!({ "text": playbook("a", "false"), "tenant": "local" });
    let (status, denied) = asked(other(server.post("/api/v1/definitions", &body)));
    assert_eq!(
        (status, &denied["code"]),
        (403, &json!("AUTHZ_TENANT_FORBIDDEN"))
    );
    let body = json!({ "text": playbook("a", "false") });
    let (status, own) = asked(other(server.post("/api/v1/definitions", &body)));
    assert_eq!((status, &own["revision"]), (201, &json!(1)), "{own}");
}

#[test]
fn a_deprecated_revision_starts_no_runs_until_that_is_taken_back() {
    let server = TestServer::start();
    register(&server, &playbook("old", "true"));
    let path = "/api/v1/definitions/old/revisions/1/deprecate";
    let (status, row) = asked(server.post(path, &json!({ "reason": "use new" })));
    assert_eq!((status, &row["deprecated"]), (200, &json!(true)), "{row}");
    for definition in [
        json!({ "name": "old" }),
        json!({ "name": "old", "revision": 1 }),
    ] {
        let (status, problem) = run_of(&server, &definition);
        assert_eq!(
            (status, &problem["code"]),
            (409, &json!("DEFINITION_DEPRECATED")),
            "{problem}"
        );
        assert!(problem["detail"].as_str().unwrap().contains("use new"));
    }
    asked(server.post(path, &json!({ "deprecated": false })));
    let (status, run) = run_of(&server, &json!({ "name": "old" }));
    assert_eq!(
        (status, &run["run"]["status"]),
        (201, &json!("COMPLETED")),
        "{run}"
    );
}

#[test]
fn an_unsaved_text_is_checked_with_places_and_advice() {
    let server = TestServer::start();
    let wrong = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: x, path: x}\nworkflow:\n- step: start\n  tool: {kind: nonsense}\n";
    let (status, seen) = asked(server.post("/api/v1/check", &json!({ "text": wrong })));
    assert_eq!((status, &seen["valid"]), (200, &json!(false)), "{seen}");
    let problem = &seen["problems"][0];
    assert_eq!(
        (&problem["line"], &problem["severity"]),
        (&json!(6), &json!("error")),
        "{seen}"
    );
    let unguarded = playbook("x", "echo {{ workload.who }}");
    let (_, seen) = asked(server.post("/api/v1/check", &json!({ "text": unguarded })));
    assert_eq!(
        (&seen["valid"], &seen["name"]),
        (&json!(true), &json!("x")),
        "{seen}"
    );
    let found = seen["problems"].as_array().unwrap();
    assert!(
        found.iter().any(|it| it["code"] == "VALUE_UNGUARDED"),
        "{seen}"
    );
    let (status, problem) = register(&server, wrong);
    assert_eq!(
        (status, &problem["problems"][0]["line"]),
        (422, &json!(6)),
        "{problem}"
    );
    let (_, none) = asked(server.get("/api/v1/definitions"));
    assert_eq!(none["definitions"], json!([]), "a check keeps nothing");
}

#[test]
fn a_child_run_is_found_among_the_definitions_of_its_tenant() {
    let server = TestServer::start();
    let of = |tenant: &'static str, text: String, file: Option<&str>| {
        let body = json!({ "text": text, "file": file });
        let (status, answer) = asked(
            server
                .post("/api/v1/definitions", &body)
                .header("stepwell-tenant", tenant),
        );
        assert_eq!(status, 201, "{answer}");
    };
    of("acme", playbook("child", "echo acme >> witness"), None);
    of(
        "umbrella",
        playbook("child", "echo umbrella >> witness"),
        None,
    );
    of("acme", parent("by-name", "child"), None);
    of(
        "acme",
        playbook("other", "echo file >> witness"),
        Some("flows/other.yaml"),
    );
    of(
        "acme",
        parent("by-path", "./other.yaml"),
        Some("flows/main.yaml"),
    );
    for (name, wanted) in [("by-name", "acme\n"), ("by-path", "acme\nfile\n")] {
        let body = json!({ "definition": { "name": name }, "waitSeconds": 30 });
        let request = server
            .post("/api/v1/runs", &body)
            .header("stepwell-tenant", "acme");
        let (_, run) = asked(request);
        assert_eq!(run["run"]["status"], "COMPLETED", "{run}");
        assert_eq!(witness(&server), wanted);
    }
}

#[test]
fn dev_loads_the_folder_and_loads_a_file_again_that_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("good.yaml", &playbook("good", "echo one >> witness"));
    write(
        "bad.yaml",
        "apiVersion: noetl.io/v2\nkind: Playbook\nworkflow: 7\n",
    );
    write("other.json", "{\"private\": true}");
    // Files of other programs.
    write(
        "other-manifests.yaml",
        "kind: Service\n---\nkind: Deployment\n",
    );
    write("other-empty.yaml", "");
    std::fs::create_dir_all(folder.path().join("node_modules/other")).unwrap();
    write(
        "node_modules/other/other.yaml",
        "apiVersion: noetl.io/v2\nkind: Playbook\nworkflow: 7\n",
    );
    let mut child = Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(["dev", "--listen", "127.0.0.1:0"])
        .current_dir(folder.path())
        .env_remove("STEPWELL_STORE")
        .env_remove("STEPWELL_CONFIG")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let err = BufReader::new(child.stderr.take().unwrap());
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in err.lines().map_while(Result::ok) {
            eprintln!("dev: {line}");
            let _ = tell.send(line);
        }
    });
    let mut seen = Vec::new();
    let mut wait_for = |text: &str| {
        let until = Instant::now() + PATIENCE;
        loop {
            let line = told.recv_timeout(until - Instant::now()).expect(text);
            seen.push(line.clone());
            if line.contains(text) {
                return (line, seen.join("\n"));
            }
        }
    };
    let (line, _) = wait_for("serving on ");
    let url = line.split("serving on ").nth(1).unwrap().trim().to_owned();
    let (_, before) = wait_for("all endpoints");
    assert!(
        before.contains("good.yaml: loaded as good revision 1"),
        "{before}"
    );
    assert!(
        before.contains("bad.yaml: not loaded") && !before.contains("other"),
        "{before}"
    );
    assert!(
        before.contains(r#"{"definition":{"name":"good"}"#),
        "{before}"
    );
    // Written again within the same tick of the clock of the file system, the length tells.
    write("good.yaml", &playbook("good", "echo second >> witness"));
    wait_for("good.yaml: loaded as good revision 2");
    write("bad.yaml", &playbook("bad", "true"));
    wait_for("bad.yaml: loaded as bad revision 1");
    let client = reqwest::blocking::Client::builder()
        .timeout(PATIENCE)
        .build()
        .unwrap();
    let body = json!({ "definition": { "name": "good" }, "waitSeconds": 30 });
    let (status, run) = asked(client.post(format!("{url}/api/v1/runs")).json(&body));
    assert_eq!(
        (status, &run["run"]["status"]),
        (201, &json!("COMPLETED")),
        "{run}"
    );
    let witness = std::fs::read_to_string(folder.path().join("witness")).unwrap();
    assert_eq!(witness, "second\n");
    child.kill().unwrap();
    child.wait().unwrap();
    std::thread::sleep(Duration::from_millis(10));
}
