//! Reads from the sources that the store knows, as they are configured, changed and removed, by whichever server. A message is
//! acknowledged after the commit that it causes. What can never be used goes to the dead-letter place with an alert; what
//! cannot be done now is held, and tried again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use stepwell_bus::{MessageSource, Received, SourceOpener, open_source};
use stepwell_engine::store::NewAlert;
use stepwell_kernel::effect::Priority;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{MessageEnd, SourceDocument, Sources};
use crate::app::App;
use crate::codes;
use crate::intake::{self, AcceptedDelivery, Door};
use crate::problem::ApiProblem;
use crate::webhooks::Target;

/// How often the store is asked for its sources.
const LOOK: Duration = Duration::from_secs(2);
/// The most sources of a store.
const MOST: usize = 1_000;
/// The first wait after a failure; it doubles with each.
const BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// How long a connection may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(3);

/// Tenant and name of a source.
type Key = (String, String);

/// A source that is read from.
struct Reading {
    document: SourceDocument,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Reads from all sources until the server stops.
pub(crate) async fn follow(app: Arc<App>) {
    let mut readings: HashMap<Key, Reading> = HashMap::new();
    loop {
        let found = app
            .ask(|store| Sources::new(store).list((None, None), None, MOST))
            .await;
        match found {
            Ok(found) => set(&app, &mut readings, found).await,
            // Looked at again soon; the engine tells that the store is away.
            Err(problem) => tracing::debug!(why = problem.detail, "the sources cannot be read now"),
        }
        tokio::select! {
            () = app.stopping.cancelled() => break,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    for reading in readings.into_values() {
        end(reading).await;
    }
}

/// Makes what is read from those sources that the store knows.
async fn set(
    app: &Arc<App>,
    readings: &mut HashMap<Key, Reading>,
    found: Vec<(String, SourceDocument, u64)>,
) {
    let found = found.into_iter().filter(|it| it.1.enabled);
    let mut found: HashMap<Key, SourceDocument> = found
        .map(|(tenant, document, _)| ((tenant, document.name.clone()), document))
        .collect();
    let gone = readings.extract_if(|key, it| found.get(key) != Some(&it.document));
    for (key, reading) in gone.collect::<Vec<_>>() {
        end(reading).await;
        app.sources.forget(&key);
    }
    found.retain(|key, _| !readings.contains_key(key));
    for (key, document) in found {
        let stop = app.stopping.child_token();
        let reader = Reader {
            app: Arc::clone(app),
            key: key.clone(),
            document: document.clone(),
            stop: stop.clone(),
        };
        let task = tokio::spawn(reader.run());
        readings.insert(
            key,
            Reading {
                document,
                stop,
                task,
            },
        );
    }
}

async fn end(reading: Reading) {
    reading.stop.cancel();
    let _ = reading.task.await;
}

/// Reads from one source.
struct Reader {
    app: Arc<App>,
    key: Key,
    document: SourceDocument,
    stop: CancellationToken,
}

impl Reader {
    async fn run(self) {
        let opener = match open_source(&self.document.address, &self.app.around) {
            Ok(opener) => opener,
            Err(why) => return self.failed(&why),
        };
        let group = format!("stepwell-{}-{}", self.key.0, self.key.1);
        let place = opener.dead_letter_place();
        let states = &self.app.sources;
        states.change(&self.key, |it| it.dead_letters = Some(place));
        let mut failures = 0;
        while !self.stop.is_cancelled() {
            let opened = tokio::select! {
                () = self.stop.cancelled() => return,
                opened = tokio::time::timeout(self.app.around.timeout, opener.open(&group)) => opened,
            };
            let why = match opened {
                Ok(Ok(source)) => {
                    states.connected(&self.key, Ok(()), self.app.now());
                    match self.read(source, &*opener, &mut failures).await {
                        Ok(()) => return,
                        Err(why) => why,
                    }
                }
                Ok(Err(why)) => why,
                Err(_) => "the broker did not answer in time".to_owned(),
            };
            self.failed(&why);
            self.pause(&mut failures).await;
        }
    }

    fn failed(&self, why: &str) {
        let (tenant, name) = (&self.key.0, &self.key.1);
        tracing::warn!(tenant, name, "the source cannot be read from: {why}");
        let now = self.app.now();
        self.app.sources.connected(&self.key, Err(why), now);
    }

    /// Waits, longer after each failure.
    async fn pause(&self, failures: &mut u32) {
        let wait = BACKOFF
            .saturating_mul(1 << (*failures).min(10))
            .min(MAX_BACKOFF);
        *failures += 1;
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }

    /// Reads until the server stops, or the connection is lost.
    async fn read(
        &self,
        mut source: Box<dyn MessageSource>,
        opener: &dyn SourceOpener,
        failures: &mut u32,
    ) -> Result<(), String> {
        let read = self.read_all(&mut *source, opener, failures).await;
        if read.is_ok() {
            // The others find out without it too, only later.
            let _ = tokio::time::timeout(GOODBYE, source.close()).await;
        }
        read
    }

    async fn read_all(
        &self,
        source: &mut dyn MessageSource,
        opener: &dyn SourceOpener,
        failures: &mut u32,
    ) -> Result<(), String> {
        loop {
            let messages = tokio::select! {
                () = self.stop.cancelled() => return Ok(()),
                messages = source.next() => messages?,
            };
            for message in &messages {
                if self.stop.is_cancelled() || !self.take(source, opener, message).await? {
                    return Ok(());
                }
            }
            if !messages.is_empty() {
                *failures = 0;
            }
        }
    }

    /// Takes a message; false if the server stops before.
    async fn take(
        &self,
        source: &mut dyn MessageSource,
        opener: &dyn SourceOpener,
        message: &Received,
    ) -> Result<bool, String> {
        let mut failures = 0;
        loop {
            match self.accepted(message).await {
                Ok(accepted) => {
                    source.done(message).await?;
                    let became = match accepted.created {
                        true => MessageEnd::Accepted,
                        false => MessageEnd::Repeated,
                    };
                    self.app.sources.done(&self.key, became, self.app.now());
                    return Ok(true);
                }
                Err(problem) if is_final(&problem) => {
                    self.bury(source, opener, message, &problem).await?;
                    return Ok(true);
                }
                Err(problem) => {
                    let why = format!("{}: {}", problem.code, problem.detail);
                    let (tenant, name) = (&self.key.0, &self.key.1);
                    tracing::warn!(tenant, name, id = message.id, "a message waits: {why}");
                    self.app
                        .sources
                        .change(&self.key, |it| it.error = Some(why));
                    source.hold().await?;
                    self.pause(&mut failures).await;
                    if self.stop.is_cancelled() {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Does what the message is for.
    async fn accepted(&self, message: &Received) -> Result<AcceptedDelivery, ApiProblem> {
        let wrong = |why: String| super::invalid(why);
        if message.body.len() > self.document.max_body {
            return Err(wrong(format!(
                "the message has {} bytes, and the source allows {}",
                message.body.len(),
                self.document.max_body
            )));
        }
        let mut payload = message.payload.clone().map_err(wrong)?;
        let door = Door {
            kind: "source",
            name: self.key.1.clone(),
            tenant: self.key.0.clone(),
            project: self.document.project.clone(),
            environment: self.document.environment.clone(),
            compares: true,
            invalid: codes::SOURCE_INVALID,
        };
        let headers = Value::Object(message.attributes.clone());
        match &self.document.target {
            Target::Start(target) => {
                let cause = json!({
                    "payload": payload,
                    "headers": headers,
                    "trigger": { "source": door.name, "id": message.id },
                });
                intake::start(&self.app, &door, target, &message.id, (cause, None)).await
            }
            Target::Event(target) => {
                if let Some(fields) = payload
                    .as_object_mut()
                    .filter(|_| !message.attributes.is_empty())
                {
                    fields.entry("headers").or_insert(headers);
                }
                intake::deliver(&self.app, &door, target, &message.id, payload).await
            }
        }
    }

    async fn bury(
        &self,
        source: &mut dyn MessageSource,
        opener: &dyn SourceOpener,
        message: &Received,
        problem: &ApiProblem,
    ) -> Result<(), String> {
        let why = format!("{}: {}", problem.code, problem.detail);
        source.bury(message, &why).await?;
        let alert = NewAlert {
            code: codes::SOURCE_MESSAGE_REJECTED.to_owned(),
            priority: Priority::P2,
            message: format!(
                "a message of the source {} of tenant {} cannot be used and is in {} now ({}): {why}",
                self.key.1,
                self.key.0,
                opener.dead_letter_place(),
                message.place,
            ),
        };
        tracing::warn!(code = alert.code, "{}", alert.message);
        let now = self.app.now();
        self.app.sources.done(&self.key, MessageEnd::Rejected, now);
        let raised = self
            .app
            .ask(move |store| store.alert(None, &alert, now))
            .await;
        if let Err(problem) = raised {
            tracing::warn!(why = problem.detail, "the alert could not be stored");
        }
        Ok(())
    }
}

/// Whether trying again cannot help: the message is wrong, not the moment.
fn is_final(problem: &ApiProblem) -> bool {
    // A definition that is not there may be registered; then the message is good.
    let may_come = [codes::DEFINITION_UNKNOWN, codes::DEFINITION_DEPRECATED];
    let is_busy = problem.retry_after.is_some() || matches!(problem.status, 408 | 429);
    (400..500).contains(&problem.status) && !is_busy && !may_come.contains(&problem.code.as_str())
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    #[test]
    fn only_a_wrong_message_is_given_up() {
        let problem = |status: StatusCode, code: &str| ApiProblem::new(status, code, "");
        assert!(is_final(&problem(
            StatusCode::UNPROCESSABLE_ENTITY,
            "SOURCE_INVALID"
        )));
        assert!(is_final(&problem(StatusCode::CONFLICT, "X")));
        assert!(!is_final(&problem(StatusCode::SERVICE_UNAVAILABLE, "X")));
        assert!(!is_final(&problem(StatusCode::TOO_MANY_REQUESTS, "X")));
        assert!(!is_final(&problem(
            StatusCode::NOT_FOUND,
            codes::DEFINITION_UNKNOWN
        )));
        assert!(!is_final(
            &problem(StatusCode::CONFLICT, "X").retry_after(1)
        ));
    }
}
