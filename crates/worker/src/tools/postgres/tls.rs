//! Encryption of connections to PostgreSQL, and how much of the server's certificate is believed:
//! the words of `sslmode` mean what they mean to every other client.

use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::wrong;
use crate::outcome::ToolError;

/// What is looked at in the server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verify {
    /// Nothing: it is encrypted, and may be anybody.
    Nothing,
    /// Who issued it.
    Issuer,
    /// Who issued it, and for which host.
    Everything,
}

/// How to talk to a server.
#[derive(Clone)]
pub(super) enum Tls {
    Off,
    On {
        verify: Verify,
        roots: Option<String>,
        connect: MakeRustlsConnect,
    },
}

impl Tls {
    /// With the system's roots, or with those of a file.
    pub(super) fn new(verify: Verify, roots: Option<&str>) -> Result<Tls, ToolError> {
        let provider = Arc::new(ring::default_provider());
        let checked = match verify {
            Verify::Nothing => None,
            _ => Some(checker(roots, &provider)?),
        };
        let verifier = Verifier {
            checked,
            host: verify == Verify::Everything,
            provider: Arc::clone(&provider),
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(format!("TLS cannot be set up: {error}")))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Tls::On {
            verify,
            roots: roots.map(str::to_owned),
            connect: MakeRustlsConnect::new(config),
        })
    }

    pub(super) fn is_like(&self, other: &Tls) -> bool {
        match (self, other) {
            (Tls::Off, Tls::Off) => true,
            (
                Tls::On { verify, roots, .. },
                Tls::On {
                    verify: others,
                    roots: theirs,
                    ..
                },
            ) => verify == others && roots == theirs,
            _ => false,
        }
    }
}

fn checker(
    file: Option<&str>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, ToolError> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(path) => {
            let unreadable = |error| wrong(format!("sslrootcert cannot be read: {error}"));
            for root in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
                let added = roots.add(root.map_err(unreadable)?);
                added.map_err(|error| wrong(format!("sslrootcert has no usable root: {error}")))?;
            }
        }
        None => {
            // Hundreds of files on some systems, and they do not change while a worker runs.
            static SYSTEM: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
            let system = SYSTEM.get_or_init(|| rustls_native_certs::load_native_certs().certs);
            roots.add_parsable_certificates(system.iter().cloned());
        }
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| wrong(format!("there is no root to check the server by: {error}")))
}

/// Looks at as much of a certificate as was asked for. That the server has its key is always seen.
#[derive(Debug)]
struct Verifier {
    checked: Option<Arc<WebPkiServerVerifier>>,
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
        let seen =
            checked.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match seen {
            // The host is looked at last: everything else was right.
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
