//! Tenants do not see each other, and neither do the projects of a tenant: every operation of the OpenAPI document is asked by
//! one of them for the objects of another, and must answer as for objects that are not there. `endpoints.tsv` says what each
//! operation must answer; an operation without a row fails.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use reqwest::Method;
use reqwest::blocking::{Client, RequestBuilder};
use serde_json::{Value as Json, json};

use crate::access::{bearer, id_of, token};
use crate::harness::{TestServer, asked};
use crate::stores::{Place, on_each_store};

/// What `endpoints.tsv` says about an operation.
pub(crate) struct EndpointRow {
    pub(crate) right: String,
    of_tenants: String,
    of_projects: String,
}

/// What all objects of the first tenant are called.
const MARKER: &str = "acme-marker";

/// Method, path, right, and what another tenant, and another project of the tenant, is answered:
///
/// - `unknown`: 404, as for an object that is not there;
/// - `none`: nothing of the other tenant;
/// - `same`: the same, whosever the object is;
/// - `stream`: events of its own only;
/// - `shared`: the same for all projects of the tenant;
/// - `refused`: 403, because it belongs to the whole tenant.
pub(crate) fn endpoints() -> BTreeMap<(String, String), EndpointRow> {
    let rows = include_str!("endpoints.tsv").lines();
    let rows = rows.map(|row| {
        let parts: Vec<String> = row.split('\t').map(str::to_owned).collect();
        let [method, path, right, of_tenants, of_projects] = parts.try_into().unwrap();
        let row = EndpointRow {
            right,
            of_tenants,
            of_projects,
        };
        ((method, path), row)
    });
    rows.collect()
}

/// The operations of the document that the server serves, with their rights.
pub(crate) fn served(server: &TestServer) -> BTreeMap<(String, String), String> {
    let (_, document) = asked(server.get("/api/openapi.json"));
    let paths = document["paths"].as_object().unwrap().clone();
    let operations = paths.into_iter().flat_map(|(path, item)| {
        let item = item.as_object().unwrap().clone().into_iter();
        item.map(move |(method, operation)| {
            let right = operation["security"][0]["token"][0].as_str().unwrap_or("");
            ((method.to_uppercase(), path.clone()), right.to_owned())
        })
    });
    operations.collect()
}

const ORDER: &str = r#"
schemaVersion: 1
workflowId: acme-marker
workspaceId: w
name: acme-marker
version: 1
active: true
executionTier: Auto
actions:
  - actionId: acme-marker
    order: 1
    portFamily: x
    operation: 'a:b'
    sideEffecting: true
    tool: {kind: shell, cmds: ["echo acme-marker; head -c 200000 /dev/zero | tr '\\0' x"]}
  - {actionId: sign, order: 2, portFamily: x, operation: 'a:b', completionMode: manual, tool: {kind: noop}}
"#;

/// A step that a worker elsewhere does.
const ELSEWHERE: &str = "
workflowType: elsewhere-acme-marker
workflowVersion: 1
steps:
  - {stepType: PACK, input: {what: acme-marker}}
";

/// What stands for the parameters of paths, queries and bodies.
#[derive(Clone)]
struct Names {
    run: String,
    step: String,
    name: String,
    id: String,
    hash: String,
    uri: String,
    task: String,
    worker: String,
}

impl Names {
    fn invented() -> Names {
        Names {
            run: "run_none".into(),
            step: "none-such".into(),
            name: "none-such".into(),
            id: "0000000000000000".into(),
            hash: "0".repeat(64),
            uri: "artifact://runs/run_none/none-such/1/output".into(),
            task: "none-such".into(),
            worker: "none-such".into(),
        }
    }

    fn path(&self, method: &str, path: &str) -> String {
        let parts = path.split('/').map(|part| match part {
            "{run}" => &self.run,
            "{step}" => &self.step,
            "{name}" => &self.name,
            "{id}" if path.contains("worker") => &self.worker,
            "{id}" => &self.id,
            "{hash}" => &self.hash,
            "{tenant}" => "acme",
            "{revision}" | "{seq}" | "{no}" | "{execution}" => "1",
            "{language}" => "dag",
            "{code}" => "RUN_UNKNOWN",
            part => part,
        });
        let path = parts.collect::<Vec<_>>().join("/");
        let query: &[(&str, &str)] = match path.as_str() {
            "/api/v1/worker/artifacts" if method == "GET" => &[("uri", &self.uri)],
            "/api/v1/worker/artifacts" => {
                &[("taskToken", &self.task), ("name", "x"), ("kind", "x")]
            }
            path if path.starts_with("/api/v1/plans/") => &[("run", &self.run)],
            path if path.ends_with("/artifact") => &[("uri", &self.uri)],
            path if path.ends_with("/diff") => &[("from", "1"), ("to", "1")],
            path if path.ends_with("/search") => &[("text", "acme")],
            _ => &[],
        };
        let url = reqwest::Url::parse_with_params("http://x/", query).unwrap();
        let query = url.query().filter(|it| !it.is_empty());
        let query = query.map(|it| format!("?{it}"));
        format!("{path}{}", query.unwrap_or_default())
    }

