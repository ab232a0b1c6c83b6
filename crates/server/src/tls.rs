//! TLS of the listener. The certificate is read again when its files change, so that a renewed one is used without a
//! restart; a change that cannot be used is told, and the old certificate stays.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::access::install_provider;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Where the certificate is, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the server, and those between it and its authority.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// The content of the files, to see whether it has changed.
#[derive(PartialEq, Eq)]
struct Content {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl TlsFiles {
    fn read(&self) -> io::Result<Content> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })
        };
        Ok(Content {
            cert: read(&self.cert)?,
            key: read(&self.key)?,
        })
    }

    fn certified(&self, content: &Content) -> io::Result<CertifiedKey> {
        let wrong = |path: &PathBuf, why: &dyn std::fmt::Display| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: {why}", path.display()),
            )
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&content.cert)
            .collect::<Result<_, _>>()
            .map_err(|error| wrong(&self.cert, &error))?;
        if chain.is_empty() {
            return Err(wrong(&self.cert, &"there is no certificate in it"));
        }
        // What is said about a key must not show any of it.
        let key = PrivateKeyDer::from_pem_slice(&content.key)
            .map_err(|_| wrong(&self.key, &"there is no private key in it"))?;
        let provider = rustls::crypto::ring::default_provider();
        CertifiedKey::from_der(chain, key, &provider).map_err(|error| wrong(&self.key, &error))
    }
}

/// The certificate that is used now.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&current))
    }
}

/// Accepts connections with TLS, with the certificate that the files have now.
pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    current: Arc<Current>,
    files: TlsFiles,
    content: Content,
}

impl Tls {
    /// Reads the files; an error says what is wrong with them.
    pub(crate) fn open(files: TlsFiles) -> io::Result<Tls> {
        install_provider();
        let content = files.read()?;
        let key = files.certified(&content)?;
        let current = Arc::new(Current(RwLock::new(Arc::new(key))));
        let resolver: Arc<dyn ResolvesServerCert> = current.clone();
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Tls {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            current,
            files,
            content,
        })
    }

    /// Looks at the files until the server stops.
    pub(crate) async fn watch(self, stopping: CancellationToken) {
        let Tls {
            current,
            files,
            mut content,
            ..
        } = self;
        let mut told = String::new();
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            // Small files, once a second: not worth a thread that may block.
            let seen = files.read().and_then(|seen| match seen == content {
                true => Ok(None),
                false => Ok(Some((files.certified(&seen)?, seen))),
            });
            match seen {
                Ok(None) => told.clear(),
                Ok(Some((key, seen))) => {
                    let mut used = current.0.write().unwrap_or_else(PoisonError::into_inner);
                    *used = Arc::new(key);
                    content = seen;
                    told.clear();
                    tracing::info!("the certificate of the server was read again");
                }
                // A renewal writes one file after the other: the pair may fit at the next look.
                Err(error) if told != error.to_string() => {
                    told = error.to_string();
                    tracing::warn!(%error, "the new certificate cannot be used; the old one stays");
                }
                Err(_) => {}
            }
        }
    }
}
