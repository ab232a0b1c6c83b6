//! Connections of brokers: only to addresses that the rules allow, with TLS where the scheme asks for it.

use std::fmt;
use std::fs;
use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};
use stepwell_http::hosts::{DeniedHost, HostRules};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::address::{BrokerAddress, denied_host};
use crate::credentials::Credentials;
use crate::link::Failure;

/// A connection, encrypted or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// An error of a connection that tells whether the rules forbid it.
pub(crate) fn unreachable(server: &str, error: &(dyn std::error::Error + 'static)) -> Failure {
    match DeniedHost::behind(error) {
        // Nothing is wrong with the other side; the lists must be changed first.
        Some(denied) => Failure::Refused(denied_host(denied)),
        None => Failure::Down(format!("{server} cannot be reached: {error}")),
    }
}

/// Connects to the first host that answers.
pub(crate) async fn connect(
    address: &BrokerAddress,
    rules: &HostRules,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Box<dyn Stream>, Failure> {
    let mut last = Failure::Down("the address names no host".to_owned());
    for (host, port) in &address.hosts {
        match connect_to(host, *port, rules, tls).await {
            Ok(stream) => return Ok(stream),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

async fn connect_to(
    host: &str,
    port: u16,
    rules: &HostRules,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Box<dyn Stream>, Failure> {
    let server = format!("{host}:{port}");
    let stream = tcp(host, port, rules).await;
    let stream = stream.map_err(|error| unreachable(&server, &*error))?;
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|_| Failure::Never(format!("{host} is no name of a TLS server")))?;
    let connector = TlsConnector::from(Arc::clone(tls));
    let encrypted = connector.connect(name, stream).await;
    let encrypted = encrypted.map_err(|error| unreachable(&server, &error))?;
    Ok(Box::new(encrypted))
}

/// A connection to one of the addresses of a host that the rules allow.
pub(crate) async fn tcp(
    host: &str,
    port: u16,
    rules: &HostRules,
) -> Result<TcpStream, Box<dyn std::error::Error + Send + Sync>> {
    let found = rules.lookup(host, port).await?;
    let stream = TcpStream::connect(&*found).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// What a server is checked by, and the certificate of this client: `ca` of the address, or `ca`, `certificate` and `key`
/// of the secret, as PEM.
pub(crate) fn tls(
    address: &BrokerAddress,
    credentials: &Credentials,
) -> Result<ClientConfig, Failure> {
    client_config(roots(address, credentials)?, credentials)
}

/// The same for a client that is given an IP address of a server: the certificate must be for the name that the address of
/// the sink has.
#[cfg(feature = "nats")]
pub(crate) fn tls_of_name(
    address: &BrokerAddress,
    credentials: &Credentials,
    host: &str,
) -> Result<ClientConfig, Failure> {
    let roots = roots(address, credentials)?;
    let mut config = client_config(roots.clone(), credentials)?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let verifier = verifier.map_err(|error| wrong(&error))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| wrong(&error))?;
    config
        .dangerous()
        .set_certificate_verifier(Arc::new(NamedVerifier { name, verifier }));
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn wrong(error: &dyn fmt::Display) -> Failure {
    Failure::Refused(format!("TLS cannot be used: {error}"))
}

fn roots(address: &BrokerAddress, credentials: &Credentials) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    let pem = match (address.param("ca"), credentials.field(&["ca"])) {
        (Some(path), _) => {
            let unreadable = |error: io::Error| wrong(&format!("`ca` cannot be read: {error}"));
            Some(fs::read(path).map_err(unreadable)?)
        }
        (None, Some(text)) => Some(text.as_bytes().to_vec()),
        (None, None) => None,
    };
    match pem {
        None => {
            let system = rustls_native_certs::load_native_certs().certs;
            roots.add_parsable_certificates(system);
        }
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
        }
    }
    match roots.is_empty() {
        true => Err(wrong(&"there is no certificate to check the server by")),
        false => Ok(roots),
    }
}

fn client_config(roots: RootCertStore, credentials: &Credentials) -> Result<ClientConfig, Failure> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?
        .with_root_certificates(roots);
    let (certificate, key) = (
        credentials.field(&["certificate"]),
        credentials.field(&["key"]),
    );
    let (Some(certificate), Some(key)) = (certificate, key) else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| wrong(&error))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| wrong(&error))?;
    let config = builder.with_client_auth_cert(chain, key);
    config.map_err(|error| wrong(&error))
}

/// Checks certificates as usual, but for a name that the client does not know.
#[derive(Debug)]
struct NamedVerifier {
    name: ServerName<'static>,
    verifier: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for NamedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        self.verifier
            .verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
