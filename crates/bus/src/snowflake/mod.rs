//! Snowflake by its SQL API (version 2). The events of the log go to the table `RUN_EVENTS` by `MERGE` on their idempotency
//! key, and the snapshot of each run to `RUN_SNAPSHOTS` by `MERGE` on the run, so that a repeat changes nothing. The log of
//! the store stays the truth: see the decision record 0071.

mod api;
mod jwt;

use std::collections::HashMap;

use serde_json::Value as Json;
use stepwell_kernel::snapshot::{ContractEvent, RunSnapshot, incremental, project};

use crate::address::{AddressFault, BrokerAddress};
use crate::cloud_event::{About, Message};
use crate::kinds::Surroundings;
use crate::link::{Broker, Failure, Link};
use api::{Api, Bind};

/// How many runs one statement merges.
const TOGETHER: usize = 32;
/// How many rows one statement merges.
const ROWS: usize = 100;
/// How many snapshots are remembered.
const REMEMBERED: usize = 1_000;

const CREATE_EVENTS: &str = "CREATE TABLE IF NOT EXISTS RUN_EVENTS (IDEMPOTENCY_KEY VARCHAR NOT NULL, \
    RUN_ID VARCHAR NOT NULL, RUN_SEQ NUMBER NOT NULL, EVENT_TYPE VARCHAR NOT NULL, STEP_ID VARCHAR, \
    EMITTED_AT VARCHAR, EVENT VARIANT NOT NULL)";
const CREATE_SNAPSHOTS: &str = "CREATE TABLE IF NOT EXISTS RUN_SNAPSHOTS (RUN_ID VARCHAR NOT NULL, \
    STATUS VARCHAR NOT NULL, SUBSTATUS VARCHAR, LAST_EVENT_SEQ NUMBER NOT NULL, IS_COMPLETE BOOLEAN NOT NULL, \
    STARTED_AT VARCHAR, COMPLETED_AT VARCHAR, SNAPSHOT VARIANT NOT NULL)";

const EVENT_ROW: &str = "SELECT ? AS IDEMPOTENCY_KEY, ? AS RUN_ID, TO_NUMBER(?) AS RUN_SEQ, ? AS EVENT_TYPE, \
    ? AS STEP_ID, ? AS EMITTED_AT, PARSE_JSON(?) AS EVENT";
const SNAPSHOT_ROW: &str = "SELECT ? AS RUN_ID, ? AS STATUS, ? AS SUBSTATUS, TO_NUMBER(?) AS LAST_EVENT_SEQ, \
    TO_BOOLEAN(?) AS IS_COMPLETE, ? AS STARTED_AT, ? AS COMPLETED_AT, PARSE_JSON(?) AS SNAPSHOT";
const MERGE_SNAPSHOTS: &str = "ON t.RUN_ID = s.RUN_ID \
    WHEN MATCHED AND s.LAST_EVENT_SEQ >= t.LAST_EVENT_SEQ THEN UPDATE SET STATUS = s.STATUS, \
    SUBSTATUS = s.SUBSTATUS, LAST_EVENT_SEQ = s.LAST_EVENT_SEQ, IS_COMPLETE = s.IS_COMPLETE, \
    STARTED_AT = s.STARTED_AT, COMPLETED_AT = s.COMPLETED_AT, SNAPSHOT = s.SNAPSHOT \
    WHEN NOT MATCHED THEN INSERT (RUN_ID, STATUS, SUBSTATUS, LAST_EVENT_SEQ, IS_COMPLETE, STARTED_AT, COMPLETED_AT, \
    SNAPSHOT) VALUES (s.RUN_ID, s.STATUS, s.SUBSTATUS, s.LAST_EVENT_SEQ, s.IS_COMPLETE, s.STARTED_AT, \
    s.COMPLETED_AT, s.SNAPSHOT)";
const EVENTS_OF_RUN: &str =
    "SELECT TO_JSON(EVENT) FROM RUN_EVENTS WHERE RUN_ID = ? ORDER BY RUN_SEQ";

/// A schema of a Snowflake account.
#[derive(Clone, Debug)]
pub(crate) struct Snowflake {
    address: BrokerAddress,
    around: Surroundings,
    creates: bool,
}

impl Snowflake {
    pub(crate) fn new(
        address: BrokerAddress,
        around: &Surroundings,
    ) -> Result<Snowflake, AddressFault> {
        api::check(&address)?;
        Ok(Snowflake {
            creates: address.flag("create", true)?,
            around: around.clone(),
            address,
        })
    }
}

impl Broker for Snowflake {
    type Link = SnowflakeLink;

    fn servers(&self) -> String {
        self.address.servers()
    }

    /// A statement costs the same for the commits of many runs.
    fn together(&self) -> usize {
        TOGETHER
    }

    async fn connect(&self) -> Result<SnowflakeLink, Failure> {
        let mut api = Api::open(&self.address, &self.around).await?;
        if self.creates {
            api.run(CREATE_EVENTS, &[]).await?;
            api.run(CREATE_SNAPSHOTS, &[]).await?;
        }
        Ok(SnowflakeLink {
            api,
            snapshots: HashMap::new(),
        })
    }
}

/// A connection to the two tables.
#[derive(Debug)]
pub(crate) struct SnowflakeLink {
    api: Api,
    /// The snapshots of runs that were delivered last, and whether they have every event.
    snapshots: HashMap<String, (RunSnapshot, bool)>,
}

