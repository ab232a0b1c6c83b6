//! Signatures of requests: GitHub's, Stripe's and a general form, all HMAC-SHA256 over the bytes of the body as they came.

use axum::http::HeaderMap;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use utoipa::ToSchema;

/// How long ago a request may have been signed, in seconds, if nobody says.
const WINDOW: u64 = 300;

/// How requests are signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Signature {
    /// `X-Hub-Signature-256: sha256=HEX` over the body. GitHub signs no time: what is sent again is known by its delivery id.
    Github {},
    /// `Stripe-Signature: t=SECONDS,v1=HEX` over `SECONDS.BODY`.
    Stripe(StripeSignature),
    /// A header of your choice with the signature in hexadecimal.
    Generic(GenericSignature),
}

/// What is special about a signature of Stripe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StripeSignature {
    /// How many seconds ago a request may have been signed, from 1 to 3600; 300 if absent.
    #[serde(default)]
    pub(crate) window_seconds: Option<u64>,
}

/// A signature in a header of your choice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GenericSignature {
    /// The header with the signature in hexadecimal, with or without `sha256=` before it.
    pub(crate) header: String,
    /// The header with the time of the signature, in seconds since 1970. With it, `SECONDS.BODY` is signed; without it, the
    /// body alone, and requests have no replay window.
    #[serde(default)]
    pub(crate) timestamp_header: Option<String>,
    /// How many seconds ago a request may have been signed, from 1 to 3600; 300 if absent.
    #[serde(default)]
    pub(crate) window_seconds: Option<u64>,
}

/// What a request has that was signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verified {
    /// When it was signed, if that was signed too.
    pub(crate) signed_at: Option<u64>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The signature is missing, or not one of the secrets'.
    Wrong,
    /// The signature is right, but too old, or from the future.
    Late,
}

/// What a request says of its signature.
struct Claim {
    /// The signed time as it was written, if there is one.
    time: Option<String>,
    signatures: Vec<Vec<u8>>,
    window: Option<u64>,
}

/// Verifies a request. Every secret is compared with every signature, in constant time.
pub(crate) fn verify(
    style: &Signature,
    secrets: &[Vec<u8>],
    headers: &HeaderMap,
    body: &[u8],
    now_seconds: u64,
) -> Result<Verified, Refusal> {
    let claim = claim(style, headers);
    let mut is_right = false;
    for secret in secrets {
        for signature in &claim.signatures {
            is_right |= fits(secret, claim.time.as_deref(), body, signature);
        }
    }
    if !is_right {
        return Err(Refusal::Wrong);
    }
    let Some(window) = claim.window else {
        return Ok(Verified { signed_at: None });
    };
    let signed_at = claim.time.and_then(|it| it.parse::<u64>().ok());
    match signed_at.filter(|it| it.abs_diff(now_seconds) <= window) {
        Some(at) => Ok(Verified {
            signed_at: Some(at),
        }),
        None => Err(Refusal::Late),
    }
}

fn fits(secret: &[u8], time: Option<&str>, body: &[u8], signature: &[u8]) -> bool {
    // HMAC accepts keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else {
        return false;
    };
    if let Some(time) = time {
        mac.update(time.as_bytes());
        mac.update(b".");
    }
    mac.update(body);
    mac.verify_slice(signature).is_ok()
}

fn claim(style: &Signature, headers: &HeaderMap) -> Claim {
    let text = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
    match style {
        Signature::Github {} => Claim {
            time: None,
            signatures: text("x-hub-signature-256")
                .and_then(|it| it.strip_prefix("sha256="))
                .and_then(bytes)
                .into_iter()
                .collect(),
            window: None,
        },
        Signature::Stripe(stripe) => {
            let parts = text("stripe-signature").unwrap_or_default().split(',');
            let mut claim = Claim {
                // Without a time nothing was signed as Stripe does it.
                time: Some(String::new()),
                signatures: Vec::new(),
                window: Some(stripe.window_seconds.unwrap_or(WINDOW)),
            };
            // Two signatures while a secret is exchanged; more are nobody's.
            for (key, value) in parts.filter_map(|it| it.trim().split_once('=')).take(10) {
                match key {
                    "t" => claim.time = Some(value.to_owned()),
                    "v1" => claim.signatures.extend(bytes(value)),
                    _ => {}
                }
            }
            claim
        }
        Signature::Generic(generic) => {
            let signature = text(&generic.header).unwrap_or_default().trim();
            let signature = signature.strip_prefix("sha256=").unwrap_or(signature);
            let time = generic.timestamp_header.as_deref();
            Claim {
                time: time.map(|it| text(it).unwrap_or_default().trim().to_owned()),
                signatures: bytes(signature).into_iter().collect(),
                window: time.map(|_| generic.window_seconds.unwrap_or(WINDOW)),
            }
        }
    }
}

