//! Where the runs are that a command works on: a store, or a server. The options `--server`, `--profile` and those beside
//! them, and which of all options, variables and files counts.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use stepwell::profiles::{self, Profile, Profiles, TokenPlace};
use stepwell::settings::Settings;
use stepwell_client::{ActsAs, ConnectionOptions};
use stepwell_engine::read::RunSource;

use crate::actor::ActorArgs;
use crate::remote::Remote;
use crate::store::{StoreArgs, word};
use crate::usage;

/// The environment variables for commands without the options.
const SERVER: &str = "STEPWELL_SERVER";
const PROFILE: &str = "STEPWELL_PROFILE";
const TOKEN: &str = "STEPWELL_TOKEN";
const TOKEN_FILE: &str = "STEPWELL_TOKEN_FILE";
const CA: &str = "STEPWELL_CA";

/// The options for a store or a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlaceArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// The options for a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    /// Work on the runs of this server instead of a store [default: the variable STEPWELL_SERVER]
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "profile"], help_heading = "Server")]
    pub(crate) server: Option<String>,
    /// Work on the server of `[profiles.NAME]` in ~/.config/stepwell/config.toml or stepwell.toml [default: the variable
    /// STEPWELL_PROFILE]
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "store",
        help_heading = "Server"
    )]
    pub(crate) profile: Option<String>,
    /// File with the API token for the server [default: the variables STEPWELL_TOKEN and STEPWELL_TOKEN_FILE, else the
    /// token of the profile]
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with certificates (PEM) to trust beside those of the system [default: the variable STEPWELL_CA, else `ca` of
    /// the profile]
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) ca: Option<PathBuf>,
    /// Send the token also to an http:// address of another machine, where everyone on the way can read it
    #[arg(long, help_heading = "Server")]
    pub(crate) allow_http: bool,
}

/// The server that was chosen.
struct ChosenServer {
    profile: Profile,
    /// The options that choose it again.
    flag: String,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|it| !it.is_empty())
}

impl ChosenServer {
    /// A server of which only the address is known.
    fn at(server: String, flag: String) -> ChosenServer {
        let profile = Profile {
            server,
            token: None,
            tenant: None,
            ca: None,
            allow_http: false,
        };
        ChosenServer { profile, flag }
    }
}

impl ServerArgs {
    /// The server that the options name.
    fn of_options(&self) -> Result<Option<ChosenServer>> {
        if let Some(url) = &self.server {
            let flag = format!(" --server {}", word(url));
            return Ok(Some(ChosenServer::at(url.clone(), flag)));
        }
        let Some(name) = &self.profile else {
            return Ok(None);
        };
        let profile = named(name, "--profile")?;
        let flag = format!(" --profile {}", word(name));
        Ok(Some(ChosenServer { profile, flag }))
    }

    /// The server that variables name. What a variable says need not be repeated in commands that are shown.
    fn of_variables() -> Result<Option<ChosenServer>> {
        if let Some(url) = variable(SERVER) {
            return Ok(Some(ChosenServer::at(url, String::new())));
        }
        let Some(name) = variable(PROFILE) else {
            return Ok(None);
        };
        Ok(Some(ChosenServer {
            profile: named(&name, &format!("the variable {PROFILE}"))?,
            flag: String::new(),
        }))
    }

    /// How to connect to the server of a profile: with which token and certificates, for which tenant.
    fn connects(&self, profile: &Profile) -> Result<ConnectionOptions> {
        let place = match (&self.token_file, variable(TOKEN), variable(TOKEN_FILE)) {
            (Some(file), _, _) => Some(TokenPlace::File(file.clone())),
            (None, Some(_), _) => Some(TokenPlace::Env(TOKEN.to_owned())),
            (None, None, Some(file)) => Some(TokenPlace::File(file.into())),
            (None, None, None) => profile.token.clone(),
        };
        let ca = self.ca.clone().or_else(|| variable(CA).map(PathBuf::from));
        Ok(ConnectionOptions {
            token: place.map(|place| place.read()).transpose()?,
            ca: ca.or(profile.ca.clone()),
            allow_plain: self.allow_http || profile.allow_http,
            acts_as: ActsAs {
                tenant: profile.tenant.clone(),
                ..ActsAs::default()
            },
        })
    }

