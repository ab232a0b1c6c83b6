//! Prints step logs: `step | text` for people, one JSON object per line for programs.

use std::collections::{HashMap, VecDeque};
use std::io::Write;

use anyhow::Result;
use serde_json::json;
use stepwell_worker::step_log::Stream;

use super::{ExecutionLog, LogLine, LogReader};
use crate::output_format::OutputFormat;
use crate::term::{Paint, Tone, one_line, pad, width};

/// The widest column of names.
const WIDEST: usize = 32;

/// Selects log lines and their format.
#[derive(Debug)]
pub(super) struct LogQuery<'w> {
    pub(super) run_id: &'w str,
    pub(super) step: Option<&'w str>,
    pub(super) execution: Option<u32>,
    pub(super) tail: Option<usize>,
    pub(super) output: OutputFormat,
    pub(super) paint: Paint,
}

/// An execution that has a log.
type Execution = (String, u32);

/// Prints new log lines with each call.
pub(super) struct LogPrinter<'p> {
    reader: &'p dyn LogReader,
    wanted: LogQuery<'p>,
    /// For each execution: the position after the last printed line, and the size of the log then.
    places: HashMap<Execution, (u64, u64)>,
    /// The execution of the last printed line.
    last: Option<Execution>,
    columns: usize,
    /// Whether to apply `--tail`; only for the first read.
    skips: bool,
}

impl LogQuery<'_> {
    /// A step name includes its visits, items and undo; a visit includes its items and undo.
    fn includes(&self, log: &ExecutionLog) -> bool {
        let step = self.step.is_none_or(|wanted| {
            let rest = log.step_id.strip_prefix(wanted);
            let is_part = |rest: &str| rest.is_empty() || rest.starts_with(['[', '#', '~']);
            rest.is_some_and(is_part)
        });
        step && self.execution.is_none_or(|number| number == log.execution)
    }
}

