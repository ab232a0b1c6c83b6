//! Sends commands and events to the runs of a server.

use anyhow::Result;
use serde_json::{Value as Json, json};
use stepwell_client::ClientError;
use stepwell_engine::store::{Delivered, OutsideEvent, RunNo, TRIGGER_KEY};
use stepwell_kernel::command::{Command, EarlierResult};

use super::send::Sent;
use crate::remote::Remote;

/// Sends a command to a run of a server.
pub(crate) fn send(server: &Remote, run: &str, command: &Command) -> Result<Sent> {
    let (name, body) = if let Command::Signal {
        signal_id,
        signal,
        payload,
        reason,
        ..
    } = command
    {
        let body = json!({ "signalId": signal_id, "signalType": signal, "payload": payload, "reason": reason });
        ("signals", body)
    } else if let Command::CancelRun {
        reason, compensate, ..
    } = command
    {
        let body = json!({ "reason": reason, "compensate": compensate });
        ("cancel", body)
    } else if let Command::ApproveRun { reason, .. } = command {
        ("approve", json!({ "reason": reason }))
    } else if let Command::PatchCtx { ctx, .. } = command {
        ("ctx", json!({ "ctx": ctx }))
    } else if let Command::DeliverEvent {
        event_id,
        event_type,
        payload,
    } = command
    {
        return deliver_to(server, run, (event_id, event_type, payload));
    } else {
        // Other commands are sent in other ways, or by nobody but an engine.
        anyhow::bail!("this is no command of a person to a run");
    };
    let body = &body;
    let answer = server.tell(|it| async move { it.command(run, name, body).await });
    let known = match matches!(command, Command::Signal { .. }) {
        true => EarlierResult::SignalAccepted,
        false => EarlierResult::Succeeded,
    };
    answered(answer.map(|it| it.answer), known)
}

fn deliver_to(
    server: &Remote,
    run: &str,
    (id, event_type, payload): (&str, &str, &Json),
) -> Result<Sent> {
    let answer =
        server.ask(|it| async move { it.event_to_run(run, id, event_type, payload).await });
    answered(answer.map(|it| it.delivered), EarlierResult::Event)
}

fn answered(answer: Result<String, ClientError>, known: EarlierResult) -> Result<Sent> {
    match answer {
        Ok(word) if word == "BEFORE" || word == "AGAIN" => Ok(Sent::Before(known)),
        Ok(_) => Ok(Sent::Done),
        Err(error) if error.status() == Some(504) => Ok(Sent::Unanswered),
        Err(error) => Err(error.into()),
    }
}

/// Delivers an event to the run that waits for its key; also returns the id of that run.
pub(super) fn deliver(
    server: &Remote,
    event: &OutsideEvent,
) -> Result<(Delivered, Option<String>)> {
    let payload: Json = serde_json::from_str(&event.payload)?;
    let key = Some(event.key.as_str()).filter(|it| *it != TRIGGER_KEY);
    let payload = &payload;
    let answer = server
        .ask(|it| async move { it.event(&event.id, &event.event_type, key, payload).await })?;
    let delivered = match answer.delivered.as_str() {
        // Numbers of runs stay in the server.
        "TO_RUN" => Delivered::ToRun(RunNo(0)),
        "AGAIN" => Delivered::Again,
        _ => Delivered::Kept,
    };
    Ok((delivered, answer.run_id))
}
