//! Sources: two servers on one PostgreSQL read from each broker; the broker is killed in the middle, and one of the servers.
//! Each message starts one run, and one message that cannot be used is in the dead-letter place.

use super::servers::{Kind, Server};
use super::{Amount, Programs};
use crate::postgres;
use crate::served::{Served, ask};
use anyhow::{Context as _, Result, bail};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the runs of all messages may take to be there. NATS and Redis give what a dead server had after half a minute.
const DONE: Duration = Duration::from_secs(180);
/// A definition without work.
const DEFINITION: &str = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: NAME, path: NAME}\nworkflow:\n\
    - {step: start, tool: {kind: noop}}\n";

/// Where the messages of a broker are written to and read from, and where its dead letters are.
fn addresses(server: &Server) -> Option<[String; 3]> {
    let port = server.port;
    Some(match server.kind {
        Kind::Nats => [
            format!("nats://127.0.0.1:{port}/INBOX?subject=inbox"),
            format!("nats://127.0.0.1:{port}/INBOX?subject=inbox.%3E"),
            format!("nats://127.0.0.1:{port}/INBOX-dead"),
        ],
        Kind::Redis => [
            format!("redis://127.0.0.1:{port}?prefix=inbox:"),
            format!("redis://127.0.0.1:{port}?stream=inbox:m"),
            format!("redis://127.0.0.1:{port}?stream=inbox:m:dead"),
        ],
        Kind::Kafka => [
            format!("kafka://127.0.0.1:{port}/inbox"),
            format!("kafka://127.0.0.1:{port}/inbox"),
            format!("kafka://127.0.0.1:{port}/inbox.dead"),
        ],
        Kind::Amqp => [
            format!("amqp://127.0.0.1:{port}?queue=inbox"),
            format!("amqp://127.0.0.1:{port}?queue=inbox"),
            format!("amqp://127.0.0.1:{port}?queue=inbox.dead"),
        ],
        Kind::Snowflake => return None,
    })
}

pub(super) fn check(
    programs: &Programs,
    servers: &mut [Server],
    amount: Amount,
    folder: &Path,
) -> Result<()> {
    let database = postgres::private()?;
    let store = database.url();
    let start = || Served::start(&programs.stepwell, folder, &["--store", &store]);
    let first = start()?;
    for server in servers.iter_mut() {
        let Some(places) = addresses(server) else {
            continue;
        };
        let begun = Instant::now();
        let name = server.kind.name();
        let second = start()?;
        let counted = one(programs, &first.url, server, &places, amount, second)
            .with_context(|| format!("the source {name}"))?;
        let end = if amount.kills_server {
            "killed"
        } else {
            "stopped"
        };
        println!(
            "source {name}: {} messages, {counted} runs, 1 dead letter, broker killed, server {end}, {:.0} s",
            amount.messages,
            begun.elapsed().as_secs_f32()
        );
    }
    first.stop()
}

fn one(
    programs: &Programs,
    url: &str,
    server: &mut Server,
    [write, read, dead]: &[String; 3],
    amount: Amount,
    second: Served,
) -> Result<u64> {
    let messages = amount.messages;
    let name = server.kind.name();
    let text = DEFINITION.replace("NAME", name);
    put(url, "/api/v1/definitions", &json!({ "text": text }))?;
    // The first half is there before the source is; in the middle is the message that cannot be used.
    let poison = messages / 2;
    programs.broker(&[
        "produce",
        write,
        "m",
        &poison.to_string(),
        &poison.to_string(),
    ])?;
    let source = json!({
        "address": read, "maxBody": 3000, "target": { "start": { "definition": name } },
    });
    put(url, &format!("/api/v1/sources/{name}"), &source)?;
    wait_for(url, name, 1)?;
    // What it was working on comes to the other server.
    match amount.kills_server {
        true => drop(second),
        false => second.stop()?,
    }
    server.kill()?;
    std::thread::sleep(Duration::from_secs(1));
    server.resume()?;
    // The ids of the first half come again, and count once.
    programs.broker(&[
        "produce",
        write,
        "m",
        &messages.to_string(),
        &poison.to_string(),
    ])?;
    wait_for(url, name, messages - 1)?;
    // A run too many would come now.
    std::thread::sleep(Duration::from_secs(2));
    let runs = runs_of(url, name)?;
    if runs != messages - 1 {
        bail!("{runs} runs for {} messages", messages - 1);
    }
    let buried = programs.broker(&["drain", dead, "check", "1", "60"])?;
    if buried.lines().next().is_none() {
        bail!("the dead-letter place is empty");
    }
    let (_, alerts) = ask(
        url,
        "GET",
        "/api/v1/alerts?code=SOURCE_MESSAGE_REJECTED",
        None,
    )?;
    let is_told = |it: &Json| it["message"].as_str().is_some_and(|it| it.contains(name));
    if !alerts.as_array().is_some_and(|it| it.iter().any(is_told)) {
        bail!("there is no alert: {alerts}");
    }
    Ok(runs)
}

fn put(url: &str, path: &str, body: &Json) -> Result<()> {
    match ask(url, "PUT", path, Some(body))? {
        (200 | 201, _) => Ok(()),
        (status, answer) => bail!("PUT {path}: {status} {answer}"),
    }
}

fn runs_of(url: &str, definition: &str) -> Result<u64> {
    let (_, counts) = ask(
        url,
        "GET",
        &format!("/api/v1/runs/counts?plan={definition}"),
        None,
    )?;
    counts["total"].as_u64().context("no counts of runs")
}

fn wait_for(url: &str, name: &str, runs: u64) -> Result<()> {
    let until = Instant::now() + DONE;
    loop {
        let there = runs_of(url, name)?;
        if there >= runs {
            return Ok(());
        }
        if Instant::now() > until {
            let (_, state) = ask(url, "GET", &format!("/api/v1/sources/{name}"), None)?;
            bail!("{there} of {runs} runs are there: {state}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