impl<'p> LogPrinter<'p> {
    pub(super) fn new(reader: &'p dyn LogReader, wanted: LogQuery<'p>) -> LogPrinter<'p> {
        LogPrinter {
            reader,
            skips: wanted.tail.is_some(),
            wanted,
            places: HashMap::new(),
            last: None,
            columns: 0,
        }
    }

    /// Whether no selected execution has a log.
    pub(super) fn has_found_none(&self) -> bool {
        self.places.is_empty()
    }

    /// Prints the lines since the last call.
    pub(super) fn print(&mut self, out: &mut dyn Write) -> Result<()> {
        let mut all = self.reader.list(self.wanted.run_id)?;
        all.retain(|log| self.wanted.includes(log));
        let widths = all.iter().map(|log| width(&one_line(&log.step_id)));
        self.columns = widths.max().unwrap_or(0).min(WIDEST).max(self.columns);
        let most = match self.skips {
            true => self.wanted.tail,
            false => None,
        };
        self.skips = false;
        let mut kept: VecDeque<(Execution, LogLine)> = VecDeque::new();
        for log in all {
            let execution = (log.step_id, log.execution);
            for line in self.fresh(&execution, log.bytes)? {
                let Some(most) = most else {
                    self.line(out, &execution, &line)?;
                    continue;
                };
                kept.push_back((execution.clone(), line));
                if kept.len() > most {
                    kept.pop_front();
                }
            }
        }
        for (execution, line) in kept {
            self.line(out, &execution, &line)?;
        }
        Ok(())
    }

    fn fresh(&mut self, execution: &Execution, bytes: u64) -> Result<Vec<LogLine>> {
        let (from, size) = self.places.get(execution).copied().unwrap_or_default();
        if size == bytes && from > 0 {
            return Ok(Vec::new());
        }
        let (step_id, number) = (&execution.0, execution.1);
        let reader = self.reader;
        let (lines, place) = reader.read(self.wanted.run_id, step_id, number, from)?;
        self.places.insert(execution.clone(), (place, bytes));
        Ok(lines)
    }

    fn line(&mut self, out: &mut dyn Write, execution: &Execution, line: &LogLine) -> Result<()> {
        let (step_id, number) = execution;
        if self.wanted.output == OutputFormat::Json {
            let object = json!({
                "runId": self.wanted.run_id,
                "stepId": step_id,
                "execution": number,
                "at": line.at,
                "task": line.task,
                "stream": line.stream.name(),
                "text": line.text,
            });
            return Ok(writeln!(out, "{object}")?);
        }
        let paint = self.wanted.paint;
        let step = one_line(step_id);
        if self.last.as_ref() != Some(execution) {
            // The first execution of a step needs no heading: the margin shows the step.
            if self.last.is_some() || *number > 1 {
                let heading = format!("-- {step}, execution {number} --");
                writeln!(out, "{}", paint.tone(Tone::Dim, &heading))?;
            }
            self.last = Some(execution.clone());
        }
        let margin = paint.tone(Tone::Dim, &format!("{} |", pad(&step, self.columns)));
        let text = one_line(&line.text);
        let text = match line.stream {
            Stream::Out => text,
            Stream::Err => paint.tone(Tone::Warn, &text),
            Stream::Note => paint.tone(Tone::Dim, &format!("({text})")),
        };
        Ok(writeln!(out, "{margin} {text}")?)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use expect_test::expect;

    use super::*;

    /// Logs in memory: each execution with its lines.
    #[derive(Default)]
    struct Memory(RefCell<Vec<(Execution, Vec<LogLine>)>>);

    impl Memory {
        fn say(&self, step_id: &str, execution: u32, stream: Stream, text: &str) {
            let mut all = self.0.borrow_mut();
            let key = (step_id.to_owned(), execution);
            let at = all.iter().position(|(it, _)| *it == key);
            let at = at.unwrap_or_else(|| {
                all.push((key, Vec::new()));
                all.len() - 1
            });
            all[at].1.push(LogLine {
                at: "2026-01-01T00:00:00.000Z".to_owned(),
                task: String::new(),
                stream,
                text: text.to_owned(),
            });
        }
    }

    impl LogReader for Memory {
        fn list(&self, _: &str) -> Result<Vec<ExecutionLog>> {
            let all = self.0.borrow();
            let kept = all
                .iter()
                .map(|((step_id, execution), lines)| ExecutionLog {
                    step_id: step_id.clone(),
                    execution: *execution,
                    bytes: lines.len() as u64,
                });
            Ok(kept.collect())
        }

        fn read(
            &self,
            _: &str,
            step_id: &str,
            execution: u32,
            from: u64,
        ) -> Result<(Vec<LogLine>, u64)> {
            let all = self.0.borrow();
            let mut all = all.iter();
            let found = all.find(|((step, number), _)| step == step_id && *number == execution);
            let lines = found.map(|(_, lines)| lines.as_slice()).unwrap_or_default();
            Ok((lines[from as usize..].to_vec(), lines.len() as u64))
        }

        fn place(&self) -> String {
            "memory".to_owned()
        }
    }

    fn wanted(step: Option<&str>) -> LogQuery<'_> {
        LogQuery {
            run_id: "run_a",
            step,
            execution: None,
            tail: None,
            output: OutputFormat::Human,
            paint: Paint(false),
        }
    }

    fn printed(printer: &mut LogPrinter<'_>) -> String {
        let mut out = Vec::new();
        printer.print(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn two_steps() -> Memory {
        let logs = Memory::default();
        logs.say("fetch", 1, Stream::Out, "GET /a");
        logs.say("fetch", 1, Stream::Err, "503\u{1b}[2J");
        logs.say("fetch", 2, Stream::Note, "again after 1 s");
        logs.say("fetch", 2, Stream::Out, "GET /a");
        logs.say("load[3]", 1, Stream::Out, "a\tb");
        logs
    }

    #[test]
    fn attempts_and_steps_are_told_apart() {
        let logs = two_steps();
        let mut printer = LogPrinter::new(&logs, wanted(None));
        expect![[r"
            fetch   | GET /a
            fetch   | 503\u{1b}[2J
            -- fetch, execution 2 --
            fetch   | (again after 1 s)
            fetch   | GET /a
            -- load[3], execution 1 --
            load[3] | a b
        "]]
        .assert_eq(&printed(&mut printer));
        assert!(!printer.has_found_none());
    }

    #[test]
    fn a_second_look_prints_only_what_is_new() {
        let logs = two_steps();
        let mut printer = LogPrinter::new(&logs, wanted(Some("load")));
        assert_eq!(printed(&mut printer), "load[3] | a b\n");
        assert_eq!(printed(&mut printer), "");
        logs.say("load[3]", 1, Stream::Out, "c");
        logs.say("fetch", 2, Stream::Out, "not asked for");
        assert_eq!(printed(&mut printer), "load[3] | c\n");
    }

    #[test]
    fn one_attempt_and_the_last_lines_can_be_asked_for() {
        let logs = two_steps();
        let second = LogQuery {
            execution: Some(2),
            ..wanted(Some("fetch"))
        };
        let second = printed(&mut LogPrinter::new(&logs, second));
        let shown = "-- fetch, execution 2 --\nfetch | (again after 1 s)\nfetch | GET /a\n";
        assert_eq!(second, shown);
        let last = LogQuery {
            tail: Some(2),
            ..wanted(None)
        };
        let mut printer = LogPrinter::new(&logs, last);
        let shown = "-- fetch, execution 2 --\nfetch   | GET /a\n-- load[3], execution 1 --\nload[3] | a b\n";
        assert_eq!(printed(&mut printer), shown);
        logs.say("load[3]", 1, Stream::Out, "c");
        logs.say("load[3]", 1, Stream::Out, "d");
        logs.say("load[3]", 1, Stream::Out, "e");
        assert_eq!(printed(&mut printer).lines().count(), 3);
    }

    #[test]
    fn a_name_is_not_the_beginning_of_another() {
        let logs = Memory::default();
        logs.say("load-all", 1, Stream::Out, "other");
        logs.say("load#2[1]", 1, Stream::Out, "item of a visit");
        logs.say("load~undo", 1, Stream::Out, "undo");
        let shown = printed(&mut LogPrinter::new(&logs, wanted(Some("load"))));
        assert!(!shown.contains("other"), "{shown}");
        assert!(
            shown.contains("item of a visit") && shown.contains("undo"),
            "{shown}"
        );
        let mut nothing = LogPrinter::new(&logs, wanted(Some("loa")));
        assert_eq!(printed(&mut nothing), "");
        assert!(nothing.has_found_none());
    }

    #[test]
    fn programs_get_one_object_per_line() {
        let logs = two_steps();
        let json = LogQuery {
            output: OutputFormat::Json,
            tail: Some(1),
            ..wanted(None)
        };
        let text = printed(&mut LogPrinter::new(&logs, json));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["stepId"], "load[3]");
        assert_eq!(line["execution"], 1);
        assert_eq!(line["stream"], "out");
        assert_eq!(line["text"], "a\tb");
    }
}
