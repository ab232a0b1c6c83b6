//! API tokens: small documents of the store, each with the hash of a secret that only its holder has. The server reads
//! them; the API and `stepwell token` write them.

use std::fmt;

use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use stepwell_engine::store::{DocumentFilter, NewDocument, Store, StoreError};
use stepwell_kernel::time::Time;
use stepwell_kernel::unseen::is_unseen;
use subtle::{Choice, ConstantTimeEq as _};

use super::right::ServerRole;

/// The kind of the documents. They all belong to the installation, because a token is looked up before its tenant is
/// known; its tenant is in the body.
const KIND: &str = "token";
/// What a token begins with, so that scanners find tokens that were published by mistake.
pub(crate) const PREFIX: &str = "swt_";
/// The bytes of an id and of a secret.
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
/// The most characters of a name, a tenant or a project.
const MAX_NAME: usize = 200;
/// How often a change is tried again when others change the same token.
const TRIES: usize = 20;
/// How many documents are read at a time.
const PAGE: usize = 500;

/// What a token is kept as: everything but the secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRecord {
    /// The middle part of the token. It is no secret.
    #[serde(skip)]
    pub id: String,
    /// The name of the holder, which events and the audit log record.
    pub name: String,
    pub roles: Vec<String>,
    /// The only tenant that the holder knows; absent: all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The only project that the holder knows; absent: all projects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// SHA-256 of the secret part, in hex.
    hash: String,
    /// The secret before the last rotation, while it still counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    old: Option<OldSecret>,
    pub created_at: Time,
    pub created_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OldSecret {
    hash: String,
    until: Time,
}

impl TokenRecord {
    /// Whether a secret is the secret of this token. Takes the same time for every wrong secret.
    pub(crate) fn fits(&self, secret: &str, now: Time) -> bool {
        let shown = hash(secret);
        let same = |kept: &str| shown.as_bytes().ct_eq(kept.as_bytes());
        let old = match &self.old {
            Some(old) if now < old.until => same(&old.hash),
            _ => Choice::from(0),
        };
        (same(&self.hash) | old).into()
    }

    /// Whether the token counts at a time.
    #[must_use]
    pub fn counts(&self, now: Time) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|it| now < it)
    }

    /// Until when the secret before the last rotation counts.
    #[must_use]
    pub fn old_until(&self) -> Option<Time> {
        self.old.as_ref().map(|old| old.until)
    }

    /// `valid`, `expired` or `revoked`.
    #[must_use]
    pub fn state(&self, now: Time) -> &'static str {
        match (self.revoked_at, self.counts(now)) {
            (Some(_), _) => "revoked",
            (None, true) => "valid",
            (None, false) => "expired",
        }
    }

    /// The roles that this version knows; others give no right.
    pub(crate) fn server_roles(&self) -> Vec<ServerRole> {
        let roles = self.roles.iter();
        roles.filter_map(|it| ServerRole::from_name(it)).collect()
    }

    /// Whether someone who is bound to a tenant and a project may know this token.
    #[must_use]
    pub fn is_of(&self, tenant: Option<&str>, project: Option<&str>) -> bool {
        let of = |bound: Option<&str>, own: &Option<String>| {
            bound.is_none_or(|bound| own.as_deref() == Some(bound))
        };
        of(tenant, &self.tenant) && of(project, &self.project)
    }
}

/// A token to be made.
#[derive(Clone, Debug, Default)]
pub struct NewToken {
    pub name: String,
    pub roles: Vec<String>,
    pub tenant: Option<String>,
    pub project: Option<String>,
    pub expires_at: Option<Time>,
}

/// A token with its secret: shown once, and kept nowhere.
pub struct FreshToken {
    pub record: TokenRecord,
    /// `swt_<id>_<secret>`.
    pub token: String,
}

impl fmt::Debug for FreshToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreshToken")
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

/// Why a token was not made or changed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("there is no token {0}")]
    Unknown(String),
    #[error("the token {0} is revoked or has expired; create a new one")]
    Ended(String),
    #[error("{0}")]
    Invalid(String),
    #[error("the token {0} changes too fast; try again")]
    Contended(String),
    #[error("the system gives no random numbers")]
    NoRandom,
}

/// The tokens of a store.
pub struct TokenBook<'a>(pub &'a dyn Store);

impl fmt::Debug for TokenBook<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenBook").finish_non_exhaustive()
    }
}

