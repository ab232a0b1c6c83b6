//! The options `--as`, `--role` and `--tenant`: the person or system that a command acts for. Starting a run makes
//! its maker; answers and signals carry the name to the rules of the kernel, which decide what the actor may do.

use std::path::Path;

use anyhow::Result;
use clap::{Args, ValueEnum};
use stepwell::settings::Settings;
use stepwell_engine::Error;
use stepwell_kernel::command::{Actor, Role};
use stepwell_kernel::event::RunContext;
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::trace::TraceContext;
use stepwell_kernel::unseen::is_unseen;

use crate::store::word;
use crate::{log, usage};

/// The environment variables for commands without the options.
const AS: &str = "STEPWELL_AS";
const ROLE: &str = "STEPWELL_ROLE";
const TENANT: &str = "STEPWELL_TENANT";

/// The tenant, project and environment of runs that nobody gave one.
pub(crate) const LOCAL: &str = "local";

/// The most characters of a name.
const MAX_NAME: usize = 200;

/// The options of commands that act for someone.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ActorArgs {
    /// Name of the person or system that acts, upper and lower case as in other commands; spaces at its ends do not
    /// count [default: the variable STEPWELL_AS, else `[actor] name` in stepwell.toml, else the login name]
    #[arg(long = "as", alias = "actor", value_name = "NAME")]
    name: Option<String>,
    /// Role of the actor; can be repeated, and the highest role counts [default: the variable STEPWELL_ROLE, else
    /// `[actor] roles` in stepwell.toml, else admin]
    #[arg(long = "role", value_name = "ROLE", value_enum)]
    roles: Vec<RoleWord>,
    /// Tenant of the actor, who may then act only on runs of this tenant, and whose runs belong to it [default:
    /// the variable STEPWELL_TENANT, else `[actor] tenant` in stepwell.toml, else all tenants; new runs belong to
    /// `local`]
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
}

/// A role that a person can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleWord {
    /// May read
    Viewer,
    /// May also start, answer, pause, resume and cancel
    Operator,
    /// May also retry runs and steps, and skip steps
    Engineer,
    /// May also send every other signal
    Admin,
}

impl From<RoleWord> for Role {
    fn from(word: RoleWord) -> Role {
        match word {
            RoleWord::Viewer => Role::Viewer,
            RoleWord::Operator => Role::Operator,
            RoleWord::Engineer => Role::Engineer,
            RoleWord::Admin => Role::Admin,
        }
    }
}

impl ActorArgs {
    /// Who acts: what the options say, else the variables, else the configuration file, else the login name with
    /// every right.
    pub(crate) fn actor(&self, config: Option<&Path>) -> Result<Actor> {
        let settings = Settings::open(config)?.actor;
        let name = self.name.clone().or_else(|| variable(AS));
        let tenant = self.tenant.clone().or_else(|| variable(TENANT));
        let roles = match (&self.roles[..], variable(ROLE)) {
            ([], Some(text)) => read_roles(text.split(','), &format!("the variable {ROLE}"))?,
            ([], None) => {
                let words = settings.roles.iter().map(String::as_str);
                read_roles(words, "`[actor] roles` in the configuration file")?
            }
            (roles, _) => roles.to_vec(),
        };
        let id = name.or(settings.name).unwrap_or_else(login_name);
        // Names are compared: who started a run must not be another person with a space.
        let id = id.trim().to_owned();
        let tenant = tenant.or(settings.tenant);
        for (what, text) in [("an actor", Some(&id)), ("a tenant", tenant.as_ref())] {
            let fits = |text: &&String| {
                let length = text.chars().count();
                (1..=MAX_NAME).contains(&length)
                    && !text.chars().any(|c| c.is_control() || is_unseen(c))
            };
            if text.is_some_and(|text| !fits(&text)) {
                return usage(format!(
                    "the name of {what} has 1 to {MAX_NAME} characters, no line breaks and no characters \
                     that are not seen"
                ));
            }
        }
        let role = roles.into_iter().map(Role::from).max();
        Ok(Actor {
            id,
            role: role.unwrap_or(Role::Admin),
            tenant,
            may_answer: true,
        })
    }

