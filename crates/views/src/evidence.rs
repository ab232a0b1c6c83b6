//! What an auditor gets of a run: one record for every attempt, every end and everything that a person decided.

use serde_json::{Value as Json, json};
use stepwell_dialects::actions::evidence::{Evidence, EvidenceFinding, evidence, verify};

use crate::RunView;

/// The evidence of a run, and what is wrong with its chain of hashes.
#[derive(Debug)]
pub struct RunEvidence {
    pub records: Vec<Evidence>,
    pub findings: Vec<EvidenceFinding>,
}

impl RunEvidence {
    #[must_use]
    pub fn of(view: &RunView) -> RunEvidence {
        let records = evidence(&view.plan, view.state.run_id(), &view.events);
        RunEvidence {
            findings: verify(&records),
            records,
        }
    }

    #[must_use]
    pub fn json(&self, view: &RunView) -> Json {
        let summary = self.records.iter().find_map(|it| it.compensation.as_ref());
        json!({
            "schemaVersion": 1,
            "runId": view.state.run_id(),
            "records": self.records,
            "compensation": summary,
            "findings": self.findings,
            "unknownToThisVersion": view.unknown_to_this_version(),
        })
    }
}
