//! A program's output: each line into the step's log at once, and its head and its tail for the
//! result. Memory is bounded, and the program is never made to wait for a reader that is full.
//!
//! Wherever the output is cut, secrets are taken out before, because half a secret is not recognised
//! afterwards: as many bytes beyond the cut are kept as the longest secret has.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use crate::secrets::Redactor;
use crate::step_log::{StepLog, Stream};
use crate::tool::TaskContext;

/// A longer line goes into the log in pieces.
const LONGEST_LINE: usize = 16 * 1024;

/// As much as a pipe holds.
const CHUNK: usize = 64 * 1024;

/// A pipe: the end that is read here, and the end for the program.
pub(crate) struct Piped {
    pub(crate) reader: Receiver,
    pub(crate) writer: OwnedFd,
}

/// A new pipe. Neither end is handed on to a program unless it is asked for.
pub(crate) fn piped() -> io::Result<Piped> {
    let (reader, writer) = std::io::pipe()?;
    Ok(Piped {
        reader: Receiver::from_owned_fd(reader.into())?,
        writer: writer.into(),
    })
}

/// What is kept of one stream.
#[derive(Debug)]
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// How much of each of the two is shown.
    half: usize,
    /// How much more each of the two holds, to recognise secrets that reach beyond the cut.
    margin: usize,
    total: u64,
    lines: LineLog,
    redactor: Redactor,
}

impl Capture {
    pub(crate) fn new(stream: Stream, cx: &TaskContext) -> Capture {
        Capture {
            head: Vec::new(),
            tail: VecDeque::new(),
            half: cx.limits.captured_bytes / 2,
            margin: cx.redactor.longest(),
            total: 0,
            lines: LineLog {
                stream,
                log: cx.log.clone(),
                redactor: cx.redactor.clone(),
                begun: Vec::new(),
                written: 0,
                left: cx.limits.log_bytes,
                is_open: false,
            },
            redactor: cx.redactor.clone(),
        }
    }

