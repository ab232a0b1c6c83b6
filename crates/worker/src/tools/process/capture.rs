//! A program's output: each line into the step's log at once, and its head and its tail for the
//! result. Memory is bounded, and the program is never made to wait for a reader that is full.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use crate::step_log::{StepLog, Stream};
use crate::tool::TaskLimits;

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
    /// How much each of the two may hold.
    half: usize,
    total: u64,
    lines: LineLog,
}

impl Capture {
    pub(crate) fn new(stream: Stream, log: StepLog, limits: &TaskLimits) -> Capture {
        Capture {
            head: Vec::new(),
            tail: VecDeque::new(),
            half: limits.captured_bytes / 2,
            total: 0,
            lines: LineLog::new(stream, log, limits.log_bytes),
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
        let room = self.half.saturating_sub(self.head.len()).min(bytes.len());
        let (first, rest) = bytes.split_at(room);
        self.head.extend_from_slice(first);
        let last = &rest[rest.len().saturating_sub(self.half)..];
        let surplus = (self.tail.len() + last.len()).saturating_sub(self.half);
        self.tail.drain(..surplus);
        self.tail.extend(last);
    }

    /// The last line too, if it has no end.
    pub(crate) fn finish(&mut self) {
        self.lines.finish();
    }

    /// How many bytes were not kept.
    pub(crate) fn left_out(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// What was kept. Bytes that are no UTF-8 are replaced.
    pub(crate) fn text(&self) -> String {
        let (one, two) = self.tail.as_slices();
        match self.left_out() {
            0 => lossy(&[&self.head, one, two].concat()),
            left_out => format!(
                "{}\n[{left_out} bytes left out]\n{}",
                lossy(&self.head),
                lossy(&[one, two].concat())
            ),
        }
    }

    /// Its last lines, at most `bytes` of them.
    pub(crate) fn last(&self, bytes: usize) -> String {
        let text = self.text();
        let text = text.trim_end();
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
    begun: Vec<u8>,
    /// How much may still be logged: a flood must not keep the worker busy.
    left: usize,
}

impl LineLog {
    fn new(stream: Stream, log: StepLog, left: usize) -> LineLog {
        LineLog {
            stream,
            log,
            begun: Vec::new(),
            left,
        }
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.left > 0 {
            let room = LONGEST_LINE - self.begun.len();
            let seen = &bytes[..bytes.len().min(room)];
            let Some(end) = seen.iter().position(|byte| *byte == b'\n') else {
                self.begun.extend_from_slice(seen);
                bytes = &bytes[seen.len()..];
                if self.begun.len() == LONGEST_LINE {
                    self.cut();
                }
                continue;
            };
            self.begun.extend_from_slice(&seen[..end]);
            bytes = &bytes[end + 1..];
            self.write(self.begun.len());
        }
    }

    /// Writes a piece of a line that is too long, but no half character.
    fn cut(&mut self) {
        let mut end = self.begun.len();
        let is_inside = |byte: u8| byte & 0b1100_0000 == 0b1000_0000;
        let begins = |byte: u8| byte >= 0b1100_0000;
        for back in 1..=4 {
            let byte = self.begun[self.begun.len() - back];
            if begins(byte) {
                end = self.begun.len() - back;
            }
            if !is_inside(byte) {
                break;
            }
        }
        self.write(end);
    }

    fn write(&mut self, end: usize) {
        let line = &self.begun[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.log.line(self.stream, &String::from_utf8_lossy(line));
        self.left = self.left.saturating_sub(end + 1);
        self.begun.drain(..end);
        if self.left == 0 {
            self.log.note(&format!(
                "std{} said more than the log keeps; the rest is not logged",
                self.stream.name()
            ));
        }
    }

    fn finish(&mut self) {
        if !self.begun.is_empty() && self.left > 0 {
            self.write(self.begun.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::step_log::LogSink;

    #[derive(Default)]
    struct Kept(Mutex<Vec<String>>);

    impl LogSink for Kept {
        fn line(&self, _: &str, _: Stream, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
    }

    fn captured(limit: usize, chunks: &[&[u8]]) -> (Capture, Vec<String>) {
        let kept = Arc::new(Kept::default());
        let limits = TaskLimits {
            captured_bytes: limit,
            ..TaskLimits::default()
        };
        let mut capture = Capture::new(Stream::Out, StepLog::new(kept.clone()), &limits);
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
}
