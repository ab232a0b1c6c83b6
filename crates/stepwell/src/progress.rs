//! Progress of long commands, on stderr and only on a terminal: a pipe or a log file gets nothing. The line is cleared
//! when the command goes on.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is drawn again while nothing happens.
const PACE: Duration = Duration::from_millis(120);

/// The line of a command that is under way. Dropping it clears the line.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Work of unknown length: what is done, and since when.
    pub(crate) fn of(what: impl Into<String>) -> Progress {
        let bar = ProgressBar::new_spinner().with_message(what.into());
        Progress::styled(bar, "{spinner} {msg} ({elapsed})")
    }

    /// Work of known length, as a bar with the time that is left.
    pub(crate) fn of_many(what: impl Into<String>, total: u64) -> Progress {
        let bar = ProgressBar::new(total).with_message(what.into());
        Progress::styled(
            bar,
            "{spinner} {msg} {wide_bar} {human_pos}/{human_len} ({eta} left)",
        )
    }

    fn styled(bar: ProgressBar, template: &str) -> Progress {
        // The default style is shown if a template is wrong, which the test below rules out.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(PACE);
        }
        Progress(bar)
    }

    /// Says how much is done.
    pub(crate) fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Says what is done now.
    pub(crate) fn say(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// One more is done.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::ProgressDrawTarget;

    #[test]
    fn the_templates_are_valid() {
        for template in [
            "{spinner} {msg} ({elapsed})",
            "{spinner} {msg} {wide_bar} {human_pos}/{human_len} ({eta} left)",
        ] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }

    #[test]
    fn progress_is_counted_also_where_nothing_is_shown() {
        let progress = Progress::of_many("counting", 10);
        progress.0.set_draw_target(ProgressDrawTarget::hidden());
        progress.set(4);
        progress.step();
        progress.say("still counting");
        assert_eq!((progress.0.position(), progress.0.length()), (5, Some(10)));
        assert_eq!(progress.0.message(), "still counting");
    }
}
