//! Finds out who calls a server with access control: an API token, a token of an OIDC issuer, or the cookie of a session.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use stepwell_engine::store::{DocumentFilter, NewDocument, Store, StoreError};
use stepwell_kernel::time::Time;

use super::oidc::{Identity, Oidc};
use super::rate::{Buckets, RateSettings};
use super::right::ServerRole;
use super::session::{LASTS_MS, SessionClaims, SessionOf, Signer};
use super::token_book::{self, PREFIX, TokenBook, TokenRecord, random};
use super::trail::Trail;
use super::{Access, Caller, invalid};
use crate::app::App;
use crate::problem::ApiProblem;

/// How long what was read about a token counts: after this time a revocation counts on all servers.
const FRESH: Duration = Duration::from_secs(2);
/// How many tokens are remembered.
const MAX_KEPT: usize = 10_000;
/// The documents of sessions that were ended before their time.
const ENDED: &str = "ended_session";

/// Everything that decides who calls.
#[derive(Debug)]
pub(crate) struct Gate {
    tokens: Recent<Arc<TokenRecord>>,
    /// Whether sessions were ended.
    ended: Recent<bool>,
    oidc: Option<Oidc>,
    pub(crate) signer: Signer,
    pub(crate) per_token: Buckets,
    pub(crate) per_source: Buckets,
    pub(crate) trail: Trail,
}

/// Someone who has shown who they are.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) caller: Caller,
    /// The session, if it was shown with a cookie.
    pub(crate) session: Option<SessionClaims>,
    /// What a session of this caller says.
    pub(crate) by: SessionOf,
    /// When what was shown ends.
    pub(crate) expires: Option<Time>,
}

/// What a request shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown<'a> {
    Nothing,
    Bearer(&'a str),
    Cookie(&'a str),
    /// Something that cannot be read.
    Odd,
}

impl fmt::Debug for Shown<'_> {
    /// Without what is shown: it may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

impl Shown<'_> {
    /// The id of the token, which may be invented.
    pub(crate) fn claimed(&self) -> Option<String> {
        match self {
            Shown::Bearer(token) => token_book::parts(token).map(|it| it.0.to_owned()),
            Shown::Nothing | Shown::Cookie(_) | Shown::Odd => None,
        }
    }
}

impl Gate {
    pub(crate) fn new(
        access: &Access,
        rate: RateSettings,
        secret: &[u8; 32],
        trail: Trail,
    ) -> Result<Gate, reqwest::Error> {
        let oidc = match access {
            Access::Open => None,
            Access::Controlled { oidc } => oidc.clone(),
        };
        Ok(Gate {
            tokens: Recent::default(),
            ended: Recent::default(),
            oidc: oidc.map(Oidc::new).transpose()?,
            signer: Signer::new(secret),
            per_token: Buckets::new(rate.per_token),
            per_source: Buckets::new(rate.per_source),
            trail,
        })
    }