impl Link for SnowflakeLink {
    async fn send(&mut self, messages: &[Message], confirmed: &mut usize) -> Result<(), Failure> {
        let events = messages.iter().filter(|it| it.about == About::Event);
        let events: Vec<&Message> = events.collect();
        for rows in events.chunks(ROWS) {
            self.merge_events(rows).await?;
        }
        let mut runs: Vec<(&str, Vec<&Message>)> = Vec::new();
        for event in events.iter().copied() {
            match runs.last_mut() {
                Some((run, own)) if *run == event.run_id.as_str() => own.push(event),
                _ => runs.push((event.run_id.as_str(), vec![event])),
            }
        }
        for runs in runs.chunks(ROWS) {
            self.merge_snapshots(runs).await?;
        }
        *confirmed += messages.len();
        Ok(())
    }
}

impl SnowflakeLink {
    async fn merge_events(&mut self, rows: &[&Message]) -> Result<(), Failure> {
        let mut binds = Vec::with_capacity(rows.len() * 7);
        for row in rows {
            let text = |name: &str| row.data.get(name).and_then(Json::as_str);
            binds.push(Bind::text(text("idempotencyKey").unwrap_or(&row.id)));
            binds.push(Bind::text(&row.run_id));
            binds.push(Bind::text(row.seq.to_string()));
            binds.push(Bind::text(text("eventType").unwrap_or_default()));
            binds.push(Bind::maybe(text("stepId")));
            binds.push(Bind::maybe(text("emittedAt")));
            binds.push(Bind::text(row.data.to_string()));
        }
        let selects = vec![EVENT_ROW; rows.len()].join(" UNION ALL ");
        let merge = format!(
            "MERGE INTO RUN_EVENTS t USING ({selects}) s ON t.IDEMPOTENCY_KEY = s.IDEMPOTENCY_KEY \
             WHEN NOT MATCHED THEN INSERT (IDEMPOTENCY_KEY, RUN_ID, RUN_SEQ, EVENT_TYPE, STEP_ID, EMITTED_AT, EVENT) \
             VALUES (s.IDEMPOTENCY_KEY, s.RUN_ID, s.RUN_SEQ, s.EVENT_TYPE, s.STEP_ID, s.EMITTED_AT, s.EVENT)"
        );
        self.api.run(&merge, &binds).await.map(drop)
    }

    async fn merge_snapshots(&mut self, runs: &[(&str, Vec<&Message>)]) -> Result<(), Failure> {
        let (mut binds, mut made) = (Vec::new(), Vec::new());
        for (run, events) in runs {
            let (snapshot, is_complete) = self.snapshot(run, events).await?;
            let json = serde_json::to_value(&snapshot);
            let json = json.map_err(|error| Failure::Never(error.to_string()))?;
            binds.extend([
                Bind::text(*run),
                Bind::text(
                    json.get("status")
                        .and_then(Json::as_str)
                        .unwrap_or_default(),
                ),
                Bind::maybe(snapshot.substatus.as_deref()),
                Bind::text(snapshot.last_event_seq.to_string()),
                Bind::text(is_complete.to_string()),
                Bind::maybe(snapshot.started_at.as_deref()),
                Bind::maybe(snapshot.completed_at.as_deref()),
                Bind::text(json.to_string()),
            ]);
            made.push(((*run).to_owned(), (snapshot, is_complete)));
        }
        let selects = vec![SNAPSHOT_ROW; runs.len()].join(" UNION ALL ");
        let merge = format!("MERGE INTO RUN_SNAPSHOTS t USING ({selects}) s {MERGE_SNAPSHOTS}");
        self.api.run(&merge, &binds).await?;
        if self.snapshots.len() >= REMEMBERED {
            self.snapshots.clear();
        }
        // Nothing comes after the end of a run.
        made.retain(|it| it.1.0.completed_at.is_none());
        self.snapshots.extend(made);
        Ok(())
    }

    /// The snapshot of a run after these events, and whether the table has all events up to them.
    async fn snapshot(
        &mut self,
        run: &str,
        events: &[&Message],
    ) -> Result<(RunSnapshot, bool), Failure> {
        let first = events.first().map_or(0, |it| it.seq);
        let last = events.last().map_or(0, |it| it.seq);
        let known = match self.snapshots.remove(run) {
            None if first == 1 => Some((RunSnapshot::new(run), true)),
            known => known.filter(|it| it.0.last_event_seq + 1 == first),
        };
        match known {
            Some((before, is_complete)) => {
                let read = events
                    .iter()
                    .filter_map(|it| ContractEvent::read(it.data.clone()));
                let read: Vec<ContractEvent> = read.collect();
                Ok((incremental(&before, &read), is_complete))
            }
            // Another process has delivered what is before, or a delivery came out of turn: the table has the events.
            None => self.projected(run, last).await,
        }
    }

    /// The snapshot from the events that the table has, and whether it has all of them.
    async fn projected(&mut self, run: &str, last: u64) -> Result<(RunSnapshot, bool), Failure> {
        let rows = self.api.run(EVENTS_OF_RUN, &[Bind::text(run)]).await?;
        let mut events = Vec::with_capacity(rows.len());
        for row in &rows {
            let text = row.first().and_then(Json::as_str).unwrap_or_default();
            let event = serde_json::from_str::<Json>(text).ok();
            let event = event.and_then(ContractEvent::read);
            events.push(event.ok_or_else(|| {
                Failure::Refused(format!("an event of {run} in RUN_EVENTS cannot be read"))
            })?);
        }
        let highest = events.iter().map(|it| it.run_seq).max().unwrap_or_default();
        let is_complete = u64::try_from(events.len()) == Ok(highest) && highest >= last;
        Ok((project(run, &events), is_complete))
    }
}
