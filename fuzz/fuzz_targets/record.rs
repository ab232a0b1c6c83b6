//! Any JSON as a record or a contract event: readers never fail hard on what they do not know.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use stepwell_kernel::contract::{Record, check_envelope, from_record};
use stepwell_kernel::snapshot::{ContractEvent, project};

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return };
    let _ = check_envelope(&value);
    let events: Vec<ContractEvent> = match &value {
        Value::Array(list) => list.iter().filter_map(ContractEvent::read).collect(),
        one => ContractEvent::read(one).into_iter().collect(),
    };
    let snapshot = project("run_fuzz", &events);
    assert_eq!(snapshot, project("run_fuzz", &events));
    let record = Record {
        contract: value["contract"].clone(),
        ext: value["ext"].clone(),
        prev_hash: String::new(),
        hash: String::new(),
    };
    let _ = from_record(&record);
});
