//! The secrets that a definition names, wherever it names them. They are known to the redactor of a run
//! before its first step in a process, so that a step cannot print what only another step uses.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value as Json;
use stepwell_dialects::secret_literals;
use stepwell_kernel::expr::has_template;
use stepwell_kernel::plan::{Plan, Work};

use super::fill::find;
use super::{Redactor, Secrets, is_reference};

/// How long a run waits for its providers. A secret that cannot be read in this time is known later: when
/// a step resolves it, which fails if the provider still does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The secrets that a definition names.
#[derive(Debug, Default)]
pub(crate) struct NamedSecrets {
    /// References, such as `secret://db`.
    references: BTreeSet<String>,
    /// Names of credentials, from `auth`.
    credentials: BTreeSet<String>,
    /// Secrets that the definition has written out.
    written: BTreeSet<String>,
    /// The names of the keychain's entries.
    keychain: BTreeSet<String>,
}

impl NamedSecrets {
    /// All that a plan names. A name that a template makes is not known before the step runs.
    pub(crate) fn of(plan: &Plan) -> NamedSecrets {
        let mut named = NamedSecrets::default();
        let net = plan.net();
        for step in &net.steps {
            named.look_in(&step.input);
            match &step.work {
                Work::Task { config, .. } => named.look_in(config),
                Work::Pipeline { tasks } => named.look_in(tasks),
                Work::Wait(_) | Work::Child(_) => {}
            }
            if let Some(undo) = &step.undo {
                named.look_in(&undo.input);
                named.look_in(&undo.tasks);
            }
        }
        net.library.values().for_each(|task| named.look_in(task));
        // Also in the workload, in arguments of arcs and in entries of the keychain.
        let whole = serde_json::to_value(net).unwrap_or_default();
        named.written.extend(secret_literals::of_json(&whole));
        let entries = net.extra.get("keychain").and_then(Json::as_array);
        for entry in entries.into_iter().flatten() {
            let name = entry.get("name").and_then(Json::as_str);
            named.keychain.extend(name.map(str::to_owned));
        }
        named
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.references.is_empty()
            && self.credentials.is_empty()
            && self.written.is_empty()
            && self.keychain.is_empty()
    }

    fn look_in(&mut self, value: &Json) {
        find(value, &mut self.references);
        self.auth(value);
    }

    fn auth(&mut self, value: &Json) {
        match value {
            Json::Array(items) => items.iter().for_each(|item| self.auth(item)),
            Json::Object(fields) => {
                for (name, field) in fields {
                    match name == "auth" {
                        true => self.credential(field),
                        false => self.auth(field),
                    }
                }
            }
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }

    /// What `WorkerResources::credential` would resolve.
    fn credential(&mut self, auth: &Json) {
        let named = |auth: &Json| match auth {
            Json::Object(map) => ["credential", "secret", "name"]
                .iter()
                .find_map(|key| map.get(*key)?.as_str().map(str::to_owned)),
            Json::String(text) => Some(text.clone()),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) => None,
        };
        let Some(name) = named(auth).filter(|it| !it.trim().is_empty() && !has_template(it)) else {
            return;
        };
        if is_reference(&name) {
            return;
        }
        match name.contains("://") {
            true => {
                self.written.insert(name);
            }
            false => {
                self.credentials.insert(name);
            }
        }
    }
}

impl Secrets {
    /// Lets a redactor know all that a plan names. Says how many could not be read: they are not there, or
    /// their provider does not answer. That is no error here, because the step that needs one fails.
    pub(crate) async fn introduce(
        &self,
        plan: &Plan,
        named: &NamedSecrets,
        known: &Redactor,
    ) -> usize {
        named.written.iter().for_each(|address| known.add(address));
        let all = named.references.len() + named.credentials.len() + named.keychain.len();
        let mut read = 0;
        let reading = async {
            for reference in &named.references {
                let value = self.resolve(reference).await;
                read += usize::from(value.is_ok());
                value.iter().for_each(|it| known.add_value(it));
            }
            for name in &named.credentials {
                let value = self.credential(name).await;
                read += usize::from(value.is_ok());
                value.iter().for_each(|it| known.add_value(it));
            }
            let entries = plan.net().extra.get("keychain").unwrap_or(&Json::Null);
            for name in &named.keychain {
                let value = self.keychain(entries, name, known).await;
                read += usize::from(value.is_ok());
            }
        };
        // What was read before the time was over is known.
        let _ = tokio::time::timeout(PATIENCE, reading).await;
        all - read
    }
}
