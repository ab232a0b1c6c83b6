//! The definitions that a server knows by their names: each new content of a name is its next revision, and the content
//! that was registered last is the current one. Two documents of the store for each: the head of a name, which is changed
//! by compare-and-set and says which revisions there are, and one document for each revision, which never changes.

mod catalog;
mod diff;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use stepwell_dialects::document::trigger;
use stepwell_engine::store::{DocumentFilter, NewDocument, Store, StoredDocument};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;
use stepwell_worker::ToolRules;

pub(crate) use catalog::{PlanCache, RegistryCatalog, registered};
pub(crate) use diff::unified;
pub use text::FoundProblem;
pub(crate) use text::{Checked, Permits, check_file, compile, compile_for, serves, with_findings};

use crate::codes;
use crate::problem::ApiProblem;

/// The kinds of the documents.
const HEAD: &str = "definition";
const REVISION: &str = "definition.revision";
/// Which definition a file has, so that definitions find each other by their paths.
const FILE: &str = "definition.file";

/// How often a change is tried that others are faster with.
const TRIES: usize = 50;
/// How many digits the number of a revision has in its key: keys are in the order of their bytes.
const DIGITS: usize = 8;
/// The longest name: it is a part of keys and addresses.
const MAX_NAME: usize = 300;

/// What is known of a name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Head {
    pub(crate) name: String,
    /// The revision that runs are started from if nobody says which.
    pub(crate) current: u32,
    /// How many revisions there are.
    pub(crate) latest: u32,
    /// The revision of each content, by its SHA-256.
    pub(crate) contents: BTreeMap<String, u32>,
    /// The revisions that start no runs any more.
    #[serde(default)]
    pub(crate) deprecated: BTreeMap<u32, Deprecation>,
    pub(crate) dialect: String,
    /// The version that the current revision gives itself.
    pub(crate) plan_version: String,
    /// Whether the current revision has a trigger of its own.
    #[serde(default)]
    pub(crate) has_trigger: bool,
}

/// Who has deprecated a revision, and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Deprecation {
    pub(crate) by: String,
    pub(crate) at: String,
    pub(crate) reason: Option<String>,
}

/// One content of a definition, as it was registered.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Revision {
    pub(crate) name: String,
    pub(crate) revision: u32,
    /// The file that the text is from, as its sender says.
    pub(crate) file: Option<String>,
    pub(crate) source: String,
    pub(crate) dialect: String,
    pub(crate) plan_version: String,
    pub(crate) sha256: String,
    pub(crate) plan_hash: String,
    pub(crate) by: String,
    pub(crate) at: String,
}

/// A text to be registered.
#[derive(Clone, Debug)]
pub(crate) struct NewDefinition {
    pub(crate) tenant: String,
    /// The only project of whoever registers it; absent: the definition is for all projects.
    pub(crate) project: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) text: String,
    pub(crate) by: String,
}

/// What became of a text.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) head: Head,
    pub(crate) revision: Revision,
    /// Whether the content is new.
    pub(crate) created: bool,
}

/// The definitions in a store.
#[derive(Clone, Copy)]
pub(crate) struct Registry<'a> {
    pub(crate) store: &'a dyn Store,
}

