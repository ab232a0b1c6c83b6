//! Reads a JSON Web Token and checks its signature: RS256, ES256 and EdDSA with Ed25519, and nothing else. A token names
//! its algorithm, but the key decides: a key of one kind never checks the signature of another.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

/// The longest token that is looked at.
const MAX_TOKEN: usize = 16 * 1024;
/// The smallest RSA key, in bytes; ring refuses larger ones than 8192 bits.
const MIN_RSA: usize = 256;

/// A token that was taken apart. Nothing in it is believed yet.
#[derive(Debug)]
pub(super) struct Jwt<'a> {
    pub(super) kid: Option<String>,
    algorithm: Algorithm,
    signed: &'a str,
    signature: Vec<u8>,
    claims: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Rs256,
    Es256,
    EdDsa,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    /// Extensions that a reader must know: this one knows none.
    #[serde(default)]
    crit: Option<Value>,
}

impl<'a> Jwt<'a> {
    /// Takes a token apart; none if it is no token that this server would ever accept.
    pub(super) fn parse(token: &'a str) -> Option<Jwt<'a>> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let header: Header = serde_json::from_slice(&bytes(header)?).ok()?;
        let algorithm = match header.alg.as_str() {
            "RS256" => Algorithm::Rs256,
            "ES256" => Algorithm::Es256,
            "EdDSA" => Algorithm::EdDsa,
            // `none`, and those whose key would be a secret that the server shares.
            _ => return None,
        };
        if header.crit.is_some() {
            return None;
        }
        Some(Jwt {
            kid: header.kid,
            algorithm,
            signed,
            signature: bytes(signature)?,
            claims: serde_json::from_slice(&bytes(payload)?).ok()?,
        })
    }

    /// The claims, if the key has signed them.
    pub(super) fn verified(self, key: &JwtKey) -> Option<Value> {
        let message = self.signed.as_bytes();
        let good = match (self.algorithm, &key.material) {
            (Algorithm::Rs256, Material::Rsa { n, e }) => RsaPublicKeyComponents { n, e }
                .verify(
                    &signature::RSA_PKCS1_2048_8192_SHA256,
                    message,
                    &self.signature,
                )
                .is_ok(),
            (Algorithm::Es256, Material::P256(point)) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, &self.signature)
                    .is_ok()
            }
            (Algorithm::EdDsa, Material::Ed25519(point)) => {
                UnparsedPublicKey::new(&signature::ED25519, point)
                    .verify(message, &self.signature)
                    .is_ok()
            }
            (Algorithm::Rs256 | Algorithm::Es256 | Algorithm::EdDsa, _) => false,
        };
        good.then_some(self.claims)
    }
}

/// A public key of an issuer.
#[derive(Clone, Debug)]
pub(super) struct JwtKey {
    pub(super) kid: Option<String>,
    material: Material,
}

#[derive(Clone, Debug)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A key as an issuer publishes it.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, rename = "use")]
    usage: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

/// The keys of a published set that can check signatures here; others are passed over.
pub(super) fn keys(set: &[u8]) -> Option<Vec<JwtKey>> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }
    let set: Set = serde_json::from_slice(set).ok()?;
    let keys = set.keys.into_iter();
    Some(keys.filter_map(key).collect())
}

fn key(json: Value) -> Option<JwtKey> {
    let jwk: Jwk = serde_json::from_value(json).ok()?;
    if jwk.usage.as_deref().is_some_and(|it| it != "sig") {
        return None;
    }
    let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_ref()?).ok();
    let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) => {
            let n = bytes(&jwk.n)?;
            // A small key could have been broken.
            (n.len() >= MIN_RSA).then_some(())?;
            Material::Rsa {
                n,
                e: bytes(&jwk.e)?,
            }
        }
        ("EC", Some("P-256")) => {
            let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
            (x.len() == 32 && y.len() == 32).then_some(())?;
            // An uncompressed point.
            Material::P256([&[4], x.as_slice(), y.as_slice()].concat())
        }
        ("OKP", Some("Ed25519")) => Material::Ed25519(bytes(&jwk.x)?),
        _ => return None,
    };
    Some(JwtKey {
        kid: jwk.kid,
        material,
    })
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
    use serde_json::json;

    use super::*;

    fn part(json: &Value) -> String {
        URL_SAFE_NO_PAD.encode(json.to_string())
    }

    fn signed(alg: &str, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
        let head = part(&json!({ "alg": alg, "kid": "k" }));
        let text = format!("{head}.{}", part(&json!({ "sub": "ada" })));
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(sign(text.as_bytes())))
    }

    fn one(jwk: Value) -> JwtKey {
        let set = json!({ "keys": [jwk] }).to_string();
        keys(set.as_bytes()).unwrap().remove(0)
    }

    #[test]
    fn signatures_are_checked_with_keys_of_their_own_kind() {
        let random = SystemRandom::new();
        let edwards = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let edwards = Ed25519KeyPair::from_pkcs8(edwards.as_ref()).unwrap();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let curve = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let curve = EcdsaKeyPair::from_pkcs8(algorithm, curve.as_ref(), &random).unwrap();
        let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let edwards_key = one(json!({ "kty": "OKP", "crv": "Ed25519", "kid": "k",
            "x": b64(edwards.public_key().as_ref()) }));
        let point = curve.public_key().as_ref();
        let curve_key = one(json!({ "kty": "EC", "crv": "P-256", "use": "sig",
            "x": b64(&point[1..33]), "y": b64(&point[33..]) }));
        let by_edwards = signed("EdDSA", |it| edwards.sign(it).as_ref().to_vec());
        let by_curve = signed("ES256", |it| {
            curve.sign(&random, it).unwrap().as_ref().to_vec()
        });
        let verified = |token: &str, key| Jwt::parse(token).and_then(|it| it.verified(key));
        assert_eq!(verified(&by_edwards, &edwards_key).unwrap()["sub"], "ada");
        assert_eq!(verified(&by_curve, &curve_key).unwrap()["sub"], "ada");
        assert!(verified(&by_curve, &edwards_key).is_none());
        assert!(verified(&by_edwards, &curve_key).is_none());
        let (head, rest) = by_edwards.split_once('.').unwrap();
        let (_, signature) = rest.split_once('.').unwrap();
        let other = format!("{head}.{}.{signature}", part(&json!({ "sub": "eve" })));
        assert!(verified(&other, &edwards_key).is_none());
        for alg in ["none", "HS256", "NONE", "RS512", ""] {
            assert!(Jwt::parse(&signed(alg, |_| Vec::new())).is_none(), "{alg}");
        }
    }

    #[test]
    fn keys_that_are_too_small_or_for_something_else_are_passed_over() {
        let small = json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" });
        let other = json!({ "kty": "OKP", "crv": "Ed25519", "use": "enc", "x": "AQAB" });
        let set = json!({ "keys": [small, other, 7, { "kty": "oct", "k": "AQAB" }] });
        assert!(keys(set.to_string().as_bytes()).unwrap().is_empty());
        assert!(keys(b"{}").is_none());
    }
}
