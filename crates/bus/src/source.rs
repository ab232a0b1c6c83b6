//! The port of sources: where messages of other systems come from. A source gives messages, is told when one is done, and
//! puts those that can never be used into a dead-letter place of the same broker.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use serde_json::{Map, Value as Json};

#[cfg(feature = "brokers")]
use crate::link::Failure;

/// What the call of a source comes to.
pub type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// A message that was received.
#[derive(Clone, Debug, PartialEq)]
pub struct Received {
    /// The id of the message: a message that comes again has the same.
    pub id: String,
    /// Where the broker has the message.
    pub place: String,
    /// The data of the event, or why there is none.
    pub payload: Result<Json, String>,
    /// The attributes of the CloudEvent, and other headers.
    pub attributes: Map<String, Json>,
    /// The body as it came.
    pub body: Vec<u8>,
}

/// A connection to a broker that gives messages. Messages that are given and not done come again: here, or at another server.
pub trait MessageSource: Send + fmt::Debug {
    /// The next messages; none if none came within a second or so.
    fn next(&mut self) -> SourceFuture<'_, Vec<Received>>;

    /// A message of the last call of `next` is committed. The broker may forget it.
    fn done<'a>(&'a mut self, message: &'a Received) -> SourceFuture<'a, ()>;

    /// A message of the last call of `next` can never be used: it is kept in the dead-letter place, and then done.
    fn bury<'a>(&'a mut self, message: &'a Received, why: &'a str) -> SourceFuture<'a, ()>;

    /// The messages of the last call of `next` that are not done are still being worked on.
    fn hold(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Says goodbye, so that others get what is left without waiting.
    fn close(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// Opens connections of one source.
pub trait SourceOpener: Send + Sync + fmt::Debug {
    /// Connects. Servers that share the `group` share the messages.
    fn open<'a>(&'a self, group: &'a str) -> SourceFuture<'a, Box<dyn MessageSource>>;

    /// Where messages go that can never be used.
    fn dead_letter_place(&self) -> String;
}

/// What `SourceOpener::open` comes to when a broker is connected, or is not.
#[cfg(feature = "brokers")]
pub(crate) async fn opened<M: MessageSource + 'static>(
    connecting: impl Future<Output = Result<M, Failure>>,
) -> Result<Box<dyn MessageSource>, String> {
    match connecting.await {
        Ok(messages) => Ok(Box::new(messages)),
        Err(failure) => Err(failure.why()),
    }
}
