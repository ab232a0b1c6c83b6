//! The place of a run in a distributed trace (W3C Trace Context), and the ids of its spans.
//!
//! The ids follow from the run and from what the span stands for, so every server gives a span the same id, also after a
//! crash. Whether the spans of a run are recorded is decided once, when the run starts, and kept with the run: a run
//! whose spans nobody records hands the context of its caller on as it came.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keys::sha256_hex;

/// The longest `tracestate` that is kept.
const LONGEST_STATE: usize = 512;
/// Where the parts of a `traceparent` are.
const TRACE: std::ops::Range<usize> = 3..35;
const SPAN: std::ops::Range<usize> = 36..52;
const FLAGS: std::ops::Range<usize> = 53..55;

/// A place in a distributed trace: the trace, and the span that caused what follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TraceContext {
    /// The header `traceparent`: version, trace, span and flags.
    pub traceparent: String,
    /// The header `tracestate`; absent if the caller sent none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
    /// Whether the spans of the run are recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorded: bool,
}

impl TraceContext {
    /// Reads the headers of a caller. Absent if `traceparent` is not what the standard says; a `tracestate` that is too
    /// long or not plain is left out.
    #[must_use]
    pub fn read(traceparent: &str, tracestate: Option<&str>) -> Option<TraceContext> {
        let text = traceparent.trim();
        let is_hex = |part: &str| {
            let mut bytes = part.bytes();
            bytes.all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
        };
        let is_zero = |part: &str| part.bytes().all(|it| it == b'0');
        let (version, trace) = (text.get(..2)?, text.get(TRACE)?);
        let (span, flags) = (text.get(SPAN)?, text.get(FLAGS)?);
        let dashes = [2, 35, 52].iter().all(|at| text.as_bytes()[*at] == b'-');
        // A later version may have more parts.
        let ends = match version {
            "00" => text.len() == FLAGS.end,
            _ => text.len() == FLAGS.end || text.as_bytes()[FLAGS.end] == b'-',
        };
        let good = [version, trace, span, flags].into_iter().all(is_hex);
        if !good || !dashes || !ends || version == "ff" || is_zero(trace) || is_zero(span) {
            return None;
        }
        let plain = |state: &&str| {
            (1..=LONGEST_STATE).contains(&state.len())
                && state.bytes().all(|it| (b' '..=b'~').contains(&it))
        };
        Some(TraceContext {
            traceparent: format!("00-{trace}-{span}-{flags}"),
            tracestate: tracestate.map(str::trim).filter(plain).map(str::to_owned),
            recorded: false,
        })
    }

    /// A context of these ids, 32 and 16 digits.
    #[must_use]
    pub fn of(trace: &str, span: &str, recorded: bool) -> TraceContext {
        TraceContext {
            traceparent: format!("00-{trace}-{span}-{:02x}", u8::from(recorded)),
            tracestate: None,
            recorded,
        }
    }

    /// The context of a run that nobody outside caused. Its own span stands for the cause: it has none.
    #[must_use]
    pub fn of_root(run_id: &str, recorded: bool) -> TraceContext {
        TraceContext::of(&root_trace(run_id), &run_span(run_id), recorded)
    }

    /// The id of the trace, 32 digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        self.traceparent.get(TRACE).unwrap_or_default()
    }

    /// The id of the span that caused what follows, 16 digits.
    #[must_use]
    pub fn span_id(&self) -> &str {
        self.traceparent.get(SPAN).unwrap_or_default()
    }

    /// Whether the caller records the trace.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        let flags = self.traceparent.get(FLAGS).unwrap_or_default();
        u8::from_str_radix(flags, 16).is_ok_and(|it| it & 1 == 1)
    }

    /// The context for what another span of the trace causes. If nobody records the spans of the run, its caller stays
    /// the cause.
    #[must_use]
    pub fn below(&self, span: &str) -> TraceContext {
        match self.recorded {
            true => TraceContext {
                traceparent: format!("00-{}-{span}-01", self.trace_id()),
                ..self.clone()
            },
            false => self.clone(),
        }
    }
}

/// The trace of a run that nobody outside caused.
#[must_use]
pub fn root_trace(run_id: &str) -> String {
    let mut id = sha256_hex(&format!("trace|{run_id}"));
    id.truncate(32);
    id
}

fn span(what: &str) -> String {
    let mut id = sha256_hex(&format!("span|{what}"));
    id.truncate(16);
    id
}

/// The span of a run.
#[must_use]
pub fn run_span(run_id: &str) -> String {
    span(&format!("run|{run_id}"))
}

/// The span of one execution of a step-run or of its undo (`charge`, `ship[3]`, `charge~undo`).
#[must_use]
pub fn execution_span(run_id: &str, target: &str, execution: u32) -> String {
    span(&format!("execution|{run_id}|{target}|{execution}"))
}

/// The span of the wait that follows an execution.
#[must_use]
pub fn wait_span(run_id: &str, target: &str, execution: u32) -> String {
    span(&format!("wait|{run_id}|{target}|{execution}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn headers_are_read_as_the_standard_says() {
        let read = TraceContext::read(GIVEN, Some(" a=b ")).unwrap();
        assert_eq!(read.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(read.span_id(), "00f067aa0ba902b7");
        assert_eq!(
            (read.is_sampled(), read.tracestate.as_deref()),
            (true, Some("a=b"))
        );
        let later = GIVEN.replacen("00", "cc", 1) + "-what-comes";
        assert_eq!(TraceContext::read(&later, None).unwrap().traceparent, GIVEN);
        let wrong = [
            "",
            "00",
            &GIVEN[..54],
            &GIVEN.to_uppercase(),
            &format!("{GIVEN}-x"),
            &GIVEN.replacen("00", "ff", 1),
            &GIVEN.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GIVEN.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &GIVEN.replace('-', "_"),
            "00-ä4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ];
        for text in wrong {
            assert_eq!(TraceContext::read(text, None), None, "{text}");
        }
        let long = "x".repeat(513);
        assert_eq!(
            TraceContext::read(GIVEN, Some(&long)).unwrap().tracestate,
            None
        );
    }

    #[test]
    fn a_run_whose_spans_nobody_records_hands_its_caller_on() {
        let mut given = TraceContext::read(GIVEN, None).unwrap();
        let span = execution_span("run_1", "pack", 1);
        assert_eq!(given.below(&span), given);
        given.recorded = true;
        let below = given.below(&span);
        assert_eq!(
            (below.trace_id(), below.span_id()),
            (given.trace_id(), span.as_str())
        );
    }
}
