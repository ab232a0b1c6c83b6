//! Values that are too large for the log of events: they go to the artifacts, and a reference stands in
//! their place in the command. What is kept beside the reference is decided in `crate::retained`.

use serde_json::Value as Json;
use stepwell_engine::coordinator::Assignment;
use stepwell_engine::rows::target_name;
use stepwell_kernel::command::{Command, WaitFor};
use stepwell_kernel::event::{ArtifactRef, Patch};

use super::CrewShared;
use crate::artifacts::{ArtifactKey, RetainedPaths};
use crate::outcome::ToolError;
use crate::retained;
use crate::secrets::Redactor;

impl CrewShared {
    /// Stores the large values of a report. What a step that waits writes down is redacted before.
    pub(super) async fn store_large_values(
        &self,
        job: &Assignment,
        mut command: Command,
        retained: &RetainedPaths,
        redactor: &Redactor,
    ) -> Result<Command, ToolError> {
        match &mut command {
            Command::CompleteStep {
                output,
                ctx,
                artifacts,
                ..
            } => {
                artifacts.extend(self.store_value(job, "output", output, retained).await?);
                artifacts.extend(self.store_patch(job, ctx).await?);
            }
            Command::FailStep { ctx, .. } => {
                self.store_patch(job, ctx).await?;
            }
            Command::WaitStep {
                wait,
                outbound,
                memo,
                ..
            } => {
                outbound.iter_mut().for_each(|event| redactor.json(event));
                if let WaitFor::Child { input, .. } = wait
                    && let Json::Object(fields) = input
                {
                    for (name, value) in fields {
                        let name = format!("input.{name}");
                        self.store_value(job, &name, value, &retained::nothing())
                            .await?;
                    }
                }
                if let Some(memo) = memo {
                    redactor.json(memo);
                    self.store_value(job, "memo", memo, &retained::nothing())
                        .await?;
                }
            }
            // Carries no value that the worker made.
            Command::ConfirmKill { .. } => {}
            other @ (Command::CreateRun { .. }
            | Command::EnqueueRun
            | Command::ApproveRun { .. }
            | Command::StartRun { .. }
            | Command::ClaimStep { .. }
            | Command::ExpireLease { .. }
            | Command::FireTimer(_)
            | Command::DeliverEvent { .. }
            | Command::CompleteManually { .. }
            | Command::ChildEnded { .. }
            | Command::PatchCtx { .. }
            | Command::CancelRun { .. }
            | Command::Signal { .. }
            | Command::Proceed) => debug_assert!(false, "not the report of a claim: {other:?}"),
        }
        Ok(command)
    }

    async fn store_patch(
        &self,
        job: &Assignment,
        ctx: &mut Patch,
    ) -> Result<Vec<ArtifactRef>, ToolError> {
        let mut references = Vec::new();
        for (name, value) in ctx {
            let name = format!("ctx.{name}");
            references.extend(
                self.store_value(job, &name, value, &retained::nothing())
                    .await?,
            );
        }
        Ok(references)
    }

    async fn store_value(
        &self,
        job: &Assignment,
        name: &str,
        value: &mut Json,
        retained: &RetainedPaths,
    ) -> Result<Option<ArtifactRef>, ToolError> {
        let claim = &job.claimed.claim;
        let step_id = target_name(&job.plan, claim.target);
        let key = ArtifactKey::new(&job.run_id, &step_id, claim.execution, name);
        let whole = std::mem::take(value);
        let (small, reference) = self
            .resources
            .artifacts
            .shrink(&key, whole, retained)
            .await?;
        *value = small;
        Ok(reference)
    }
}
