//! Documents of the store that people name: schedules, webhooks, sources. Each belongs to a tenant and a project, and is changed
//! by a compare-and-set of its version, so that any number of servers and people can change it.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use stepwell_engine::store::{DocumentFilter, NewDocument, Store, StoredDocument};
use stepwell_kernel::time::Time;

use crate::definitions::{contended, documents_that, name_taken};
use crate::problem::ApiProblem;

/// How often a change is tried that others are faster with.
const TRIES: usize = 50;

/// A document that people name.
pub(crate) trait Named: Clone + Serialize + DeserializeOwned {
    /// The kind of the documents; also the word for one of them in messages.
    const KIND: &str;

    fn name(&self) -> &str;

    fn project(&self) -> &str;

    /// What is said of a name that nobody has given.
    fn unknown(name: &str) -> ApiProblem;
}

/// The documents of one kind in a store.
pub(crate) struct NamedDocuments<'a, T> {
    store: &'a dyn Store,
    of: PhantomData<fn() -> T>,
}

impl<'a, T: Named> NamedDocuments<'a, T> {
    pub(crate) fn new(store: &'a dyn Store) -> NamedDocuments<'a, T> {
        NamedDocuments {
            store,
            of: PhantomData,
        }
    }

    /// A document and its version.
    pub(crate) fn find(&self, tenant: &str, name: &str) -> Result<Option<(T, u64)>, ApiProblem> {
        let found = self.store.document(T::KIND, tenant, name)?;
        found.map(|it| Ok((read(&it)?, it.version))).transpose()
    }

    /// The documents of a tenant, or of all tenants, of one project or of all, with their tenants and versions.
    pub(crate) fn list(
        &self,
        (tenant, project): (Option<String>, Option<&str>),
        after: Option<(String, String)>,
        limit: usize,
    ) -> Result<Vec<(String, T, u64)>, ApiProblem> {
        let mut filter = DocumentFilter {
            kind: T::KIND.to_owned(),
            tenant,
            after,
            limit,
            ..DocumentFilter::default()
        };
        documents_that(self.store, &mut filter, |it| {
            let document: T = read(it)?;
            let is_of = project.is_none_or(|project| project == document.project());
            Ok(is_of.then(|| (it.tenant.clone(), document, it.version)))
        })
    }

    /// Writes a document if it has the expected version. Returns the new version, if it had.
    pub(crate) fn put(
        &self,
        tenant: &str,
        document: &T,
        expected: Option<u64>,
        now: Time,
    ) -> Result<Option<u64>, ApiProblem> {
        let new = NewDocument {
            kind: T::KIND.to_owned(),
            tenant: tenant.to_owned(),
            key: document.name().to_owned(),
            body: serde_json::to_string(document).map_err(|error| ApiProblem::internal(&error))?,
        };
        Ok(self.store.put_document(&new, expected, now)?)
    }

    /// Changes a document, however many others change it too.
    pub(crate) fn change(
        &self,
        tenant: &str,
        name: &str,
        now: Time,
        mut change: impl FnMut(Option<T>) -> Result<T, ApiProblem>,
    ) -> Result<T, ApiProblem> {
        for _ in 0..TRIES {
            let found = self.find(tenant, name)?;
            let version = found.as_ref().map(|it| it.1);
            let changed = change(found.map(|it| it.0))?;
            if self.put(tenant, &changed, version, now)?.is_some() {
                return Ok(changed);
            }
        }
        Err(contended())
    }

    /// Writes a document in place of the one with its name, of one project or of any. Says whether it is new.
    pub(crate) fn replace(
        &self,
        (tenant, project): (&str, Option<&str>),
        document: &T,
        now: Time,
    ) -> Result<bool, ApiProblem> {
        let mut created = false;
        self.change(tenant, document.name(), now, |known| {
            created = known.is_none();
            let is_of = |it: &T| project.is_none_or(|project| project == it.project());
            match known.is_none_or(|it| is_of(&it)) {
                true => Ok(document.clone()),
                false => Err(name_taken(T::KIND, document.name())),
            }
        })?;
        Ok(created)
    }

    /// Deletes a document, of one project or of any.
    pub(crate) fn delete(
        &self,
        tenant: &str,
        project: Option<&str>,
        name: &str,
    ) -> Result<(), ApiProblem> {
        let is_of = |it: &T| project.is_none_or(|project| project == it.project());
        for _ in 0..TRIES {
            let found = self.find(tenant, name)?.filter(|it| is_of(&it.0));
            let Some((_, version)) = found else {
                return Err(T::unknown(name));
            };
            if self.store.delete_document(T::KIND, tenant, name, version)? {
                return Ok(());
            }
        }
        Err(contended())
    }
}

fn read<T: Named>(document: &StoredDocument) -> Result<T, ApiProblem> {
    serde_json::from_str(&document.body).map_err(|error| {
        let why = format!("the {} {} cannot be read: {error}", T::KIND, document.key);
        ApiProblem::internal(&why)
    })
}
