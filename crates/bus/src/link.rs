//! A sink that keeps a connection to a broker: connects when there is something to send, gives the connection up after a
//! failure, and connects again with the next delivery. The publisher of the outbox waits between attempts.

use std::fmt;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stepwell_engine::outbox::{Delivery, Sink, SinkError};
use tokio::runtime::{Builder, Runtime};

use crate::cloud_event::Message;

/// Why messages were not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nothing is taken now: the connection is given up.
    Down(String),
    /// This delivery is not taken now; another may be.
    Refused(String),
    /// This delivery will never be taken.
    Never(String),
}

impl Failure {
    /// The reason, without what it means for the delivery.
    pub(crate) fn why(self) -> String {
        match self {
            Failure::Down(why) | Failure::Refused(why) | Failure::Never(why) => why,
        }
    }
}

impl From<Failure> for SinkError {
    fn from(failure: Failure) -> SinkError {
        match failure {
            Failure::Down(why) => SinkError::down(why),
            Failure::Refused(why) => SinkError::refused(why),
            Failure::Never(why) => SinkError::never(why),
        }
    }
}

/// Connects to one kind of broker.
pub(crate) trait Broker: Send + Sync + 'static {
    type Link: Link;

    /// The servers, for messages.
    fn servers(&self) -> String;

    fn connect(&self) -> impl Future<Output = Result<Self::Link, Failure>> + Send;

    /// How many deliveries are better sent together.
    fn together(&self) -> usize {
        1
    }
}

/// A connection to a broker.
pub(crate) trait Link: Send + 'static {
    /// Sends messages of a delivery, in order, and counts those that the broker has confirmed. A message is sent only when
    /// the broker has all that are before it, or refuses the message without them.
    fn send(
        &mut self,
        messages: &[Message],
        confirmed: &mut usize,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Ends the connection in good order, where its client asks for that.
    fn close(self) -> impl Future<Output = ()> + Send
    where
        Self: Sized,
    {
        async {}
    }
}

/// How long the end of a connection may take.
const CLOSE: Duration = Duration::from_secs(2);

/// A sink of one broker.
pub(crate) struct BrokerSink<B: Broker> {
    name: String,
    timeout: Duration,
    broker: B,
    state: Mutex<LinkState<B::Link>>,
    runtime: Runtime,
}

/// The connection, and how far the last delivery came.
struct LinkState<L> {
    link: Option<L>,
    /// The last delivery, if it is not over.
    last: Option<Progress>,
}

/// How far a delivery came.
struct Progress {
    /// The key of the delivery.
    key: String,
    /// How many of its messages the broker has, or will never take.
    done: usize,
    /// The messages that the broker will never take, with the reasons.
    never: Vec<String>,
}

impl<B: Broker> fmt::Debug for BrokerSink<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerSink")
            .field("name", &self.name)
            .field("servers", &self.broker.servers())
            .finish_non_exhaustive()
    }
}

