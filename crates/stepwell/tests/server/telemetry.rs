//! Traces: what a collector of OpenTelemetry gets from servers, also from servers that die.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;

use serde_json::json;

use crate::collector::{Collector, SeenSpan};
use crate::harness::{PATIENCE, TestServer, asked};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn header() -> String {
    format!("00-{TRACE}-{CALLER}-01")
}

/// A server that sends its spans to a collector.
fn traced(collector: &Collector, args: &[&str]) -> TestServer {
    traced_in(tempfile::tempdir().unwrap(), collector, args)
}

fn traced_in(folder: tempfile::TempDir, collector: &Collector, args: &[&str]) -> TestServer {
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
        ("OTEL_SERVICE_NAME", "shop"),
        // Steps ask a receiver on this machine.
        ("STEPWELL_CONFINE", "false"),
    ];
    TestServer::with_env(folder, args, &variables)
}

fn start(server: &TestServer, text: &str) -> String {
    let body = json!({ "definition": { "text": text } });
    let request = server.post("/api/v1/runs", &body);
    let (status, answer) = asked(
        request
            .header("traceparent", header())
            .header("tracestate", "a=b"),
    );
    assert_eq!(status, 201, "{answer}");
    answer["runId"].as_str().unwrap().to_owned()
}

fn named<'a>(spans: &'a [SeenSpan], name: &str) -> Vec<&'a SeenSpan> {
    spans.iter().filter(|it| it.name == name).collect()
}

fn only<'a>(spans: &'a [SeenSpan], name: &str) -> &'a SeenSpan {
    let found = named(spans, name);
    assert_eq!(found.len(), 1, "{name}: {spans:#?}");
    found[0]
}

fn playbook(name: &str, steps: &str) -> String {
    format!(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}, path: {name}}}\nworkflow:\n{steps}"
    )
}

/// Answers one request, and says what its head was.
fn receiver() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut head = vec![0; 16_384];
        let count = connection.read(&mut head).unwrap();
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
        connection.write_all(answer.as_bytes()).unwrap();
        let _ = tell.send(String::from_utf8_lossy(&head[..count]).into_owned());
    });
    (url, told)
}

#[test]
fn a_run_is_a_trace_and_an_attempt_a_span_that_tools_hand_on() {
    let collector = Collector::start();
    let server = traced(&collector, &[]);
    let file = server.folder.path().join("seen");
    let (url, told) = receiver();
    let text = playbook(
        "parcels",
        &format!(
            "- step: start\n  tool: {{kind: shell, cmds: ['printenv TRACEPARENT TRACESTATE > {}']}}\n  next: [{{step: call}}]\n\
             - step: call\n  tool: {{kind: http, url: '{url}', method: GET}}\n",
            file.display()
        ),
    );
    let run = start(&server, &text);
    server.wait_for(&run, |seen| seen["status"] == "COMPLETED");
    let spans = collector.wait_for(|spans| !named(spans, "run parcels").is_empty());
    let request = only(&spans, "POST /api/v1/runs");
    assert_eq!(
        (request.trace.as_str(), request.parent.as_str()),
        (TRACE, CALLER)
    );
    assert_eq!(request.attributes["http.response.status_code"], "201");
    let of_run = only(&spans, "run parcels");
    assert_eq!(
        (&of_run.trace, &of_run.parent),
        (&request.trace, &request.id)
    );
    assert_eq!((of_run.status, of_run.service.as_str()), (1, "shop"));
    assert_eq!(of_run.attributes["stepwell.run.id"], run);
    assert_eq!(of_run.attributes["stepwell.plan.id"], "parcels");
    for step in ["step start", "step call"] {
        let span = only(&spans, step);
        assert_eq!(
            (span.trace.as_str(), &span.parent),
            (TRACE, &of_run.id),
            "{step}"
        );
        assert!(
            span.start >= of_run.start && span.end <= of_run.end,
            "{span:?}"
        );
    }
    // The program and the request were told the span that they belong to.
    let program = format!("00-{TRACE}-{}-01\na=b\n", only(&spans, "step start").id);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), program);
    let head = told.recv_timeout(PATIENCE).unwrap().to_lowercase();
    let wanted = format!(
        "traceparent: 00-{TRACE}-{}-01",
        only(&spans, "step call").id
    );
    assert!(head.contains(&wanted), "{head}");
    assert!(head.contains("tracestate: a=b"), "{head}");
}

