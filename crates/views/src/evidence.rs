//! What an auditor gets of a run: one record for every attempt, every end and everything that a person decided.

use schemars::JsonSchema;
use serde::Serialize;
use stepwell_dialects::actions::evidence::{
    CompensationSummary, Evidence, EvidenceFinding, evidence, verify,
};

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

    /// The evidence for programs.
    #[must_use]
    pub fn document(self, view: &RunView) -> EvidenceDocument {
        let summary = self.records.iter().find_map(|it| it.compensation.clone());
        EvidenceDocument {
            schema_version: 1,
            run_id: view.state.run_id().to_owned(),
            compensation: summary,
            records: self.records,
            findings: self.findings,
            unknown_to_this_version: view.unknown_to_this_version(),
        }
    }
}

/// The evidence of a run for programs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvidenceDocument {
    /// The version of the shape of this document.
    pub schema_version: u32,
    pub run_id: String,
    /// The records in the order of their chain.
    pub records: Vec<Evidence>,
    /// The result of all compensations; null if nothing was compensated.
    pub compensation: Option<CompensationSummary>,
    /// What is wrong with the chain; empty if nothing is.
    pub findings: Vec<EvidenceFinding>,
    /// Types of events that this version does not know.
    pub unknown_to_this_version: Vec<String>,
}
