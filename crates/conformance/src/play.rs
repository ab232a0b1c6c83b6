//! Plays one scenario on one column, step by step, until its end or the first step that is not as wanted.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::process::Process;
use crate::scenario::{
    Blow, Capture, CommandLine, EndWant, ListStep, Scenario, ScenarioStep, Verb,
};
use crate::want::{self, check_text};
use crate::words;
use crate::world::World;

/// How often something is looked at while it is waited for.
const POLL: Duration = Duration::from_millis(50);

/// The step that was not as wanted.
#[derive(Clone, Debug)]
pub(crate) struct FailedStep {
    pub(crate) line: usize,
    pub(crate) step: String,
    pub(crate) why: String,
}

pub(crate) fn play(scenario: &Scenario, world: &mut World) -> Result<(), FailedStep> {
    for step in &scenario.steps {
        one(step, world).map_err(|why| FailedStep {
            line: step.line,
            step: step.text.clone(),
            why,
        })?;
    }
    Ok(())
}

fn one(step: &ScenarioStep, world: &mut World) -> Result<(), String> {
    match &step.verb {
        Verb::Call {
            command,
            limit,
            within,
            want,
        } => until(*within, world, |world| call(command, *limit, want, world)),
        Verb::Start { name, command } => {
            let process = world.start(command)?;
            world.processes.insert(name.clone(), process);
            Ok(())
        }
        Verb::Signal { process, signal } => world.strike(process, *signal),
        Verb::Finish {
            process,
            limit,
            want,
        } => {
            let mut process = world
                .processes
                .remove(process)
                .ok_or_else(|| unknown_process(process))?;
            ended(&mut process, *limit, want, world)
        }
        Verb::Output {
            process,
            within,
            out,
            err,
        } => until(Some(*within), world, |world| {
            let variables = world.variables.clone();
            let process = named(world, process)?;
            let code = process.exit();
            let (seen_out, seen_err) = (process.out(), process.err());
            let checked = check_text("standard output", out, &seen_out, &variables)
                .and_then(|()| check_text("standard error", err, &seen_err, &variables));
            checked.map_err(|why| match code {
                Some(code) => format!("{why}\n  (the process has ended with {code})"),
                None => why,
            })
        }),
        Verb::Events {
            run,
            is_extended,
            list,
        } => listed(list, world, |world| {
            event_log(run, *is_extended, Vec::new(), world)
        }),
        Verb::Write {
            path,
            text,
            is_appended,
        } => {
            let text = words::fill(text, &world.variables)?;
            let path = words::fill(path, &world.variables)?;
            world.write(&path, &text, *is_appended)
        }
        Verb::File {
            path,
            is_absent,
            list,
        } => {
            let path = words::fill(path, &world.variables)?;
            if *is_absent {
                return until(list.within, world, |world| match world.lines(&path) {
                    None => Ok(()),
                    Some(_) => Err(format!("the file {path} must not be there")),
                });
            }
            // A file that is not there yet has no lines, unless something must be in it.
            listed(list, world, |world| {
                Ok(world.lines(&path).unwrap_or_default())
            })
        }
        Verb::Requests { server, list } => listed(list, world, |world| {
            let witness = world.witnesses.get(server);
            let witness = witness.ok_or_else(|| unknown_server(server))?;
            Ok(witness.requests())
        }),
        Verb::Answer { server, answers } => {
            let witness = world.witnesses.get(server);
            let witness = witness.ok_or_else(|| unknown_server(server))?;
            witness.answer(answers.clone());
            Ok(())
        }
        Verb::Sql { sql, list } => {
            let sql = words::fill(sql, &world.variables)?;
            listed(list, world, |world| world.rows(&sql))
        }
        Verb::ChangeSql { sql, refused } => {
            let sql = words::fill(sql, &world.variables)?;
            match (world.change(&sql), refused) {
                (Ok(()), None) => Ok(()),
                (Ok(()), Some(part)) => Err(format!(
                    "the database must refuse this with {part:?}, but did it"
                )),
                (Err(why), Some(part)) if why.to_lowercase().contains(&part.to_lowercase()) => {
                    Ok(())
                }
                (Err(why), _) => Err(format!("the database refused it: {why}")),
            }
        }
        Verb::Plant { run, events } => {
            let run = words::fill(run, &world.variables)?;
            let fill = |event: &Json| words::fill_value(event, &world.variables);
            let events: Vec<Json> = events.iter().map(fill).collect::<Result<_, _>>()?;
            // Behind the back of the server too, which may stand still.
            let no_server = vec![("STEPWELL_SERVER".to_owned(), String::new())];
            let log = event_log(&run, true, no_server, world)?;
            world.plant(&log, &events)
        }
        Verb::Hold { time, name } => world.hold(*time, name.as_deref()),
        Verb::Sleep(time) => {
            thread::sleep(*time);
            Ok(())
        }
        Verb::Equal(texts) => {
            let values = filled(texts, world)?;
            match values.iter().all(|it| *it == values[0]) {
                true => Ok(()),
                false => Err(format!("these must be equal: {}", values.join(", "))),
            }
        }
        Verb::Differ(texts) => {
            let values = filled(texts, world)?;
            let twice = (1..values.len()).find(|at| values[..*at].contains(&values[*at]));
            match twice {
                None => Ok(()),
                Some(at) => Err(format!("{} is there twice", values[at])),
            }
        }
    }
}