    /// What a request shows.
    pub(crate) fn shown<'a>(&self, headers: &'a HeaderMap) -> Shown<'a> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let bearer = match (given.next(), given.next()) {
            (None, _) => None,
            (Some(value), None) => {
                let value = value.to_str().unwrap_or_default();
                let parts = value.split_once(' ');
                let parts = parts.filter(|it| it.0.eq_ignore_ascii_case("bearer"));
                Some(parts.map_or(Shown::Odd, |it| Shown::Bearer(it.1.trim())))
            }
            (Some(_), Some(_)) => Some(Shown::Odd),
        };
        let cookie = || self.signer.cookie(headers).map(Shown::Cookie);
        bearer.or_else(cookie).unwrap_or(Shown::Nothing)
    }

    /// Who has shown this. Everyone who has not shown enough gets the same answer.
    pub(crate) async fn identify(
        &self,
        app: &App,
        shown: Shown<'_>,
        source: &str,
    ) -> Result<Known, ApiProblem> {
        match shown {
            Shown::Nothing | Shown::Odd => Err(invalid()),
            Shown::Bearer(token) => self.bearer(app, token, source).await,
            Shown::Cookie(value) => self.cookie(app, value, source).await,
        }
    }

    async fn bearer(&self, app: &App, token: &str, source: &str) -> Result<Known, ApiProblem> {
        let now = app.now();
        if token.starts_with(PREFIX) {
            let (id, secret) = token_book::parts(token).ok_or_else(invalid)?;
            let record = self.record(app, id).await?.ok_or_else(invalid)?;
            // Both are looked at, so that the time says nothing about which was wrong.
            let (fits, counts) = (record.fits(secret, now), record.counts(now));
            return match fits && counts {
                true => Ok(of_token(&record, source)),
                false => Err(invalid()),
            };
        }
        let oidc = self.oidc.as_ref().ok_or_else(invalid)?;
        let identity = oidc.identify(token, now).await?;
        Ok(of_person(identity, source))
    }

    async fn cookie(&self, app: &App, value: &str, source: &str) -> Result<Known, ApiProblem> {
        let now = app.now();
        let claims = self.signer.read(value, now).ok_or_else(invalid)?;
        if self.has_ended(app, &claims.id).await? {
            return Err(invalid());
        }
        let known = match &claims.by {
            SessionOf::Token(id) => {
                let record = self.record(app, id).await?;
                let record = record.filter(|it| it.counts(now)).ok_or_else(invalid)?;
                of_token(&record, source)
            }
            // The issuer may have been taken out of the configuration since.
            SessionOf::Person { .. } if self.oidc.is_none() => return Err(invalid()),
            SessionOf::Person {
                name,
                roles,
                tenant,
                token,
            } => of_person(
                Identity {
                    name: name.clone(),
                    roles: roles
                        .iter()
                        .filter_map(|it| ServerRole::from_name(it))
                        .collect(),
                    tenant: tenant.clone(),
                    token: token.clone(),
                    expires_at: claims.expires,
                },
                source,
            ),
        };
        Ok(Known {
            session: Some(claims),
            ..known
        })
    }

    /// The token with an id, as it was a moment ago at the earliest.
    async fn record(&self, app: &App, id: &str) -> Result<Option<Arc<TokenRecord>>, ApiProblem> {
        if let Some(record) = self.tokens.get(id) {
            return Ok(Some(record));
        }
        let wanted = id.to_owned();
        let found = app.ask(move |store| TokenBook(store).find(&wanted)).await?;
        let found = found.map(Arc::new);
        // Tokens that are not there are not remembered: anyone could invent them.
        if let Some(record) = &found {
            self.tokens.put(id, Arc::clone(record));
        }
        Ok(found)
    }

    /// Forgets what is known about a token: it was changed here.
    pub(crate) fn forget(&self, id: &str) {
        self.tokens.remove(id);
    }

    /// What the cookie of a new session of this caller says.
    pub(crate) fn begin(&self, known: &Known, now: Time) -> Result<SessionClaims, ApiProblem> {
        let latest = now.plus(LASTS_MS);
        Ok(SessionClaims {
            id: random::<16>().map_err(|error| ApiProblem::internal(&error))?,
            expires: known.expires.map_or(latest, |it| it.min(latest)),
            by: known.by.clone(),
        })
    }

    /// Ends a session on all servers, before its time.
    pub(crate) async fn end(&self, app: &App, claims: &SessionClaims) -> Result<(), ApiProblem> {
        let (claims, now) = (claims.clone(), app.now());
        self.ended.put(&claims.id, true);
        app.ask(move |store| {
            forget_expired(store, now)?;
            let document = NewDocument {
                kind: ENDED.to_owned(),
                key: claims.id.clone(),
                body: serde_json::json!({ "expires": claims.expires }).to_string(),
                ..NewDocument::default()
            };
            // A session that was ended before stays so.
            store.put_document(&document, None, now)
        })
        .await?;
        Ok(())
    }

    async fn has_ended(&self, app: &App, id: &str) -> Result<bool, ApiProblem> {
        if let Some(ended) = self.ended.get(id) {
            return Ok(ended);
        }
        let wanted = id.to_owned();
        let found = app
            .ask(move |store| store.document(ENDED, "", &wanted))
            .await?;
        self.ended.put(id, found.is_some());
        Ok(found.is_some())
    }
}

/// Sessions that have expired need no note that they were ended.
fn forget_expired(store: &dyn Store, now: Time) -> Result<(), StoreError> {
    let some = store.documents(&DocumentFilter {
        kind: ENDED.to_owned(),
        limit: 100,
        ..DocumentFilter::default()
    })?;
    let is_old = |changed: Time| now.since(changed) > LASTS_MS;
    for old in some.iter().filter(|it| is_old(it.changed_at)) {
        store.delete_document(ENDED, &old.tenant, &old.key, old.version)?;
    }
    Ok(())
}

fn of_token(record: &TokenRecord, source: &str) -> Known {
    Known {
        caller: Caller {
            name: record.name.clone(),
            roles: record.server_roles(),
            tenant: record.tenant.clone(),
            project: record.project.clone(),
            token: Some(record.id.clone()),
            source: source.to_owned(),
        },
        session: None,
        by: SessionOf::Token(record.id.clone()),
        expires: record.expires_at,
    }
}

fn of_person(identity: Identity, source: &str) -> Known {
    let roles = identity.roles.iter().map(|it| it.name().to_owned());
    Known {
        session: None,
        by: SessionOf::Person {
            name: identity.name.clone(),
            roles: roles.collect(),
            tenant: identity.tenant.clone(),
            token: identity.token.clone(),
        },
        expires: Some(identity.expires_at),
        caller: Caller {
            name: identity.name,
            roles: identity.roles,
            tenant: identity.tenant,
            project: None,
            token: Some(identity.token),
            source: source.to_owned(),
        },
    }
}

/// What was read a moment ago.
#[derive(Debug)]
struct Recent<T>(Mutex<HashMap<String, (Instant, T)>>);

impl<T> Default for Recent<T> {
    fn default() -> Recent<T> {
        Recent(Mutex::default())
    }
}

impl<T: Clone> Recent<T> {
    fn get(&self, key: &str) -> Option<T> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (read, value) = kept.get(key)?;
        (read.elapsed() < FRESH).then(|| value.clone())
    }

    fn put(&self, key: &str, value: T) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, (read, _)| read.elapsed() < FRESH);
            if kept.len() >= MAX_KEPT {
                kept.clear();
            }
        }
        kept.insert(key.to_owned(), (Instant::now(), value));
    }

    fn remove(&self, key: &str) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(key);
    }
}
