//! Server-sent events, as they come.

use reqwest::{RequestBuilder, Response};

use crate::connection::good;
use crate::error::ClientError;

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamEvent {
    /// The name of the event; empty for one without a name.
    pub name: String,
    /// What a reader who comes back names as the last event that it saw.
    pub id: Option<String>,
    pub data: String,
}

/// A stream of events that is open.
#[derive(Debug)]
pub struct EventStream {
    response: Response,
    lines: Lines,
    event: StreamEvent,
}

impl EventStream {
    pub(crate) async fn open(
        request: RequestBuilder,
        last_event_id: Option<String>,
    ) -> Result<EventStream, ClientError> {
        let mut request = request.header("accept", "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        Ok(EventStream {
            response: good(request.send().await?).await?,
            lines: Lines::default(),
            event: StreamEvent::default(),
        })
    }

    /// The next event; none if the server has ended the stream. Can be dropped and called again: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<StreamEvent>, ClientError> {
        loop {
            while let Some(line) = self.lines.next() {
                if let Some(event) = self.read(&line) {
                    return Ok(Some(event));
                }
            }
            match self.response.chunk().await? {
                Some(bytes) => self.lines.push(&bytes),
                None => return Ok(None),
            }
        }
    }

    /// Reads a line; gives the event that an empty line ends.
    fn read(&mut self, line: &str) -> Option<StreamEvent> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return (event != StreamEvent::default()).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.name = value.to_owned(),
            "id" => self.event.id = Some(value.to_owned()),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // A comment keeps the connection alive; other fields mean nothing here.
            _ => {}
        }
        None
    }
}

/// The whole lines of what was received.
#[derive(Debug, Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Option<String> {
        let end = self.0.iter().position(|it| *it == b'\n')?;
        let line: Vec<u8> = self.0.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line);
        Some(line.trim_end_matches(['\n', '\r']).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_arrive() {
        let mut lines = Lines::default();
        lines.push(b"data: a\r\nda");
        assert_eq!(lines.next().as_deref(), Some("data: a"));
        assert_eq!(lines.next(), None);
        lines.push("ta: ä\n\n".as_bytes());
        assert_eq!(lines.next().as_deref(), Some("data: ä"));
        assert_eq!(lines.next().as_deref(), Some(""));
    }
}
