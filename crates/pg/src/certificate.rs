//! What must be known of a certificate that is trusted as it is: whether it names itself as its issuer, and when it is
//! valid. The library that checks chains of certificates does not say these things of a single one.

use rustls::pki_types::UnixTime;
use rustls::{CertificateError, Error};

/// The parts of a certificate that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Certificate<'a> {
    issuer: &'a [u8],
    subject: &'a [u8],
    /// Seconds since 1970.
    not_before: u64,
    not_after: u64,
}

impl<'a> Certificate<'a> {
    /// Reads a certificate in DER (RFC 5280, section 4.1). `None` if it is none.
    pub(crate) fn read(der: &'a [u8]) -> Option<Certificate<'a>> {
        let mut whole = Der(der).inside(SEQUENCE)?;
        let mut fields = whole.inside(SEQUENCE)?;
        if fields.0.first() == Some(&VERSION) {
            fields.any()?;
        }
        let _serial = fields.any()?;
        let _algorithm = fields.any()?;
        let (_, issuer) = fields.any()?;
        let mut validity = fields.inside(SEQUENCE)?;
        let (_, subject) = fields.any()?;
        Some(Certificate {
            issuer,
            subject,
            not_before: validity.time()?,
            not_after: validity.time()?,
        })
    }

    /// Whether it names itself as its issuer, as a self-signed certificate does.
    pub(crate) fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// Fails outside its period of validity.
    pub(crate) fn check_time(&self, now: UnixTime) -> Result<(), Error> {
        let wrong = if now.as_secs() < self.not_before {
            CertificateError::NotValidYet
        } else if now.as_secs() > self.not_after {
            CertificateError::Expired
        } else {
            return Ok(());
        };
        Err(Error::InvalidCertificate(wrong))
    }
}

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The optional first field.
const VERSION: u8 = 0xa0;

/// Values in DER, one behind the other.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The tag and the content of the next value.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let length = match usize::from(first) {
            short @ 0..=0x7f => short,
            long => {
                let count = long & 0x7f;
                if count > 4 {
                    return None;
                }
                let digits;
                (digits, rest) = rest.split_at_checked(count)?;
                digits
                    .iter()
                    .fold(0, |sum, it| (sum << 8) | usize::from(*it))
            }
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The values inside the next value, which must have this tag.
    fn inside(&mut self, wanted: u8) -> Option<Der<'a>> {
        let (tag, content) = self.any()?;
        (tag == wanted).then_some(Der(content))
    }

    /// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`, in seconds since 1970.
    fn time(&mut self) -> Option<u64> {
        let (tag, content) = self.any()?;
        let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
        let digits = text.bytes().all(|it| it.is_ascii_digit());
        let text = match (tag, text.len()) {
            // Two digits mean the years from 1950 to 2049.
            (UTC_TIME, 12) if text < "50" => format!("20{text}"),
            (UTC_TIME, 12) => format!("19{text}"),
            (GENERALIZED_TIME, 14) => text.to_owned(),
            _ => return None,
        };
        let part = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
        let days = days(part(0, 4)?, part(4, 6)?, part(6, 8)?)?;
        let seconds = part(8, 10)? * 3600 + part(10, 12)? * 60 + part(12, 14)?;
        digits.then_some(days * 86_400 + seconds)
    }
}

/// Days from 1970 to a date of the Gregorian calendar; a date before 1970 counts as 1970.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if year < 1970 {
        return Some(0);
    }
    // The year begins in March, so that its leap day is its last.
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let before = 365 * year + year / 4 - year / 100 + year / 400;
    Some(before + (153 * month + 2) / 5 + day - 1 - 719_468)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    /// Self-signed, for a hundred years from 2020 on.
    const SELF_SIGNED: &str =
        include_str!("../../stepwell/tests/it/postgres_access/self-signed.pem");
    /// Signed by an authority.
    const SIGNED: &str = include_str!("../../stepwell/tests/it/postgres_access/server.pem");

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        let seen = [(1970, 1, 1), (2000, 2, 29), (2020, 1, 1), (2120, 1, 1)];
        let seen = seen.map(|(year, month, day)| days(year, month, day).unwrap());
        assert_eq!(seen, [0, 11_016, 18_262, 54_786]);
        assert_eq!((days(1960, 1, 1), days(2000, 13, 1)), (Some(0), None));
    }

    #[test]
    fn a_certificate_is_valid_in_its_period() {
        let der = der(SELF_SIGNED);
        let certificate = Certificate::read(&der).unwrap();
        assert!(certificate.is_self_issued());
        let (from, to) = (18_262 * 86_400, 54_786 * 86_400);
        assert!(certificate.check_time(at(from)).is_ok());
        assert!(certificate.check_time(at(to)).is_ok());
        let wrong = |time| certificate.check_time(at(time)).unwrap_err();
        assert_eq!(
            wrong(from - 1),
            Error::InvalidCertificate(CertificateError::NotValidYet)
        );
        assert_eq!(
            wrong(to + 1),
            Error::InvalidCertificate(CertificateError::Expired)
        );
    }

    #[test]
    fn a_signed_certificate_has_another_issuer() {
        let der = der(SIGNED);
        assert!(!Certificate::read(&der).unwrap().is_self_issued());
    }

    #[test]
    fn no_bytes_make_the_reader_panic() {
        let der = der(SELF_SIGNED);
        for end in 0..der.len() {
            assert_eq!(Certificate::read(&der[..end]), None);
        }
        for at in 0..der.len() {
            for byte in [0x00, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = der.to_vec();
                changed[at] = byte;
                Certificate::read(&changed);
            }
        }
    }
}
