//! The stream of all runs goes on from a watermark: after a restart, and at another server of the store.

use serde_json::{Value as Json, json};

use crate::harness::{TestServer, Told, asked, postgres, stream};

const QUICK: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: quick, path: quick}\nworkflow:\n\
                     - {step: start, tool: {kind: shell, cmds: ['echo hello']}}\n";

/// The watermark of the list of runs.
fn watermark(server: &TestServer) -> String {
    let answer = server.get("/api/v1/runs").send().unwrap();
    let mark = answer.headers().get("stepwell-watermark").unwrap();
    mark.to_str().unwrap().to_owned()
}

fn started(server: &TestServer, tenant: &str) -> String {
    let body = json!({ "definition": { "text": QUICK }, "tenant": tenant });
    let (status, answer) = asked(server.post("/api/v1/runs", &body));
    assert_eq!(status, 201, "{answer}");
    answer["runId"].as_str().unwrap().to_owned()
}

fn from(server: &TestServer, mark: &str) -> impl Iterator<Item = Told> {
    stream(server.get("/api/v1/stream").header("last-event-id", mark))
}

/// The rows of a stream until a run has ended.
fn rows(told: impl Iterator<Item = Told>, run: &str) -> Vec<Told> {
    let mut rows = Vec::new();
    for told in told {
        assert_ne!(told.event, "resync", "{told:?}");
        let is_last = told.data["runId"] == run && told.data["endedAt"].is_string();
        rows.extend(Some(told).filter(|it| it.event == "run"));
        if is_last {
            break;
        }
    }
    rows
}

fn ids(rows: &[Told]) -> Vec<&Json> {
    let mut ids: Vec<&Json> = rows.iter().map(|it| &it.data["runId"]).collect();
    ids.dedup();
    ids
}

#[test]
fn a_reader_goes_on_from_its_watermark_after_a_kill() {
    let server = TestServer::start();
    let before = started(&server, "acme");
    server.wait_for(&before, |seen| seen["completedAt"].is_string());
    let mark = watermark(&server);
    let first = started(&server, "acme");
    server.wait_for(&first, |seen| seen["completedAt"].is_string());
    let told = rows(from(&server, &mark), &first);
    assert_eq!(
        ids(&told),
        [&json!(first)],
        "the run before is not news: {told:?}"
    );
    let last = told
        .last()
        .unwrap()
        .id
        .clone()
        .expect("the last row of a group has a mark");
    let server = TestServer::in_folder(server.kill(), &[]);
    let second = started(&server, "acme");
    server.wait_for(&second, |seen| seen["completedAt"].is_string());
    assert_eq!(ids(&rows(from(&server, &last), &second)), [&json!(second)]);
    // An older watermark of the server before: both, and nothing else.
    let mut both = rows(from(&server, &mark), &second);
    both.sort_by_key(|it| it.data["createdAt"].as_str().map(ToOwned::to_owned));
    assert_eq!(ids(&both), [&json!(first), &json!(second)]);
    for wrong in ["1", "x", "AAAA"] {
        let told = from(&server, wrong).next().unwrap();
        assert_eq!(told.event, "resync");
        assert!(
            told.data["reason"].as_str().unwrap().contains("watermark"),
            "{told:?}"
        );
    }
}

#[test]
fn a_reader_goes_on_at_another_server_and_hears_of_its_runs() {
    let store = postgres("feed");
    let [one, two] = [(); 2].map(|()| TestServer::with(&["--store", &store]));
    let mark = watermark(&one);
    let first = started(&one, "acme");
    one.wait_for(&first, |seen| seen["completedAt"].is_string());
    assert_eq!(ids(&rows(from(&two, &mark), &first)), [&json!(first)]);
    // A stream that is open at one server tells what the other one does.
    let open = stream(two.get("/api/v1/stream").header("stepwell-tenant", "acme"));
    let mut open = open.inspect(|told| assert_ne!(told.data["tenantId"], "umbrella"));
    assert_eq!(open.next().unwrap().event, "watermark");
    started(&one, "umbrella");
    let second = started(&one, "acme");
    assert_eq!(ids(&rows(open, &second)), [&json!(second)]);
    drop(one.kill());
    let third = started(&two, "acme");
    let told = rows(from(&two, &mark), &third);
    let seen: Vec<&Json> = told.iter().map(|it| &it.data["runId"]).collect();
    for run in [&first, &second, &third] {
        assert!(seen.contains(&&json!(run)), "{run} in {seen:?}");
    }
}

#[test]
fn a_watermark_whose_changes_are_forgotten_is_told_so() {
    let server = TestServer::start();
    let run = started(&server, "acme");
    server.wait_for(&run, |seen| seen["completedAt"].is_string());
    let mark = watermark(&server);
    let folder = server.kill();
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let config = "[retention]\ncompleted = \"1s\"\n";
    std::fs::write(folder.path().join("stepwell.toml"), config).unwrap();
    let server = TestServer::in_folder(folder, &[]);
    crate::harness::until(
        || asked(server.get(&format!("/api/v1/runs/{run}"))).0,
        |status| *status == 404,
    );
    let told = from(&server, &mark).next().unwrap();
    assert_eq!(told.event, "resync", "{told:?}");
    assert!(
        told.id.is_some(),
        "the next time the reader goes on from now"
    );
}