impl TokenBook<'_> {
    /// The token with an id.
    pub fn find(&self, id: &str) -> Result<Option<TokenRecord>, StoreError> {
        let found = self.0.document(KIND, "", id)?;
        Ok(found.and_then(|it| read(&it.key, &it.body)))
    }

    /// All tokens that someone who is bound to a tenant and a project may know, newest first.
    pub fn list(
        &self,
        tenant: Option<&str>,
        project: Option<&str>,
    ) -> Result<Vec<TokenRecord>, StoreError> {
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let page = self.0.documents(&DocumentFilter {
                kind: KIND.to_owned(),
                tenant: Some(String::new()),
                after: after.take(),
                limit: PAGE,
                ..DocumentFilter::default()
            })?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|it| (it.tenant.clone(), it.key.clone()));
            let records = page.iter().filter_map(|it| read(&it.key, &it.body));
            all.extend(records.filter(|it| it.is_of(tenant, project)));
            if is_last {
                break;
            }
        }
        all.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        Ok(all)
    }

    /// Makes a token with a new id and a new secret.
    pub fn create(&self, new: NewToken, by: &str, now: Time) -> Result<FreshToken, TokenError> {
        check(&new, now)?;
        let secret = random::<SECRET_BYTES>()?;
        let mut record = TokenRecord {
            id: String::new(),
            name: new.name,
            roles: new.roles,
            tenant: new.tenant,
            project: new.project,
            hash: hash(&secret),
            old: None,
            created_at: now,
            created_by: by.to_owned(),
            expires_at: new.expires_at,
            rotated_at: None,
            revoked_at: None,
            revoked_by: None,
        };
        for _ in 0..TRIES {
            record.id = random::<ID_BYTES>()?;
            // An id that is taken is not written over.
            if self.put(&record, None, now)? {
                return Ok(fresh(record, &secret));
            }
        }
        Err(TokenError::Contended(record.id))
    }

    /// Ends a token for good. A token that is revoked stays as it is.
    pub fn revoke(&self, id: &str, by: &str, now: Time) -> Result<TokenRecord, TokenError> {
        self.change(id, now, |record| {
            if record.revoked_at.is_none() {
                record.revoked_at = Some(now);
                record.revoked_by = Some(by.to_owned());
                record.old = None;
            }
            Ok(())
        })
    }

    /// Gives a token a new secret. The old one counts for a while, so that its holder has time to change it; the one
    /// before that ends now.
    pub fn rotate(&self, id: &str, overlap_ms: u64, now: Time) -> Result<FreshToken, TokenError> {
        let secret = random::<SECRET_BYTES>()?;
        let record = self.change(id, now, |record| {
            if !record.counts(now) {
                return Err(TokenError::Ended(id.to_owned()));
            }
            let old = std::mem::replace(&mut record.hash, hash(&secret));
            record.old = Some(OldSecret {
                hash: old,
                until: now.plus(overlap_ms),
            });
            record.rotated_at = Some(now);
            Ok(())
        })?;
        Ok(fresh(record, &secret))
    }

    fn change(
        &self,
        id: &str,
        now: Time,
        change: impl Fn(&mut TokenRecord) -> Result<(), TokenError>,
    ) -> Result<TokenRecord, TokenError> {
        for _ in 0..TRIES {
            let found = self.0.document(KIND, "", id)?;
            let unknown = || TokenError::Unknown(id.to_owned());
            let found = found.ok_or_else(unknown)?;
            let before = read(&found.key, &found.body).ok_or_else(unknown)?;
            let mut record = before.clone();
            change(&mut record)?;
            if record == before || self.put(&record, Some(found.version), now)? {
                return Ok(record);
            }
        }
        Err(TokenError::Contended(id.to_owned()))
    }

    fn put(&self, record: &TokenRecord, on: Option<u64>, now: Time) -> Result<bool, TokenError> {
        let body = serde_json::to_string(record);
        let body = body.map_err(|error| TokenError::Invalid(error.to_string()))?;
        let document = NewDocument {
            kind: KIND.to_owned(),
            key: record.id.clone(),
            body,
            ..NewDocument::default()
        };
        Ok(self.0.put_document(&document, on, now)?.is_some())
    }
}

/// The parts of a token; none if it has another form.
pub(crate) fn parts(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
    let hex = |text: &str, bytes: usize| {
        let digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        text.len() == 2 * bytes && text.bytes().all(digit)
    };
    (hex(id, ID_BYTES) && hex(secret, SECRET_BYTES)).then_some((id, secret))
}

fn fresh(record: TokenRecord, secret: &str) -> FreshToken {
    FreshToken {
        token: format!("{PREFIX}{}_{secret}", record.id),
        record,
    }
}

