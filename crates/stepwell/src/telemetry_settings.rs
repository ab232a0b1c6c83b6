//! The section `[telemetry]` of the configuration file, and the variables of OpenTelemetry, which come before the file:
//! where a server sends traces.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use stepwell_server::TelemetrySettings;

/// The section `[telemetry]`.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetrySection {
    /// The address of the collector, as `http://collector:4318`; absent: no traces.
    endpoint: Option<String>,
    /// Headers of requests to the collector.
    headers: BTreeMap<String, String>,
    /// The name of this service in traces.
    service: Option<String>,
    /// What else the collector is told about this process.
    attributes: BTreeMap<String, String>,
    /// Which share of the traces is recorded, 0 to 1.
    sample: Option<f64>,
}

/// Headers can have tokens.
impl std::fmt::Debug for TelemetrySection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TelemetrySection")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// The path below the address of a collector.
const PATH: &str = "/v1/traces";

impl TelemetrySection {
    /// Where traces go; none if nobody says. `set` gives the value of a variable that is not empty.
    pub fn settings(
        &self,
        set: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<TelemetrySettings>, String> {
        let is = |name: &str, word: &str| {
            set(name).is_some_and(|it| it.trim().eq_ignore_ascii_case(word))
        };
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let below = |base: String| format!("{}{PATH}", base.trim_end_matches('/'));
        let endpoint = set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            .or_else(|| set("OTEL_EXPORTER_OTLP_ENDPOINT").map(below))
            .or_else(|| self.endpoint.clone().map(below));
        let Some(endpoint) = endpoint else {
            return Ok(None);
        };
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            return Err(format!(
                "traces cannot be sent to {endpoint:?}: write an address with http:// or https://"
            ));
        }
        let both = [
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "OTEL_EXPORTER_OTLP_PROTOCOL",
        ];
        if let Some(protocol) = both.into_iter().find_map(&set)
            && protocol != "http/protobuf"
        {
            return Err(format!(
                "OTEL_EXPORTER_OTLP_PROTOCOL is {protocol:?}; traces are sent as http/protobuf only"
            ));
        }
        let default = TelemetrySettings::default();
        let mut headers: Vec<(String, String)> = own(&self.headers);
        for name in [
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        ] {
            headers.extend(pairs(name, set(name))?);
        }
        let mut attributes = own(&self.attributes);
        let named = pairs("OTEL_RESOURCE_ATTRIBUTES", set("OTEL_RESOURCE_ATTRIBUTES"))?;
        let (service, named): (Vec<_>, Vec<_>) = named
            .into_iter()
            .partition(|(name, _)| name == "service.name");
        attributes.extend(named);
        let service = set("OTEL_SERVICE_NAME")
            .or_else(|| service.into_iter().next().map(|(_, value)| value))
            .or_else(|| self.service.clone());
        let (sample, follows_caller) = self.sampler(&set)?;
        let millis = |name: &str, default: Duration| match set(name) {
            None => Ok(default),
            Some(text) => match text.trim().parse() {
                Ok(millis) if millis > 0 => Ok(Duration::from_millis(millis)),
                Ok(_) | Err(_) => Err(format!("{name} is {text:?}; write milliseconds")),
            },
        };
        let queue = match set("OTEL_BSP_MAX_QUEUE_SIZE") {
            None => default.queue,
            Some(text) => match text.trim().parse() {
                Ok(count @ 1..=1_000_000) => count,
                Ok(_) | Err(_) => {
                    return Err(format!(
                        "OTEL_BSP_MAX_QUEUE_SIZE is {text:?}; write a number from 1 to 1000000"
                    ));
                }
            },
        };
        Ok(Some(TelemetrySettings {
            endpoint,
            headers,
            service: service.unwrap_or(default.service),
            attributes,
            sample,
            follows_caller,
            timeout: millis("OTEL_EXPORTER_OTLP_TIMEOUT", default.timeout)?,
            pause: millis("OTEL_BSP_SCHEDULE_DELAY", default.pause)?,
            queue,
        }))
    }

