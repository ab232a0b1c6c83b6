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
use stepwell_kernel::rejection::Code;
use stepwell_kernel::time::Time;

pub(crate) use catalog::{PlanCache, RegistryCatalog, registered};
pub(crate) use diff::unified;
pub use text::FoundProblem;
pub(crate) use text::{Checked, Permits, check_file, compile, compile_for, finding, with_findings};

use crate::codes;
use crate::problem::ApiProblem;
use crate::settings::ServerSettings;

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
    /// The project that the definition belongs to; absent: all projects of the tenant share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<String>,
}

impl Head {
    /// Whether runs and callers of a project may use the definition; without a project everyone of the tenant.
    fn is_for(&self, project: Option<&str>) -> bool {
        let own = self.project.as_deref();
        project.is_none() || own.is_none() || own == project
    }

    /// Whether someone who is bound to a project, or to none, may change the definition.
    fn may_be_changed(&self, project: Option<&str>) -> Result<(), ApiProblem> {
        match (self.project.as_deref(), project) {
            (_, None) => Ok(()),
            (Some(own), Some(project)) if own == project => Ok(()),
            (None, Some(project)) => Err(ApiProblem::new(
                StatusCode::FORBIDDEN,
                Code::AuthzTenantForbidden.name(),
                format!(
                    "all projects of the tenant share the definition {}, and you act for the project {project:?} only: give \
                     the definition another name, or use a token without a project",
                    self.name
                ),
            )),
            (Some(_), Some(_)) => Err(name_taken("definition", &self.name)),
        }
    }
}

/// A name that is in use in another project, of which nothing else is told.
pub(crate) fn name_taken(what: &str, name: &str) -> ApiProblem {
    ApiProblem::new(
        StatusCode::CONFLICT,
        codes::NAME_TAKEN,
        format!(
            "another project of the tenant has a {what} with the name {name}: choose another name"
        ),
    )
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
    /// The only project of whoever registers it, which the definition belongs to; absent: the definition is for all
    /// projects, or stays of the project that it is of.
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
    /// Whose definitions there are, beside those of all projects; none: those of every project.
    project: Option<&'a str>,
}

impl<'a> Registry<'a> {
    pub(crate) fn new(store: &'a dyn Store) -> Registry<'a> {
        Registry {
            store,
            project: None,
        }
    }

    /// The definitions that there are for runs and callers of a project.
    pub(crate) fn of_project(store: &'a dyn Store, project: Option<&'a str>) -> Registry<'a> {
        Registry { store, project }
    }