#[test]
fn a_child_run_is_below_the_wait_of_its_parent() {
    let collector = Collector::start();
    let server = traced(&collector, &[]);
    let child = playbook(
        "child",
        "- {step: start, tool: {kind: shell, cmds: ['echo hello']}}\n",
    );
    let (status, answer) = asked(server.post("/api/v1/definitions", &json!({ "text": child })));
    assert!(status < 300, "{answer}");
    let text = playbook(
        "parent",
        "- {step: start, tool: {kind: playbook, path: child}}\n",
    );
    let run = start(&server, &text);
    let ended = server.wait_for(&run, |seen| seen["completedAt"].is_string());
    assert_eq!(ended["status"], "COMPLETED", "{ended}");
    let both = |spans: &[SeenSpan]| {
        !named(spans, "run parent").is_empty() && !named(spans, "run child").is_empty()
    };
    let spans = collector.wait_for(both);
    let (parent, child) = (only(&spans, "run parent"), only(&spans, "run child"));
    let wait = only(&spans, "wait for a child run");
    assert_eq!(
        (&wait.parent, &child.parent, child.trace.as_str()),
        (&parent.id, &wait.id, TRACE),
        "{spans:#?}"
    );
    assert_eq!(child.attributes["stepwell.run.parent"], run);
}

#[test]
fn retries_and_undos_are_spans_of_their_own() {
    let collector = Collector::start();
    let server = traced(&collector, &[]);
    let text = "apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: {name: saga, owner: stock}\n\
        spec:\n  timeout: 10m\n  failurePolicy: compensate\n  steps:\n\
        \x20   - {name: book, timeout: 1m, tool: {kind: shell, cmds: ['true']}}\n\
        \x20   - name: pay\n      dependsOn: [book]\n      timeout: 1m\n\
        \x20     retryPolicy: {maxRetries: 1, backoff: constant, initialDelay: 100ms}\n\
        \x20     tool: {kind: shell, cmds: ['exit 137']}\n\
        \x20 compensation:\n\
        \x20   - {step: book, timeout: 1m, tool: {kind: shell, cmds: ['true']}}\n";
    let run = start(&server, text);
    server.wait_for(&run, |seen| seen["status"] == "FAILED");
    let spans = collector.wait_for(|spans| !named(spans, "run saga").is_empty());
    let of_run = only(&spans, "run saga");
    assert_eq!(of_run.status, 2, "{of_run:?}");
    let pay = named(&spans, "step pay");
    assert_eq!(pay.len(), 2, "{spans:#?}");
    assert!(pay.iter().all(|it| it.status == 2), "{pay:#?}");
    assert_eq!(pay[0].attributes["error.type"], "SHELL_EXIT");
    let undo = only(&spans, "undo book~undo");
    assert_eq!((&undo.parent, undo.status), (&of_run.id, 1));
    // No span comes twice.
    let mut ids: Vec<&String> = spans.iter().map(|it| &it.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), spans.len(), "{spans:#?}");
    let text = server.get("/metrics").send().unwrap().text().unwrap();
    assert!(text.contains("stepwell_step_retries_total 1\n"), "{text}");
}

