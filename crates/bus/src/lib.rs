//! Sinks: where the events of runs go. Webhooks; brokers come behind the same port.
