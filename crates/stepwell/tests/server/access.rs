//! Who may use a server: roles and rights of every endpoint, tokens, tenants and the audit log.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use reqwest::blocking::RequestBuilder;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::harness::{PATIENCE, TestServer, asked};
use crate::stores::{Place, on_each_store, store_of};
use crate::tenants::{endpoints, served};

pub(crate) const RUN: &str = "
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: one, path: one}
workflow:
- step: start
  tool: {kind: shell, cmds: ['true']}
";

/// The rights of the roles, as docs/access.md has them.
const ROLES: [(&str, &[&str]); 6] = [
    ("viewer", &["view"]),
    ("operator", &["view", "operate"]),
    ("engineer", &["view", "operate", "engineer"]),
    ("approver", &["view", "approve"]),
    (
        "admin",
        &["view", "operate", "engineer", "approve", "administer"],
    ),
    ("worker", &["work"]),
];

pub(crate) fn stepwell(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stepwell"))
        .args(args)
        .current_dir(folder)
        .env_remove("STEPWELL_STORE")
        .env_remove("STEPWELL_CONFIG")
        .envs(store_of(folder).map(|store| ("STEPWELL_STORE", store)))
        .output()
        .unwrap()
}

/// Creates a token with the command, and returns it.
pub(crate) fn token(folder: &TempDir, args: &[&str]) -> String {
    let out = stepwell(folder.path(), &[&["token", "create"], args].concat());
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

pub(crate) fn id_of(token: &str) -> &str {
    token.split('_').nth(1).unwrap()
}

pub(crate) fn bearer(request: RequestBuilder, token: &str) -> RequestBuilder {
    request.header("authorization", format!("Bearer {token}"))
}

/// A server with a configuration file.
pub(crate) fn configured(text: &str) -> TestServer {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("stepwell.toml"), text).unwrap();
    TestServer::in_folder(folder, &[])
}

pub(crate) fn controlled() -> TestServer {
    configured("[server]\naccess = 'tokens'\n")
}

