//! From a task as it is written to a call that a tool can do: templates rendered, secrets resolved, the
//! script read, and what the task expects checked.

use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use stepwell_dialects::tools::{PipelineKind, RunBy};
use stepwell_kernel::codes;
use stepwell_kernel::expr::TemplateError;
use stepwell_kernel::plan::ErrorClass;

use super::progress::PipelineProgress;
use super::task::{self, PipelineTask, Timeout};
use super::{PipelineContext, script};
use crate::outcome::ToolError;
use crate::security::Unguarded;
use crate::tool::ToolCall;

impl PipelineContext<'_> {
    /// Why the tenant of the run may not use the tool of a task. A run may have been started before the lists said so.
    fn forbidden(&self, task: &PipelineTask) -> Option<String> {
        let rules = &self.resources.security.tools;
        match task.run_by {
            RunBy::Tool => rules.forbids(self.tenancy.tenant(), self.tenancy.project(), &task.kind),
            RunBy::Pipeline(_) | RunBy::Engine => None,
        }
    }

    /// Renders a task and puts secrets in the place of their references.
    pub(super) async fn prepare(
        &self,
        task: &PipelineTask,
        now: &PipelineProgress,
    ) -> Result<(ToolCall, Option<Duration>), ToolError> {
        if let Some(why) = self.forbidden(task) {
            return Err(ToolError::new(
                ErrorClass::Policy,
                codes::TOOL_FORBIDDEN,
                why,
            ));
        }
        if let Some(why) = &task.unguarded
            && self.resources.security.unguarded == Unguarded::Deny
        {
            return Err(ToolError::new(
                ErrorClass::Policy,
                codes::VALUE_UNGUARDED,
                why,
            ));
        }
        let secrets = &self.resources.secrets;
        let resolved = secrets.gather(&task.written, &self.redactor).await?;
        let wrong = |error: TemplateError| self.expression(&error);
        let mut args = self.args.clone();
        let view = self.view(task, now, &self.args, None);
        let mut own = Json::Object(task::mapping(&task.args, &view).map_err(wrong)?);
        // What another run is given is written down, so it gets the reference and not the secret.
        if task.run_by != RunBy::Pipeline(PipelineKind::Playbook) {
            resolved.apply(&mut own)?;
        }
        if let Json::Object(own) = own {
            args.extend(own);
        }
        expects(task, &args)?;
        let view = self.view(task, now, &args, None);
        let mut fields = Json::Object(task::mapping(&task.fields, &view).map_err(wrong)?);
        resolved.apply(&mut fields)?;
        let mut auth = task.auth.evaluate(&view).map_err(wrong)?;
        resolved.apply(&mut auth)?;
        let auth = self.resources.credential(auth, &self.redactor).await?;
        let timeout = match &task.timeout {
            Timeout::Default => None,
            Timeout::Fixed(timeout) => Some(*timeout),
            Timeout::Computed(template) => {
                let value = template.evaluate(&view).map_err(wrong)?;
                Some(task::duration(&value).ok_or_else(|| {
                    ToolError::invalid(
                        codes::TOOL_FIELD,
                        format!("`timeout` gives {value}, which is no length of time"),
                    )
                })?)
            }
        };
        let Json::Object(mut fields) = fields else {
            return Err(ToolError::invalid(
                codes::TOOL_FIELD,
                "the task's fields are no mapping",
            ));
        };
        if let Some(code) = &task.code {
            fields.insert("code".to_owned(), json!(code));
        }
        let files = self.resources.security.file_rules();
        script::bring(&task.kind, &mut fields, &self.plan.net().source.uri, &files)?;
        let call = ToolCall {
            name: task.name.clone(),
            fields,
            args,
            auth,
        };
        Ok((call, timeout))
    }
}

/// The arguments that a task says it cannot do without.
fn expects(task: &PipelineTask, args: &Map<String, Json>) -> Result<(), ToolError> {
    let missing =
        names(&task.assert, "expects").find(|name| args.get(*name).is_none_or(Json::is_null));
    missing.map_or(Ok(()), |name| {
        let message = format!("it expects `{name}`, which was not given");
        Err(ToolError::invalid(codes::ASSERT_EXPECTS, message))
    })
}

/// What a task promises to return.
pub(super) fn returns(task: &PipelineTask, result: &Json) -> Result<(), ToolError> {
    let missing = names(&task.assert, "returns").find(|name| result.get(*name).is_none());
    missing.map_or(Ok(()), |name| {
        let message = format!("it promises to return `{name}`, which it did not");
        Err(ToolError::invalid(codes::ASSERT_RETURNS, message))
    })
}

fn names<'a>(assert: &'a Json, key: &str) -> impl Iterator<Item = &'a str> {
    let list = assert.get(key).and_then(Json::as_array);
    list.into_iter().flatten().filter_map(Json::as_str)
}