fn read(key: &str, body: &str) -> Option<TokenRecord> {
    // A document of another form gives nobody a right.
    let record: TokenRecord = serde_json::from_str(body).ok()?;
    Some(TokenRecord {
        id: key.to_owned(),
        ..record
    })
}

fn hash(secret: &str) -> String {
    hex(&Sha256::digest(secret.as_bytes()))
}

/// Bytes as lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    text
}

/// Random bytes in hex.
pub(crate) fn random<const N: usize>() -> Result<String, TokenError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| TokenError::NoRandom)?;
    Ok(hex(&bytes))
}

fn check(new: &NewToken, now: Time) -> Result<(), TokenError> {
    let invalid = |what: String| Err(TokenError::Invalid(what));
    let names = [
        ("name", Some(&new.name)),
        ("tenant", new.tenant.as_ref()),
        ("project", new.project.as_ref()),
    ];
    for (what, text) in names {
        let Some(text) = text else { continue };
        let seen = !text.chars().any(|c| c.is_control() || is_unseen(c));
        let trimmed = text.trim() == text;
        if !(1..=MAX_NAME).contains(&text.chars().count()) || !seen || !trimmed {
            return invalid(format!(
                "{what}: 1 to {MAX_NAME} visible characters are needed, without spaces at the ends"
            ));
        }
    }
    if new.project.is_some() && new.tenant.is_none() {
        return invalid("project: a token with a project needs a tenant".to_owned());
    }
    if new.roles.is_empty() {
        return invalid(format!(
            "roles: at least one is needed; roles are {}",
            known()
        ));
    }
    if let Some(wrong) = new
        .roles
        .iter()
        .find(|it| ServerRole::from_name(it).is_none())
    {
        return invalid(format!("roles: {wrong:?} is none of {}", known()));
    }
    if new.expires_at.is_some_and(|it| it <= now) {
        return invalid("the token would have expired before it is created".to_owned());
    }
    Ok(())
}

fn known() -> String {
    let names: Vec<&str> = ServerRole::ALL.iter().map(|it| it.name()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use stepwell_engine::store::{Documents as _, MemoryStore};

    use super::*;

    fn new(name: &str) -> NewToken {
        NewToken {
            name: name.to_owned(),
            roles: vec!["operator".to_owned()],
            ..NewToken::default()
        }
    }

    #[test]
    fn a_token_fits_its_secret_until_it_is_rotated_and_revoked() {
        let store = MemoryStore::with_secret([0; 32]);
        let book = TokenBook(&store);
        let now = Time(1_000);
        let first = book.create(new("ada"), "root", now).unwrap();
        let (id, secret) = parts(&first.token).unwrap();
        let kept = store.document(KIND, "", id).unwrap().unwrap();
        assert!(!kept.body.contains(secret), "only the hash is kept");
        assert!(book.find(id).unwrap().unwrap().fits(secret, now));
        let second = book.rotate(id, 500, now).unwrap();
        let (_, newer) = parts(&second.token).unwrap();
        let rotated = book.find(id).unwrap().unwrap();
        assert!(rotated.fits(newer, now) && rotated.fits(secret, Time(1_499)));
        assert!(!rotated.fits(secret, Time(1_500)));
        book.revoke(id, "root", Time(2_000)).unwrap();
        assert!(!book.find(id).unwrap().unwrap().counts(Time(2_000)));
        assert!(matches!(
            book.rotate(id, 0, Time(2_001)),
            Err(TokenError::Ended(_))
        ));
    }

    #[test]
    fn what_is_no_token_has_no_parts_and_wrong_wishes_are_refused() {
        let right = format!("swt_{}_{}", "0".repeat(16), "a".repeat(64));
        assert!(parts(&right).is_some());
        for wrong in ["", "swt_", "swt_a_b", &right[1..], &right[..80], "swt__"] {
            assert!(parts(wrong).is_none(), "{wrong}");
        }
        let store = MemoryStore::with_secret([0; 32]);
        let book = TokenBook(&store);
        let wrong = [
            new(""),
            new("a\nb"),
            NewToken {
                roles: vec!["king".into()],
                ..new("a")
            },
            NewToken {
                roles: vec![],
                ..new("a")
            },
            NewToken {
                project: Some("p".into()),
                ..new("a")
            },
            NewToken {
                expires_at: Some(Time(1)),
                ..new("a")
            },
        ];
        for wish in wrong {
            assert!(book.create(wish, "root", Time(2)).is_err());
        }
        assert_eq!(book.list(None, None).unwrap(), []);
    }
}
