//! Sinks: a server delivers the events of many runs to all brokers at once; each broker is killed in the middle and started
//! again. Then every broker must have every event, in the order of each run.

use super::Programs;
use super::servers::{Kind, Server};
use crate::served::{Served, ask};
use anyhow::{Context as _, Result, bail};
use serde_json::{Value as Json, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long everything may take to be delivered.
const DELIVERED: Duration = Duration::from_secs(900);
/// How long a broker is away.
const AWAY: Duration = Duration::from_secs(2);

/// A chain of steps without work.
fn definition() -> String {
    let mut text = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: brokers, path: brokers}\nworkflow:\n".to_owned();
    for no in 1..=10 {
        let name = if no == 1 {
            "start".to_owned()
        } else {
            format!("s{no}")
        };
        let next = if no == 10 {
            String::new()
        } else {
            format!(", next: [{{step: s{}}}]", no + 1)
        };
        // Writing into memory does not fail.
        let _ = writeln!(text, "- {{step: {name}, tool: {{kind: noop}}{next}}}");
    }
    text
}

/// Where a sink sends to.
fn sink_address(server: &Server) -> String {
    let port = server.port;
    match server.kind {
        Kind::Nats => format!("nats://127.0.0.1:{port}/EVENTS?subject=runs&format=binary"),
        Kind::Redis => format!("redis://127.0.0.1:{port}"),
        Kind::Kafka => format!("kafka://127.0.0.1:{port}/events?format=binary"),
        Kind::Amqp => format!("amqp://127.0.0.1:{port}?queue=events"),
        Kind::Snowflake => format!("snowflake+http://127.0.0.1:{port}/DB/S"),
    }
}

/// What must be there: each run with the number of its last event.
type Expected = HashMap<String, u64>;

pub(super) fn check(
    programs: &Programs,
    servers: &mut [Server],
    events: usize,
    folder: &Path,
) -> Result<()> {
    let served = Served::start(&programs.stepwell, folder, &["--store", "sinks.db"])?;
    for server in servers.iter() {
        let body = json!({ "address": sink_address(server) });
        let path = format!("/api/v1/sinks/{}", server.kind.name());
        let (status, answer) = ask(&served.url, "PUT", &path, Some(&body))?;
        if status != 200 {
            bail!("the sink {} is refused: {answer}", server.kind.name());
        }
    }
    let begun = Instant::now();
    let expected = start_runs(&served.url, events, servers)?;
    let total: u64 = expected.values().sum();
    println!(
        "sinks: {} runs with {total} events in {:.0} s",
        expected.len(),
        begun.elapsed().as_secs_f32()
    );
    wait_until_empty(&served.url, begun)?;
    let (_, dead) = ask(&served.url, "GET", "/api/v1/dead-letters", None)?;
    if dead.as_array().is_none_or(|it| !it.is_empty()) {
        bail!("there are dead letters: {dead}");
    }
    served.stop()?;
    for server in servers.iter() {
        let found = match server.kind {
            Kind::Nats | Kind::Kafka | Kind::Amqp => drained(programs, server, total)?,
            Kind::Redis => from_redis(server, &expected)?,
            Kind::Snowflake => from_snowflake(server, &expected)?,
        };
        let name = server.kind.name();
        let twice = compare(&found, &expected).with_context(|| format!("the sink {name}"))?;
        // What docs/sinks.md says about a message that is sent again.
        let may_repeat = matches!(server.kind, Kind::Kafka | Kind::Amqp);
        if twice > 0 && !may_repeat {
            bail!("the sink {name}: {twice} events arrived twice");
        }
        println!(
            "sink {name}: {} messages, {total} events, {twice} of them twice, order of each run holds",
            found.len()
        );
    }
    Ok(())
}

/// The largest message that NATS takes while it is checked what happens to larger ones: the first events of a run are larger.
const TAKES: usize = 1100;