    fn body(&self, method: &str, path: &str) -> Json {
        let last = path.rsplit('/').next().unwrap();
        match (method, path) {
            ("POST", "/api/v1/runs") => json!({ "definition": { "name": self.name } }),
            ("POST", "/api/v1/runs/bulk") => {
                json!({ "action": "cancel", "dryRun": false, "runs": [self.run] })
            }
            ("POST", "/api/v1/events") => {
                json!({ "id": "e1", "type": "go", "key": self.run, "payload": {} })
            }
            ("POST", "/api/v1/check") => json!({ "text": ORDER.replace(MARKER, "mine") }),
            (_, "/api/v1/definitions") => json!({ "text": ORDER.replace(MARKER, "mine") }),
            ("PUT", "/api/v1/schedules/{name}") => {
                json!({ "definition": self.name, "cron": "@daily" })
            }
            ("PUT", "/api/v1/webhooks/{name}") => json!({
                "target": { "start": { "definition": self.name } }, "signature": { "github": {} },
                "secret": "env://STEPWELL_SECRET_OF_TESTS",
            }),
            ("PUT", "/api/v1/sources/{name}") => json!({
                "address": "nats://example.com/EVENTS", "enabled": false,
                "target": { "start": { "definition": self.name } },
            }),
            ("PUT", "/api/v1/sinks/{name}") => json!({ "address": "webhook:https://example.com/" }),
            ("POST", "/api/v1/tokens") => json!({ "name": "mine", "roles": ["viewer"] }),
            ("POST", "/api/v1/worker/poll") => json!({
                "protocol": 1, "workerId": self.worker, "max": 8, "waitSeconds": 0,
                "serves": [{ "queue": "elsewhere-acme-marker", "operation": "PACK" }],
            }),
            ("POST", "/api/v1/worker/heartbeats") => {
                json!({ "protocol": 1, "taskTokens": [self.task] })
            }
            ("POST", "/api/v1/worker/results") => json!({
                "protocol": 1, "results": [{ "taskToken": self.task, "outcome": "completed", "output": {} }],
            }),
            ("POST", "/api/v1/worker/logs") => json!({
                "protocol": 1, "lines": [{ "taskToken": self.task, "stream": "out", "text": "x" }],
            }),
            _ => match last {
                "signals" => json!({ "signalType": "PAUSE" }),
                "events" => json!({ "id": "e1", "type": "go" }),
                "complete" => json!({ "outcome": "succeeded" }),
                "ctx" => json!({ "ctx": { "a": 1 } }),
                "deprecate" => json!({ "deprecated": true }),
                _ => json!({}),
            },
        }
    }

    fn request(&self, server: &TestServer, method: &str, path: &str) -> RequestBuilder {
        let url = format!("{}{}", server.url, self.path(method, path));
        let request = server
            .client
            .request(method.parse::<Method>().unwrap(), url);
        match method {
            "GET" | "DELETE" => request,
            _ => request.json(&self.body(method, path)),
        }
    }

    /// A text in which these names are those of others.
    fn replaced(&self, text: &str, by: &Names) -> String {
        // Longer names first: some are parts of others.
        let pairs = [
            (&self.uri, &by.uri),
            (&self.task, &by.task),
            (&self.run, &by.run),
            (&self.hash, &by.hash),
            (&self.worker, &by.worker),
            (&self.id, &by.id),
            (&self.name, &by.name),
        ];
        let mut text = text.to_owned();
        for (own, theirs) in pairs {
            text = text.replace(own.as_str(), theirs);
        }
        text
    }
}

