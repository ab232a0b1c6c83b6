//! Tokens of an OIDC issuer: accepted if they are good, refused in every other case, and keys that change.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::access::{bearer, configured};
use crate::harness::{TestServer, asked};
use crate::issuer::{Issuer, IssuerKey, forged};

fn server(issuer: &Issuer) -> TestServer {
    configured(&format!(
        "[server]\naccess = 'tokens'\n[server.oidc]\nissuer = '{}'\naudience = 'stepwell'\n\
         roles_claim = 'realm.roles'\ntenant_claim = 'org'\n",
        issuer.url
    ))
}

fn ask(server: &TestServer, token: &str) -> (u16, Json) {
    asked(bearer(server.get("/api/v1/runs"), token))
}

#[test]
fn good_tokens_are_accepted_and_everything_else_has_one_answer() {
    let issuer = Issuer::start();
    let keys = [
        ("ed", IssuerKey::edwards()),
        ("ec", IssuerKey::curve()),
        ("rsa", IssuerKey::rsa()),
    ];
    issuer.publish(keys.iter().map(|(kid, key)| key.jwk(kid)).collect());
    let server = server(&issuer);
    let good = issuer.claims("ada@example.org", &["operator", "king"], "acme");
    for (kid, key) in &keys {
        let (status, seen) = ask(&server, &key.token(kid, &good));
        assert_eq!(status, 200, "{kid}: {seen}");
    }
    let who = asked(bearer(
        server.get("/api/v1/session"),
        &keys[0].1.token("ed", &good),
    ))
    .1;
    assert_eq!(
        (&who["name"], &who["roles"], &who["tenant"]),
        (
            &json!("ada@example.org"),
            &json!(["operator"]),
            &json!("acme")
        )
    );
    let with = |name: &str, value: Json| {
        let mut claims = good.clone();
        claims[name] = value;
        keys[0].1.token("ed", &claims)
    };
    let head = |alg: &str| json!({ "alg": alg, "kid": "rsa", "typ": "JWT" });
    let other = IssuerKey::edwards();
    let token = keys[0].1.token("ed", &good);
    let modulus = keys[2].1.jwk("rsa")["n"].as_str().unwrap().to_owned();
    let hmac = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, modulus.as_bytes());
    let unsigned = forged(&head("HS256"), &good, &[]);
    let text = unsigned.trim_end_matches('.');
    let confused = ring::hmac::sign(&hmac, text.as_bytes());
    let wrong = [
        ("another audience", with("aud", json!("other"))),
        ("another issuer", with("iss", json!("https://evil.example"))),
        ("expired", with("exp", json!(1_000))),
        ("without an end", with("exp", Json::Null)),
        ("not yet", with("nbf", json!(9_999_999_999_u64))),
        ("without a tenant", with("org", Json::Null)),
        ("a name with a line break", with("sub", json!("a\nb"))),
        ("no signature", forged(&head("none"), &good, &[])),
        (
            "no signature, in capitals",
            forged(&head("NONE"), &good, &[]),
        ),
        (
            "the public key as a secret",
            forged(&head("HS256"), &good, confused.as_ref()),
        ),
        ("the key of someone else", other.token("ed", &good)),
        ("a key of another kind", keys[0].1.token("rsa", &good)),
        (
            "the algorithm of another key",
            keys[0].1.token_with(&head("RS256"), &good),
        ),
        ("an unknown key", keys[0].1.token("none-such", &good)),
        (
            "no key",
            keys[0].1.token_with(&json!({ "alg": "EdDSA" }), &good),
        ),
        ("cut off", token[..token.len() - 4].to_owned()),
        ("something", "a.b.c".to_owned()),
    ];
    for (what, token) in wrong {
        let (status, seen) = ask(&server, &token);
        assert_eq!(
            (status, &seen["code"]),
            (401, &json!("TOKEN_INVALID")),
            "{what}: {seen}"
        );
    }
    // A person without a role is known and may do nothing.
    let nobody = issuer.claims("bob", &["king"], "acme");
    let (status, seen) = ask(&server, &keys[0].1.token("ed", &nobody));
    assert_eq!(
        (status, &seen["code"]),
        (403, &json!("AUTHZ_DENIED")),
        "{seen}"
    );
    assert_eq!(
        issuer.fetched.load(Ordering::SeqCst),
        1,
        "unknown keys do not make the server ask again"
    );
}

#[test]
fn new_keys_are_found_and_old_ones_end() {
    let issuer = Issuer::start();
    let (old, new) = (IssuerKey::edwards(), IssuerKey::edwards());
    issuer.publish(vec![old.jwk("old")]);
    let server = server(&issuer);
    let claims = issuer.claims("ada", &["viewer"], "acme");
    assert_eq!(ask(&server, &old.token("old", &claims)).0, 200);
    issuer.publish(vec![new.jwk("new")]);
    let until = Instant::now() + Duration::from_secs(60);
    while ask(&server, &new.token("new", &claims)).0 != 200 {
        assert!(Instant::now() < until, "the new key is not found");
        std::thread::sleep(Duration::from_secs(1));
    }
    assert_eq!(ask(&server, &old.token("old", &claims)).0, 401);
    assert_eq!(issuer.fetched.load(Ordering::SeqCst), 2);
}
