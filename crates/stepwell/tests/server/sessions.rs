//! Sessions of browsers, and how often a caller may ask.

use reqwest::blocking::RequestBuilder;
use serde_json::{Value as Json, json};

use crate::access::{audited, bearer, configured, controlled, id_of, token};
use crate::harness::{TestServer, asked};

#[test]
fn a_session_of_a_browser_needs_its_value_and_ends() {
    let server = controlled();
    let admin = token(&server.folder, &["root", "--role", "admin"]);
    let begin = |token: &str| server.post("/api/v1/session", &json!({ "token": token }));
    let (status, seen) = asked(begin("swt_0_0"));
    assert_eq!(
        (status, &seen["code"]),
        (401, &json!("TOKEN_INVALID")),
        "{seen}"
    );
    let answer = begin(&admin).send().unwrap();
    assert_eq!(answer.status(), 200);
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(
        !cookie.contains("Secure"),
        "without TLS the browser would not send it"
    );
    assert!(!cookie.contains(admin.rsplit('_').next().unwrap()));
    let session: Json = answer.json().unwrap();
    let csrf = session["csrf"].as_str().unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let with = |request: RequestBuilder| request.header("cookie", cookie.clone());
    assert_eq!(asked(with(server.get("/api/v1/tokens"))).0, 200);
    let (_, who) = asked(with(server.get("/api/v1/session")));
    assert_eq!(
        (&who["name"], &who["csrf"]),
        (&json!("root"), &json!(csrf)),
        "{who}"
    );
    let body = json!({ "name": "new", "roles": ["viewer"] });
    let create = || with(server.post("/api/v1/tokens", &body));
    for request in [create(), create().header("x-stepwell-csrf", "0".repeat(64))] {
        let (status, seen) = asked(request);
        assert_eq!(
            (status, &seen["code"]),
            (403, &json!("CSRF_DENIED")),
            "{seen}"
        );
    }
    assert_eq!(asked(create().header("x-stepwell-csrf", csrf)).0, 201);
    // A cookie that was changed is none.
    let (name, value) = cookie.split_once('=').unwrap();
    let (payload, mac) = value.split_once('.').unwrap();
    let forged = format!("{name}={payload}A.{mac}");
    assert_eq!(
        asked(server.get("/api/v1/tokens").header("cookie", forged)).0,
        401
    );
    let end = || {
        with(
            server
                .client
                .delete(format!("{}/api/v1/session", server.url)),
        )
    };
    assert_eq!(asked(end()).0, 403);
    assert_eq!(asked(end().header("x-stepwell-csrf", csrf)).0, 204);
    assert_eq!(
        asked(with(server.get("/api/v1/tokens"))).0,
        401,
        "a copy of the cookie is worth nothing"
    );
    // A session ends with its token, and another server of the store accepts it until then.
    let answer = begin(&admin).send().unwrap();
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let server = TestServer::in_folder(server.kill(), &[]);
    let ask = || {
        asked(
            server
                .get("/api/v1/tokens")
                .header("cookie", cookie.clone()),
        )
        .0
    };
    assert_eq!(ask(), 200);
    let url = format!("{}/api/v1/tokens/{}", server.url, id_of(&admin));
    assert_eq!(asked(bearer(server.client.delete(url), &admin)).0, 200);
    assert_eq!(ask(), 401);
}

/// A page asks for its session when it is opened: that is no refused action. A caller that tries a token there is recorded.
#[test]
fn a_page_that_looks_for_its_session_is_not_in_the_audit_log() {
    let server = controlled();
    let admin = token(&server.folder, &["root", "--role", "admin"]);
    assert_eq!(asked(server.get("/api/v1/session")).0, 401);
    let old = server
        .get("/api/v1/session")
        .header("cookie", "stepwell_session_0=a.b");
    assert_eq!(asked(old).0, 401);
    assert_eq!(
        asked(bearer(server.get("/api/v1/session"), "swt_0_0")).0,
        401
    );
    let rows = audited(&server, &admin, "accepted=false");
    assert_eq!(rows.len(), 1, "{rows:#?}");
}

#[test]
fn too_many_requests_are_refused_for_each_caller_apart() {
    let server = configured(
        "[server]\naccess = 'tokens'\n[server.rate]\nper_token = 0.2\nper_token_burst = 3\n\
         per_source = 0.2\nper_source_burst = 20\n",
    );
    let one = token(&server.folder, &["one", "--role", "viewer"]);
    let two = token(&server.folder, &["two", "--role", "viewer"]);
    let ask = |token: &str| bearer(server.get("/api/v1/version"), token).send().unwrap();
    for _ in 0..3 {
        assert_eq!(ask(&one).status(), 200);
    }
    let refused = ask(&one);
    assert_eq!(refused.status(), 429);
    let seconds: u64 = refused.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=5).contains(&seconds), "{seconds}");
    let problem: Json = refused.json().unwrap();
    assert_eq!(problem["code"], "RATE_LIMITED", "{problem}");
    assert_eq!(ask(&two).status(), 200, "others are not in its way");
    // A caller who guesses is stopped, and who has a token that is known is not.
    let guess = || asked(bearer(server.get("/api/v1/version"), "swt_x")).0;
    let answers: Vec<u16> = (0..25).map(|_| guess()).collect();
    assert_eq!((answers[0], answers[24]), (401, 429), "{answers:?}");
    assert_eq!(ask(&two).status(), 200);
    // Behind a proxy everybody has the address of the one who guesses.
    let three = token(&server.folder, &["three", "--role", "viewer"]);
    assert_eq!(
        ask(&three).status(),
        200,
        "a token that is used for the first time"
    );
    for path in ["/healthz", "/readyz"] {
        let answers: Vec<u16> = (0..25).map(|_| asked(server.get(path)).0).collect();
        assert_eq!(answers, [200; 25], "{path}");
    }
    // Refused because there is no such webhook, not because of the rate.
    assert_eq!(asked(server.post("/hooks/local/none", &json!({}))).0, 401);
}
