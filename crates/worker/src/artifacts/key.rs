//! Where an execution's things are kept: names become path segments that are safe on every file
//! system and in every object store, that people can read, and that can be turned back.

use sha2::{Digest as _, Sha256};
use stepwell_kernel::keys::hex;

/// File systems take 255 bytes; what comes behind a segment (`.jsonl`, a temporary suffix) fits too.
const LONGEST: usize = 200;

/// What an artifact belongs to, and its name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactKey {
    pub run_id: String,
    /// The step-run: `fetch`, `fetch#2`, `load[3]`.
    pub step_id: String,
    /// Which execution of it.
    pub execution: u32,
    /// The artifact's name there.
    pub name: String,
}

impl ArtifactKey {
    /// A key of these parts.
    #[must_use]
    pub fn new(run_id: &str, step_id: &str, execution: u32, name: &str) -> ArtifactKey {
        ArtifactKey {
            run_id: run_id.to_owned(),
            step_id: step_id.to_owned(),
            execution,
            name: name.to_owned(),
        }
    }

    /// The path of the artifact below the root of the store.
    #[must_use]
    pub fn path(&self) -> String {
        format!(
            "{}/{}/{}/{}",
            run_path(&self.run_id),
            segment(&self.step_id),
            self.execution,
            segment(&self.name)
        )
    }

    /// What a path stands for, if it is one that [`ArtifactKey::path`] makes.
    #[must_use]
    pub fn from_path(path: &str) -> Option<ArtifactKey> {
        let mut parts = path.strip_prefix("runs/")?.split('/');
        let key = ArtifactKey {
            run_id: name_of(parts.next()?)?,
            step_id: name_of(parts.next()?)?,
            execution: parts.next()?.parse().ok()?,
            name: name_of(parts.next()?)?,
        };
        parts.next().is_none().then_some(key)
    }
}

/// The folder of a run's artifacts.
pub(crate) fn run_path(run_id: &str) -> String {
    format!("runs/{}", segment(run_id))
}

/// A name as one path segment. Letters, digits, `-`, `_` and `.` stay; the signs of step ids become
/// `+`, `(` and `)`; all other bytes, and a dot in front, become `=` and two hex digits. What would
/// be too long ends in a hash, and can then no longer be turned back.
#[must_use]
pub fn segment(name: &str) -> String {
    let mut safe = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'.' if at == 0 => safe.push_str("=2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => safe.push(byte.into()),
            b'#' => safe.push('+'),
            b'[' => safe.push('('),
            b']' => safe.push(')'),
            other => safe.push_str(&format!("={other:02x}")),
        }
    }
    if safe.is_empty() {
        return "=".to_owned();
    }
    if safe.len() > LONGEST {
        let hash = hex(&Sha256::digest(name.as_bytes()));
        safe.truncate(LONGEST - 35);
        safe.push_str("==");
        safe.push_str(&hash[..32]);
    }
    safe
}

/// The name that a segment stands for; none if no name gives this segment, or if it was cut.
#[must_use]
pub fn name_of(segment: &str) -> Option<String> {
    if segment == "=" {
        return Some(String::new());
    }
    let mut name = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        name.push(match byte {
            b'+' => b'#',
            b'(' => b'[',
            b')' => b']',
            b'=' => hex_digit(rest.next()?)? << 4 | hex_digit(rest.next()?)?,
            other => other,
        });
    }
    let name = String::from_utf8(name).ok()?;
    (self::segment(&name) == segment).then_some(name)
}

/// The value of a hexadecimal digit. Capitals are refused later: they are not how a name is written.
fn hex_digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn step_ids_stay_readable() {
        assert_eq!(segment("fetch#2"), "fetch+2");
        assert_eq!(segment("load[3]"), "load(3)");
        assert_eq!(segment("../etc/passwd"), "=2e.=2fetc=2fpasswd");
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_and_stays_unique() {
        let (one, other) = ("ä".repeat(200), "ä".repeat(201));
        assert!(segment(&one).len() <= LONGEST);
        assert_ne!(segment(&one), segment(&other));
        assert_eq!(name_of(&segment(&one)), None);
    }

    proptest! {
        #[test]
        fn every_short_name_comes_back(name in ".{0,60}") {
            let safe = segment(&name);
            prop_assert!(!safe.contains('/') && safe != "." && safe != ".." && !safe.is_empty());
            prop_assert!(safe.len() > LONGEST - 3 || name_of(&safe).as_deref() == Some(&*name));
        }

        #[test]
        fn no_two_names_share_a_segment(one in ".{0,12}", other in ".{0,12}") {
            prop_assert_eq!(one == other, segment(&one) == segment(&other));
        }
    }
}