/// The bytes of a signature in hexadecimal.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    let is_hex = hex.len() == 64 && hex.bytes().all(|it| it.is_ascii_hexdigit());
    let pairs = (0..hex.len()).step_by(2).filter(|_| is_hex);
    let all: Vec<u8> = pairs
        .filter_map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
        .collect();
    (all.len() == 32).then_some(all)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    fn hex(secret: &[u8], signed: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
        mac.update(signed);
        let bytes = mac.finalize().into_bytes();
        bytes.iter().map(|it| format!("{it:02x}")).collect()
    }

    #[test]
    fn the_example_of_github_is_right_and_a_changed_body_is_not() {
        let secret = vec![b"It's a Secret to Everybody".to_vec()];
        let sent = headers(&[(
            "x-hub-signature-256",
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
        )]);
        let check = |body: &[u8]| verify(&Signature::Github {}, &secret, &sent, body, 0);
        assert_eq!(check(b"Hello, World!"), Ok(Verified { signed_at: None }));
        assert_eq!(check(b"Hello, World?"), Err(Refusal::Wrong));
        let none = verify(&Signature::Github {}, &secret, &HeaderMap::new(), b"", 0);
        assert_eq!(none, Err(Refusal::Wrong));
        let none = verify(&Signature::Github {}, &[], &sent, b"Hello, World!", 0);
        assert_eq!(none, Err(Refusal::Wrong), "no secret fits nothing");
    }

    #[test]
    fn stripe_signs_the_time_and_has_a_window_and_two_secrets() {
        let style = Signature::Stripe(StripeSignature {
            window_seconds: Some(300),
        });
        let secrets = vec![b"new".to_vec(), b"old".to_vec()];
        let sent = |secret: &[u8], time: &str| {
            let signature = hex(secret, format!("{time}.body").as_bytes());
            let zeros = "0".repeat(64);
            headers(&[(
                "stripe-signature",
                &format!("t={time},v1={zeros},v1={signature},v0=x"),
            )])
        };
        let at = |sent: &HeaderMap, now| verify(&style, &secrets, sent, b"body", now);
        for secret in [&b"new"[..], b"old"] {
            assert!(at(&sent(secret, "1000"), 1300).is_ok());
        }
        assert_eq!(at(&sent(b"new", "1000"), 1301), Err(Refusal::Late));
        assert_eq!(at(&sent(b"new", "1301"), 1000), Err(Refusal::Late));
        assert_eq!(at(&sent(b"new", "soon"), 1000), Err(Refusal::Late));
        assert_eq!(at(&sent(b"other", "1000"), 1000), Err(Refusal::Wrong));
        // Another time with the same signature.
        let moved = sent(b"new", "1000")
            .get("stripe-signature")
            .unwrap()
            .to_str()
            .unwrap()
            .replace("t=1000", "t=1001");
        assert_eq!(
            at(&headers(&[("stripe-signature", &moved)]), 1000),
            Err(Refusal::Wrong)
        );
    }

    #[test]
    fn a_general_signature_is_with_or_without_a_time() {
        let mut generic = GenericSignature {
            header: "x-sig".into(),
            ..GenericSignature::default()
        };
        let secret = vec![b"s".to_vec()];
        let plain = headers(&[("x-sig", &hex(b"s", b"body"))]);
        let check = |generic: &GenericSignature, sent: &HeaderMap, now| {
            verify(
                &Signature::Generic(generic.clone()),
                &secret,
                sent,
                b"body",
                now,
            )
        };
        assert!(check(&generic, &plain, 0).is_ok());
        generic.timestamp_header = Some("x-time".into());
        assert_eq!(
            check(&generic, &plain, 0),
            Err(Refusal::Wrong),
            "the time is not signed"
        );
        let timed = headers(&[
            ("x-sig", &format!("sha256={}", hex(b"s", b"50.body"))),
            ("x-time", "50"),
        ]);
        assert_eq!(
            check(&generic, &timed, 60),
            Ok(Verified {
                signed_at: Some(50)
            })
        );
        assert_eq!(check(&generic, &timed, 351), Err(Refusal::Late));
        for wrong in ["", "zz", &"é".repeat(32), &"0".repeat(63)] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }
}
