//! Encryption of connections, and how much of the server's certificate is checked: the words of `sslmode`
//! mean what they mean to libpq. One addition: `verify-full` without a root file checks against the roots of
//! the system, where libpq would refuse.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion, version,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::certificate::Certificate;
use crate::files::is_open_to_others;
use crate::{ParameterError, Parameters};

/// The values of `sslmode`, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SslMode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl SslMode {
    pub(crate) fn read(parameters: &Parameters) -> Result<SslMode, ParameterError> {
        let system = parameters.get("sslrootcert") == Some("system");
        let mode = match parameters.get("sslmode") {
            None if system => SslMode::VerifyFull,
            None => SslMode::Prefer,
            Some("disable") => SslMode::Disable,
            Some("allow") => SslMode::Allow,
            Some("prefer") => SslMode::Prefer,
            Some("require") => SslMode::Require,
            Some("verify-ca") => SslMode::VerifyCa,
            Some("verify-full") => SslMode::VerifyFull,
            Some(other) => {
                return Err(ParameterError(format!(
                    "sslmode `{other}` is unknown; it is disable, allow, prefer, require, verify-ca or \
                     verify-full"
                )));
            }
        };
        if system && mode != SslMode::VerifyFull {
            return Err(ParameterError::new(
                "sslrootcert=system is for sslmode=verify-full only: anybody can get a certificate from a \
                 root of the system",
            ));
        }
        if mode == SslMode::VerifyCa && parameters.get("sslrootcert").is_none() {
            return Err(ParameterError::new(
                "sslmode=verify-ca needs sslrootcert=FILE: anybody can get a certificate from a root of the \
                 system; sslmode=verify-full checks the name of the server too and needs no file",
            ));
        }
        // A root that is named is to be checked.
        let rooted = parameters.get("sslrootcert").is_some();
        Ok(match mode {
            SslMode::Require if rooted => SslMode::VerifyCa,
            mode @ (SslMode::Disable
            | SslMode::Allow
            | SslMode::Prefer
            | SslMode::Require
            | SslMode::VerifyCa
            | SslMode::VerifyFull) => mode,
        })
    }
}

/// The TLS settings for a connection: which certificates to trust, and which certificate to present.
pub(crate) fn connect(
    parameters: &Parameters,
    mode: SslMode,
) -> Result<MakeRustlsConnect, ParameterError> {
    let provider = Arc::new(ring::default_provider());
    let checked = match mode {
        SslMode::VerifyCa | SslMode::VerifyFull => {
            Some(Checker::new(parameters.get("sslrootcert"), &provider)?)
        }
        SslMode::Disable | SslMode::Allow | SslMode::Prefer | SslMode::Require => None,
    };
    let verifier = Verifier {
        checked,
        host: mode == SslMode::VerifyFull,
        provider: Arc::clone(&provider),
    };
    let unusable = |error| ParameterError(format!("TLS cannot be set up: {error}"));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(parameters)?)
        .map_err(unusable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match own_certificate(parameters)? {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| {
            ParameterError(format!("sslcert and sslkey do not fit together: {error}"))
        })?,
    };
    config.enable_sni = parameters.get("sslsni") != Some("0");
    if parameters.get("sslnegotiation") == Some("direct") {
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(MakeRustlsConnect::new(config))
}

fn versions(
    parameters: &Parameters,
) -> Result<Vec<&'static SupportedProtocolVersion>, ParameterError> {
    let rank = |name: &str, none: u8| match parameters.get(name) {
        None => Ok(none),
        Some("TLSv1" | "TLSv1.1" | "TLSv1.2") => Ok(2),
        Some("TLSv1.3") => Ok(3),
        Some(other) => Err(ParameterError(format!(
            "{name} `{other}` is unknown; it is TLSv1.2 or TLSv1.3"
        ))),
    };
    let (least, most) = (
        rank("ssl_min_protocol_version", 2)?,
        rank("ssl_max_protocol_version", 3)?,
    );
    let all = [(2, &version::TLS12), (3, &version::TLS13)];
    let wanted = all
        .into_iter()
        .filter(|(it, _)| (least..=most).contains(it));
    let wanted: Vec<_> = wanted.map(|(_, version)| version).collect();
    match wanted.is_empty() {
        true => Err(ParameterError::new(
            "ssl_min_protocol_version is above ssl_max_protocol_version",
        )),
        false => Ok(wanted),
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The certificate that this side shows.
fn own_certificate(parameters: &Parameters) -> Result<Option<Identity>, ParameterError> {
    let file = match (parameters.get("sslcertmode"), parameters.get("sslcert")) {
        (None | Some("allow" | "require"), Some(file)) => file,
        (Some("require"), None) => {
            return Err(ParameterError::new(
                "sslcertmode=require needs a certificate; name one with sslcert and sslkey",
            ));
        }
        (None | Some("allow" | "disable"), _) => return Ok(None),
        (Some(other), _) => {
            return Err(ParameterError(format!(
                "sslcertmode `{other}` is unknown; it is disable, allow or require"
            )));
        }
    };
    let Some(key) = parameters.get("sslkey") else {
        return Err(ParameterError(format!(
            "the certificate {file} has no private key; name it with sslkey"
        )));
    };
    if is_open_to_others(Path::new(key)) {
        return Err(ParameterError(format!(
            "others may read the private key {key}; take the permission from them, as with chmod 600"
        )));
    }
    let unreadable = |name: &'static str, file: &str| {
        let file = file.to_owned();
        move |error| ParameterError(format!("{name} {file} cannot be read: {error}"))
    };
    let chain = CertificateDer::pem_file_iter(file).map_err(unreadable("sslcert", file))?;
    let chain: Result<Vec<_>, _> = chain.collect();
    let chain = chain.map_err(unreadable("sslcert", file))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(unreadable("sslkey", key))?;
    Ok(Some((chain, key)))
}