impl<B: Broker> BrokerSink<B> {
    /// A sink whose deliveries take at most `timeout`. Nothing is connected yet.
    pub(crate) fn open(name: &str, timeout: Duration, broker: B) -> Result<Box<dyn Sink>, String> {
        // One extra thread, so that heartbeats are answered between deliveries.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("stepwell-sink")
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Box::new(BrokerSink {
            name: name.to_owned(),
            timeout,
            broker,
            state: Mutex::new(LinkState {
                link: None,
                last: None,
            }),
            runtime,
        }))
    }

    async fn send(
        &self,
        link: &mut Option<B::Link>,
        messages: &[Message],
        confirmed: &mut usize,
    ) -> Result<(), Failure> {
        // Taken out: a delivery that is given up in the middle leaves no connection with half of it behind.
        let mut open = match link.take() {
            Some(open) => open,
            None => self.broker.connect().await?,
        };
        let sent = open.send(messages, confirmed).await;
        if !matches!(sent, Err(Failure::Down(_))) {
            *link = Some(open);
        }
        sent
    }

    /// Sends the messages of what has this key.
    fn send_all(&self, key: String, messages: &[Message]) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let LinkState { link, last } = &mut *state;
        // A delivery that is tried again goes on behind what the broker has confirmed.
        let known = last.take().filter(|it| it.key == key);
        let mut progress = known.unwrap_or(Progress {
            key,
            done: 0,
            never: Vec::new(),
        });
        let before = progress.done;
        let sending = self.send_rest(link, messages, &mut progress);
        let sent = self
            .runtime
            .block_on(async { tokio::time::timeout(self.timeout, sending).await });
        let sent = sent.unwrap_or_else(|_| {
            let why = format!(
                "{} confirmed {} of {} messages within {} s",
                self.broker.servers(),
                progress.done,
                messages.len(),
                self.timeout.as_secs()
            );
            Err(match progress.done == before {
                true => Failure::Down(why),
                // It goes on, slowly.
                false => Failure::Refused(why),
            })
        });
        match sent {
            Ok(()) if progress.never.is_empty() => Ok(()),
            Ok(()) => {
                let (never, of) = (progress.never.len(), messages.len());
                let others = match of - never {
                    0 => "",
                    _ => "; the other messages were delivered",
                };
                let why = progress.never.join("; ");
                Err(Failure::Never(format!(
                    "{never} of {of} messages: {why}{others}"
                )))
            }
            Err(failure) => {
                *last = Some(progress);
                Err(failure)
            }
        }
    }

    /// Sends what is left of a delivery. A message that the broker will never take keeps no other from being sent: from the first
    /// refusal on they are sent one by one.
    async fn send_rest(
        &self,
        link: &mut Option<B::Link>,
        messages: &[Message],
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let rest = |done: usize| messages.get(done..).unwrap_or_default();
        if progress.never.is_empty() {
            let all = rest(progress.done);
            match self.send(link, all, &mut progress.done).await {
                Err(Failure::Never(_)) if link.is_some() => {}
                sent => return sent,
            }
        }
        while let Some(message) = rest(progress.done).first() {
            let one = std::slice::from_ref(message);
            match self.send(link, one, &mut progress.done).await {
                Ok(()) => {}
                Err(Failure::Never(why)) if link.is_some() => {
                    progress.never.push(format!("event {}: {why}", message.seq));
                    progress.done += 1;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }
}

impl<B: Broker> Sink for BrokerSink<B> {
    fn name(&self) -> &str {
        &self.name
    }

    fn deliver(&self, delivery: &Delivery) -> Result<(), SinkError> {
        Ok(self.send_all(delivery.key(), &Message::all(delivery))?)
    }

    fn deliver_together(&self, deliveries: &[Delivery]) -> Vec<Result<(), SinkError>> {
        let messages: Vec<Message> = deliveries.iter().flat_map(Message::all).collect();
        let keys: Vec<String> = deliveries.iter().map(Delivery::key).collect();
        match self.send_all(keys.join(" "), &messages) {
            Ok(()) => vec![Ok(()); deliveries.len()],
            Err(Failure::Down(why)) => vec![Err(SinkError::down(why)); deliveries.len()],
            // One of them may be the reason.
            Err(Failure::Refused(_) | Failure::Never(_)) => {
                deliveries.iter().map(|it| self.deliver(it)).collect()
            }
        }
    }

    fn together(&self) -> usize {
        self.broker.together()
    }

    fn patience(&self) -> Duration {
        self.timeout + Duration::from_secs(1)
    }
}

impl<B: Broker> Drop for BrokerSink<B> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Clients end tasks when they are dropped, and need the runtime for it.
        let _inside = self.runtime.enter();
        if let Some(link) = state.link.take() {
            let (done, is_done) = std::sync::mpsc::channel();
            self.runtime.spawn(async move {
                let _ = tokio::time::timeout(CLOSE, link.close()).await;
                let _ = done.send(());
            });
            let _ = is_done.recv_timeout(CLOSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    /// Takes messages one by one, but for those that it was told to refuse.
    #[derive(Clone, Default)]
    struct Picky {
        never: Vec<u64>,
        /// Fails once at this message.
        down_at: Option<u64>,
        taken: Arc<Mutex<Vec<u64>>>,
    }

    impl Broker for Picky {
        type Link = Picky;

        fn servers(&self) -> String {
            "here".into()
        }

        async fn connect(&self) -> Result<Picky, Failure> {
            Ok(self.clone())
        }
    }

    impl Link for Picky {
        async fn send(
            &mut self,
            messages: &[Message],
            confirmed: &mut usize,
        ) -> Result<(), Failure> {
            for message in messages {
                let mut taken = self.taken.lock().unwrap();
                if self.down_at == Some(message.seq) && !taken.contains(&0) {
                    taken.push(0);
                    return Err(Failure::Down("it is away".into()));
                }
                if self.never.contains(&message.seq) {
                    return Err(Failure::Never("it is too large".into()));
                }
                taken.push(message.seq);
                *confirmed += 1;
            }
            Ok(())
        }
    }

    fn five() -> Delivery {
        let event = |seq| json!({"eventId": format!("{seq}"), "eventType": "T", "runSeq": seq});
        Delivery {
            run_id: "r".into(),
            first_seq: 1,
            last_seq: 5,
            attempt: 1,
            events: (1..=5).map(event).collect(),
            outbound: Vec::new(),
            telemetry: Vec::new(),
        }
    }

    #[test]
    fn a_message_that_is_never_taken_keeps_no_other_back() {
        let broker = Picky {
            never: vec![2, 4],
            ..Picky::default()
        };
        let taken = broker.taken.clone();
        let sink = BrokerSink::open("s", Duration::from_secs(5), broker).unwrap();
        let error = sink.deliver(&five()).unwrap_err();
        assert!(error.is_final, "{error}");
        assert_eq!(
            error.why,
            "2 of 5 messages: event 2: it is too large; event 4: it is too large; the other messages were delivered"
        );
        assert_eq!(*taken.lock().unwrap(), [1, 3, 5]);
    }

    #[test]
    fn a_refusal_is_remembered_while_the_broker_is_away() {
        let broker = Picky {
            never: vec![2],
            down_at: Some(4),
            ..Picky::default()
        };
        let taken = broker.taken.clone();
        let sink = BrokerSink::open("s", Duration::from_secs(5), broker).unwrap();
        let error = sink.deliver(&five()).unwrap_err();
        assert!(error.down && !error.is_final, "{error}");
        let error = sink.deliver(&five()).unwrap_err();
        assert!(
            error.is_final && error.why.starts_with("1 of 5 messages: event 2"),
            "{error}"
        );
        assert_eq!(*taken.lock().unwrap(), [1, 3, 0, 4, 5]);
    }
}
