//! The log of a run as it grows: server-sent events, one after the other.

use std::time::Duration;

use reqwest::{Method, Response};

use crate::connection::{ClientError, Connection, escaped, good};

/// How long a stream may last: until its run has ended, or its reader has enough.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamEvent {
    /// The number of the event in its run; empty for the last one.
    pub id: String,
    /// The type of the event, such as `StepStarted`; `end` when the run has ended.
    pub kind: String,
    /// The event, as JSON text.
    pub data: String,
}

/// The events of a run as they are committed.
#[derive(Debug)]
pub struct RunStream {
    response: Response,
    /// What was read and is no whole event yet.
    unread: Vec<u8>,
}

impl Connection {
    /// Follows the log of a run, from the event after `after` on.
    pub async fn follow(&self, run_id: &str, after: u64) -> Result<RunStream, ClientError> {
        let path = format!("/api/v1/runs/{}/stream?after={after}", escaped(run_id));
        let request = self.request(Method::GET, &path).timeout(LONGEST);
        let response = good(request.send().await?).await?;
        let unread = Vec::new();
        Ok(RunStream { response, unread })
    }
}

impl RunStream {
    /// The next event; none when the stream has ended.
    pub async fn next(&mut self) -> Result<Option<StreamEvent>, ClientError> {
        loop {
            if let Some(event) = next_event(&mut self.unread) {
                return Ok(Some(event));
            }
            match self.response.chunk().await? {
                Some(bytes) => self.unread.extend_from_slice(&bytes),
                None => return Ok(None),
            }
        }
    }
}

/// Takes the first whole event from what was read. Comments, which keep the connection alive, are left out.
fn next_event(unread: &mut Vec<u8>) -> Option<StreamEvent> {
    loop {
        let end = unread.windows(2).position(|it| it == b"\n\n")?;
        let block: Vec<u8> = unread.drain(..end + 2).collect();
        let mut event = StreamEvent::default();
        for line in String::from_utf8_lossy(&block).lines() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "id" => value.clone_into(&mut event.id),
                "event" => value.clone_into(&mut event.kind),
                "data" => event.data.push_str(value),
                _ => {}
            }
        }
        if event != StreamEvent::default() {
            return Some(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_whole_and_comments_left_out() {
        let mut unread = b":\n\nid: 4\nevent: StepStarted\ndata: {\"a\":1}\n\nevent: e".to_vec();
        let event = next_event(&mut unread).unwrap();
        assert_eq!((&*event.id, &*event.kind), ("4", "StepStarted"));
        assert_eq!(event.data, r#"{"a":1}"#);
        assert_eq!(next_event(&mut unread), None);
        unread.extend_from_slice(b"nd\ndata:{}\n\n");
        assert_eq!(next_event(&mut unread).unwrap().kind, "end");
        assert!(unread.is_empty());
    }
}
