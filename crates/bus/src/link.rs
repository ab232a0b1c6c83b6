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
}

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
    /// The key of the last delivery, and how many of its messages the broker has.
    last: Option<(String, usize)>,
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
    fn send_all(&self, key: String, messages: Vec<Message>) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // A delivery that is tried again goes on behind what the broker has confirmed.
        let before = state.last.take().filter(|it| it.0 == key);
        let before = before.map_or(0, |it| it.1).min(messages.len());
        let mut confirmed = 0;
        let sent = self.runtime.block_on(async {
            let rest = messages.get(before..).unwrap_or_default();
            let sending = self.send(&mut state.link, rest, &mut confirmed);
            tokio::time::timeout(self.timeout, sending).await
        });
        let sent = sent.unwrap_or_else(|_| {
            let why = format!(
                "{} confirmed {} of {} messages within {} s",
                self.broker.servers(),
                before + confirmed,
                messages.len(),
                self.timeout.as_secs()
            );
            Err(match confirmed {
                0 => Failure::Down(why),
                // It goes on, slowly.
                _ => Failure::Refused(why),
            })
        });
        if sent.is_err() {
            state.last = Some((key, before + confirmed));
        }
        sent
    }
}

impl<B: Broker> Sink for BrokerSink<B> {
    fn name(&self) -> &str {
        &self.name
    }

    fn deliver(&self, delivery: &Delivery) -> Result<(), SinkError> {
        Ok(self.send_all(delivery.key(), Message::all(delivery))?)
    }

    fn deliver_together(&self, deliveries: &[Delivery]) -> Vec<Result<(), SinkError>> {
        let messages = deliveries.iter().flat_map(Message::all).collect();
        let keys: Vec<String> = deliveries.iter().map(Delivery::key).collect();
        match self.send_all(keys.join(" "), messages) {
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
        // Clients end tasks when they are dropped, and need the runtime for it.
        let _inside = self.runtime.enter();
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(state.link.take());
    }
}
