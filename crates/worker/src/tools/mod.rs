//! The built-in tools, one file or folder each. What a tool is given and must keep to is in
//! `crate::tool`; which fields a kind has is the dialects' table.

pub mod http;

use std::sync::Arc;

use crate::tool::Tool;

/// Every tool, by its kind. `noop`, `sleep`, `playbook` and `workbook` need none: the pipeline does
/// them itself.
pub(crate) fn all() -> Vec<(&'static str, Arc<dyn Tool>)> {
    vec![("http", Arc::new(http::Http::default()))]
}
