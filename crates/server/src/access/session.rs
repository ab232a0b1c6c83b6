//! Sessions of browsers: a cookie that the server has signed with the secret of the store, so that every server of the
//! store accepts it. A session of a token ends with the token.

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde::{Deserialize, Serialize};
use stepwell_kernel::time::Time;

use super::token_book::hex;

/// How the names of the cookies begin.
const COOKIE: &str = "stepwell_session_";
/// The header that a changing request with the cookie must have.
pub(crate) const CSRF: &str = "x-stepwell-csrf";
/// How long a session lasts at most.
pub(crate) const LASTS_MS: u64 = 12 * 3_600_000;

/// What the cookie says. Everything in it is signed, nothing is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionClaims {
    pub(crate) id: String,
    pub(crate) expires: Time,
    pub(crate) by: SessionOf,
}

/// Whom a session belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SessionOf {
    /// The holder of an API token, which is looked up for each request.
    Token(String),
    /// A person whom the issuer has named, as the issuer said it then.
    Person {
        name: String,
        roles: Vec<String>,
        tenant: Option<String>,
        token: String,
    },
}

/// Signs the cookies of sessions, and checks what comes back.
#[derive(Debug)]
pub(crate) struct Signer {
    key: hmac::Key,
    /// The name of the cookie. Each store has its own: a browser gives the cookies of a host to all ports and all paths, and
    /// two installations there must not sign each other out.
    cookie: String,
}

impl Signer {
    /// With a key that is made from the secret of the store for this purpose alone.
    pub(crate) fn new(secret: &[u8; 32]) -> Signer {
        let root = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let own = hmac::sign(&root, b"stepwell browser sessions");
        let mut name = hex(hmac::sign(&root, b"stepwell name of the cookie").as_ref());
        name.truncate(8);
        Signer {
            key: hmac::Key::new(hmac::HMAC_SHA256, own.as_ref()),
            cookie: format!("{COOKIE}{name}"),
        }
    }

    /// The value of the cookie.
    pub(crate) fn sign(&self, claims: &SessionClaims) -> String {
        // The claims are strings and numbers.
        let json = serde_json::to_vec(claims).unwrap_or_default();
        let payload = URL_SAFE_NO_PAD.encode(json);
        let mac = hmac::sign(&self.key, payload.as_bytes());
        format!("{payload}.{}", URL_SAFE_NO_PAD.encode(mac.as_ref()))
    }

    /// What a cookie says, if this store has signed it and it has not expired.
    pub(crate) fn read(&self, value: &str, now: Time) -> Option<SessionClaims> {
        let (payload, mac) = value.split_once('.')?;
        let mac = URL_SAFE_NO_PAD.decode(mac).ok()?;
        hmac::verify(&self.key, payload.as_bytes(), &mac).ok()?;
        let json = URL_SAFE_NO_PAD.decode(payload).ok()?;
        let claims: SessionClaims = serde_json::from_slice(&json).ok()?;
        (now < claims.expires).then_some(claims)
    }

    /// The value that changing requests of the session send back: a page of another site cannot know it.
    pub(crate) fn csrf(&self, claims: &SessionClaims) -> String {
        hex(hmac::sign(&self.key, purpose(claims).as_bytes()).as_ref())
    }

    /// Whether a request has this value. Takes the same time for every wrong value.
    pub(crate) fn has_csrf(&self, claims: &SessionClaims, headers: &HeaderMap) -> bool {
        let sent = headers.get(CSRF).and_then(|it| it.to_str().ok());
        let sent = sent.unwrap_or_default();
        use subtle::ConstantTimeEq as _;
        self.csrf(claims).as_bytes().ct_eq(sent.as_bytes()).into()
    }

    /// The cookie of a request.
    pub(crate) fn cookie<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let all = headers.get_all(header::COOKIE).iter();
        let mut pairs = all
            .filter_map(|it| it.to_str().ok())
            .flat_map(|it| it.split(';'));
        pairs.find_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == self.cookie).then_some(value)
        })
    }

    /// The header that gives a browser its cookie, for so many seconds; none take it away.
    pub(crate) fn set_cookie(&self, value: &str, seconds: u64, tls: bool) -> Option<HeaderValue> {
        let secure = match tls {
            true => "; Secure",
            false => "",
        };
        let name = &self.cookie;
        let text =
            format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
        HeaderValue::try_from(text).ok()
    }
}

fn purpose(claims: &SessionClaims) -> String {
    // A dot separates the parts of a cookie, so that this is never the payload of one.
    format!(".csrf.{}", claims.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_what_was_signed_and_nothing_else() {
        let signer = Signer::new(&[7; 32]);
        let claims = SessionClaims {
            id: "s1".into(),
            expires: Time(1_000),
            by: SessionOf::Token("t1".into()),
        };
        let value = signer.sign(&claims);
        assert_eq!(signer.read(&value, Time(999)), Some(claims.clone()));
        assert_eq!(signer.read(&value, Time(1_000)), None);
        assert_eq!(Signer::new(&[8; 32]).read(&value, Time(0)), None);
        let (payload, mac) = value.split_once('.').unwrap();
        let other = SessionClaims {
            by: SessionOf::Token("t2".into()),
            ..claims.clone()
        };
        let (forged, _) = signer
            .sign(&other)
            .split_once('.')
            .map(|it| (it.0.to_owned(), ()))
            .unwrap();
        assert_eq!(signer.read(&format!("{forged}.{mac}"), Time(0)), None);
        assert_eq!(signer.read(payload, Time(0)), None);
        let mut headers = HeaderMap::new();
        assert!(!signer.has_csrf(&claims, &headers));
        headers.insert(CSRF, signer.csrf(&claims).parse().unwrap());
        assert!(signer.has_csrf(&claims, &headers));
        let given = signer.set_cookie(&value, 60, false).unwrap();
        let own = given.to_str().unwrap().split(';').next().unwrap();
        let text = format!("a=b; {COOKIE}00000000=another; {own}; c=d");
        headers.insert(header::COOKIE, text.parse().unwrap());
        assert_eq!(signer.cookie(&headers), Some(value.as_str()));
        // Of another store on the same host.
        assert_eq!(Signer::new(&[8; 32]).cookie(&headers), None);
    }
}