#[test]
fn a_trace_goes_on_after_kill_9_on_another_server() {
    let collector = Collector::start();
    let server = traced(&collector, &[]);
    let file = server.folder.path().join("seen");
    let text = playbook(
        "long",
        &format!(
            "- step: start\n  tool: {{kind: shell, cmds: ['echo first']}}\n  next: [{{step: slow}}]\n\
             - step: slow\n  tool: {{kind: shell, cmds: ['echo $TRACEPARENT >> {0}; test $(wc -l < {0}) -ge 2 || sleep 600']}}\n  next: [{{step: last}}]\n\
             - step: last\n  tool: {{kind: shell, cmds: ['echo last']}}\n",
            file.display()
        ),
    );
    let run = start(&server, &text);
    collector.wait_for(|spans| {
        !named(spans, "step start").is_empty() && !named(spans, "POST /api/v1/runs").is_empty()
    });
    let begun = || std::fs::read_to_string(&file).unwrap_or_default();
    let until = std::time::Instant::now() + PATIENCE;
    while begun().is_empty() {
        assert!(std::time::Instant::now() < until, "the step does not begin");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let server = traced_in(server.kill(), &collector, &[]);
    server.wait_for(&run, |seen| seen["status"] == "COMPLETED");
    let spans = collector.wait_for(|spans| !named(spans, "run long").is_empty());
    let of_run = only(&spans, "run long");
    assert_eq!(of_run.parent, only(&spans, "POST /api/v1/runs").id);
    only(&spans, "step start");
    only(&spans, "step last");
    // The execution that was lost, and the one that replaced it: each told its own span.
    let slow = named(&spans, "step slow");
    assert_eq!(slow.len(), 2, "{spans:#?}");
    assert_eq!((slow[0].status, slow[1].status), (2, 1), "{slow:#?}");
    let wanted = slow.iter().map(|it| format!("00-{TRACE}-{}-01\n", it.id));
    assert_eq!(begun(), wanted.collect::<String>());
    for step in spans.iter().filter(|it| it.name.starts_with("step ")) {
        assert_eq!((step.trace.as_str(), &step.parent), (TRACE, &of_run.id));
    }
}

#[test]
fn workers_in_other_processes_are_told_the_trace() {
    let collector = Collector::start();
    let server = traced(&collector, &["--no-worker"]);
    let text = "workflowType: order\nworkflowVersion: 1\nsteps:\n  - {stepType: PACK}\n";
    start(&server, text);
    let poll = json!({
        "protocol": 1, "workerId": "w", "max": 1, "waitSeconds": 20,
        "serves": [{ "queue": "order", "operation": "PACK" }],
    });
    let (status, polled) = asked(server.post("/api/v1/worker/poll", &poll));
    assert_eq!(status, 200, "{polled}");
    let task = &polled["tasks"][0];
    let given = task["traceparent"].as_str().unwrap().to_owned();
    assert!(given.starts_with(&format!("00-{TRACE}-")), "{task}");
    assert_eq!(task["tracestate"], "a=b");
    let results = json!({ "protocol": 1, "results": [
        { "taskToken": task["taskToken"], "outcome": "completed", "output": {} },
    ] });
    let (_, answer) = asked(server.post("/api/v1/worker/results", &results));
    assert_eq!(answer["results"][0]["accepted"], true, "{answer}");
    let spans = collector.wait_for(|spans| !named(spans, "run order").is_empty());
    let step = spans
        .iter()
        .find(|it| it.name.starts_with("step "))
        .unwrap();
    assert_eq!(given, format!("00-{TRACE}-{}-01", step.id));
}

#[test]
fn without_a_collector_the_context_of_the_caller_is_handed_on_as_it_came() {
    let server = TestServer::start();
    let file = server.folder.path().join("seen");
    let text = playbook(
        "plain",
        &format!(
            "- {{step: start, tool: {{kind: shell, cmds: ['printenv TRACEPARENT > {}']}}}}\n",
            file.display()
        ),
    );
    let run = start(&server, &text);
    server.wait_for(&run, |seen| seen["status"] == "COMPLETED");
    let seen = std::fs::read_to_string(&file).unwrap();
    assert_eq!(seen.trim(), header());
}

#[test]
fn a_collector_that_is_away_costs_spans_and_nothing_else() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "1"),
    ];
    let server = TestServer::with_env(tempfile::tempdir().unwrap(), &[], &variables);
    let text = playbook(
        "plain",
        "- {step: start, tool: {kind: shell, cmds: ['echo hello']}}\n",
    );
    for _ in 0..3 {
        let run = start(&server, &text);
        server.wait_for(&run, |seen| seen["status"] == "COMPLETED");
    }
    let until = std::time::Instant::now() + PATIENCE;
    let number = |name: &str| {
        let text = server.get("/metrics").send().unwrap().text().unwrap();
        let line = text
            .lines()
            .find(|it| it.starts_with(name))
            .unwrap()
            .to_owned();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    while number("stepwell_spans_dropped_total ") < 1.0
        || number("stepwell_span_requests_failed_total ") < 1.0
    {
        assert!(std::time::Instant::now() < until, "nothing is counted");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}