/// Checks certificates by the roots that are trusted.
#[derive(Debug)]
struct Checker {
    chains: Arc<WebPkiServerVerifier>,
    /// The roots of the file `sslrootcert`.
    named: Vec<CertificateDer<'static>>,
}

impl Checker {
    fn new(file: Option<&str>, provider: &Arc<CryptoProvider>) -> Result<Checker, ParameterError> {
        let mut roots = RootCertStore::empty();
        let mut named = Vec::new();
        match file {
            Some(path) if path != "system" => {
                let unreadable =
                    |error| ParameterError(format!("sslrootcert cannot be read: {error}"));
                for root in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
                    let root = root.map_err(unreadable)?;
                    roots.add(root.clone()).map_err(|error| {
                        ParameterError(format!("sslrootcert has no usable root: {error}"))
                    })?;
                    named.push(root);
                }
            }
            _ => {
                // Hundreds of files on some systems, and they do not change while a process runs.
                static SYSTEM: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
                let system = SYSTEM.get_or_init(|| rustls_native_certs::load_native_certs().certs);
                roots.add_parsable_certificates(system.iter().cloned());
            }
        }
        let builder =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        let chains = builder.build().map_err(|error| {
            ParameterError(format!(
                "there is no root to check the server by: {error}; name one with sslrootcert"
            ))
        })?;
        Ok(Checker { chains, named })
    }

    /// A self-signed certificate that is one of the roots of the file. It needs no chain, and the check of chains
    /// refuses an authority that is a server itself.
    fn trusted_itself<'a>(&self, certificate: &'a CertificateDer<'_>) -> Option<Certificate<'a>> {
        if !self.named.iter().any(|root| **root == **certificate) {
            return None;
        }
        Certificate::read(certificate).filter(Certificate::is_self_issued)
    }
}

/// Checks as much of a certificate as was asked for. That the server has its key is always checked.
#[derive(Debug)]
struct Verifier {
    checked: Option<Checker>,
    host: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(checked) = &self.checked else {
            return Ok(ServerCertVerified::assertion());
        };
        if let Some(certificate) = checked.trusted_itself(end_entity) {
            certificate.check_time(now)?;
            if self.host {
                let names = ParsedCertificate::try_from(end_entity)?;
                verify_server_name(&names, server_name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        let seen = checked.chains.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match seen {
            // The host is checked last: everything else was right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.host => Ok(ServerCertVerified::assertion()),
            seen => seen,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FILES: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../stepwell/tests/it/postgres_access/"
    );

    /// What `verify-full` or `verify-ca` says about a server with this certificate.
    fn verify(root: &str, certificate: &str, host: Option<&str>, year: u64) -> Result<(), Error> {
        let provider = Arc::new(ring::default_provider());
        let checked = Checker::new(Some(&format!("{FILES}{root}")), &provider).unwrap();
        let verifier = Verifier {
            checked: Some(checked),
            host: host.is_some(),
            provider,
        };
        let shown = CertificateDer::from_pem_file(format!("{FILES}{certificate}")).unwrap();
        let name = ServerName::try_from(host.unwrap_or("any").to_owned()).unwrap();
        let now = Duration::from_secs((year - 1970) * 31_556_952);
        let now = UnixTime::since_unix_epoch(now);
        let seen = verifier.verify_server_cert(&shown, &[], &name, &[], now);
        seen.map(drop)
    }

    #[test]
    fn a_self_signed_certificate_is_its_own_root() {
        let own = |host, year| verify("self-signed.pem", "self-signed.pem", host, year);
        assert_eq!(own(Some("localhost"), 2050), Ok(()));
        assert_eq!(own(None, 2050), Ok(()));
        let other = own(Some("elsewhere"), 2050).unwrap_err();
        assert!(
            matches!(
                other,
                Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })
            ),
            "{other:?}"
        );
        let late = own(None, 2130).unwrap_err();
        assert_eq!(late, Error::InvalidCertificate(CertificateError::Expired));
        let early = own(None, 2010).unwrap_err();
        assert_eq!(
            early,
            Error::InvalidCertificate(CertificateError::NotValidYet)
        );
        assert!(verify("authority.pem", "self-signed.pem", None, 2050).is_err());
        // The certificate of a server is no root, even where it is named as one.
        assert!(verify("server.pem", "self-signed.pem", None, 2050).is_err());
    }
}