    /// Refuses a name and a role: the token of a server says who acts.
    pub(crate) fn must_be_of_token(&self) -> Result<()> {
        match self.name.is_some() || !self.roles.is_empty() {
            true => usage(
                "--as and --role are not for a server with tokens: the token says who acts; use the token of that person",
            ),
            false => Ok(()),
        }
    }

    /// The roles of a server that have the rights of a role here: who may operate may also answer for steps.
    pub(crate) fn server_roles(&self, role: Role) -> Option<String> {
        let words = match role {
            Role::Viewer => "viewer",
            Role::Operator => "operator,approver",
            Role::Engineer => "engineer,approver",
            // Without a role a server that trusts everyone gives every right.
            Role::Admin | Role::System => return None,
        };
        Some(words.to_owned())
    }

    /// The line for an empty list of something. For a tenant, standard error says that its name may be wrong.
    pub(crate) fn none_of(&self, what: &str) -> Result<String> {
        if let Some(tenant) = self.actor(None)?.tenant {
            log::line(&format!(
                "note: there are no {what} of the tenant {tenant:?}; a tenant whose name is misspelt has none either"
            ));
        }
        Ok(format!("no {what}\n"))
    }

    /// The options for commands that are shown to the user.
    pub(crate) fn flags(&self) -> String {
        let mut text = String::new();
        if let Some(name) = &self.name {
            text.push_str(&format!(" --as {}", word(name)));
        }
        for role in self.roles.iter().filter_map(RoleWord::to_possible_value) {
            text.push_str(&format!(" --role {}", role.get_name()));
        }
        if let Some(tenant) = &self.tenant {
            text.push_str(&format!(" --tenant {}", word(tenant)));
        }
        text
    }
}

/// The context of a run that the actor starts: the actor is its maker.
pub(crate) fn context_of(actor: &Actor) -> RunContext {
    let tenant = actor.tenant.clone();
    RunContext {
        tenant_id: tenant.unwrap_or_else(|| LOCAL.into()),
        project_id: LOCAL.into(),
        environment_id: LOCAL.into(),
        triggered_by: Some(actor.id.clone()),
        trigger_source: Some("manual".into()),
        priority: 0,
        labels: std::collections::BTreeMap::new(),
        trace: trace_of_caller(),
    }
}

/// The place in a distributed trace of who calls the command, from the variables TRACEPARENT and TRACESTATE.
fn trace_of_caller() -> Option<TraceContext> {
    let set = |name: &str| std::env::var(name).ok();
    TraceContext::read(&set("TRACEPARENT")?, set("TRACESTATE").as_deref())
}

/// Refuses who may only read. For what no command of the kernel carries an actor: starting, continuing, events.
pub(crate) fn may_act(actor: &Actor, what: &str) -> Result<(), Error> {
    match actor.role >= Role::Operator {
        true => Ok(()),
        false => {
            let why = format!("{what} needs the role operator");
            Err(Rejection::new(Code::AuthzDenied, why).into())
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|it| !it.is_empty())
}

/// The name of the user of this process.
pub(crate) fn login_name() -> String {
    let named = || variable("USER").or_else(|| variable("LOGNAME"));
    let found = named().or_else(|| whoami::username().ok());
    found.unwrap_or_else(|| "unknown".to_owned())
}

fn read_roles<'a>(words: impl Iterator<Item = &'a str>, place: &str) -> Result<Vec<RoleWord>> {
    let mut roles = Vec::new();
    for text in words.map(str::trim) {
        match RoleWord::from_str(text, true) {
            Ok(role) => roles.push(role),
            Err(_) => {
                return usage(format!(
                    "{place} has the role {text:?}; roles are viewer, operator, engineer and admin"
                ));
            }
        }
    }
    Ok(roles)
}
