//! People and programs with a token of an OIDC issuer. The keys of the issuer are fetched when they are first needed,
//! kept, and fetched again when a token names a key that is not there.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::Value;
use stepwell_kernel::time::Time;
use stepwell_kernel::unseen::is_unseen;
use tokio::sync::Mutex;

use super::jwt::{self, Jwt, JwtKey};
use super::right::ServerRole;
use super::token_book::hex;
use crate::codes;
use crate::problem::ApiProblem;

/// How often the keys are fetched at most: a token with an invented key must not make the server ask the issuer.
const FETCH_EVERY: Duration = Duration::from_secs(30);
/// How old keys may become: a key that the issuer has withdrawn does not count for ever.
const KEEP: Duration = Duration::from_secs(600);
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer of an issuer.
const MAX_ANSWER: usize = 1024 * 1024;
/// How far the clocks of issuer and server may be apart.
const LEEWAY_MS: i64 = 30_000;
/// The most characters of a name.
const MAX_NAME: usize = 200;

/// The issuer whose tokens are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcSettings {
    /// The claim `iss`, and where the issuer says where its keys are.
    pub issuer: String,
    /// What the claim `aud` must have in it.
    pub audience: String,
    /// Where the keys are; absent: where the issuer says.
    pub jwks_url: Option<String>,
    /// The claim with the roles; dots go into objects.
    pub roles_claim: String,
    /// The claim with the tenant, which a token must then have; absent: its holder knows all tenants.
    pub tenant_claim: Option<String>,
    /// The claim with the name that events and the audit log record.
    pub name_claim: String,
}

/// Who a token of the issuer speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) roles: Vec<ServerRole>,
    pub(super) tenant: Option<String>,
    pub(super) token: String,
    pub(super) expires_at: Time,
}

/// Why a token was not accepted.
#[derive(Debug)]
pub(super) enum Doubt {
    /// It is wrong in itself.
    Invalid,
    /// The keys of the issuer could not be fetched.
    NoKeys,
}

impl From<Doubt> for ApiProblem {
    fn from(doubt: Doubt) -> ApiProblem {
        match doubt {
            Doubt::Invalid => super::invalid(),
            Doubt::NoKeys => ApiProblem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                codes::OIDC_UNAVAILABLE,
                "the keys of the OIDC issuer cannot be fetched now; the log of the server says why",
            )
            .retry_after(FETCH_EVERY.as_secs()),
        }
    }
}

#[derive(Debug, Default)]
struct Kept {
    keys: Vec<JwtKey>,
    fetched: Option<Instant>,
}

/// The issuer, with the keys that were fetched from it.
#[derive(Debug)]
pub(super) struct Oidc {
    settings: OidcSettings,
    client: reqwest::Client,
    kept: RwLock<Arc<Kept>>,
    /// When the keys were last asked for, held while they are asked for: one question at a time.
    asked: Mutex<Option<Instant>>,
}

impl Oidc {
    pub(super) fn new(settings: OidcSettings) -> Result<Oidc, reqwest::Error> {
        super::install_provider();
        let client = reqwest::Client::builder()
            .timeout(FETCH_TIMEOUT)
            .redirect(reqwest::redirect::Policy::limited(3))
            .build()?;
        Ok(Oidc {
            settings,
            client,
            kept: RwLock::default(),
            asked: Mutex::new(None),
        })
    }

    /// Who a token speaks for, if the issuer has signed it for this server and it counts now.
    pub(super) async fn identify(&self, token: &str, now: Time) -> Result<Identity, Doubt> {
        let jwt = Jwt::parse(token).ok_or(Doubt::Invalid)?;
        let key = self.key(jwt.kid.as_deref()).await?;
        let claims = jwt.verified(&key).ok_or(Doubt::Invalid)?;
        identity(&self.settings, &claims, now).ok_or(Doubt::Invalid)
    }

    async fn key(&self, kid: Option<&str>) -> Result<JwtKey, Doubt> {
        let kept = self.kept();
        let fresh = kept.fetched.is_some_and(|it| it.elapsed() < KEEP);
        if let Some(key) = find(&kept.keys, kid)
            && fresh
        {
            return Ok(key);
        }
        let has_keys = self.fetch(kept.fetched).await;
        match find(&self.kept().keys, kid) {
            Some(key) => Ok(key),
            None if has_keys => Err(Doubt::Invalid),
            None => Err(Doubt::NoKeys),
        }
    }

    /// Fetches the keys, unless they were fetched since the caller looked, or were asked for a moment ago. Returns
    /// whether there are keys.
    async fn fetch(&self, seen: Option<Instant>) -> bool {
        let mut asked = self.asked.lock().await;
        let known = self.kept();
        let is_newer = known.fetched != seen;
        let too_soon = asked.is_some_and(|it| it.elapsed() < FETCH_EVERY);
        if is_newer || too_soon {
            return known.fetched.is_some();
        }
        *asked = Some(Instant::now());
        match self.fetched().await {
            Ok(keys) => {
                let kept = Kept {
                    keys,
                    fetched: Some(Instant::now()),
                };
                *self.kept.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(kept);
                true
            }
            Err(why) => {
                tracing::warn!(issuer = %self.settings.issuer, %why, "the keys of the OIDC issuer cannot be fetched");
                known.fetched.is_some()
            }
        }
    }

