//! Event triggers of registered definitions: each event that fits the trigger of the current revision starts one run.
//! Every server looks for events; the id of a run follows from the event, so each starts one run.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;
use stepwell_dialects::document;
use stepwell_dialects::trigger::Trigger;
use stepwell_engine::Error;
use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use super::{Cause, Causes, PutOff, Tried, needs_slot, params_with, start_once};
use crate::access::LOCAL;
use crate::app::App;
use crate::codes;

/// How old an event may be when a server begins to look for it, as for `stepwell run --idle`.
const LOOK_BACK_MS: u64 = 86_400_000;

/// A definition with a trigger, and whose runs the trigger starts.
pub(crate) struct Triggered {
    pub(crate) tenant: String,
    pub(crate) project: String,
    pub(crate) name: String,
    pub(crate) plan: Arc<Plan>,
}

/// The triggers of one definition that is waited for.
struct Watch {
    project: String,
    plan: Arc<Plan>,
    causes: Causes,
    put_off: PutOff,
}

/// All event triggers, by tenant and name of their definitions.
#[derive(Default)]
pub(crate) struct EventWatches(HashMap<(String, String), Watch>);

impl EventWatches {
    /// Waits for the event triggers of these definitions, and for no others.
    pub(crate) fn set(&mut self, plans: Vec<Triggered>, now: Time) {
        let mut before = std::mem::take(&mut self.0);
        for definition in plans {
            let (project, plan) = (definition.project, definition.plan);
            let key = (definition.tenant, definition.name);
            let known = before.remove(&key);
            if let Some(known) = known.filter(|it| it.plan.hash() == plan.hash()) {
                self.0.insert(key, known);
                continue;
            }
            let Some(trigger @ Trigger::Event(_)) = document::trigger(&plan) else {
                continue;
            };
            let watch = Watch {
                project,
                plan,
                causes: Causes::new(trigger, &key.0, LOOK_BACK_MS, now),
                put_off: PutOff::default(),
            };
            self.0.insert(key, watch);
        }
    }

    /// Whether events wait for a slot: they are tried again by themselves.
    pub(crate) fn has_put_off(&self) -> bool {
        self.0.values().any(|it| it.put_off.next().is_some())
    }

    /// Starts runs for the events that have come. Says whether all of them could be read.
    pub(crate) fn look(&mut self, app: &App) -> bool {
        let now = app.now();
        let mut is_done = true;
        for ((tenant, name), watch) in &mut self.0 {
            if app.stopping.is_cancelled() {
                return is_done;
            }
            if let Err(error) = watch.look(app, tenant, name, now) {
                tracing::warn!(%error, tenant, name, "the events of a trigger cannot be read now");
                is_done = false;
            }
        }
        is_done
    }
}

impl Watch {
    fn look(&mut self, app: &App, tenant: &str, name: &str, now: Time) -> Result<(), Error> {
        let failed = |text: &str| {
            let message = format!("the trigger of {name}, tenant {tenant}: {text}");
            app.alert(codes::TRIGGER_FAILED, message);
        };
        let mut note = |text: &str| failed(text);
        let new = self.causes.due(&*app.store, now, &mut note)?;
        let (project, plan) = (&self.project, &self.plan);
        let params = |cause: &Cause| params_with(&json!({}), &cause.params);
        let needs =
            |slots: &str, cause: &Cause| needs_slot(&app.limits, plan, slots, &params(cause));
        self.put_off
            .try_all(new, now, &needs, &mut |cause, has_waited| {
                let context = RunContext {
                    tenant_id: tenant.to_owned(),
                    project_id: project.clone(),
                    environment_id: LOCAL.to_owned(),
                    triggered_by: Some(format!("trigger of {name}")),
                    trigger_source: Some("api".to_owned()),
                    ..RunContext::default()
                };
                Ok(match start_once(app, plan, context, &cause.id, params(cause)) {
                    Ok(started) if started.created => Tried::Started,
                    Ok(_) => Tried::NotStarted,
                    Err(Error::Busy {
                        key,
                        retry_after_ms,
                    }) => {
                        if !has_waited {
                            let what = &cause.what;
                            tracing::info!(tenant, name, "{what}: no slot is free for {key}");
                        }
                        Tried::NoSlot {
                            slots: key,
                            retry_after_ms,
                        }
                    }
                    // What is wrong with one event is no reason to miss the others.
                    Err(
                        error @ (Error::Rejected(_) | Error::Refused { .. } | Error::Schema { .. }),
                    ) => {
                        failed(&format!("{}: no run was started: {error}", cause.what));
                        Tried::NotStarted
                    }
                    // The store or the engine cannot do it now: the event is tried again.
                    Err(error) => {
                        tracing::warn!(tenant, name, %error, "{}: no run is started yet", cause.what);
                        Tried::NoSlot {
                            slots: String::new(),
                            retry_after_ms: 1_000,
                        }
                    }
                })
            })
    }
}
