//! `stepwell db check`: looks for damage in the whole store, and repairs what follows from the logs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use serde_json::{Value as Json, json};
use stepwell_engine::audit::{Audited, RunDamage, audit};
use stepwell_engine::clock::SystemClock;
use stepwell_engine::port::Clock as _;
use stepwell_engine::store::{RunFilter, RunNo, Store, StoreError, StoreErrorKind};
use stepwell_stores::sqlite::{accept_loss, backup};
use stepwell_stores::{Address, OpenMode};

use super::CheckArgs;
use crate::exit::Exit;
use crate::output_format::OutputFormat;
use crate::progress::Progress;
use crate::runs::say;
use crate::term::{self, Tone, count, one_line};
use stepwell_views::RunView;
use stepwell_views::why::waits_for_someone;

/// The maximum number of runs without a wake-up that `check` reads.
const ASLEEP: usize = 100;

/// How many runs are listed at a time.
const PAGE: usize = 256;

/// The result of a check.
#[derive(Debug, Default)]
struct Report {
    /// What the database found, about no run in particular.
    problems: Vec<String>,
    findings: Vec<RunDamage>,
    /// Runs in quarantine, by id, and why each of them is there.
    quarantined: BTreeMap<String, String>,
    /// Open runs that wait for a person or an event.
    people: Vec<String>,
    /// Open runs that nothing can continue.
    lost: Vec<String>,
    /// What the repair did.
    repaired: Vec<String>,
    /// What a newer version wrote and this version does not know, by run.
    unknown: BTreeMap<String, Vec<String>>,
}

impl Report {
    fn is_good(&self) -> bool {
        self.problems.is_empty()
            && self.findings.is_empty()
            && self.quarantined.is_empty()
            && self.lost.is_empty()
    }
}

pub(super) fn check(args: &CheckArgs) -> Result<Exit> {
    let on = &args.common;
    let mut report = Report::default();
    let store = match args.repair {
        true => {
            if let Address::Sqlite(path) = on.store.address()? {
                let copy = backup(&path)?;
                report
                    .repaired
                    .push(format!("the store was copied to {}", copy.display()));
                report.repaired.extend(accept_loss(&path)?);
            }
            on.store.own_existing()?.patient()
        }
        false => on.store.read()?,
    };
    let checking = Progress::of("checking the store");
    let health = store.check()?;
    report.problems = health.problems;
    drop(checking);
    each_run(&*store, health.runs, args.repair, &mut report)?;
    if args.repair {
        report.repaired.extend(store.correct()?);
        report.problems = store.check()?.problems;
    }
    if report.problems.is_empty() {
        open_runs(&store, &mut report)?;
    }
    let good = report.is_good();
    let json = json!({
        "store": on.store.shown(), "kind": store.name(), "ok": good, "schema": health.schema,
        "runs": health.runs, "open": health.open, "problems": report.problems,
        "damage": report.findings.iter().map(finding_json).collect::<Vec<Json>>(),
        "quarantined": report.quarantined,
        "waitForSomeone": report.people, "nothingWakes": report.lost, "repaired": report.repaired,
        "unknownToThisVersion": report.unknown,
    });
    if on.output == OutputFormat::Json {
        say(on.output, "", &json)?;
    } else {
        let shown = (on.store.shown(), health.schema, health.runs, health.open);
        term::print(&text(&report, shown))?;
    }
    Ok(if good { Exit::Ok } else { Exit::Problems })
}

/// What a whole store has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contents {
    pub(super) schema: i64,
    pub(super) runs: u64,
    pub(super) open: u64,
}

/// Looks for damage in a file that nobody owns; says what was found, or what the store has.
pub(super) fn verify(file: &Path) -> Result<Contents> {
    let store = Address::Sqlite(file.to_owned()).open(OpenMode::ReadOnly)?;
    let mut report = Report::default();
    let health = store.check()?;
    report.problems = health.problems;
    each_run(&*store, health.runs, false, &mut report)?;
    if report.problems.is_empty() {
        open_runs(&store, &mut report)?;
    }
    if !report.is_good() {
        let shown = (
            file.display().to_string(),
            health.schema,
            health.runs,
            health.open,
        );
        anyhow::bail!("the copy is damaged:\n{}", text(&report, shown).trim_end());
    }
    Ok(Contents {
        schema: health.schema,
        runs: health.runs,
        open: health.open,
    })
}

/// Audits every run, and repairs those that can be repaired.
fn each_run(store: &dyn Store, runs: u64, repair: bool, report: &mut Report) -> Result<()> {
    let checking = Progress::of_many("verifying logs", runs);
    let quarantined: BTreeMap<RunNo, String> = store.quarantined()?.into_iter().collect();
    let mut before = None;
    loop {
        let filter = RunFilter {
            before,
            limit: PAGE,
            ..RunFilter::default()
        };
        let page = match store.list(&filter) {
            Ok(page) => page,
            Err(error) => {
                report
                    .problems
                    .push(unreadable(&error, "the list of runs")?);
                break;
            }
        };
        for summary in &page {
            checking.step();
            let audited = match audit(store, summary.run, SystemClock.now()) {
                Ok(audited) => audited,
                Err(error) => {
                    let what = unreadable(&error, "its rows")?;
                    let finding = RunDamage {
                        run_id: summary.run_id.clone(),
                        table: "store",
                        what,
                        derivable: false,
                    };
                    Audited {
                        findings: vec![finding],
                        ..Audited::default()
                    }
                }
            };
            if !audited.unknown.is_empty() {
                let unknown = audited.unknown.clone();
                report.unknown.insert(summary.run_id.clone(), unknown);
            }
            let known = quarantined.get(&summary.run);
            if repair {
                repair_run(
                    store,
                    summary.run,
                    &summary.run_id,
                    &audited,
                    known.is_some(),
                    report,
                )?;
            } else {
                report.findings.extend(audited.findings);
                if let Some(why) = known {
                    report
                        .quarantined
                        .insert(summary.run_id.clone(), why.clone());
                }
            }
        }
        match page.last() {
            Some(last) if page.len() == PAGE => before = Some(last.run),
            _ => break,
        }
    }
    Ok(())
}

