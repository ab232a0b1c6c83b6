//! `stepwell token`: the API tokens of a store. Works on the store itself, also while a server owns it: who can write the
//! store needs no token. With a server, the server does it for who may.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use stepwell_dialects::duration::parse_text;
use stepwell_engine::clock::SystemClock;
use stepwell_engine::port::Clock as _;
use stepwell_engine::store::{AuditRow, Store};
use stepwell_kernel::time::Time;
use stepwell_server::{FreshToken, NewToken, TokenBook, TokenError, TokenRecord};

use crate::actor::ActorArgs;
use crate::actor::login_name;
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::place::{Place, PlaceArgs};
use crate::remote::Remote;
use crate::runs::{Refused, say};
use crate::store::StoreArgs;
use crate::term::{self, Tone, one_line};
use crate::{log, text_table, usage};

/// Create, list, revoke and rotate the tokens of a server
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stepwell token create ada --role admin
  stepwell token create nightly --role operator --tenant acme --expires 90d
  stepwell token list
  stepwell token rotate 5f0c2a9be1d47c36 --overlap 1h
  stepwell token revoke 5f0c2a9be1d47c36 --reason 'left the team'
  curl -H \"authorization: Bearer $TOKEN\" https://stepwell.example.com/api/v1/runs

A token is shown once, on standard output: the store keeps only a hash of it. The command works on the store, also
while a server uses it, or with --server on the server itself, with the token of an admin; a server knows of a change
within 2 seconds. Roles: viewer, operator, engineer, approver,
admin, worker; docs/access.md lists their rights. A token for several servers of one PostgreSQL store is one token.

Exit codes: 0 done, 1 the token is unknown or the store cannot be used, 2 wrong usage.")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Create a token and print it
    Create {
        /// Name of the holder, which events and the audit log record
        #[arg(value_name = "NAME")]
        name: String,
        /// Role of the holder; can be repeated
        #[arg(long = "role", value_name = "ROLE", required = true)]
        roles: Vec<String>,
        /// The only tenant that the holder knows [default: all tenants]
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// The only project of the tenant that the holder knows [default: all projects]
        #[arg(long, value_name = "PROJECT", requires = "tenant")]
        project: Option<String>,
        /// How long the token counts: a duration such as 90d, or never
        #[arg(long, value_name = "DURATION", default_value = "365d")]
        expires: String,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// List the tokens, newest first
    List {
        /// Only tokens of this tenant
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// End a token and its sessions for good
    Revoke {
        /// Id of the token: its middle part, as `stepwell token list` shows it
        #[arg(value_name = "ID")]
        id: String,
        /// Reason, which the audit log keeps
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Give a token a new secret and print it
    Rotate {
        /// Id of the token: its middle part, as `stepwell token list` shows it
        #[arg(value_name = "ID")]
        id: String,
        /// How long the old secret still counts: a duration such as 1h, or 0
        #[arg(long, value_name = "DURATION", default_value = "1h")]
        overlap: String,
        #[command(flatten)]
        common: CommonArgs,
    },
}

#[derive(Debug, Args)]
struct CommonArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Human)]
    output: OutputFormat,
    #[command(flatten)]
    store: PlaceArgs,
}

pub(crate) fn run(args: &TokenArgs) -> Result<Exit> {
    match &args.command {
        TokenCommand::Create {
            name,
            roles,
            tenant,
            project,
            expires,
            common,
        } => {
            let now = SystemClock.now();
            let expires_at = match expires.as_str() {
                "never" => None,
                text => Some(now.plus(millis("--expires", text)?)),
            };
            let new = NewToken {
                name: name.clone(),
                roles: roles.clone(),
                tenant: tenant.clone(),
                project: project.clone(),
                expires_at,
            };
            create(new, now, common)
        }
        TokenCommand::List { tenant, common } => list(tenant.as_deref(), common),
        TokenCommand::Revoke { id, reason, common } => revoke(id, reason.clone(), common),
        TokenCommand::Rotate {
            id,
            overlap,
            common,
        } => {
            let overlap = match overlap.as_str() {
                "0" => 0,
                text => millis("--overlap", text)?,
            };
            rotate(id, overlap, common)
        }
    }
}