/// The log of a run, as the program prints it.
fn event_log(
    run: &str,
    is_extended: bool,
    env: Vec<(String, String)>,
    world: &mut World,
) -> Result<Vec<Json>, String> {
    let mut words = vec!["runs".to_owned(), "events".to_owned(), run.to_owned()];
    words.extend(is_extended.then(|| "--ext".to_owned()));
    let mut process = world.start(&CommandLine {
        words,
        env,
        stdin: String::new(),
        is_program: false,
    })?;
    let code = process.wait(Duration::from_secs(60))?;
    if code != 0 {
        let why = process.err();
        return Err(format!(
            "`runs events` ended with {code}: {}",
            why.trim_end()
        ));
    }
    Ok(json_lines(&process.out()))
}

fn filled(texts: &[String], world: &World) -> Result<Vec<String>, String> {
    let fill = |text: &String| words::fill(text, &world.variables);
    texts.iter().map(fill).collect()
}

fn named<'w>(world: &'w mut World, name: &str) -> Result<&'w mut Process, String> {
    world
        .processes
        .get_mut(name)
        .ok_or_else(|| unknown_process(name))
}

fn unknown_process(name: &str) -> String {
    format!("no process runs as {name}; write `start: …` with `as: {name}` before")
}

fn unknown_server(name: &str) -> String {
    format!("there is no server {name}; add it to `servers`")
}

/// Looks until everything is as wanted or the time is over. Without a time: once.
fn until(
    within: Option<Duration>,
    world: &mut World,
    mut look: impl FnMut(&mut World) -> Result<(), String>,
) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        let seen = look(world);
        match (&seen, within) {
            (Err(why), Some(limit)) if begin.elapsed() > limit => {
                return Err(format!("not within {limit:?}: {why}"));
            }
            (Err(_), Some(_)) => thread::sleep(POLL),
            _ => return seen,
        }
    }
}

fn listed(
    list: &ListStep,
    world: &mut World,
    mut look: impl FnMut(&mut World) -> Result<Vec<Json>, String>,
) -> Result<(), String> {
    until(list.within, world, |world| {
        let seen = look(world)?;
        list.want.check(&seen, &world.variables)?;
        capture(&list.capture, &Json::Array(seen), world)
    })
}

fn call(
    command: &CommandLine,
    limit: Duration,
    want: &EndWant,
    world: &mut World,
) -> Result<(), String> {
    let mut process = world.start(command)?;
    ended(&mut process, limit, want, world)
}

/// Waits for the end of a process and looks at its exit code and output.
fn ended(
    process: &mut Process,
    limit: Duration,
    want: &EndWant,
    world: &mut World,
) -> Result<(), String> {
    let told = |process: &Process, why: String| {
        let shown = |name: &str, text: String| match text.trim_end() {
            "" => String::new(),
            text => {
                let text = want::shorten(text, 3000).replace('\n', "\n    ");
                format!("\n  {name}:\n    {text}")
            }
        };
        format!(
            "{why}{}{}",
            shown("standard output", process.out()),
            shown("standard error", process.err())
        )
    };
    let code = match process.wait(limit) {
        Ok(code) => code,
        Err(why) => {
            let _ = process.strike(Blow::Kill);
            return Err(told(process, why));
        }
    };
    let wanted = match (&want.exit[..], &want.refused) {
        ([], Some(_)) => vec![1],
        ([], None) => vec![0],
        (codes, _) => codes.to_vec(),
    };
    if !wanted.contains(&code) {
        let wanted: Vec<String> = wanted.iter().map(i64::to_string).collect();
        let why = format!("expected exit code {}, seen {code}", wanted.join(" or "));
        return Err(told(process, why));
    }
    let (out, err) = (process.out(), process.err());
    if let Some(refused) = &want.refused
        && !err.contains(refused.as_str())
    {
        return Err(told(process, format!("expected the refusal {refused}")));
    }
    check_text("standard output", &want.out, &out, &world.variables)?;
    check_text("standard error", &want.err, &err, &world.variables)?;
    if want.json.is_empty() && want.lines.is_empty() && want.capture.is_empty() {
        return Ok(());
    }
    let whole = serde_json::from_str::<Json>(&out);
    let value = whole.unwrap_or_else(|_| Json::Array(json_lines(&out)));
    for (pointer, wanted) in &want.json {
        let wanted = words::fill_value(wanted, &world.variables)?;
        want::matches(&wanted, value.pointer(pointer))
            .map_err(|why| told(process, format!("at {pointer:?}: {why}")))?;
    }
    if !want.lines.is_empty() {
        let lines = json_lines(&out);
        let checked = want.lines.check(&lines, &world.variables);
        checked.map_err(|why| match err.trim_end() {
            "" => why,
            err => format!(
                "{why}\n  standard error:\n    {}",
                err.replace('\n', "\n    ")
            ),
        })?;
    }
    capture(&want.capture, &value, world)
}

/// The lines of a text, those in JSON as what they say.
fn json_lines(text: &str) -> Vec<Json> {
    let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| Json::from(line));
    text.lines().map(line).collect()
}

fn capture(captures: &[Capture], value: &Json, world: &mut World) -> Result<(), String> {
    for capture in captures {
        let from = match &capture.of {
            None => Some(value),
            Some(of) => {
                let of = words::fill_value(of, &world.variables)?;
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                let found = items.iter().find(|it| want::matches(&of, Some(it)).is_ok());
                Some(found.ok_or_else(|| {
                    format!(
                        "nothing to capture as {}: no item matches {of}",
                        capture.name
                    )
                })?)
            }
        };
        let pointer = words::fill(&capture.pointer, &world.variables)?;
        let found = from.and_then(|it| it.pointer(&pointer));
        let Some(found) = found else {
            let shown = want::shorten(&value.to_string(), 1500);
            let name = &capture.name;
            return Err(format!(
                "nothing to capture as {name} at {pointer:?} of {shown}"
            ));
        };
        world.variables.insert(capture.name.clone(), found.clone());
    }
    Ok(())
}
