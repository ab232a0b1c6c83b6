//! The two forms in which metrics are read: OpenMetrics 1.0, and the text format 0.0.4 that Prometheus and most other
//! programs know. They differ in the names of counters, in words for types, and in lines that only OpenMetrics has.

use axum::http::{HeaderMap, header};

/// A form of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricsForm {
    OpenMetrics,
    Text,
}

impl MetricsForm {
    /// The form that a caller wants. OpenMetrics is for those that ask for it by its name; the rest reads the text format.
    pub(crate) fn wanted(headers: &HeaderMap) -> MetricsForm {
        let (mut open, mut text) = (0.0_f32, None::<f32>);
        for value in headers.get_all(header::ACCEPT) {
            for range in value.to_str().unwrap_or_default().split(',') {
                let mut parts = range.split(';').map(str::trim);
                let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
                let quality: f32 = parts
                    .find_map(|it| it.strip_prefix("q="))
                    .map_or(1.0, |it| it.parse().unwrap_or(0.0));
                match kind.as_str() {
                    "application/openmetrics-text" => open = quality.max(open),
                    "text/plain" => text = Some(quality.max(text.unwrap_or(0.0))),
                    _ => {}
                }
            }
        }
        match open > 0.0 && open >= text.unwrap_or(0.0) {
            true => MetricsForm::OpenMetrics,
            false => MetricsForm::Text,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            MetricsForm::OpenMetrics => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
            MetricsForm::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Metrics that were written as OpenMetrics, in this form.
    pub(crate) fn of(self, metrics: String) -> String {
        match self {
            MetricsForm::OpenMetrics => metrics,
            MetricsForm::Text => as_text(&metrics),
        }
    }
}

fn as_text(metrics: &str) -> String {
    let mut text = String::with_capacity(metrics.len());
    // What a metric is for is written before its type, which says how its name is written.
    let mut help: Option<(&str, &str)> = None;
    for line in metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.rsplit_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            if let Some((_, about)) = help.take().filter(|(of, _)| *of == name) {
                text.push_str(&format!("# HELP {name}{suffix} {about}\n"));
            }
            text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_caller_says_which_form_it_reads() {
        let wanted = |accept: &[&str]| {
            let mut headers = HeaderMap::new();
            for it in accept {
                headers.append(header::ACCEPT, HeaderValue::from_str(it).unwrap());
            }
            MetricsForm::wanted(&headers)
        };
        // As Prometheus 2 and 3 ask.
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(wanted(&[prometheus]), MetricsForm::OpenMetrics);
        assert_eq!(
            wanted(&["application/openmetrics-text"]),
            MetricsForm::OpenMetrics
        );
        let split = ["text/plain;q=0.5", "application/openmetrics-text"];
        assert_eq!(wanted(&split), MetricsForm::OpenMetrics);
        for text in [
            &["text/plain"][..],
            &["*/*"],
            &[],
            &["application/openmetrics-text;q=0.1, text/plain"],
            &["application/openmetrics-text;q=0"],
        ] {
            assert_eq!(wanted(text), MetricsForm::Text, "{text:?}");
        }
    }

    #[test]
    fn openmetrics_becomes_the_text_format() {
        let open = "# HELP a_b What a is.\n# TYPE a_b counter\n# UNIT a_b seconds\na_b_total{x=\"y\"} 1\n\
                    # HELP g G.\n# TYPE g gauge\ng 2\n# EOF\n";
        let text = "# HELP a_b_total What a is.\n# TYPE a_b_total counter\na_b_total{x=\"y\"} 1\n\
                    # HELP g G.\n# TYPE g gauge\ng 2\n";
        assert_eq!(as_text(open), text);
    }
}
