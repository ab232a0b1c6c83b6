//! Where a page of runs begins: after a run that the caller names, or at the place that the page before has told. A place
//! is sealed, because numbers of runs count what all tenants do, and stays good when its run is deleted.

use stepwell_engine::Error;
use stepwell_engine::store::{RunNo, Store};

use crate::access::Caller;
use crate::app::App;
use crate::problem::ApiProblem;

/// No id of a run begins like this.
const PREFIX: &str = "page_";

/// What the parameter `before` says.
#[derive(Clone, Debug)]
pub(super) enum Before {
    Run(String),
    Place(RunNo),
}

impl Before {
    pub(super) fn read(app: &App, text: &str) -> Result<Before, ApiProblem> {
        let Some(sealed) = text.strip_prefix(PREFIX) else {
            return Ok(Before::Run(text.to_owned()));
        };
        let place = app.watermarks.open_place(sealed);
        place.map(Before::Place).ok_or_else(|| {
            ApiProblem::bad_request(
                "before: no list of this server has told this page; begin with the first page",
            )
        })
    }

    /// The number of the run, or of the place where it was.
    pub(super) fn find(self, caller: &Caller, store: &dyn Store) -> Result<RunNo, Error> {
        match self {
            Before::Run(run) => caller.find(store, &run),
            Before::Place(place) => Ok(place),
        }
    }
}

/// The `next` of a page that ends with this run.
pub(super) fn next_page(app: &App, last: RunNo) -> Result<String, ApiProblem> {
    let sealed = app.watermarks.seal_place(last);
    let sealed = sealed.map_err(|error| ApiProblem::internal(&error))?;
    Ok(format!("{PREFIX}{sealed}"))
}
