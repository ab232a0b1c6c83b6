//! The choice between text and JSON that commands offer as `--output`.

use clap::ValueEnum;

/// The value of `--output`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Text for people
    Human,
    /// JSON for programs
    Json,
}
