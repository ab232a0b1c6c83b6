//! `--engine all`: which engines there are, and in what they differ from the native one.

use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use stepwell_conformance::{Agreement, Column, KitResults, ParityReport, ParityRow};
use stepwell_engines::EngineAddress;
use stepwell_engines::codes::ENGINE_UNREACHABLE;

use super::ConformanceArgs;
use crate::{term, usage};

/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(3);

/// The engines that can be played on, and those that cannot.
pub(super) struct AllEngines {
    addresses: Vec<String>,
    /// The engine, and why it is skipped.
    pub(super) missing: Vec<(String, String)>,
}

/// The engines of `--engine all`; none if something else was asked for.
pub(super) fn of(args: &ConformanceArgs) -> Result<Option<AllEngines>> {
    if !args.engine.iter().any(|it| it == "all") {
        return match (&args.report, args.allow_missing) {
            (None, false) => Ok(None),
            _ => usage("--report and --allow-missing need --engine all"),
        };
    }
    if args.engine.len() > 1 || !args.store.is_empty() || args.server {
        return usage(
            "--engine all is native, mock, Temporal and Conductor on SQLite: leave out --store, --server and other engines",
        );
    }
    let mut all = AllEngines {
        addresses: Vec::new(),
        missing: Vec::new(),
    };
    let asked = [
        ("temporal", "STEPWELL_TEMPORAL", &args.temporal),
        ("conductor", "STEPWELL_CONDUCTOR", &args.conductor),
    ];
    for (engine, variable, address) in asked {
        let Some(address) = address else {
            let why = format!("no address: give --{engine} or the variable {variable}");
            all.missing.push((engine.to_owned(), why));
            continue;
        };
        let parsed = match EngineAddress::parse(address) {
            Some(Ok(parsed)) if parsed.engine() == engine => parsed,
            Some(Err(error)) => return usage(error.to_string()),
            Some(Ok(_)) | None => {
                return usage(format!(
                    "--{engine}: {address:?} is not the address of a {engine} server"
                ));
            }
        };
        crate::run::must_be_built(engine)?;
        match reached(&parsed) {
            Ok(()) => all.addresses.push(address.clone()),
            Err(why) => all.missing.push((engine.to_owned(), why)),
        }
    }
    for (engine, why) in &all.missing {
        crate::log::line(&format!("SKIPPED: {engine}: {why}"));
    }
    Ok(Some(all))
}

impl AllEngines {
    /// The native engine first: the others are compared with it.
    pub(super) fn columns(&self) -> Result<Vec<Column>> {
        let mut columns = vec![Column::native()?, Column::of_engine("mock")];
        columns.extend(self.addresses.iter().map(|it| Column::of_engine(it)));
        Ok(columns)
    }
}

/// Refuses an engine that does not answer: each scenario would wait for it.
pub(super) fn must_answer(address: &EngineAddress) -> Result<()> {
    crate::run::must_be_built(address.engine())?;
    reached(address).map_err(|why| {
        anyhow!("{ENGINE_UNREACHABLE}: {why}; check the address, and whether the server runs")
    })
}

/// Whether someone listens there.
fn reached(address: &EngineAddress) -> Result<(), String> {
    let place = address.host_and_port();
    let fault = |error: std::io::Error| format!("the server at {place} does not answer: {error}");
    let mut all = place.to_socket_addrs().map_err(fault)?;
    let first = all
        .next()
        .ok_or_else(|| format!("{place} has no address"))?;
    TcpStream::connect_timeout(&first, ANSWER)
        .map(drop)
        .map_err(fault)
}

/// Says and writes what differs. Says whether all engines agree, and all were there that must be.
pub(super) fn conclude(
    args: &ConformanceArgs,
    kit: Option<&KitResults>,
    definitions: &[ParityRow],
    missing: &[(String, String)],
) -> Result<bool> {
    let report = ParityReport {
        kit,
        definitions,
        missing,
    };
    let mut text = String::new();
    for row in definitions {
        let (name, column) = (row.definition, &row.column);
        let said = match &row.agreement {
            Agreement::Same(events) => format!("{events} events, the same"),
            Agreement::Exempt(reason) => format!("differs: {reason}"),
            Agreement::Differs(what) => format!("DIFFERS: {what}"),
        };
        text.push_str(&format!("parity  {name:<9} {column:<10} {said}\n"));
    }
    for (engine, why) in missing {
        text.push_str(&format!("SKIPPED {engine}: {why}\n"));
    }
    if args.json.as_ref().is_none_or(|it| it.as_os_str() != "-") {
        term::print(&text)?;
    }
    if let Some(path) = &args.report {
        let document = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let written = report.written_into(&document);
        let written = written.or_else(|why| usage(format!("{}: {why}", path.display())))?;
        std::fs::write(path, written)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let is_whole = missing.is_empty() || args.allow_missing;
    Ok(report.unexplained().is_empty() && is_whole)
}