impl<'a> Registry<'a> {
    pub(crate) fn new(store: &'a dyn Store) -> Registry<'a> {
        Registry { store }
    }

    /// Registers a text: it is the current revision of its name then. A content that is known stays the revision that it is.
    pub(crate) fn register(
        &self,
        new: NewDefinition,
        tools: &ToolRules,
        now: Time,
    ) -> Result<Registered, ApiProblem> {
        check_file(new.file.as_deref())?;
        let permits = Permits {
            tools,
            tenant: &new.tenant,
            project: new.project.as_deref(),
        };
        let plan = compile_for(permits, new.file.as_deref(), &new.text)?;
        serves(&plan)?;
        let net = plan.net();
        check_name(&net.plan_id)?;
        let mut revision = Revision {
            name: net.plan_id.clone(),
            revision: 0,
            file: new.file.clone(),
            source: new.text.clone(),
            dialect: net.dialect.name().to_owned(),
            plan_version: net.plan_version.clone(),
            sha256: net.source.sha256.clone(),
            plan_hash: plan.hash().to_owned(),
            by: new.by.clone(),
            at: now.to_rfc3339(),
        };
        let has_trigger = trigger(&plan).is_some();
        for _ in 0..TRIES {
            let known = self.stored_head(&new.tenant, &revision.name)?;
            let (mut head, version) = match known {
                Some((head, version)) => (head, Some(version)),
                None => (Head::default(), None),
            };
            let known = head.contents.get(&revision.sha256).copied();
            let created = known.is_none();
            let number = match known {
                Some(number) if head.current == number => {
                    let revision = self.revision(&new.tenant, &revision.name, number)?;
                    self.put_file(&new, &revision, now)?;
                    return Ok(Registered {
                        head,
                        revision,
                        created: false,
                    });
                }
                Some(number) => number,
                None => {
                    revision.revision = head.latest + 1;
                    let there = self.put_revision(&new.tenant, &revision, now)?;
                    // Whoever has written this number first has it; their text is made known first.
                    head.contents.insert(there.sha256.clone(), there.revision);
                    head.latest = there.revision;
                    if there.sha256 != revision.sha256 {
                        head.current = there.revision;
                        head.name.clone_from(&there.name);
                        head.dialect.clone_from(&there.dialect);
                        head.plan_version.clone_from(&there.plan_version);
                        head.has_trigger = compile(there.file.as_deref(), &there.source)
                            .is_ok_and(|plan| trigger(&plan).is_some());
                        self.put_head(&new.tenant, &head, version, now)?;
                        continue;
                    }
                    there.revision
                }
            };
            head.name.clone_from(&revision.name);
            head.dialect.clone_from(&revision.dialect);
            head.plan_version.clone_from(&revision.plan_version);
            (head.current, head.has_trigger) = (number, has_trigger);
            if self.put_head(&new.tenant, &head, version, now)? {
                let revision = self.revision(&new.tenant, &revision.name, number)?;
                self.put_file(&new, &revision, now)?;
                return Ok(Registered {
                    head,
                    revision,
                    created,
                });
            }
        }
        Err(contended())
    }

    /// What is known of a name.
    pub(crate) fn head(&self, tenant: &str, name: &str) -> Result<Head, ApiProblem> {
        match self.stored_head(tenant, name)? {
            Some((head, _)) => Ok(head),
            None => Err(unknown(name)),
        }
    }

    fn stored_head(&self, tenant: &str, name: &str) -> Result<Option<(Head, u64)>, ApiProblem> {
        let found = self.store.document(HEAD, tenant, name)?;
        found.map(|it| Ok((read(&it)?, it.version))).transpose()
    }

    /// The names of a tenant, or of all tenants, in order.
    pub(crate) fn heads(
        &self,
        tenant: Option<String>,
        after: Option<(String, String)>,
        limit: usize,
    ) -> Result<Vec<(String, Head)>, ApiProblem> {
        let filter = DocumentFilter {
            kind: HEAD.to_owned(),
            tenant,
            after,
            limit,
            ..DocumentFilter::default()
        };
        let found = self.store.documents(&filter)?;
        found
            .iter()
            .map(|it| Ok((it.tenant.clone(), read(it)?)))
            .collect()
    }

    /// One revision of a name.
    pub(crate) fn revision(
        &self,
        tenant: &str,
        name: &str,
        number: u32,
    ) -> Result<Revision, ApiProblem> {
        let found = self
            .store
            .document(REVISION, tenant, &revision_key(name, number))?;
        match found {
            Some(found) => read(&found),
            None => Err(unknown_revision(name, number)),
        }
    }

    /// The revisions of a name after a number, oldest first.
    pub(crate) fn revisions(
        &self,
        tenant: &str,
        name: &str,
        after: u32,
        limit: usize,
    ) -> Result<Vec<Revision>, ApiProblem> {
        let filter = DocumentFilter {
            kind: REVISION.to_owned(),
            tenant: Some(tenant.to_owned()),
            prefix: format!("{name}|"),
            after: Some((tenant.to_owned(), revision_key(name, after))),
            limit,
        };
        let found = self.store.documents(&filter)?;
        // Another name may begin with this one.
        let own = |it: &&StoredDocument| it.key.len() == name.len() + 1 + DIGITS;
        found.iter().filter(own).map(read).collect()
    }

    /// The plan of a new run: of a revision, or of the current one.
    pub(crate) fn plan_of_new_run(
        &self,
        cache: &PlanCache,
        tenant: &str,
        name: &str,
        revision: Option<u32>,
    ) -> Result<Arc<Plan>, ApiProblem> {
        let head = self.head(tenant, name)?;
        let number = revision.unwrap_or(head.current);
        if number == 0 || number > head.latest {
            return Err(unknown_revision(name, number));
        }
        if let Some(deprecation) = head.deprecated.get(&number) {
            let reason = deprecation
                .reason
                .as_deref()
                .unwrap_or("no reason was given");
            return Err(ApiProblem::new(
                StatusCode::CONFLICT,
                codes::DEFINITION_DEPRECATED,
                format!("revision {number} of {name} starts no runs any more: {reason}"),
            ));
        }
        cache.plan(self, tenant, name, number)
    }

    /// The definition that a file has, if one of this file was registered.
    pub(crate) fn of_file(&self, tenant: &str, file: &str) -> Result<Option<String>, ApiProblem> {
        let found = self.store.document(FILE, tenant, file)?;
        found.map(|it| read(&it)).transpose()
    }

    /// Deprecates a revision, or takes that back.
    pub(crate) fn deprecate(
        &self,
        (tenant, name, number): (&str, &str, u32),
        deprecation: Option<&Deprecation>,
        now: Time,
    ) -> Result<Head, ApiProblem> {
        for _ in 0..TRIES {
            let Some((mut head, version)) = self.stored_head(tenant, name)? else {
                return Err(unknown(name));
            };
            if number == 0 || number > head.latest {
                return Err(unknown_revision(name, number));
            }
            let changed = match deprecation {
                Some(_) if head.deprecated.contains_key(&number) => false,
                Some(deprecation) => head
                    .deprecated
                    .insert(number, deprecation.clone())
                    .is_none(),
                None => head.deprecated.remove(&number).is_some(),
            };
            if !changed || self.put_head(tenant, &head, Some(version), now)? {
                return Ok(head);
            }
        }
        Err(contended())
    }

    /// Writes a revision; the one that has its number, if another server was faster.
    fn put_revision(
        &self,
        tenant: &str,
        revision: &Revision,
        now: Time,
    ) -> Result<Revision, ApiProblem> {
        let key = revision_key(&revision.name, revision.revision);
        let document = document(REVISION, tenant, &key, revision)?;
        match self.store.put_document(&document, None, now)? {
            Some(_) => Ok(revision.clone()),
            None => self.revision(tenant, &revision.name, revision.revision),
        }
    }

    fn put_head(
        &self,
        tenant: &str,
        head: &Head,
        expected: Option<u64>,
        now: Time,
    ) -> Result<bool, ApiProblem> {
        let document = document(HEAD, tenant, &head.name, head)?;
        Ok(self.store.put_document(&document, expected, now)?.is_some())
    }

    /// Notes which definition a file has. The last who says so is right.
    fn put_file(
        &self,
        new: &NewDefinition,
        revision: &Revision,
        now: Time,
    ) -> Result<(), ApiProblem> {
        let Some(file) = &new.file else { return Ok(()) };
        let document = document(FILE, &new.tenant, file, &revision.name)?;
        let known = self.store.document(FILE, &new.tenant, file)?;
        if known.as_ref().is_none_or(|it| it.body != document.body) {
            self.store
                .put_document(&document, known.map(|it| it.version), now)?;
        }
        Ok(())
    }
}

fn revision_key(name: &str, number: u32) -> String {
    format!("{name}|{number:0DIGITS$}")
}

fn document<T: Serialize>(
    kind: &str,
    tenant: &str,
    key: &str,
    body: &T,
) -> Result<NewDocument, ApiProblem> {
    Ok(NewDocument {
        kind: kind.to_owned(),
        tenant: tenant.to_owned(),
        key: key.to_owned(),
        body: serde_json::to_string(body).map_err(|error| ApiProblem::internal(&error))?,
    })
}

fn read<T: for<'de> Deserialize<'de>>(document: &StoredDocument) -> Result<T, ApiProblem> {
    serde_json::from_str(&document.body).map_err(|error| {
        let (kind, key) = (&document.kind, &document.key);
        ApiProblem::internal(&format!(
            "the document {kind} {key} cannot be read: {error}"
        ))
    })
}

fn check_name(name: &str) -> Result<(), ApiProblem> {
    let fits = (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control);
    match fits {
        true => Ok(()),
        false => Err(ApiProblem::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            codes::DEFINITION_INVALID,
            format!(
                "the name of a definition has 1 to {MAX_NAME} bytes, without control characters"
            ),
        )),
    }
}

fn unknown(name: &str) -> ApiProblem {
    ApiProblem::not_found(
        codes::DEFINITION_UNKNOWN,
        format!("there is no definition {name}"),
    )
}

fn unknown_revision(name: &str, number: u32) -> ApiProblem {
    let why = format!("there is no revision {number} of a definition {name}");
    ApiProblem::not_found(codes::DEFINITION_UNKNOWN, why)
}

/// Others change the same thing all the time.
pub(crate) fn contended() -> ApiProblem {
    ApiProblem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        codes::DOCUMENT_CONTENDED,
        "others change this at the same time; try again",
    )
    .retry_after(1)
}
