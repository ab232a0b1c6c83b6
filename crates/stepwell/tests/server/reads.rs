//! Reading long logs and long lists in pages.

use serde_json::{Value as Json, json};

use crate::harness::{TestServer, asked, chain, stream};

fn seqs(page: &Json) -> Vec<u64> {
    let events = page["events"].as_array().unwrap();
    events
        .iter()
        .map(|it| it["runSeq"].as_u64().unwrap())
        .collect()
}

/// The answer is made of the log and of the state that the log folds to. Both are read while the run goes on.
#[test]
fn a_run_that_is_read_while_it_goes_on_tells_of_one_moment() {
    let server = TestServer::start();
    let runs: Vec<String> = (0..8)
        .map(|_| server.start_run(&chain(40, "0"), &json!({})))
        .collect();
    std::thread::scope(|readers| {
        for run in &runs {
            let server = &server;
            readers.spawn(move || {
                loop {
                    let (_, seen) = asked(server.get(&format!("/api/v1/runs/{run}")));
                    let has_ended = seen["status"] == "COMPLETED";
                    assert_eq!(has_ended, seen["ext"]["word"] == "success", "{seen}");
                    if has_ended {
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn a_log_is_read_in_pages_from_any_event_on() {
    let servers = [Some(TestServer::start()), TestServer::on_postgres(&[])];
    for server in servers.into_iter().flatten() {
        let run = server.start_run(&chain(40, "0"), &json!({}));
        server.wait_for(&run, |seen| seen["status"] == "COMPLETED");
        let page = |after: u64, limit: usize| {
            let path = format!("/api/v1/runs/{run}/events?after={after}&limit={limit}");
            asked(server.get(&path)).1
        };
        let all = page(0, 1_000);
        let last = all["lastSeq"].as_u64().unwrap();
        assert!(last > 100, "{last}");
        assert_eq!(seqs(&all), (1..=last).collect::<Vec<_>>());
        for limit in [1, 7, 64] {
            let (mut after, mut read) = (0, Vec::new());
            while after < last {
                let page = page(after, limit);
                assert_eq!(page["lastSeq"], last);
                let part = page["events"].as_array().unwrap().clone();
                after = part.last().unwrap()["runSeq"].as_u64().unwrap();
                read.extend(part);
            }
            assert_eq!(json!(read), all["events"], "pages of {limit}");
        }
        for after in [last, last + 1, u64::MAX] {
            let none = page(after, 10);
            assert_eq!((seqs(&none).len(), &none["lastSeq"]), (0, &json!(last)));
        }
        for after in [0, 1, last / 2, last - 1, last] {
            let path = format!("/api/v1/runs/{run}/stream");
            let request = server.get(&path).header("last-event-id", after.to_string());
            let mut told: Vec<u64> = Vec::new();
            for it in stream(request) {
                match it.event.as_str() {
                    "end" => assert_eq!(it.data["lastSeq"], last),
                    _ => told.push(it.id.unwrap().parse().unwrap()),
                }
            }
            assert_eq!(
                told,
                (after + 1..=last).collect::<Vec<_>>(),
                "after {after}"
            );
        }
    }
}

#[test]
fn a_definition_that_is_checked_finds_the_registered_child() {
    let server = TestServer::start();
    let parent = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p, path: p}\nworkflow:\n\
                  - {step: start, tool: {kind: playbook, path: chain}}\n";
    let check = |tenant: &str| {
        let request = server.post("/api/v1/check", &json!({ "text": parent }));
        let (status, seen) = asked(request.header("stepwell-tenant", tenant));
        assert_eq!((status, &seen["valid"]), (200, &json!(true)), "{seen}");
        let found = seen["problems"].as_array().unwrap().clone();
        let unknown = found.into_iter().find(|it| it["code"] == "CHILD_UNKNOWN");
        unknown.map(|it| (it["severity"].clone(), it["line"].clone()))
    };
    assert_eq!(check("acme"), Some((json!("warning"), json!(5))));
    let body = json!({ "text": chain(1, "0") });
    let request = server.post("/api/v1/definitions", &body);
    assert_eq!(asked(request.header("stepwell-tenant", "acme")).0, 201);
    assert_eq!(check("acme"), None);
    assert!(
        check("umbrella").is_some(),
        "it is not a definition of this tenant"
    );
}
