//! Lists of runs over HTTP on both stores: odd labels, texts and spans of time, pages whose last run is deleted meanwhile,
//! and that a list shows at once what its caller has done.

use serde_json::{Value as Json, json};

use crate::harness::{TestServer, asked, until};
use crate::stores::Place;

const ONE: &str = "workflowType: odd.100%_it's\nworkflowVersion: 1\nsteps: [{stepType: ONE, tool: {kind: noop}}]\n";

fn started(server: &TestServer, labels: &Json) -> String {
    let body = json!({ "definition": { "text": ONE }, "labels": labels });
    let (status, answer) = asked(server.post("/api/v1/runs", &body));
    assert_eq!(status, 201, "{answer}");
    answer["runId"].as_str().unwrap().to_owned()
}

fn list(server: &TestServer, query: &[(&str, &str)]) -> (u16, Json) {
    let pairs = query
        .iter()
        .map(|(name, value)| format!("{name}={}", escaped(value)));
    let pairs = pairs.collect::<Vec<_>>().join("&");
    asked(server.get(&format!("/api/v1/runs?{pairs}")))
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn ids(page: &Json) -> Vec<String> {
    let runs = page["runs"].as_array();
    let runs = runs.unwrap_or_else(|| panic!("no list: {page}")).iter();
    runs.map(|it| it["runId"].as_str().unwrap().to_owned())
        .collect()
}

fn odd_values_are_found_as_they_are(server: &TestServer) {
    let values = [
        ("it's \"quoted\"", r#"it's "quoted""#),
        ("100%_x", "100%_x"),
        ("Grüße 🦀", "Grüße 🦀"),
        ("a,b", r"a\,b"),
        ("a=b", "a=b"),
        (" lead and trail ", " lead and trail "),
        (r"a\b", r"a\b"),
        (r"a\,b", r"a\\\,b"),
        ("", ""),
    ];
    let runs: Vec<String> = values
        .iter()
        .map(|(value, _)| started(server, &json!({ "odd": value })))
        .collect();
    for ((value, written), run) in values.iter().zip(&runs) {
        let labels = format!("odd={written}");
        let (status, page) = list(server, &[("labels", &labels)]);
        assert_eq!((status, ids(&page)), (200, vec![run.clone()]), "{value:?}");
        if !value.is_empty() {
            let (_, page) = list(server, &[("text", value)]);
            assert!(ids(&page).contains(run), "{value:?} in {page}");
        }
    }
    // Nothing in a text is a pattern, and only the letters A to Z have a case.
    for (text, found) in [
        ("%_X", 1),
        ("x%", 0),
        ("GRÜSSE", 0),
        ("'; --", 0),
        ("\0", 0),
    ] {
        let (status, page) = list(server, &[("text", text), ("labels", "odd=100%_x")]);
        assert_eq!((status, ids(&page).len()), (200, found), "{text:?}");
    }
    let (_, page) = list(server, &[("plan", "odd.100%_it's"), ("limit", "100")]);
    assert_eq!(ids(&page).len(), values.len());
}

fn wrong_questions_are_refused(server: &TestServer) {
    let long = "x".repeat(201);
    for query in [
        ("labels", "no value"),
        ("labels", "=value"),
        ("labels", ""),
        ("status", "NONE"),
        ("createdFrom", "yesterday"),
        ("before", "page_of-nowhere"),
        ("before", "page_"),
        ("limit", "501"),
        ("text", &long),
    ] {
        let (status, problem) = list(server, &[query]);
        let (code, detail) = (&problem["code"], problem["detail"].as_str());
        assert_eq!(
            (status, code),
            (400, &json!("REQUEST_INVALID")),
            "{query:?}"
        );
        assert!(detail.unwrap().contains(query.0), "{query:?}: {detail:?}");
    }
    for [from, until] in [["createdFrom", "createdUntil"], ["endedFrom", "endedUntil"]] {
        let span = [
            (from, "2027-01-01T00:00:00Z"),
            (until, "2026-01-01T00:00:00Z"),
        ];
        let (status, problem) = list(server, &span);
        assert_eq!(status, 400, "{problem}");
        assert!(
            problem["detail"]
                .as_str()
                .unwrap()
                .contains("exchange them"),
            "{problem}"
        );
    }
}

#[test]
fn odd_filters_find_what_they_say_or_are_refused() {
    for place in [Place::Sqlite, Place::Postgres] {
        let Some(server) = place.server("") else {
            continue;
        };
        odd_values_are_found_as_they_are(&server);
        wrong_questions_are_refused(&server);
    }
}

#[test]
fn a_page_goes_on_after_its_last_run_was_deleted() {
    for place in [Place::Sqlite, Place::Postgres] {
        let Some(server) = place.server("") else {
            continue;
        };
        let old: Vec<String> = (0..2)
            .map(|it| started(&server, &json!({ "n": it.to_string() })))
            .collect();
        for run in &old {
            server.wait_for(run, |seen| seen["completedAt"].is_string());
        }
        let waiting = "workflowType: odd.waits\nworkflowVersion: 1\nsteps: [{stepType: NEVER}]\n";
        let open = server.start_run(waiting, &json!({}));
        let ended = started(&server, &json!({}));
        server.wait_for(&ended, |seen| seen["completedAt"].is_string());
        // The newest page ends with the run that will be deleted first of all that are left.
        let (_, page) = list(&server, &[("limit", "1")]);
        assert_eq!(ids(&page), std::slice::from_ref(&ended));
        let next = page["next"].as_str().unwrap().to_owned();
        let folder = server.kill();
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        let config = "[retention]\ncompleted = \"1s\"\n";
        std::fs::write(folder.path().join("stepwell.toml"), config).unwrap();
        let server = TestServer::in_folder(folder, &[]);
        until(
            || asked(server.get(&format!("/api/v1/runs/{ended}"))).0,
            |status| *status == 404,
        );
        // By its id the run is gone; the place in the list is not, also for another filter.
        assert_eq!(list(&server, &[("before", &ended)]).0, 404);
        let (status, page) = list(&server, &[("before", &next)]);
        assert_eq!((status, ids(&page).last()), (200, Some(&open)), "{page}");
        let (_, page) = list(
            &server,
            &[("before", &next), ("open", "true"), ("plan", "odd.waits")],
        );
        assert_eq!(
            (ids(&page), &page["next"]),
            (vec![open.clone()], &Json::Null)
        );
        let bulk = json!({ "action": "cancel", "filter": { "before": next, "plan": "odd.waits" } });
        let (status, hit) = asked(server.post("/api/v1/runs/bulk", &bulk));
        assert_eq!((status, &hit["count"]), (200, &json!(1)), "{hit}");
    }
}

/// A list is read from the rows that the commit of a run writes: no caller waits for a projector.
#[test]
fn a_list_shows_at_once_what_its_caller_did() {
    for place in [Place::Sqlite, Place::Postgres] {
        let Some(server) = place.server("") else {
            continue;
        };
        let waiting = "workflowType: odd.waits\nworkflowVersion: 1\nsteps: [{stepType: NEVER}]\n";
        for round in 1..=20_u64 {
            let run = server.start_run(waiting, &json!({}));
            let (_, page) = list(&server, &[("open", "true")]);
            assert_eq!(ids(&page)[0], run);
            let signal = json!({ "signalType": "CANCEL", "reason": "seen" });
            let (status, told) =
                asked(server.post(&format!("/api/v1/runs/{run}/signals"), &signal));
            assert!(status < 300, "{told}");
            let (_, page) = list(&server, &[("status", "CANCELLED")]);
            assert_eq!(ids(&page)[0], run);
            let counted = server.get("/api/v1/runs/counts").send().unwrap();
            assert!(counted.headers().contains_key("stepwell-watermark"));
            let counted: Json = counted.json().unwrap();
            assert_eq!(
                counted,
                json!({ "counts": { "CANCELLED": round }, "total": round })
            );
        }
    }
}