    async fn fetched(&self) -> Result<Vec<JwtKey>, String> {
        let url = match &self.settings.jwks_url {
            Some(url) => url.clone(),
            None => {
                let issuer = self.settings.issuer.trim_end_matches('/');
                let about = self
                    .get(&format!("{issuer}/.well-known/openid-configuration"))
                    .await?;
                let about: Value =
                    serde_json::from_slice(&about).map_err(|error| error.to_string())?;
                if about["issuer"].as_str() != Some(self.settings.issuer.as_str()) {
                    return Err("its openid-configuration names another issuer".to_owned());
                }
                let url = about["jwks_uri"].as_str();
                url.ok_or("its openid-configuration has no jwks_uri")?
                    .to_owned()
            }
        };
        let set = self.get(&url).await?;
        jwt::keys(&set).ok_or_else(|| format!("{url} is no set of keys"))
    }

    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let answer = self.client.get(url).send().await;
        let mut answer = answer
            .and_then(reqwest::Response::error_for_status)
            .map_err(|error| error.to_string())?;
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(|error| error.to_string())? {
            if body.len() + part.len() > MAX_ANSWER {
                return Err(format!("{url} answers with more than {MAX_ANSWER} bytes"));
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    }

    fn kept(&self) -> Arc<Kept> {
        Arc::clone(&self.kept.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The key that a token names. A token that names none can only mean the only key.
fn find(keys: &[JwtKey], kid: Option<&str>) -> Option<JwtKey> {
    match (kid, keys) {
        (Some(kid), _) => keys.iter().find(|it| it.kid.as_deref() == Some(kid)),
        (None, [only]) => Some(only),
        (None, _) => None,
    }
    .cloned()
}

/// What the claims say, if they are for this server and count now.
fn identity(settings: &OidcSettings, claims: &Value, now: Time) -> Option<Identity> {
    (claims["iss"].as_str()? == settings.issuer).then_some(())?;
    let is_ours = |it: &Value| it.as_str() == Some(settings.audience.as_str());
    let audience = &claims["aud"];
    let all = audience.as_array().map_or(&[][..], Vec::as_slice);
    let for_us = is_ours(audience) || all.iter().any(is_ours);
    for_us.then_some(())?;
    let millis = |name: &str| -> Option<i64> { Some((claims[name].as_f64()? * 1000.0) as i64) };
    let expires = millis("exp")?;
    (now.0 < expires.saturating_add(LEEWAY_MS)).then_some(())?;
    if !claims["nbf"].is_null() {
        (millis("nbf")?.saturating_sub(LEEWAY_MS) <= now.0).then_some(())?;
    }
    let text = |name: &str| {
        let text = claim(claims, name)?.as_str()?;
        let seen = !text.chars().any(|c| c.is_control() || is_unseen(c));
        let fits = (1..=MAX_NAME).contains(&text.chars().count());
        (seen && fits && text.trim() == text).then(|| text.to_owned())
    };
    let tenant = match &settings.tenant_claim {
        // A token without the claim must not become one for all tenants.
        Some(name) => Some(text(name)?),
        None => None,
    };
    let words: Vec<&str> = match claim(claims, &settings.roles_claim) {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(all)) => all.split_whitespace().collect(),
        _ => Vec::new(),
    };
    let token = match claims["jti"].as_str().or(claims["sub"].as_str()) {
        // It may be long and is only compared.
        Some(id) => {
            let hash = ring::digest::digest(&ring::digest::SHA256, id.as_bytes());
            format!("jwt_{}", hex(&hash.as_ref()[..8]))
        }
        None => "jwt".to_owned(),
    };
    Some(Identity {
        name: text(&settings.name_claim)?,
        roles: words
            .into_iter()
            .filter_map(ServerRole::from_name)
            .collect(),
        tenant,
        token,
        expires_at: Time(expires),
    })
}

/// A claim by its name, or by a path with dots.
fn claim<'a>(claims: &'a Value, name: &str) -> Option<&'a Value> {
    if let Some(found) = claims.get(name) {
        return Some(found);
    }
    let mut names = name.split('.');
    names.try_fold(claims, |at, part| at.get(part))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings() -> OidcSettings {
        OidcSettings {
            issuer: "https://issuer.example".into(),
            audience: "stepwell".into(),
            jwks_url: None,
            roles_claim: "realm.roles".into(),
            tenant_claim: Some("tenant".into()),
            name_claim: "email".into(),
        }
    }

    #[test]
    fn claims_are_read_and_every_wrong_one_is_refused() {
        let good = json!({
            "iss": "https://issuer.example", "aud": ["x", "stepwell"], "exp": 100, "nbf": 10,
            "email": "ada@example.org", "tenant": "acme", "realm": { "roles": ["operator", "king"] },
        });
        let now = Time(50_000);
        let of = |claims: &Value, now| identity(&settings(), claims, now);
        let ada = of(&good, now).unwrap();
        assert_eq!(
            (ada.name.as_str(), ada.tenant.as_deref()),
            ("ada@example.org", Some("acme"))
        );
        assert_eq!(ada.roles, [ServerRole::Operator]);
        assert!(of(&good, Time(100_000 + LEEWAY_MS)).is_none());
        for (name, wrong) in [
            ("iss", json!("https://issuer.example/")),
            ("aud", json!("other")),
            ("aud", Value::Null),
            ("exp", Value::Null),
            ("exp", json!("100")),
            ("nbf", json!(1_000)),
            ("nbf", json!("x")),
            ("email", json!("a\nb")),
            ("email", json!(7)),
            ("tenant", Value::Null),
        ] {
            let mut claims = good.clone();
            claims[name] = wrong.clone();
            assert!(of(&claims, now).is_none(), "{name}: {wrong}");
        }
    }
}