/// What a store that cannot be read says of what was asked for; an error that is no damage is passed on.
fn unreadable(error: &StoreError, what: &str) -> Result<String> {
    match error.kind == StoreErrorKind::Corrupt {
        true => Ok(format!("{what} cannot be read: {}", error.message)),
        false => Err(error.clone().into()),
    }
}

/// Repairs a run: rows that follow from its log are made anew; a run with a damaged log is put into
/// quarantine, and one that is whole again is released.
fn repair_run(
    store: &dyn Store,
    run: RunNo,
    run_id: &str,
    audited: &Audited,
    is_quarantined: bool,
    report: &mut Report,
) -> Result<()> {
    let now = SystemClock.now();
    if let Some(damage) = audited.log_damage() {
        if !is_quarantined {
            store.quarantine(run, &damage.what, now)?;
            report
                .repaired
                .push(format!("run {run_id} was put into quarantine"));
        }
        report
            .quarantined
            .insert(run_id.to_owned(), damage.what.clone());
        return Ok(());
    }
    let begin = format!("run {run_id}: ");
    let rows: Vec<&String> = report
        .problems
        .iter()
        .filter(|it| it.starts_with(&begin))
        .collect();
    if let (false, Some(derived)) = (
        audited.findings.is_empty() && rows.is_empty(),
        &audited.derived,
    ) {
        store.rebuild(run, derived, now)?;
        let rows = rows
            .iter()
            .map(|it| format!("{it}; made anew from the log"));
        report.repaired.extend(rows.collect::<Vec<String>>());
        for finding in &audited.findings {
            let what = format!(
                "run {run_id}: {} was made anew from the log: {}",
                finding.table, finding.what
            );
            report.repaired.push(what);
        }
    }
    if is_quarantined {
        store.release(run)?;
        report.repaired.push(format!(
            "run {run_id} is whole and was released from quarantine"
        ));
    }
    Ok(())
}

/// Open runs that no row will wake.
fn open_runs(store: &Arc<dyn Store>, report: &mut Report) -> Result<()> {
    let asleep = store.asleep(ASLEEP)?;
    let checking = Progress::of_many("checking open runs", asleep.len() as u64);
    for run_id in asleep {
        checking.step();
        let view = match RunView::read(&**store, &run_id) {
            Ok(view) => view,
            // The damage of the run was found above.
            Err(error) if error.is_damage() => continue,
            Err(error) => return Err(error.into()),
        };
        match (view.state.phase().is_ended(), waits_for_someone(&view)) {
            (true, _) => {}
            (false, true) => report.people.push(run_id),
            (false, false) => report.lost.push(run_id),
        }
    }
    Ok(())
}

fn finding_json(finding: &RunDamage) -> Json {
    json!({
        "run": finding.run_id, "table": finding.table, "what": finding.what,
        "repairable": finding.derivable,
    })
}

fn text(report: &Report, (store, schema, runs, open): (String, i64, u64, u64)) -> String {
    let paint = term::stdout_paint();
    let bad = paint.tone(Tone::Bad, "bad ");
    let mut text = String::new();
    let mut line = |mark: &str, what: &str| text.push_str(&format!("{mark}  {}\n", one_line(what)));
    for problem in &report.problems {
        line(&bad, problem);
    }
    for finding in &report.findings {
        let RunDamage {
            run_id,
            table,
            what,
            ..
        } = finding;
        let help = if finding.derivable {
            " (`--repair` makes it anew)"
        } else {
            ""
        };
        line(&bad, &format!("run {run_id}: table {table}: {what}{help}"));
    }
    for (run_id, why) in &report.quarantined {
        line(&bad, &format!("run {run_id} is in quarantine: {why}"));
    }
    for run_id in &report.lost {
        let what =
            format!("run {run_id} is open, but no timer, task, message or person can continue it");
        line(&bad, &what);
    }
    for (run_id, unknown) in &report.unknown {
        for what in unknown {
            let what = format!("run {run_id}: a newer version wrote the run: {what}");
            line(&paint.tone(Tone::Dim, "note"), &what);
        }
        let what = format!(
            "run {run_id}: the log is whole; its rows were not compared, because this version does not know all of it"
        );
        line(&paint.tone(Tone::Dim, "note"), &what);
    }
    for done in &report.repaired {
        line(&paint.tone(Tone::Good, "done"), done);
    }
    let mark = match report.is_good() {
        true => paint.tone(Tone::Good, "ok  "),
        false => bad,
    };
    let waiting = match report.people.len() {
        0 => String::new(),
        many => format!(", {many} waiting for a person or an event"),
    };
    let runs = count(usize::try_from(runs).unwrap_or(usize::MAX), "run");
    text.push_str(&format!(
        "{mark}  {store}  schema {schema}, {runs}, {open} open{waiting}\n"
    ));
    text
}
