//! An OIDC issuer in the test process: serves its keys over HTTP and signs tokens.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use serde_json::{Value as Json, json};

/// A key that signs.
pub(crate) enum IssuerKey {
    Edwards(Ed25519KeyPair),
    Curve(EcdsaKeyPair),
    Rsa(Box<RsaKeyPair>),
}

fn b64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl IssuerKey {
    pub(crate) fn edwards() -> IssuerKey {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        IssuerKey::Edwards(Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap())
    }

    pub(crate) fn curve() -> IssuerKey {
        let (how, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pair = EcdsaKeyPair::generate_pkcs8(how, &random).unwrap();
        IssuerKey::Curve(EcdsaKeyPair::from_pkcs8(how, pair.as_ref(), &random).unwrap())
    }

    /// The key of the tests: making one takes long.
    pub(crate) fn rsa() -> IssuerKey {
        let pem = include_str!("keys/issuer.key");
        let lines = pem.lines().filter(|it| !it.starts_with('-'));
        let der = STANDARD.decode(lines.collect::<String>()).unwrap();
        IssuerKey::Rsa(Box::new(RsaKeyPair::from_pkcs8(&der).unwrap()))
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            IssuerKey::Edwards(_) => "EdDSA",
            IssuerKey::Curve(_) => "ES256",
            IssuerKey::Rsa(_) => "RS256",
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            IssuerKey::Edwards(pair) => pair.sign(message).as_ref().to_vec(),
            IssuerKey::Curve(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            IssuerKey::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .unwrap();
                signature
            }
        }
    }

    /// The public half, as it is published.
    pub(crate) fn jwk(&self, kid: &str) -> Json {
        match self {
            IssuerKey::Edwards(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "use": "sig",
                    "x": b64(pair.public_key().as_ref()) })
            }
            IssuerKey::Curve(pair) => {
                let point = pair.public_key().as_ref();
                json!({ "kty": "EC", "crv": "P-256", "kid": kid,
                    "x": b64(&point[1..33]), "y": b64(&point[33..]) })
            }
            IssuerKey::Rsa(pair) => {
                let parts = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({ "kty": "RSA", "kid": kid, "n": b64(&parts.n), "e": b64(&parts.e) })
            }
        }
    }

    /// A token with these claims.
    pub(crate) fn token(&self, kid: &str, claims: &Json) -> String {
        let head = json!({ "alg": self.algorithm(), "kid": kid, "typ": "JWT" });
        self.token_with(&head, claims)
    }

    /// A token with a head of its own.
    pub(crate) fn token_with(&self, head: &Json, claims: &Json) -> String {
        let text = format!(
            "{}.{}",
            b64(head.to_string().as_bytes()),
            b64(claims.to_string().as_bytes())
        );
        let signature = self.sign(text.as_bytes());
        format!("{text}.{}", b64(&signature))
    }
}

/// A token that someone else made.
pub(crate) fn forged(head: &Json, claims: &Json, signature: &[u8]) -> String {
    let part = |json: &Json| b64(json.to_string().as_bytes());
    format!("{}.{}.{}", part(head), part(claims), b64(signature))
}

/// The issuer.
pub(crate) struct Issuer {
    pub(crate) url: String,
    keys: Arc<Mutex<Vec<Json>>>,
    /// How often the keys were asked for.
    pub(crate) fetched: Arc<AtomicUsize>,
}

impl Issuer {
    pub(crate) fn start() -> Issuer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let issuer = Issuer {
            url: url.clone(),
            keys: Arc::default(),
            fetched: Arc::default(),
        };
        let (keys, fetched) = (Arc::clone(&issuer.keys), Arc::clone(&issuer.fetched));
        // Ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let first = lines.next().unwrap_or_default();
                while lines.next().is_some_and(|it| !it.is_empty()) {}
                let body = match first.contains("openid-configuration") {
                    true => json!({ "issuer": url, "jwks_uri": format!("{url}/keys") }),
                    false => {
                        fetched.fetch_add(1, Ordering::SeqCst);
                        json!({ "keys": *keys.lock().unwrap() })
                    }
                };
                let body = body.to_string();
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
                let _ = write!(&stream, "{head} {}\r\n\r\n{body}", body.len());
            }
        });
        issuer
    }

    pub(crate) fn publish(&self, keys: Vec<Json>) {
        *self.keys.lock().unwrap() = keys;
    }

    /// The claims of someone for the server of the tests.
    pub(crate) fn claims(&self, name: &str, roles: &[&str], tenant: &str) -> Json {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        json!({
            "iss": self.url, "aud": "stepwell", "sub": name, "exp": now.as_secs() + 600,
            "iat": now.as_secs(), "realm": { "roles": roles }, "org": tenant,
        })
    }
}