/// Makes the objects of the first tenant, and tells their names.
fn furnish(server: &TestServer, acme: &str, worker: &str) -> Names {
    let ask = |request: RequestBuilder| asked(bearer(request, acme));
    let made = |(status, seen): (u16, Json)| {
        assert!(status < 300, "{seen}");
        seen
    };
    for text in [ORDER, ELSEWHERE] {
        made(ask(
            server.post("/api/v1/definitions", &json!({ "text": text }))
        ));
    }
    let put = |path: &str, body: Json| {
        let url = format!("{}/api/v1/{path}/{MARKER}", server.url);
        made(ask(server.client.put(url).json(&body)));
    };
    put(
        "schedules",
        json!({ "definition": MARKER, "cron": "0 0 1 1 *" }),
    );
    put(
        "webhooks",
        json!({ "target": { "start": { "definition": MARKER } }, "signature": { "github": {} },
            "secret": "env://STEPWELL_SECRET_OF_TESTS" }),
    );
    put(
        "sources",
        json!({ "target": { "start": { "definition": MARKER } }, "address": "nats://example.com/EVENTS",
            "enabled": false }),
    );
    let token = made(ask(server.post(
        "/api/v1/tokens",
        &json!({ "name": MARKER, "roles": ["viewer"] }),
    )));
    let start = |name: &str| {
        let body = json!({ "definition": { "name": name }, "labels": { "l": MARKER } });
        let seen = made(ask(server.post("/api/v1/runs", &body)));
        seen["runId"].as_str().unwrap().to_owned()
    };
    let run = start(MARKER);
    start("elsewhere-acme-marker");
    let get = |path: &str| made(ask(server.get(path)));
    crate::access::wait("the run waits for a person", || {
        get("/api/v1/inbox").to_string().contains(&run)
    });
    let artifacts = get(&format!("/api/v1/runs/{run}/artifacts"));
    let snapshot = get(&format!("/api/v1/runs/{run}"));
    let poll = json!({ "protocol": 1, "workerId": MARKER, "max": 1, "waitSeconds": 30,
        "serves": [{ "queue": "elsewhere-acme-marker", "operation": "PACK" }] });
    let polled = made(asked(bearer(
        server.post("/api/v1/worker/poll", &poll),
        worker,
    )));
    let task = polled["tasks"][0]["taskToken"].as_str();
    Names {
        run,
        step: MARKER.into(),
        name: MARKER.into(),
        id: token["id"].as_str().unwrap().to_owned(),
        hash: snapshot["ext"]["planHash"].as_str().unwrap().to_owned(),
        uri: artifacts[0]["uri"]
            .as_str()
            .unwrap_or_else(|| panic!("{artifacts}"))
            .to_owned(),
        task: task.unwrap_or_else(|| panic!("{polled}")).to_owned(),
        worker: MARKER.into(),
    }
}

