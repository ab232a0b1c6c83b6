//! Watermarks and pages of the list of runs as callers see them. A mark of a store and the number of a run count what all
//! tenants do, so a caller gets them sealed: any server of the store can open them, also after a restart, and nobody else
//! can read them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use stepwell_engine::store::{Mark, RunNo};

/// Keeps this key apart from everything else that is made with the same secret.
const PURPOSE: &[u8] = b"watermark of a list of runs\0";
/// The longest text of a sealed mark.
const LONGEST: usize = 300;
/// A place in the list of runs is no mark.
const PLACE: &[u8] = b"page";

/// Seals and opens marks.
#[derive(Debug)]
pub(crate) struct Watermarks {
    key: LessSafeKey,
    random: SystemRandom,
}

impl Watermarks {
    pub(crate) fn new(secret: &[u8; 32]) -> Result<Watermarks, Unspecified> {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), PURPOSE);
        let key = UnboundKey::new(&CHACHA20_POLY1305, derived.as_ref())?;
        Ok(Watermarks {
            key: LessSafeKey::new(key),
            random: SystemRandom::new(),
        })
    }

    pub(crate) fn seal(&self, mark: &Mark) -> Result<String, Unspecified> {
        self.seal_text(format!("{mark:>40}"), b"")
    }

    /// The mark, if a server of this store has sealed it.
    pub(crate) fn open(&self, sealed: &str) -> Option<Mark> {
        self.open_text(sealed, b"")?.trim().parse().ok()
    }

    /// Seals where a page of runs ends.
    pub(crate) fn seal_place(&self, last: RunNo) -> Result<String, Unspecified> {
        self.seal_text(format!("{:>20}", last.0), PLACE)
    }

    /// Where a page of runs ended, if a server of this store has sealed it.
    pub(crate) fn open_place(&self, sealed: &str) -> Option<RunNo> {
        let number = self.open_text(sealed, PLACE)?.trim().parse();
        number.ok().map(RunNo)
    }

    fn seal_text(&self, text: String, purpose: &[u8]) -> Result<String, Unspecified> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce)?;
        let mut text = text.into_bytes();
        let sealing = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(sealing, Aad::from(purpose), &mut text)?;
        Ok(URL_SAFE_NO_PAD.encode([&nonce[..], &text].concat()))
    }

    fn open_text(&self, sealed: &str, purpose: &[u8]) -> Option<String> {
        if sealed.len() > LONGEST {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, text) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let opened = self
            .key
            .open_in_place(nonce, Aad::from(purpose), &mut text)
            .ok()?;
        String::from_utf8(opened.to_vec()).ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_opened_by_those_who_have_the_secret() {
        let own = Watermarks::new(&[7; 32]).unwrap();
        let mark = Mark {
            at: 12,
            check: "3.4".to_owned(),
        };
        let sealed = own.seal(&mark).unwrap();
        assert_eq!(own.open(&sealed), Some(mark.clone()));
        assert_eq!(Watermarks::new(&[8; 32]).unwrap().open(&sealed), None);
        for wrong in ["", "12-3.4", &sealed[1..], &"A".repeat(10_000)] {
            assert_eq!(own.open(wrong), None);
        }
        // Neither the number nor its length can be seen.
        let other = Mark {
            at: u64::MAX,
            check: String::new(),
        };
        assert_eq!(own.seal(&other).unwrap().len(), sealed.len());
        assert_ne!(own.seal(&mark).unwrap(), sealed);
        // A place is no mark, and a mark is no place.
        let place = own.seal_place(RunNo(12)).unwrap();
        assert_eq!(own.open_place(&place), Some(RunNo(12)));
        assert_eq!((own.open(&place), own.open_place(&sealed)), (None, None));
    }
}
