//! A small HTTP server for tests. It can be slow, rude, endless, or talk no HTTP at all.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

pub(super) const AUTHORITY: &[u8] = include_bytes!("tls/authority.pem");

/// A request that the server received.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    pub(super) method: String,
    pub(super) target: String,
    /// Header names are in lower case.
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Heard {
    /// The values of a header, joined.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        let same = self.headers.iter().filter(|(it, _)| it == name);
        let values: Vec<&str> = same.map(|(_, value)| value.as_str()).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }
}

/// What the server does with a request.
pub(super) enum Answer {
    /// Writes this and waits for the next request.
    Say(Vec<u8>),
    /// Writes this and closes the connection.
    Close(Vec<u8>),
    /// Writes the first, and then the second without end, with a pause before each.
    Repeat(Vec<u8>, Vec<u8>, Duration),
}

/// An answer with a body and its length.
pub(super) fn reply(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Answer {
    let body = body.as_ref();
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\n\r\n");
    Answer::Say([head.as_bytes(), body].concat())
}

/// An answer whose body is JSON.
pub(super) fn json(body: &str) -> Answer {
    reply(200, "Content-Type: application/json\r\n", body)
}

/// Says no more after this.
pub(super) fn silence(beginning: &str) -> Answer {
    Answer::Repeat(beginning.into(), Vec::new(), Duration::from_secs(3600))
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) connections: usize,
    /// Connections that the other side has closed.
    pub(super) closed: usize,
    pub(super) requests: usize,
    /// Bytes of bodies without end.
    pub(super) poured: usize,
}

struct Shared {
    answer: Box<dyn Fn(&Heard) -> Answer + Send + Sync>,
    heard: Mutex<Vec<Heard>>,
    counts: watch::Sender<Counts>,
}

/// The server, gone when it is dropped.
pub(super) struct Server {
    scheme: &'static str,
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Server {
    pub(super) async fn start(answer: impl Fn(&Heard) -> Answer + Send + Sync + 'static) -> Server {
        Server::listen(None, answer).await
    }

    /// Speaks TLS, with a certificate that [`AUTHORITY`] vouches for.
    pub(super) async fn start_tls(
        answer: impl Fn(&Heard) -> Answer + Send + Sync + 'static,
    ) -> Server {
        let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/certificate.pem"));
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/key.pem"));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.unwrap()], key.unwrap())
            .unwrap();
        Server::listen(Some(TlsAcceptor::from(Arc::new(config))), answer).await
    }

    async fn listen(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&Heard) -> Answer + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            heard: Mutex::default(),
            counts: watch::Sender::default(),
        });
        let task = tokio::spawn({
            let shared = shared.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let (shared, tls) = (shared.clone(), tls.clone());
                    tokio::spawn(async move {
                        shared.count(|it| it.connections += 1);
                        match tls {
                            None => shared.serve(stream).await,
                            Some(tls) => match tls.accept(stream).await {
                                Ok(stream) => shared.serve(stream).await,
                                Err(_) => return,
                            },
                        }
                        shared.count(|it| it.closed += 1);
                    });
                }
            }
        });
        Server {
            scheme,
            address,
            shared,
            task,
        }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.address)
    }

    /// The same under another name of this machine.
    pub(super) fn other_url(&self, path: &str) -> String {
        format!("{}://localhost:{}{path}", self.scheme, self.address.port())
    }

    pub(super) fn heard(&self) -> Vec<Heard> {
        self.shared.heard.lock().unwrap().clone()
    }

    pub(super) fn last(&self) -> Heard {
        self.heard().pop().unwrap()
    }

    pub(super) fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }

    /// Waits until the counts are so.
    pub(super) async fn wait(&self, holds: impl FnMut(&Counts) -> bool) {
        let mut counts = self.shared.counts.subscribe();
        let waited = tokio::time::timeout(Duration::from_secs(10), counts.wait_for(holds)).await;
        waited.unwrap().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) {
        while let Some(heard) = read_request(&mut stream).await {
            self.heard.lock().unwrap().push(heard.clone());
            self.count(|it| it.requests += 1);
            match (self.answer)(&heard) {
                Answer::Say(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Answer::Close(bytes) => {
                    let _ = stream.write_all(&bytes).await;
                    let _ = stream.shutdown().await;
                    return;
                }
                Answer::Repeat(head, piece, pause) => {
                    let _ = stream.write_all(&head).await;
                    let (mut reader, mut writer) = tokio::io::split(stream);
                    let pour = async {
                        loop {
                            tokio::time::sleep(pause).await;
                            if writer.write_all(&piece).await.is_err() {
                                return;
                            }
                            self.count(|it| it.poured += piece.len());
                        }
                    };
                    let mut byte = [0];
                    tokio::select! {
                        () = pour => {}
                        _ = reader.read(&mut byte) => {}
                    }
                    return;
                }
            }
        }
    }
}

async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Heard> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ').map(str::to_owned);
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let mut heard = Heard {
        method: words.next()?,
        target: words.next()?,
        headers,
        body: String::new(),
    };
    let length = heard.header("content-length");
    let mut body = vec![0; length.map_or(0, |it| it.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    heard.body = String::from_utf8_lossy(&body).into_owned();
    Some(heard)
}