    /// The address of the server, and how to connect to it, for a worker: it works on a server only.
    pub(crate) fn for_worker(&self) -> Result<(String, ConnectionOptions)> {
        let chosen = match self.of_options()? {
            Some(chosen) => Some(chosen),
            None => ServerArgs::of_variables()?,
        };
        let Some(ChosenServer { profile, .. }) = chosen else {
            return usage(format!(
                "name the server of the worker: --server URL, --profile NAME, or the variable {SERVER}"
            ));
        };
        let options = self.connects(&profile)?;
        Ok((profile.server, options))
    }
}

impl PlaceArgs {
    /// The store, for what only works on a store. `instead` says what to do on a server.
    pub(crate) fn only_store(&self, what: &str, instead: &str) -> Result<&StoreArgs> {
        match self.chosen()? {
            None => Ok(&self.store),
            Some(_) => usage(format!("{what} does not work on a server: {instead}")),
        }
    }

    /// The options of the store, for who knows that no server was chosen.
    pub(crate) fn store(&self) -> &StoreArgs {
        &self.store
    }

    /// The options of the store, if no server was chosen; else the server.
    pub(crate) fn place(&self, who: &ActorArgs) -> Result<Place<'_>> {
        Ok(match self.remote(who)? {
            Some(remote) => Place::Server(Arc::new(remote)),
            None => Place::Store(&self.store),
        })
    }

    /// Where runs can be read.
    pub(crate) fn runs(&self, who: &ActorArgs) -> Result<Arc<dyn RunSource>> {
        Ok(match self.place(who)? {
            Place::Server(remote) => remote,
            Place::Store(store) => store.read()?,
        })
    }

    /// The server that was chosen, with the token and the actor.
    fn remote(&self, who: &ActorArgs) -> Result<Option<Remote>> {
        let Some(ChosenServer { profile, flag }) = self.chosen()? else {
            return Ok(None);
        };
        let mut options = self.server.connects(&profile)?;
        if options.token.is_some() {
            who.must_be_of_token()?;
        }
        let mut actor = who.actor(None)?;
        let tenant = actor.tenant.take().or(options.acts_as.tenant);
        options.acts_as = ActsAs {
            name: Some(actor.id),
            role: who.server_roles(actor.role),
            tenant,
        };
        let patience = self.store.limit()?;
        Ok(Some(Remote::new(&profile.server, options, patience, flag)?))
    }

    /// The server that options, variables and files choose, in this order.
    fn chosen(&self) -> Result<Option<ChosenServer>> {
        match self.server.of_options()? {
            Some(chosen) => Ok(Some(chosen)),
            None if self.store.named().is_some() => Ok(None),
            None => ServerArgs::of_variables(),
        }
    }

    /// The options that choose the same place again, for commands that are shown.
    pub(crate) fn flag(&self) -> String {
        match self.chosen() {
            Ok(Some(server)) => server.flag,
            Ok(None) | Err(_) => self.store.flag(),
        }
    }
}

/// The option `--server` of commands that work on a store only: says what to do instead.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NoServerArgs {
    #[arg(long, value_name = "URL", hide = true)]
    server: Option<String>,
}

impl NoServerArgs {
    /// Refuses the option; and a variable that chooses a server, if nothing names a store.
    pub(crate) fn check(&self, store: &StoreArgs, what: &str) -> Result<()> {
        let named = [SERVER, PROFILE]
            .into_iter()
            .find(|it| variable(it).is_some());
        let named = named.filter(|_| !store.is_chosen());
        let named = match (&self.server, named) {
            (Some(_), _) => "--server names a server".to_owned(),
            (None, Some(name)) => format!("the variable {name} names a server"),
            (None, None) => return Ok(()),
        };
        usage(format!(
            "{what} works on a store, and {named}: use the command where the store can be reached, with --store"
        ))
    }
}

/// A profile by its name.
fn named(name: &str, from: &str) -> Result<Profile> {
    let own = profiles::of_user().or_else(usage)?;
    let shared = Settings::open(None)?.profiles;
    if let Some(profile) = own.get(name).or(shared.get(name)) {
        return Ok(profile.clone());
    }
    let all: Profiles = shared.into_iter().chain(own).collect();
    let known: Vec<String> = all.into_keys().collect();
    let known = match known.is_empty() {
        true => "there are none yet: docs/configuration.md shows one".to_owned(),
        false => format!("there are {}", known.join(", ")),
    };
    usage(format!("{from}: there is no profile {name:?}; {known}"))
}

/// Where the runs of a command are.
pub(crate) enum Place<'a> {
    Store(&'a StoreArgs),
    Server(Arc<Remote>),
}
