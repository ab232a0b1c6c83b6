//! Tokens for key-pair authentication: signed with the private key of the user, and good for less than an hour.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa::KeyPair;
use ring::signature::RSA_PKCS1_SHA256;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// How long a token is good.
const GOOD_FOR: Duration = Duration::from_secs(55 * 60);
/// How long before its end a token is replaced.
const RENEW_BEFORE: Duration = Duration::from_secs(5 * 60);

/// The algorithm identifier of RSA keys in DER: a sequence with the object identifier 1.2.840.113549.1.1.1 and null.
const RSA_ALGORITHM: &[u8] = &[
    0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];

/// Makes tokens for one user.
pub(crate) struct Signer {
    key: KeyPair,
    /// The user, as `ACCOUNT.USER` in capitals.
    subject: String,
    issuer: String,
    made: Option<(SystemTime, String)>,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer")
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

impl Signer {
    /// A signer with a private key in PEM form.
    pub(crate) fn new(account: &str, user: &str, pem: &str) -> Result<Signer, String> {
        let wrong = |why: &dyn std::fmt::Display| {
            format!(
                "the private key of the secret cannot be used: {why}; an RSA key of 2048 bits or more is needed, as \
                 PKCS#8 in PEM form and not encrypted"
            )
        };
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| wrong(&error))?;
        let key = match &der {
            PrivateKeyDer::Pkcs8(der) => KeyPair::from_pkcs8(der.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(der) => KeyPair::from_der(der.secret_pkcs1_der()),
            _ => return Err(wrong(&"it is of another kind")),
        };
        let key = key.map_err(|error| wrong(&error))?;
        let public = public_key_info(key.public().as_ref());
        let fingerprint = STANDARD.encode(Sha256::digest(public));
        // A region behind the account is not a part of its name.
        let account = account.split('.').next().unwrap_or_default();
        let subject = format!("{account}.{user}").to_uppercase();
        Ok(Signer {
            issuer: format!("{subject}.SHA256:{fingerprint}"),
            key,
            subject,
            made: None,
        })
    }

    /// A token that is good for some minutes at least.
    pub(crate) fn token(&mut self, now: SystemTime) -> Result<String, String> {
        if let Some((until, token)) = &self.made
            && now + RENEW_BEFORE < *until
        {
            return Ok(token.clone());
        }
        let until = now + GOOD_FOR;
        let seconds = |time: SystemTime| {
            time.duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs()
        };
        let claims = json!({
            "iss": self.issuer, "sub": self.subject, "iat": seconds(now), "exp": seconds(until),
        });
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!(
            "{}.{}",
            part(json!({"alg": "RS256", "typ": "JWT"})),
            part(claims)
        );
        let mut signature = vec![0; self.key.public().modulus_len()];
        let random = SystemRandom::new();
        let done = self.key.sign(
            &RSA_PKCS1_SHA256,
            &random,
            signed.as_bytes(),
            &mut signature,
        );
        done.map_err(|_| "the token cannot be signed with the private key".to_owned())?;
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
        self.made = Some((until, token.clone()));
        Ok(token)
    }
}

/// A public key as certificates have it (`SubjectPublicKeyInfo`), around the key itself.
fn public_key_info(key: &[u8]) -> Vec<u8> {
    let mut bits = vec![0];
    bits.extend_from_slice(key);
    let mut content = RSA_ALGORITHM.to_vec();
    content.extend(tagged(0x03, &bits));
    tagged(0x30, &content)
}

/// A value in DER: its tag, its length, its content.
fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    let length = content.len().to_be_bytes();
    let length: Vec<u8> = length.into_iter().skip_while(|it| *it == 0).collect();
    match (content.len(), u8::try_from(length.len())) {
        (0..128, _) => bytes.push(length.first().copied().unwrap_or_default()),
        (_, Ok(count)) => {
            bytes.push(0x80 | count);
            bytes.extend(length);
        }
        // A length of a machine word has at most eight bytes.
        (_, Err(_)) => {}
    }
    bytes.extend_from_slice(content);
    bytes
}

#[cfg(test)]
mod tests {
    use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use serde_json::Value as Json;

    use super::*;

    /// A key of the tests of the server, which protects nothing.
    const KEY: &str = include_str!("../../../stepwell/tests/server/keys/issuer.key");
    /// Made by another program: `openssl rsa -pubout -outform DER | openssl dgst -sha256 -binary | openssl enc -base64`.
    const FINGERPRINT: &str = "E7fUo6zSETDww7+OYs9PnsPFnZS6MtTsUndxOpFcmiI=";

    #[test]
    fn a_token_names_the_user_and_the_key_and_is_signed() {
        let mut signer = Signer::new("acme-eu.region", "robot", KEY).unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let token = signer.token(now).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let public =
            UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, signer.key.public().as_ref());
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        public.verify(signed.as_bytes(), &signature).unwrap();
        let claims = URL_SAFE_NO_PAD
            .decode(signed.split('.').nth(1).unwrap())
            .unwrap();
        let claims: Json = serde_json::from_slice(&claims).unwrap();
        let expected = json!({
            "iss": format!("ACME-EU.ROBOT.SHA256:{FINGERPRINT}"), "sub": "ACME-EU.ROBOT",
            "iat": 1_000_000, "exp": 1_003_300,
        });
        assert_eq!(claims, expected);
        assert_eq!(
            signer.token(now + Duration::from_secs(60)).unwrap(),
            token,
            "used again"
        );
        assert_ne!(
            signer.token(now + Duration::from_secs(3_200)).unwrap(),
            token,
            "made anew"
        );
    }

    #[test]
    fn what_is_no_key_is_refused_without_showing_it() {
        for wrong in [
            "",
            "secret",
            "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n",
        ] {
            let why = Signer::new("a", "u", wrong).unwrap_err();
            assert!(why.contains("PKCS#8") && !why.contains("c2Vj"), "{why}");
        }
    }
}