    /// Reads until the other end is closed.
    pub(crate) async fn read(&mut self, mut reader: Receiver) {
        let mut chunk = vec![0; CHUNK];
        // An error ends the stream like its end: there is nothing more to be had from it.
        while let Ok(count @ 1..) = reader.read(&mut chunk).await {
            self.take(&chunk[..count]);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.lines.take(bytes);
        let kept = self.half + self.margin;
        let room = kept.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        let last = &rest[rest.len().saturating_sub(kept)..];
        let surplus = (self.tail.len() + last.len()).saturating_sub(kept);
        self.tail.drain(..surplus);
        self.tail.extend(last);
    }

    /// The last line too, if it has no end.
    pub(crate) fn finish(&mut self) {
        self.lines.finish();
    }

    /// How many bytes are not shown.
    pub(crate) fn left_out(&self) -> u64 {
        self.total.saturating_sub(2 * self.half as u64)
    }

    /// What is shown; if something is left out, without secrets. Bytes that are no UTF-8 are replaced.
    pub(crate) fn text(&self) -> String {
        let (one, two) = self.tail.as_slices();
        let kept = [&self.head, one, two].concat();
        let left_out = self.left_out();
        if left_out == 0 {
            return lossy(&kept);
        }
        // Between head and tail there may be a gap, so that each is searched alone.
        let head = self.redactor.window(&self.head, 0..self.half);
        let tail = match kept.len() as u64 == self.total {
            true => &kept[..],
            false => &kept[self.head.len()..],
        };
        let tail = self
            .redactor
            .window(tail, tail.len() - self.half..tail.len());
        format!(
            "{}\n[{left_out} bytes left out]\n{}",
            lossy(&head),
            lossy(&tail)
        )
    }

    /// The last lines of the output, at most `bytes` bytes, without secrets.
    pub(crate) fn last(&self, bytes: usize) -> String {
        let text = self.text();
        let text = self.redactor.text(text.trim_end());
        let mut from = text.len().saturating_sub(bytes);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text[from..].to_owned()
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Cuts a stream into lines for the step's log.
#[derive(Debug)]
struct LineLog {
    stream: Stream,
    log: StepLog,
    redactor: Redactor,
    /// The line that has begun. The end of what is written stays, to recognise a secret that begins there.
    begun: Vec<u8>,
    /// How many bytes of it are written.
    written: usize,
    /// How much may still be logged: a flood must not keep the worker busy.
    left: usize,
    /// Of what is only counted: a line has begun and has not ended.
    is_open: bool,
}

impl LineLog {
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.left > 0 {
            // A piece is cut when all secrets that begin in it are here to their end.
            let longest = self.redactor.longest();
            let full = self.written + LONGEST_LINE + longest;
            let room = full.saturating_sub(self.begun.len());
            let seen = &bytes[..bytes.len().min(room)];
            let Some(end) = seen.iter().position(|byte| *byte == b'\n') else {
                self.begun.extend_from_slice(seen);
                bytes = &bytes[seen.len()..];
                if self.begun.len() >= full {
                    self.cut(longest);
                }
                continue;
            };
            self.begun.extend_from_slice(&seen[..end]);
            bytes = &bytes[end + 1..];
            self.end();
        }
        self.count(bytes);
    }

    /// Counts what is not logged any more: readers of the log are told how much of it there was.
    fn count(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.is_open = *last != b'\n';
        // The ends of lines are not counted, as in lines that are logged.
        self.log.left_out(lines, bytes.len() as u64 - lines);
    }

    /// Writes a piece of a line that is too long, but no half character.
    fn cut(&mut self, longest: usize) {
        let most = self.written + LONGEST_LINE;
        let mut end = most;
        let is_inside = |byte: u8| byte & 0b1100_0000 == 0b1000_0000;
        let begins = |byte: u8| byte >= 0b1100_0000;
        for back in 1..=4 {
            let byte = self.begun[most - back];
            if begins(byte) {
                end = most - back;
            }
            if !is_inside(byte) {
                break;
            }
        }
        self.write(end);
        let context = end.saturating_sub(longest);
        self.begun.drain(..context);
        self.written = end - context;
    }

    /// Writes the rest of the line.
    fn end(&mut self) {
        let end = match self.begun.strip_suffix(b"\r") {
            Some(line) => line.len().max(self.written),
            None => self.begun.len(),
        };
        self.write(end);
        self.begun.clear();
        self.written = 0;
    }

    fn write(&mut self, end: usize) {
        let line = self.redactor.window(&self.begun, self.written..end);
        self.log.line(self.stream, &String::from_utf8_lossy(&line));
        self.left = self.left.saturating_sub(end - self.written + 1);
    }

    fn finish(&mut self) {
        if self.begun.len() > self.written && self.left > 0 {
            self.end();
        }
        if std::mem::take(&mut self.is_open) {
            self.log.left_out(1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::step_log::LogSink;
    use crate::testing::programs;
    use crate::tool::TaskLimits;

    #[derive(Default)]
    struct Kept(Mutex<Vec<String>>);

    impl LogSink for Kept {
        fn line(&self, _: &str, _: Stream, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
    }

    fn captured(limit: usize, chunks: &[&[u8]]) -> (Capture, Vec<String>) {
        captured_without("", limit, chunks)
    }

    fn captured_without(secret: &str, limit: usize, chunks: &[&[u8]]) -> (Capture, Vec<String>) {
        let kept = Arc::new(Kept::default());
        let limits = TaskLimits {
            captured_bytes: limit,
            ..TaskLimits::default()
        };
        let log = StepLog::new(kept.clone());
        let cx = TaskContext {
            limits,
            log,
            ..programs::cx()
        };
        cx.redactor.add(secret);
        let mut capture = Capture::new(Stream::Out, &cx);
        for chunk in chunks {
            capture.take(chunk);
        }
        capture.finish();
        let lines = kept.0.lock().unwrap().clone();
        (capture, lines)
    }

    #[test]
    fn a_line_that_comes_in_pieces_is_one_line() {
        let (capture, lines) = captured(100, &[b"he", b"llo\r\nwor", b"ld"]);
        assert_eq!(lines, ["hello", "world"]);
        assert_eq!(capture.text(), "hello\r\nworld");
    }

    /// Counts what is not kept.
    #[derive(Default)]
    struct Counted(Mutex<(u64, u64, u64)>);

    impl LogSink for Counted {
        fn line(&self, _: &str, _: Stream, _: &str) {
            self.0.lock().unwrap().0 += 1;
        }

        fn left_out(&self, lines: u64, bytes: u64) {
            let mut all = self.0.lock().unwrap();
            (all.1, all.2) = (all.1 + lines, all.2 + bytes);
        }
    }

    #[test]
    fn lines_that_are_too_many_are_counted() {
        for (end, wanted) in [("", 1_000), ("the last one has no end", 1_001)] {
            let counted = Arc::new(Counted::default());
            let cx = TaskContext {
                limits: TaskLimits {
                    log_bytes: 100,
                    ..TaskLimits::default()
                },
                log: StepLog::new(counted.clone()),
                ..programs::cx()
            };
            let mut capture = Capture::new(Stream::Out, &cx);
            let text = format!("{}{end}", "0123456789\n".repeat(1_000));
            for chunk in text.as_bytes().chunks(7) {
                capture.take(chunk);
            }
            capture.finish();
            let (lines, left_out, bytes) = *counted.0.lock().unwrap();
            assert_eq!(lines + left_out, wanted);
            assert_eq!(bytes, left_out.min(1_000 - lines) * 10 + end.len() as u64);
        }
    }

    #[test]
    fn head_and_tail_are_kept_and_the_middle_is_counted() {
        let (capture, _) = captured(8, &[b"abcdef", b"ghijkl", b"mnop"]);
        assert_eq!(capture.left_out(), 8);
        assert_eq!(capture.text(), "abcd\n[8 bytes left out]\nmnop");
        assert_eq!(capture.last(2), "op");
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let long = format!("x{}", "é".repeat(LONGEST_LINE));
        let (_, lines) = captured(100, &[long.as_bytes()]);
        assert!(lines.iter().all(|line| line.len() <= LONGEST_LINE));
        assert_eq!(lines.concat(), long);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let (capture, lines) = captured(100, &[b"a\xff\xfeb\n"]);
        assert_eq!(lines, ["a\u{fffd}\u{fffd}b"]);
        assert_eq!(capture.text(), "a\u{fffd}\u{fffd}b\n");
    }
    /// Pieces of a secret that nobody would write by chance.
    fn leaks(secret: &str, text: &str) -> bool {
        let pieces = secret.as_bytes().windows(6);
        let mut pieces = pieces.map(|it| std::str::from_utf8(it).unwrap());
        pieces.any(|piece| text.contains(piece))
    }

    #[test]
    fn a_secret_across_a_cut_leaves_no_half() {
        let secret = "s3cr3t-0123456789-abcdefghij-KLMNOPQRST";
        let output = format!("{}{secret}{}", "x".repeat(100), "y".repeat(300));
        // Each cut of the result falls into the secret once, at its head and at its tail.
        for limit in 190..300 {
            let (capture, _) = captured_without(secret, limit, &[output.as_bytes()]);
            let text = capture.text();
            assert!(!leaks(secret, &text), "{limit}: {text}");
            assert!(text.contains("bytes left out"), "{text}");
            let turned: String = output.replace(['x', 'y'], "") + &"z".repeat(60);
            let (capture, _) = captured_without(
                secret,
                limit,
                &["w".repeat(300).as_bytes(), turned.as_bytes()],
            );
            assert!(
                !leaks(secret, &capture.text()),
                "{limit}: {}",
                capture.text()
            );
            assert!(!leaks(secret, &capture.last(limit / 3)), "{limit}");
        }
        // So does each cut of a long line in the log, however the line comes.
        for shift in 0..=secret.len() {
            let line = format!(
                "{}{secret}{}",
                "x".repeat(LONGEST_LINE - shift),
                "y".repeat(LONGEST_LINE)
            );
            for size in [7, 4096, usize::MAX] {
                let chunks: Vec<&[u8]> = line.as_bytes().chunks(size).collect();
                let (_, lines) = captured_without(secret, 100, &chunks);
                assert!(lines.len() >= 2, "{shift}");
                let all = lines.concat();
                assert!(!leaks(secret, &all), "{shift}");
                assert!(all.contains("***"), "{shift}");
                let kept = all.replace('*', "").len();
                assert_eq!(
                    kept,
                    line.len() - secret.len(),
                    "{shift}: nothing else is lost"
                );
            }
        }
    }
}