/// A message that the broker never takes becomes a dead letter with its alert, and keeps no other message back.
pub(super) fn too_large(programs: &Programs, server: &mut Server, folder: &Path) -> Result<()> {
    server.kill()?;
    server.nats_takes(TAKES)?;
    server.resume()?;
    let served = Served::start(&programs.stepwell, folder, &["--store", "large.db"])?;
    let stream = format!("nats://127.0.0.1:{}/LARGE", server.port);
    let body = json!({ "address": format!("{stream}?subject=large") });
    let (status, answer) = ask(&served.url, "PUT", "/api/v1/sinks/large", Some(&body))?;
    if status != 200 {
        bail!("the sink is refused: {answer}");
    }
    let body = json!({ "definition": { "text": definition() }, "waitSeconds": 30 });
    let run = start(&served.url, &body)?;
    let (_, snapshot) = ask(&served.url, "GET", &format!("/api/v1/runs/{run}"), None)?;
    let last = snapshot["lastEventSeq"].as_u64().context("no events")?;
    wait_until_empty(&served.url, Instant::now())?;
    let (_, dead) = ask(&served.url, "GET", "/api/v1/dead-letters", None)?;
    if dead.as_array().is_none_or(Vec::is_empty) {
        bail!("the message that is too large is no dead letter: {dead}");
    }
    let (_, alerts) = ask(&served.url, "GET", "/api/v1/alerts", None)?;
    if !alerts.to_string().contains("EVENT_BUS_DELIVERY_FAILED") {
        bail!("there is no alert: {alerts}");
    }
    served.stop()?;
    let lines = programs.broker(&["drain", &stream, "check", &last.to_string(), "3"])?;
    let arrived = lines.lines().count();
    // The events of steps are small, and there are many more of them than of the run.
    if u64::try_from(arrived)? + 5 < last
        || !lines.lines().any(|it| it.ends_with(&format!(" {last}")))
    {
        bail!("{arrived} of {last} events arrived:\n{lines}");
    }
    println!(
        "sink nats: {arrived} of {last} messages arrived, the others are larger than it takes, and dead letters"
    );
    server.kill()?;
    server.nats_takes(1024 * 1024)?;
    server.resume()
}

/// Starts runs until there are so many events. Each broker is killed and started again meanwhile.
fn start_runs(url: &str, events: usize, servers: &mut [Server]) -> Result<Expected> {
    let body = json!({ "definition": { "text": definition() }, "waitSeconds": 30 });
    let (mut expected, mut total, mut killed) = (Expected::new(), 0, 0);
    let wanted = u64::try_from(events)?;
    let parts = u64::try_from(servers.len() + 1)?;
    while total < wanted || killed < servers.len() {
        for run in start_together(url, &body)? {
            let (_, snapshot) = ask(url, "GET", &format!("/api/v1/runs/{run}"), None)?;
            let last = snapshot["lastEventSeq"].as_u64();
            let last = last.with_context(|| format!("no run {run}: {snapshot}"))?;
            total += last;
            expected.insert(run, last);
        }
        // One broker after the other, at equal distances.
        let next = u64::try_from(killed + 1)?;
        if killed < servers.len() && total >= wanted * next / parts {
            let server = &mut servers[killed];
            println!("{}: killed at {total} events", server.kind.name());
            server.kill()?;
            // Runs go on while the broker is away.
            start_together(url, &body)?
                .into_iter()
                .try_for_each(|run| -> Result<()> {
                    let (_, snapshot) = ask(url, "GET", &format!("/api/v1/runs/{run}"), None)?;
                    let last = snapshot["lastEventSeq"]
                        .as_u64()
                        .context("a run without events")?;
                    total += last;
                    expected.insert(run, last);
                    Ok(())
                })?;
            std::thread::sleep(AWAY);
            server.resume()?;
            killed += 1;
        }
    }
    Ok(expected)
}

/// Starts some runs at the same time and waits until they have ended.
fn start_together(url: &str, body: &Json) -> Result<Vec<String>> {
    let started = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| start(url, body))).collect();
        threads.into_iter().map(|it| it.join()).collect::<Vec<_>>()
    });
    let joined = started
        .into_iter()
        .map(|it| it.map_err(|_| anyhow::anyhow!("a thread panicked"))?);
    joined.collect()
}

/// Starts a run and waits until it has completed.
fn start(url: &str, body: &Json) -> Result<String> {
    let (status, answer) = ask(url, "POST", "/api/v1/runs", Some(body))?;
    if answer["run"]["status"] != "COMPLETED" {
        bail!("a run did not end ({status}): {answer}");
    }
    let run = answer["runId"].as_str().context("a run without an id")?;
    Ok(run.to_owned())
}