pub(crate) fn wait(what: &str, seen: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !seen() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The rows of the audit log, once there are some that are wanted.
pub(crate) fn audited(server: &TestServer, admin: &str, query: &str) -> Vec<Json> {
    let path = format!("/api/v1/audit?{query}");
    let rows = || {
        let (status, page) = asked(bearer(server.get(&path), admin));
        assert_eq!(status, 200, "{page}");
        page["rows"].as_array().unwrap().clone()
    };
    wait(query, || !rows().is_empty());
    rows()
}

on_each_store!(
    every_role_has_its_rights_at_every_endpoint_and_no_other,
    wrong_tokens_have_one_answer,
    a_rotated_token_has_two_secrets_for_a_while,
    an_administrator_of_a_tenant_manages_the_tokens_of_the_tenant,
    the_audit_log_has_what_was_done_and_what_was_denied,
    rows_are_there_after_a_stop,
);

fn every_role_has_its_rights_at_every_endpoint_and_no_other(place: Place) {
    // Without a limit for requests without a token: there are many here.
    let config = "[server]\naccess = 'tokens'\n[server.rate]\nper_source = 0\n";
    let Some(server) = place.server(config) else {
        return;
    };
    let operations = served(&server);
    let listed = endpoints();
    let without = operations.keys().find(|it| !listed.contains_key(it));
    assert_eq!(without, None, "an operation without a row in endpoints.tsv");
    let mut checked = 0;
    for (role, rights) in ROLES {
        let token = token(&server.folder, &[role, "--role", role]);
        for ((method, path), row) in &listed {
            let right = row.right.as_str();
            let may = right == "public" || rights.contains(&right);
            // Objects that are not there: who may ask is told so.
            let words = path.split('/').map(|it| match it.starts_with('{') {
                true => "none-such",
                false => it,
            });
            let url = format!("{}{}", server.url, words.collect::<Vec<_>>().join("/"));
            let method: reqwest::Method = method.parse().unwrap();
            let request = || {
                let request = server.client.request(method.clone(), &url);
                match method == reqwest::Method::GET {
                    true => request,
                    false => request.json(&json!({})),
                }
            };
            let what = format!("{role} {method} {path}");
            // Only the head is read: a stream would not end.
            let answer = bearer(request(), &token).send().unwrap();
            let status = answer.status().as_u16();
            let code = match status {
                401 | 403 => answer.json::<Json>().unwrap()["code"].clone(),
                _ => Json::Null,
            };
            assert_eq!(code == "AUTHZ_DENIED", !may, "{what}: {status} {code}");
            // A session takes its token from the body, and a webhook is let in by its signature.
            let no_bearer = path == "/api/v1/session" || code == "WEBHOOK_DENIED";
            assert!(no_bearer || status != 401, "{what}: {status}");
            if right != "public" {
                let (status, seen) = asked(request());
                assert_eq!(status, 401, "{what} without a token: {seen}");
            }
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked}");
}

fn wrong_tokens_have_one_answer(place: Place) {
    let Some(server) = place.controlled() else {
        return;
    };
    let good = token(&server.folder, &["ada", "--role", "viewer"]);
    let short = token(
        &server.folder,
        &["bob", "--role", "viewer", "--expires", "1s"],
    );
    let revoked = token(&server.folder, &["eve", "--role", "viewer"]);
    let ask = |token: &str| bearer(server.get("/api/v1/runs"), token);
    assert_eq!(asked(ask(&good)).0, 200);
    assert_eq!(asked(ask(&revoked)).0, 200);
    let out = stepwell(server.folder.path(), &["token", "revoke", id_of(&revoked)]);
    assert!(out.status.success(), "{out:?}");
    wait("the revocation counts", || asked(ask(&revoked)).0 == 401);
    wait("the token expires", || asked(ask(&short)).0 == 401);
    let flipped = match good.ends_with('0') {
        true => format!("{}1", &good[..good.len() - 1]),
        false => format!("{}0", &good[..good.len() - 1]),
    };
    let other = format!(
        "swt_{}_{}",
        id_of(&revoked),
        good.rsplit('_').next().unwrap()
    );
    let basic = |text: &str| {
        server
            .get("/api/v1/runs")
            .header("authorization", text.to_owned())
    };
    let wrong = [
        ("nothing", server.get("/api/v1/runs")),
        ("expired", ask(&short)),
        ("revoked", ask(&revoked)),
        ("a wrong secret", ask(&flipped)),
        ("the secret of another token", ask(&other)),
        (
            "an unknown id",
            ask(&format!("swt_{}_{}", "0".repeat(16), "0".repeat(64))),
        ),
        ("half a token", ask(&good[..40])),
        ("a longer token", ask(&format!("{good}00"))),
        ("a token in capitals", ask(&good.to_uppercase())),
        ("another scheme", basic(&format!("Basic {good}"))),
        ("no scheme", basic(&good)),
        ("two tokens", bearer(ask(&good), &good)),
        (
            "a token in the address",
            server.get(&format!("/api/v1/runs?token={good}")),
        ),
        (
            "a cookie that is none",
            server
                .get("/api/v1/runs")
                .header("cookie", "stepwell_session=a.b"),
        ),
    ];
    let mut answers = Vec::new();
    for (what, request) in wrong {
        let answer = request.send().unwrap();
        assert_eq!(answer.status(), 401, "{what}");
        assert_eq!(answer.headers()["www-authenticate"], "Bearer", "{what}");
        answers.push(answer.text().unwrap());
    }
    assert!(answers.iter().all(|it| *it == answers[0]), "{answers:#?}");
    assert!(answers[0].contains("TOKEN_INVALID"));
    // Headers with which callers of an open server say who they are mean nothing here.
    let (status, _) = asked(
        server
            .get("/api/v1/tokens")
            .header("stepwell-role", "admin"),
    );
    assert_eq!(status, 401);
    let (status, _) = asked(
        ask(&good)
            .header("stepwell-role", "admin")
            .header("origin", "x"),
    );
    assert_eq!(status, 200);
}

fn a_rotated_token_has_two_secrets_for_a_while(place: Place) {
    let Some(server) = place.controlled() else {
        return;
    };
    let admin = token(&server.folder, &["root", "--role", "admin"]);
    let ask = |token: &str| asked(bearer(server.get("/api/v1/version"), token)).0;
    let old = token(&server.folder, &["ada", "--role", "viewer"]);
    let rotate = |seconds: u64| {
        let path = format!("/api/v1/tokens/{}/rotate", id_of(&old));
        let body = json!({ "overlapSeconds": seconds });
        let (status, seen) = asked(bearer(server.post(&path, &body), &admin));
        assert_eq!(status, 200, "{seen}");
        seen["token"].as_str().unwrap().to_owned()
    };
    let new = rotate(600);
    assert_eq!((ask(&old), ask(&new)), (200, 200));
    let newest = rotate(0);
    assert_eq!((ask(&old), ask(&new), ask(&newest)), (401, 401, 200));
    let out = stepwell(
        server.folder.path(),
        &["token", "rotate", id_of(&old), "--overlap", "0"],
    );
    let last = String::from_utf8(out.stdout).unwrap();
    wait("the command's rotation counts", || ask(&newest) == 401);
    assert_eq!(ask(last.trim()), 200);
}

fn an_administrator_of_a_tenant_manages_the_tokens_of_the_tenant(place: Place) {
    let Some(server) = place.controlled() else {
        return;
    };
    let root = token(&server.folder, &["root", "--role", "admin"]);
    let acme = token(
        &server.folder,
        &["ann", "--role", "admin", "--tenant", "acme"],
    );
    let other = token(
        &server.folder,
        &["uma", "--role", "admin", "--tenant", "umbrella"],
    );
    let create = |by: &str, body: Json| asked(bearer(server.post("/api/v1/tokens", &body), by));
    let (status, made) = create(&acme, json!({ "name": "new", "roles": ["operator"] }));
    assert_eq!((status, &made["tenant"]), (201, &json!("acme")), "{made}");
    let operator = made["token"].as_str().unwrap();
    let wish = json!({ "name": "new", "roles": ["viewer"], "tenant": "umbrella" });
    let (status, denied) = create(&acme, wish.clone());
    assert_eq!(
        (status, &denied["code"]),
        (403, &json!("AUTHZ_TENANT_FORBIDDEN")),
        "{denied}"
    );
    assert_eq!(create(&root, wish).0, 201);
    for wrong in [
        json!({ "name": "a\r\nb", "roles": ["viewer"] }),
        json!({ "name": "a", "roles": ["king"] }),
        json!({ "name": "a", "roles": [] }),
        json!({ "name": "a", "roles": ["viewer"], "expiresAt": "2020-01-01T00:00:00Z" }),
        json!({ "name": "a", "roles": ["viewer"], "hash": "x" }),
    ] {
        let (status, seen) = create(&root, wrong);
        assert_eq!(
            (status, &seen["code"]),
            (400, &json!("REQUEST_INVALID")),
            "{seen}"
        );
    }
    let list = |by: &str| asked(bearer(server.get("/api/v1/tokens"), by)).1;
    let names = |by: &str| {
        let seen = list(by);
        let names = seen["tokens"].as_array().unwrap().iter();
        let mut names: Vec<String> = names
            .map(|it| it["name"].as_str().unwrap().into())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&acme), ["ann", "new"]);
    assert_eq!(names(&root), ["ann", "new", "new", "root", "uma"]);
    let text = list(&root).to_string();
    for secret in [&root, &acme, &other] {
        assert!(!text.contains(secret.rsplit('_').next().unwrap()));
    }
    assert!(!text.contains("hash"), "{text}");
    let revoke = |by: &str, id: &str| {
        let url = format!("{}/api/v1/tokens/{id}", server.url);
        asked(bearer(server.client.delete(url), by))
    };
    for theirs in [id_of(&root), id_of(&other), "0000000000000000"] {
        let (status, seen) = revoke(&acme, theirs);
        assert_eq!(
            (status, &seen["code"]),
            (404, &json!("TOKEN_UNKNOWN")),
            "{seen}"
        );
        let path = format!("/api/v1/tokens/{theirs}/rotate");
        assert_eq!(asked(bearer(server.post(&path, &json!({})), &acme)).0, 404);
    }
    // Runs of the tenant are there for its people only.
    let start = json!({ "definition": { "text": RUN }, "waitSeconds": 20 });
    let (status, run) = asked(bearer(server.post("/api/v1/runs", &start), operator));
    assert_eq!(status, 201, "{run}");
    let run = format!("/api/v1/runs/{}", run["runId"].as_str().unwrap());
    assert_eq!(asked(bearer(server.get(&run), &acme)).0, 200);
    assert_eq!(asked(bearer(server.get(&run), &root)).0, 200);
    let (status, seen) = asked(bearer(server.get(&run), &other));
    assert_eq!(
        (status, &seen["code"]),
        (404, &json!("RUN_UNKNOWN")),
        "{seen}"
    );
    // The audit log of a tenant has what its people did.
    let rows = audited(&server, &acme, "action=POST%20/api/v1/runs");
    assert_eq!(rows[0]["actor"], "new", "{rows:?}");
    let (status, page) = asked(bearer(server.get("/api/v1/audit?tenant=acme"), &other));
    assert_eq!(status, 403, "{page}");
    let rows = audited(&server, &other, "limit=1000");
    assert!(rows.iter().all(|it| it["tenant"] == "umbrella"), "{rows:?}");
    let (status, gone) = revoke(&acme, id_of(operator));
    assert_eq!((status, &gone["state"]), (200, &json!("revoked")), "{gone}");
    assert_eq!(asked(bearer(server.get(&run), operator)).0, 401);
}

fn the_audit_log_has_what_was_done_and_what_was_denied(place: Place) {
    let Some(server) = place.controlled() else {
        return;
    };
    let admin = token(&server.folder, &["root", "--role", "admin"]);
    let viewer = token(&server.folder, &["vic", "--role", "viewer"]);
    let cancel = json!({ "reason": "wrong order" });
    let path = "/api/v1/runs/none-such/cancel";
    assert_eq!(asked(bearer(server.post(path, &cancel), &viewer)).0, 403);
    assert_eq!(asked(bearer(server.post(path, &cancel), &admin)).0, 404);
    let forged = format!("swt_{}_{}", id_of(&admin), "0".repeat(64));
    assert_eq!(asked(bearer(server.get("/api/v1/runs"), &forged)).0, 401);
    let start = json!({ "definition": { "text": RUN }, "waitSeconds": 20 });
    let (_, run) = asked(bearer(server.post("/api/v1/runs", &start), &admin));
    let row = |query: &str| audited(&server, &admin, query).remove(0);
    let denied = row("actor=vic");
    let wanted = json!({ "no": denied["no"], "at": denied["at"], "actor": "vic", "token": id_of(&viewer),
        "source": "127.0.0.1", "action": "POST /api/v1/runs/{run}/cancel", "target": "none-such", "accepted": false,
        "code": "AUTHZ_DENIED" });
    assert_eq!(denied, wanted);
    let refused = row("actor=root&accepted=false");
    assert_eq!(
        (&refused["code"], &refused["reason"]),
        (&json!("RUN_UNKNOWN"), &json!("wrong order"))
    );
    let unknown = row("actor=unknown");
    assert_eq!(
        (&unknown["token"], &unknown["code"]),
        (&json!(id_of(&admin)), &json!("TOKEN_INVALID"))
    );
    let started = row("accepted=true&action=POST%20/api/v1/runs");
    assert_eq!(
        (&started["target"], &started["actor"]),
        (&run["runId"], &json!("root"))
    );
    let made = audited(&server, &admin, "action=token.create");
    assert_eq!(
        (made.len(), &made[0]["source"]),
        (2, &json!("command")),
        "{made:?}"
    );
    // Pages follow each other without a gap.
    let all = audited(&server, &admin, "limit=1000");
    let (mut paged, mut before) = (Vec::new(), String::new());
    loop {
        let (_, page) = asked(bearer(
            server.get(&format!("/api/v1/audit?limit=2{before}")),
            &admin,
        ));
        paged.extend(page["rows"].as_array().unwrap().clone());
        match page["next"].as_i64() {
            Some(next) => before = format!("&before={next}"),
            None => break,
        }
    }
    assert_eq!(paged, all);
    let text = format!("{all:?}");
    for token in [&admin, &viewer] {
        assert!(!text.contains(token.rsplit('_').next().unwrap()));
    }
    for wrong in ["limit=0", "limit=x", "odd=1", "accepted=maybe"] {
        let (status, _) = asked(bearer(
            server.get(&format!("/api/v1/audit?{wrong}")),
            &admin,
        ));
        assert_eq!(status, 400, "{wrong}");
    }
}

fn rows_are_there_after_a_stop(place: Place) {
    let Some(server) = place.controlled() else {
        return;
    };
    let admin = token(&server.folder, &["root", "--role", "admin"]);
    for _ in 0..50 {
        assert_eq!(
            asked(bearer(
                server.post("/api/v1/runs/x/cancel", &json!({})),
                &admin
            ))
            .0,
            404
        );
    }
    let stop = Command::new("kill")
        .arg(server.child.id().to_string())
        .status();
    assert!(stop.unwrap().success());
    let mut server = server;
    server.child.wait().unwrap();
    let folder = std::mem::replace(&mut server.folder, tempfile::tempdir().unwrap());
    let server = TestServer::in_folder(folder, &[]);
    let rows = audited(&server, &admin, "limit=1000&target=x");
    assert_eq!(rows.len(), 50);
}