    /// The share that is recorded, and whether callers decide for their traces.
    fn sampler(&self, set: &impl Fn(&str) -> Option<String>) -> Result<(f64, bool), String> {
        let argument = || match set("OTEL_TRACES_SAMPLER_ARG") {
            None => Ok(self.sample.unwrap_or(1.0)),
            Some(text) => text.trim().parse().map_err(|_| {
                format!("OTEL_TRACES_SAMPLER_ARG is {text:?}; write a number from 0 to 1")
            }),
        };
        let (share, follows) = match set("OTEL_TRACES_SAMPLER").as_deref() {
            None => (self.sample.unwrap_or(1.0), true),
            Some("always_on") => (1.0, false),
            Some("always_off") => (0.0, false),
            Some("traceidratio") => (argument()?, false),
            Some("parentbased_always_on") => (1.0, true),
            Some("parentbased_always_off") => (0.0, true),
            Some("parentbased_traceidratio") => (argument()?, true),
            Some(other) => {
                return Err(format!(
                    "OTEL_TRACES_SAMPLER is {other:?}; allowed: always_on, always_off, traceidratio, \
                     parentbased_always_on, parentbased_always_off, parentbased_traceidratio"
                ));
            }
        };
        match (0.0..=1.0).contains(&share) {
            true => Ok((share, follows)),
            false => Err("the share of traces must be from 0 to 1".to_owned()),
        }
    }
}

fn own(map: &BTreeMap<String, String>) -> Vec<(String, String)> {
    map.iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// `name=value,name=value`, with `%2C` and others for characters that mean something.
fn pairs(variable: &str, text: Option<String>) -> Result<Vec<(String, String)>, String> {
    let text = text.unwrap_or_default();
    let parts = text.split(',').map(str::trim).filter(|it| !it.is_empty());
    let pair = |part: &str| {
        // The value may be a secret: it is not repeated.
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| format!("{variable}: write name=value, with commas between several"))?;
        Ok((name.trim().to_owned(), decoded(value.trim())))
    };
    parts.map(pair).collect()
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let code = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match code.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                at += 3;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(
        file: &str,
        variables: &[(&str, &str)],
    ) -> Result<Option<TelemetrySettings>, String> {
        let section: TelemetrySection = toml::from_str(file).unwrap();
        section.settings(|name| {
            let found = variables.iter().find(|(it, _)| *it == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_is_sent_unless_somebody_says_where() {
        assert_eq!(settings("", &[]).unwrap(), None);
        assert_eq!(settings("service = 'shop'", &[]).unwrap(), None);
        let off = [("OTEL_SDK_DISABLED", "true")];
        assert_eq!(settings("endpoint = 'http://c:4318'", &off).unwrap(), None);
    }

    #[test]
    fn variables_come_before_the_file() {
        let file = "endpoint = 'http://file:4318/'\nservice = 'f'\nsample = 0.5";
        let of_file = settings(file, &[]).unwrap().unwrap();
        assert_eq!(of_file.endpoint, "http://file:4318/v1/traces");
        assert_eq!((of_file.service.as_str(), of_file.sample), ("f", 0.5));
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://v"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b%2Cc, x=y=z"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=r,zone=1"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ];
        let all = settings(file, &variables).unwrap().unwrap();
        assert_eq!(all.endpoint, "https://v/v1/traces");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(all.headers, [pair("a", "b,c"), pair("x", "y=z")]);
        assert_eq!(all.attributes, [pair("zone", "1")]);
        assert_eq!(
            (all.service.as_str(), all.sample, all.follows_caller),
            ("r", 0.25, false)
        );
    }

    #[test]
    fn slips_are_errors() {
        let there = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c");
        for wrong in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "secret"),
        ] {
            let error = settings("", &[there, wrong]).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        settings("endpoint = 'collector:4318'", &[]).unwrap_err();
        settings("endpoint = 'http://c'\nsample = 2.0", &[]).unwrap_err();
    }
}