fn wait_until_empty(url: &str, begun: Instant) -> Result<()> {
    let until = Instant::now() + DELIVERED;
    let mut open = String::new();
    loop {
        let (_, pending) = ask(url, "GET", "/api/v1/outbox", None)?;
        let rows = pending.as_array().cloned().unwrap_or_default();
        let left: Vec<String> = rows
            .iter()
            .filter(|it| it["waiting"].as_u64() != Some(0))
            .filter_map(|it| it["sink"].as_str().map(str::to_owned))
            .collect();
        let now = left.join(", ");
        if now != open {
            println!(
                "sinks: after {:.0} s waiting for [{now}]",
                begun.elapsed().as_secs_f32()
            );
            open = now;
        }
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("not everything was delivered: {pending}");
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// The messages of a broker: run and sequence number, in the order in which they are there.
type Found = Vec<(String, u64)>;

fn drained(programs: &Programs, server: &Server, total: u64) -> Result<Found> {
    let port = server.port;
    let address = match server.kind {
        Kind::Nats => format!("nats://127.0.0.1:{port}/EVENTS"),
        Kind::Kafka => format!("kafka://127.0.0.1:{port}/events"),
        _ => format!("amqp://127.0.0.1:{port}?queue=events"),
    };
    let lines = programs.broker(&["drain", &address, "check", &total.to_string(), "300"])?;
    let read = |line: &str| -> Option<(String, u64)> {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    lines
        .lines()
        .map(|it| read(it).with_context(|| format!("{it:?} is no message of a run")))
        .collect()
}

/// Each run has a stream of its own.
fn from_redis(server: &Server, expected: &Expected) -> Result<Found> {
    let mut client = Command::new("redis-cli")
        .args(["-p", &server.port.to_string(), "--raw"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = client.stdin.take().context("no standard input")?;
    let commands: String = expected
        .keys()
        .map(|run| format!("ECHO run={run}\nXRANGE stepwell:{run} - +\n"))
        .collect();
    let writing = std::thread::spawn(move || input.write_all(commands.as_bytes()));
    let output = client.wait_with_output()?;
    writing
        .join()
        .map_err(|_| anyhow::anyhow!("redis-cli was not asked"))??;
    let (mut run, mut found) = (String::new(), Found::new());
    for line in String::from_utf8(output.stdout)?.lines() {
        if let Some(next) = line.strip_prefix("run=") {
            next.clone_into(&mut run);
        } else if let Some((seq, "0")) = line.split_once('-')
            && let Ok(seq) = seq.parse()
        {
            found.push((run.clone(), seq));
        }
    }
    Ok(found)
}

fn from_snowflake(server: &Server, expected: &Expected) -> Result<Found> {
    let url = format!("http://127.0.0.1:{}", server.port);
    let rows = |statement: &str| -> Result<Vec<Json>> {
        let body = json!({ "statement": statement });
        let (status, answer) = ask(&url, "POST", "/api/v2/statements", Some(&body))?;
        match answer["data"].as_array() {
            Some(rows) => Ok(rows.clone()),
            None => bail!("{statement}: {status} {answer}"),
        }
    };
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let snapshots = rows("SELECT RUN_ID, LAST_EVENT_SEQ, IS_COMPLETE, STATUS FROM RUN_SNAPSHOTS")?;
    if snapshots.len() != expected.len() {
        bail!(
            "RUN_SNAPSHOTS has {} rows for {} runs",
            snapshots.len(),
            expected.len()
        );
    }
    for row in &snapshots {
        let (run, last) = (text(&row[0]), text(&row[1]).parse::<u64>()?);
        let is_complete = text(&row[2]).eq_ignore_ascii_case("true");
        if expected.get(&run) != Some(&last) || !is_complete || text(&row[3]) != "COMPLETED" {
            bail!("the snapshot of {run} is {row}");
        }
    }
    let events = rows("SELECT RUN_ID, RUN_SEQ FROM RUN_EVENTS ORDER BY RUN_ID, RUN_SEQ")?;
    events
        .iter()
        .map(|row| Ok((text(&row[0]), text(&row[1]).parse()?)))
        .collect()
}

/// Whether each event is there, and in order when it comes first. How many came twice.
fn compare(found: &Found, expected: &Expected) -> Result<usize> {
    let mut seen: HashMap<&str, u64> = HashMap::new();
    let mut twice = 0;
    for (run, seq) in found {
        let last = seen.entry(run).or_default();
        match *seq {
            seq if seq == *last + 1 => *last = seq,
            seq if seq <= *last => twice += 1,
            seq => bail!("run {run}: event {seq} comes after event {last}"),
        }
    }
    for (run, last) in expected {
        let got = seen.get(run.as_str()).copied().unwrap_or_default();
        if got != *last {
            bail!("run {run}: {got} of {last} events are there");
        }
    }
    match seen.len() == expected.len() {
        true => Ok(twice),
        false => bail!(
            "there are events of {} runs, expected {}",
            seen.len(),
            expected.len()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_out_of_order_is_found() {
        let expected = Expected::from([("a".to_owned(), 2)]);
        let found =
            |seqs: &[u64]| -> Found { seqs.iter().map(|it| ("a".to_owned(), *it)).collect() };
        assert_eq!(compare(&found(&[1, 2]), &expected).unwrap(), 0);
        assert_eq!(compare(&found(&[1, 1, 2, 1]), &expected).unwrap(), 2);
        assert!(compare(&found(&[2, 1]), &expected).is_err());
        assert!(compare(&found(&[1]), &expected).is_err());
        assert!(compare(&found(&[1, 2, 3]), &expected).is_err());
    }
}