fn millis(option: &str, text: &str) -> Result<u64> {
    match parse_text(text).filter(|it| *it >= 1.0) {
        Some(millis) => Ok(millis as u64),
        None => usage(format!(
            "{option}: {text:?} is not a duration such as 90d or 12h"
        )),
    }
}

impl CommonArgs {
    fn place(&self) -> Result<Place<'_>> {
        self.store.place(&ActorArgs::default())
    }
}

fn create(new: NewToken, now: Time, on: &CommonArgs) -> Result<Exit> {
    match on.place()? {
        Place::Store(store) => create_in(store, new, now, on),
        Place::Server(server) => {
            let body = json!({ "name": new.name, "roles": new.roles, "tenant": new.tenant, "project": new.project,
                "expiresAt": new.expires_at.map(Time::to_rfc3339) });
            let body = &body;
            show(
                server.tell(|it| async move { it.create_token(body).await })?,
                on,
            )
        }
    }
}

fn create_in(place: &StoreArgs, new: NewToken, now: Time, on: &CommonArgs) -> Result<Exit> {
    // Tokens are made before the server that needs them, and so before there is a store.
    let (open, _) = place.own_new_or_visit()?;
    let store = open.patient();
    let fresh = match TokenBook(&*store).create(new, &login_name(), now) {
        Err(TokenError::Invalid(what)) => return usage(what),
        made => made?,
    };
    note(&*store, "token.create", &fresh.record, None, now)?;
    show(with_secret(&fresh, now), on)
}

fn rotate(id: &str, overlap: u64, on: &CommonArgs) -> Result<Exit> {
    match on.place()? {
        Place::Store(store) => rotate_in(store, id, overlap, on),
        Place::Server(server) => {
            let seconds = overlap.div_ceil(1_000);
            show(
                server.tell(|it| async move { it.rotate_token(id, seconds).await })?,
                on,
            )
        }
    }
}

fn rotate_in(place: &StoreArgs, id: &str, overlap: u64, on: &CommonArgs) -> Result<Exit> {
    let (open, _) = place.own_or_visit()?;
    let (store, now) = (open.patient(), SystemClock.now());
    let fresh = TokenBook(&*store).rotate(id, overlap, now);
    let fresh = fresh.map_err(refused)?;
    note(&*store, "token.rotate", &fresh.record, None, now)?;
    show(with_secret(&fresh, now), on)
}

fn with_secret(fresh: &FreshToken, now: Time) -> Json {
    let mut json = shown(&fresh.record, now);
    json["token"] = json!(fresh.token);
    json
}

fn revoke(id: &str, reason: Option<String>, on: &CommonArgs) -> Result<Exit> {
    let record = match on.place()? {
        Place::Store(store) => revoke_in(store, id, reason)?,
        Place::Server(server) => {
            let reason = reason.as_deref();
            server.ask(|it| async move { it.revoke_token(id, reason).await })?
        }
    };
    let text = format!(
        "the token {id} of {} is revoked; servers know of it within 2 seconds",
        record["name"].as_str().unwrap_or_default()
    );
    say(on.output, &text, &record)?;
    Ok(Exit::Ok)
}

fn revoke_in(place: &StoreArgs, id: &str, reason: Option<String>) -> Result<Json> {
    let (open, _) = place.own_or_visit()?;
    let (store, now) = (open.patient(), SystemClock.now());
    let record = TokenBook(&*store).revoke(id, &login_name(), now);
    let record = record.map_err(refused)?;
    note(&*store, "token.revoke", &record, reason, now)?;
    Ok(shown(&record, now))
}

fn refused(error: TokenError) -> anyhow::Error {
    match error {
        TokenError::Unknown(_) | TokenError::Ended(_) => {
            let what = format!("{error}; `stepwell token list` lists them");
            Refused(what).into()
        }
        TokenError::Store(error) => error.into(),
        TokenError::Invalid(_) | TokenError::Contended(_) | TokenError::NoRandom => error.into(),
    }
}