/// The status and the body of an answer, of which a stream gives a second.
fn told(server: &TestServer, request: RequestBuilder) -> (u16, String) {
    let impatient = Client::builder().timeout(Duration::from_secs(20)).build();
    let mut response = impatient
        .unwrap()
        .execute(request.build().unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", server.url));
    let status = response.status().as_u16();
    let mut text = Vec::new();
    let _ = response.read_to_end(&mut text);
    (status, String::from_utf8_lossy(&text).into_owned())
}

on_each_store!(
    no_operation_tells_a_tenant_of_another,
    no_operation_tells_a_project_of_another,
    a_business_key_of_one_tenant_says_nothing_to_another,
);

fn no_operation_tells_a_tenant_of_another(place: Place) {
    let Some(server) = place.server(UNLIMITED) else {
        return;
    };
    let (acme, other) = (
        everything(&server, "ann", &["--tenant", "acme"]),
        everything(&server, "uma", &["--tenant", "umbrella"]),
    );
    let theirs = furnish(&server, &acme, &acme);
    nothing_is_told(&server, (&theirs, &acme), &other, |it| &it.of_tenants);
}

fn no_operation_tells_a_project_of_another(place: Place) {
    let Some(server) = place.server(UNLIMITED) else {
        return;
    };
    let of = |name: &str, project: &str| {
        everything(&server, name, &["--tenant", "acme", "--project", project])
    };
    let (one, other) = (of("ann", "p1"), of("bob", "p2"));
    let tenant = everything(&server, "ada", &["--tenant", "acme"]);
    let theirs = furnish(&server, &one, &tenant);
    nothing_is_told(&server, (&theirs, &one), &other, |it| &it.of_projects);
    // The work of the project is done, and its worker is of the tenant.
    let (status, seen) = asked(bearer(
        theirs.request(&server, "POST", "/api/v1/worker/results"),
        &tenant,
    ));
    assert_eq!(
        (status, &seen["results"][0]["accepted"]),
        (200, &json!(true)),
        "{seen}"
    );
    what_projects_share(&server, (&one, &other, &tenant));
}

/// Definitions of the tenant are there for all its projects, which cannot change them; a name is in use once.
fn what_projects_share(server: &TestServer, (one, other, tenant): (&str, &str, &str)) {
    let register = |by: &str, text: &str| {
        let body = json!({ "text": text });
        let (status, seen) = asked(bearer(server.post("/api/v1/definitions", &body), by));
        (status, seen["code"].as_str().unwrap_or_default().to_owned())
    };
    let refused = |status: u16, code: &str| (status, code.to_owned());
    assert_eq!(register(other, ORDER), refused(409, "NAME_TAKEN"));
    let shared = RUN.replace("name: r", "name: shared");
    assert_eq!(register(tenant, &shared).0, 201);
    assert_eq!(
        register(one, &shared.replace("seconds: 0", "seconds: 1")),
        refused(403, "AUTHZ_TENANT_FORBIDDEN")
    );
    let start = json!({ "definition": { "name": "shared" } });
    for (by, project) in [(one, "p1"), (other, "p2"), (tenant, "local")] {
        let (status, seen) = asked(bearer(server.post("/api/v1/runs", &start), by));
        assert_eq!(status, 201, "{seen}");
        let of_project = format!("/api/v1/runs?project={project}");
        let (_, list) = asked(bearer(server.get(&of_project), tenant));
        assert!(
            list.to_string().contains(seen["runId"].as_str().unwrap()),
            "{list}"
        );
    }
    // A run of a project's definition is of this project, also if a caller of the tenant starts it.
    let start = json!({ "definition": { "name": "elsewhere-acme-marker" } });
    let (status, seen) = asked(bearer(server.post("/api/v1/runs", &start), tenant));
    assert_eq!(status, 201, "{seen}");
    let run = format!("/api/v1/runs/{}", seen["runId"].as_str().unwrap());
    assert_eq!(asked(bearer(server.get(&run), one)).0, 200);
    assert_eq!(asked(bearer(server.get(&run), other)).0, 404);
    // A schedule or a webhook stays of its project, and nobody takes over its name.
    let put = |by: &str, path: &str, body: &Json| {
        let url = format!("{}/api/v1/{path}/{MARKER}", server.url);
        asked(bearer(server.client.put(url).json(body), by))
    };
    let schedule = json!({ "definition": "shared", "cron": "@daily" });
    let hook = json!({ "target": { "start": { "definition": "shared" } }, "signature": { "github": {} },
        "secret": "env://STEPWELL_SECRET_OF_TESTS" });
    for (path, body) in [("schedules", &schedule), ("webhooks", &hook)] {
        let (status, seen) = put(other, path, body);
        assert_eq!(
            (status, &seen["code"]),
            (409, &json!("NAME_TAKEN")),
            "{seen}"
        );
        let (status, seen) = put(tenant, path, body);
        assert_eq!((status, &seen["project"]), (200, &json!("p1")), "{seen}");
    }
    // A definition of another project is no child, and a webhook of a project sends no events to the others.
    let events = json!({ "target": { "event": { "type": "go" } }, "signature": { "github": {} },
        "secret": "env://STEPWELL_SECRET_OF_TESTS" });
    let (status, seen) = put(one, "webhooks", &events);
    assert_eq!(
        (status, &seen["code"]),
        (403, &json!("AUTHZ_TENANT_FORBIDDEN")),
        "{seen}"
    );
    let parent = RUN.replace("name: r", "name: parent").replace(
        "{kind: sleep, seconds: 0}",
        "{kind: playbook, path: shared}",
    );
    let start = json!({ "definition": { "text": parent }, "waitSeconds": 30 });
    let (_, seen) = asked(bearer(server.post("/api/v1/runs", &start), one));
    assert_eq!(seen["run"]["status"], "COMPLETED", "{seen}");
    let parent = parent.replace("path: shared", "path: acme-marker");
    let start = json!({ "definition": { "text": parent }, "waitSeconds": 30 });
    let (_, seen) = asked(bearer(server.post("/api/v1/runs", &start), other));
    assert_eq!(seen["run"]["status"], "FAILED", "{seen}");
    assert!(
        seen.to_string().contains("there is no definition"),
        "{seen}"
    );
}

/// A run that ends at once.
const RUN: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: r, path: r}\nworkflow:\n\
    - {step: start, tool: {kind: sleep, seconds: 0}}\n";

const UNLIMITED: &str = "[server]\naccess = 'tokens'\n[server.rate]\nper_source = 0\n";

/// A token with every right.
fn everything(server: &TestServer, name: &str, bound: &[&str]) -> String {
    let roles = ["--role", "admin", "--role", "worker"];
    token(&server.folder, &[&[name][..], &roles, bound].concat())
}