    /// Registers a text: it is the current revision of its name then. A content that is known stays the revision that it is.
    pub(crate) fn register(
        &self,
        new: NewDefinition,
        settings: &ServerSettings,
        now: Time,
    ) -> Result<Registered, ApiProblem> {
        check_file(new.file.as_deref())?;
        let permits = Permits::new(settings, &new.tenant, new.project.as_deref());
        let plan = compile_for(permits, new.file.as_deref(), &new.text)?;
        permits.must_suit(&plan)?;
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
        // Whether this request has written the content, whoever makes it known.
        let mut has_written = false;
        for _ in 0..TRIES {
            let known = self.stored_head(&new.tenant, &revision.name)?;
            let (mut head, version) = match known {
                Some((head, version)) => {
                    head.may_be_changed(new.project.as_deref())?;
                    (head, Some(version))
                }
                None => {
                    let project = new.project.clone();
                    let head = Head {
                        project,
                        ..Head::default()
                    };
                    (head, None)
                }
            };
            let known = head.contents.get(&revision.sha256).copied();
            let created = known.is_none() || has_written;
            let number = match known {
                Some(number) if head.current == number => {
                    let revision = self.revision(&new.tenant, &revision.name, number)?;
                    self.put_file(&new, &head, now)?;
                    return Ok(Registered {
                        head,
                        revision,
                        created,
                    });
                }
                Some(number) => number,
                None => {
                    revision.revision = head.latest + 1;
                    let (there, is_new) = self.put_revision(&new.tenant, &revision, now)?;
                    has_written |= is_new;
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
                self.put_file(&new, &head, now)?;
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
            Some((head, _)) if head.is_for(self.project) => Ok(head),
            Some(_) | None => Err(unknown(name)),
        }
    }

    /// The project that a definition belongs to; none if all projects share it or there is no such definition.
    pub(crate) fn project(&self, tenant: &str, name: &str) -> Result<Option<String>, ApiProblem> {
        let head = self.stored_head(tenant, name)?;
        Ok(head.and_then(|it| it.0.project))
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
        let mut filter = DocumentFilter {
            kind: HEAD.to_owned(),
            tenant,
            after,
            limit,
            ..DocumentFilter::default()
        };
        documents_that(self.store, &mut filter, |it| {
            let head: Head = read(it)?;
            let is_for = head.is_for(self.project);
            Ok(is_for.then(|| (it.tenant.clone(), head)))
        })
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
        let of = |project: Option<&str>| {
            let key = file_key(project, file);
            let found = self.store.document(FILE, tenant, &key)?;
            found.map(|it| read(&it)).transpose()
        };
        match self.project.map(|it| of(Some(it))).transpose()?.flatten() {
            Some(name) => Ok(Some(name)),
            None => of(None),
        }
    }

    /// Deprecates a revision, or takes that back.
    pub(crate) fn deprecate(
        &self,
        (tenant, name, number): (&str, &str, u32),
        deprecation: Option<&Deprecation>,
        now: Time,
    ) -> Result<Head, ApiProblem> {
        for _ in 0..TRIES {
            let known = self.stored_head(tenant, name)?;
            let Some((mut head, version)) = known.filter(|it| it.0.is_for(self.project)) else {
                return Err(unknown(name));
            };
            head.may_be_changed(self.project)?;
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

    /// Writes a revision; the one that has its number, if another server was faster. Says whether it was written.
    fn put_revision(
        &self,
        tenant: &str,
        revision: &Revision,
        now: Time,
    ) -> Result<(Revision, bool), ApiProblem> {
        let key = revision_key(&revision.name, revision.revision);
        let document = document(REVISION, tenant, &key, revision)?;
        match self.store.put_document(&document, None, now)? {
            Some(_) => Ok((revision.clone(), true)),
            None => {
                let there = self.revision(tenant, &revision.name, revision.revision)?;
                Ok((there, false))
            }
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
    fn put_file(&self, new: &NewDefinition, head: &Head, now: Time) -> Result<(), ApiProblem> {
        let Some(file) = &new.file else { return Ok(()) };
        let key = file_key(head.project.as_deref(), file);
        let document = document(FILE, &new.tenant, &key, &head.name)?;
        let known = self.store.document(FILE, &new.tenant, &key)?;
        if known.as_ref().is_none_or(|it| it.body != document.body) {
            self.store
                .put_document(&document, known.map(|it| it.version), now)?;
        }
        Ok(())
    }
}

/// The key of a file: projects have files of their own.
fn file_key(project: Option<&str>, file: &str) -> String {
    match project {
        None => file.to_owned(),
        Some(project) => format!("\u{1f}{}:{project}{file}", project.len()),
    }
}

/// Documents that `kept` makes something of, as many as the filter asks for if there are so many.
pub(crate) fn documents_that<T>(
    store: &dyn Store,
    filter: &mut DocumentFilter,
    kept: impl Fn(&StoredDocument) -> Result<Option<T>, ApiProblem>,
) -> Result<Vec<T>, ApiProblem> {
    let mut all = Vec::new();
    loop {
        let page = store.documents(filter)?;
        for document in &page {
            if all.len() < filter.limit {
                all.extend(kept(document)?);
            }
        }
        match page.last() {
            Some(last) if page.len() == filter.limit && all.len() < filter.limit => {
                filter.after = Some((last.tenant.clone(), last.key.clone()));
            }
            Some(_) | None => return Ok(all),
        }
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