/// The token alone on standard output, so that a script can take it; what it is on standard error.
fn show(fresh: Json, on: &CommonArgs) -> Result<Exit> {
    if on.output == OutputFormat::Json {
        say(on.output, "", &fresh)?;
        return Ok(Exit::Ok);
    }
    let until = match fresh["expiresAt"].as_str() {
        Some(time) => format!("until {time}"),
        None => "without end".to_owned(),
    };
    let text = |name: &str| fresh[name].as_str().unwrap_or_default();
    log::line(&format!(
        "token {} of {} ({}), counts {until}; it is shown this once:",
        text("id"),
        text("name"),
        words(&fresh["roles"], ", "),
    ));
    term::print(&format!("{}\n", text("token")))?;
    Ok(Exit::Ok)
}

fn words(list: &Json, between: &str) -> String {
    let words = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Json::as_str);
    words.collect::<Vec<_>>().join(between)
}

fn list(tenant: Option<&str>, on: &CommonArgs) -> Result<Exit> {
    let now = SystemClock.now();
    let tokens: Vec<Json> = match on.place()? {
        Place::Store(store) => {
            let records = TokenBook(&*store.read()?).list(tenant, None)?;
            records.iter().map(|it| shown(it, now)).collect()
        }
        Place::Server(server) => of_server(&server, tenant)?,
    };
    if on.output == OutputFormat::Json {
        say(on.output, "", &json!({ "tokens": tokens }))?;
        return Ok(Exit::Ok);
    }
    if tokens.is_empty() {
        term::print("no tokens\n")?;
        return Ok(Exit::Ok);
    }
    let rows = tokens.iter().map(|it| {
        let text = |name: &str| it[name].as_str().unwrap_or_default();
        let place = match (it["tenant"].as_str(), it["project"].as_str()) {
            (None, _) => "all".to_owned(),
            (Some(tenant), None) => tenant.to_owned(),
            (Some(tenant), Some(project)) => format!("{tenant}/{project}"),
        };
        let row = [
            text("id").to_owned(),
            one_line(text("name")),
            words(&it["roles"], ","),
            one_line(&place),
            text("state").to_owned(),
            it["expiresAt"].as_str().unwrap_or("never").to_owned(),
        ];
        (row, Tone::Plain)
    });
    let head = ["ID", "NAME", "ROLES", "TENANT", "STATE", "EXPIRES"];
    term::print(&text_table::render(&head, rows, 0, term::stdout_paint()))?;
    Ok(Exit::Ok)
}

fn of_server(server: &Remote, tenant: Option<&str>) -> Result<Vec<Json>> {
    let mut list = server.ask(|it| async move { it.tokens().await })?;
    let mut tokens: Vec<Json> = serde_json::from_value(list["tokens"].take())?;
    tokens.retain(|it| tenant.is_none_or(|tenant| it["tenant"] == tenant));
    Ok(tokens)
}

fn shown(record: &TokenRecord, now: Time) -> Json {
    let text = |time: Option<Time>| time.map(Time::to_rfc3339);
    json!({
        "id": record.id,
        "name": record.name,
        "roles": record.roles,
        "tenant": record.tenant,
        "project": record.project,
        "state": record.state(now),
        "createdAt": record.created_at.to_rfc3339(),
        "createdBy": record.created_by,
        "expiresAt": text(record.expires_at),
        "rotatedAt": text(record.rotated_at),
        "oldSecretUntil": text(record.old_until()),
        "revokedAt": text(record.revoked_at),
        "revokedBy": record.revoked_by,
    })
}

/// A row of the audit log, as the server writes one for its endpoints.
fn note(
    store: &dyn Store,
    action: &str,
    record: &TokenRecord,
    reason: Option<String>,
    now: Time,
) -> Result<()> {
    store.record(&[AuditRow {
        at: now,
        tenant: record.tenant.clone(),
        actor: login_name(),
        token: None,
        source: "command".to_owned(),
        action: action.to_owned(),
        target: record.id.clone(),
        accepted: true,
        code: None,
        reason,
    }])?;
    Ok(())
}