/// Asks every operation for the objects of the first one, by a caller for whom they are not there.
fn nothing_is_told(
    server: &TestServer,
    (theirs, acme): (&Names, &str),
    other: &str,
    answer_of: impl Fn(&EndpointRow) -> &String,
) {
    let (endpoints, served) = (endpoints(), served(server));
    let listed: BTreeMap<_, _> = endpoints
        .iter()
        .map(|(operation, row)| (operation.clone(), row.right.clone()))
        .collect();
    assert_eq!(
        served, listed,
        "every operation has a row in endpoints.tsv, with its right"
    );
    let nobodys = Names::invented();
    let (mut checked, mut faults) = (0, Vec::new());
    for ((method, path), row) in &endpoints {
        let answer = answer_of(row);
        let what = format!("{method} {path}");
        if answer == "stream" {
            continue;
        }
        let ask =
            |names: &Names, by: &str| told(server, bearer(names.request(server, method, path), by));
        let (status, seen) = ask(theirs, other);
        let (wanted, unknown) = ask(&nobodys, other);
        let shown = theirs.replaced(&seen, &nobodys);
        let mut wrong = |is_right: bool, why: &str| {
            if !is_right {
                let answers = format!("{status} {seen} / {wanted} {unknown}");
                faults.push(format!("{what} {why}: {answers}"));
            }
        };
        if answer != "shared" {
            wrong(!shown.contains(MARKER), "shows something of others");
        }
        match answer.as_str() {
            "unknown" => {
                wrong((status, wanted) == (404, 404), "is not refused as unknown");
                wrong(shown == unknown, "tells that it is there");
            }
            "same" => wrong(status == wanted, "depends on whose it is"),
            "none" | "shared" => wrong(status < 300, "does not answer"),
            "refused" => {
                wrong((status, wanted) == (403, 403), "is not refused");
                wrong(shown == unknown, "tells that it is there");
            }
            word => panic!("{what}: {word}"),
        }
        // What is compared must be there for its owner; what workers read is there for those of the tenant.
        if answer == "unknown"
            && method == "GET"
            && !path.ends_with("stream")
            && !path.ends_with("watch")
        {
            let (status, seen) = ask(theirs, acme);
            if status != 200 {
                faults.push(format!("{what} by its owner: {status} {seen}"));
            }
        }
        checked += 1;
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(checked > 70, "{checked}");
    // Nothing that the others tried has changed anything.
    let run = format!("/api/v1/runs/{}", theirs.run);
    let (_, seen) = asked(bearer(server.get(&run), acme));
    assert_eq!(seen["status"], "RUNNING", "{seen}");
    for path in ["schedules", "webhooks", "sources", "definitions"] {
        let (status, seen) = asked(bearer(
            server.get(&format!("/api/v1/{path}/{MARKER}")),
            acme,
        ));
        assert_eq!(status, 200, "{path}: {seen}");
    }
    let tokens = asked(bearer(server.get("/api/v1/tokens"), acme)).1;
    let own = tokens["tokens"].as_array().unwrap().iter();
    let mut own = own.filter(|it| it["id"] == theirs.id.as_str());
    assert_eq!(own.next().unwrap()["state"], "valid", "{tokens}");
    assert_ne!(id_of(acme), theirs.id);
}

/// A linear run that waits, with a business key.
const PARCEL: &str = r#"
workflowType: parcel
workflowVersion: 1
bizKey: "{{ workload.parcel }}"
steps:
  - {stepType: ARRIVE, waitFor: {event: parcel.arrived, timeout: 24h}}
"#;

fn a_business_key_of_one_tenant_says_nothing_to_another(place: Place) {
    let Some(server) = place.controlled() else {
        return;
    };
    let start = |tenant: &str| {
        let token = token(
            &server.folder,
            &["ada", "--role", "operator", "--tenant", tenant],
        );
        let body = json!({ "definition": { "text": PARCEL }, "params": { "parcel": "p-1" } });
        asked(bearer(server.post("/api/v1/runs", &body), &token))
    };
    let mut runs = Vec::new();
    for tenant in ["acme", "globex"] {
        let (status, started) = start(tenant);
        assert_eq!(status, 201, "{tenant}: {started}");
        runs.push(started["runId"].as_str().unwrap().to_owned());
    }
    for (tenant, own, other) in [("acme", 0, 1), ("globex", 1, 0)] {
        let (status, refused) = start(tenant);
        assert_eq!((status, &refused["code"]), (409, &json!("BIZ_KEY_TAKEN")));
        let text = refused.to_string();
        assert!(text.contains(&runs[own]), "{text}");
        assert!(!text.contains(&runs[other]), "{text}");
    }
}
