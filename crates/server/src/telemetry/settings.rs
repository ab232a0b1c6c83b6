//! Where traces go, and how many of them.

use std::fmt;
use std::time::Duration;

/// Where traces go, and how many of them.
#[derive(Clone, PartialEq)]
pub struct TelemetrySettings {
    /// The address that spans are posted to, as `http://collector:4318/v1/traces`.
    pub endpoint: String,
    /// Headers of these requests; they may have secrets.
    pub headers: Vec<(String, String)>,
    /// The name of this service in traces.
    pub service: String,
    /// What else the collector is told about this process.
    pub attributes: Vec<(String, String)>,
    /// Which share of the traces that begin here is recorded, 0 to 1.
    pub sample: f64,
    /// Whether a caller that says whether its trace is recorded is followed.
    pub follows_caller: bool,
    /// How long a request may take.
    pub timeout: Duration,
    /// How long spans are collected before they are sent.
    pub pause: Duration,
    /// How many spans may wait; more are dropped and counted.
    pub queue: usize,
}

impl Default for TelemetrySettings {
    fn default() -> TelemetrySettings {
        TelemetrySettings {
            endpoint: String::new(),
            headers: Vec::new(),
            service: "stepwell".to_owned(),
            attributes: Vec::new(),
            sample: 1.0,
            follows_caller: true,
            timeout: Duration::from_secs(10),
            pause: Duration::from_secs(1),
            queue: 8_192,
        }
    }
}

/// Headers can have tokens.
impl fmt::Debug for TelemetrySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TelemetrySettings")
            .field("endpoint", &self.endpoint)
            .field("service", &self.service)
            .field("sample", &self.sample)
            .finish_non_exhaustive()
    }
}

impl TelemetrySettings {
    /// Whether a trace that begins here is recorded. Every server says the same of a trace.
    pub(super) fn takes(&self, trace_id: &str) -> bool {
        // The last digits of an id are the random ones, as the standard says.
        let digits = trace_id.get(trace_id.len().saturating_sub(13)..);
        let number = digits.and_then(|it| u64::from_str_radix(it, 16).ok());
        let share = number.unwrap_or(0) as f64 / (1_u64 << 52) as f64;
        share < self.sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_traces_is_taken() {
        let with = |sample| TelemetrySettings {
            sample,
            ..TelemetrySettings::default()
        };
        let ids: Vec<String> = (0..1_000)
            .map(|number| stepwell_kernel::trace::root_trace(&format!("run_{number}")))
            .collect();
        let taken = |sample| ids.iter().filter(|id| with(sample).takes(id)).count();
        assert_eq!((taken(0.0), taken(1.0)), (0, 1_000));
        assert!((150..350).contains(&taken(0.25)), "{}", taken(0.25));
    }
}
