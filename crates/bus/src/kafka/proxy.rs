//! The way of a Kafka client to its brokers where not all addresses may be connected to. Brokers tell the client where the
//! other brokers are, so the client connects through a SOCKS5 proxy inside of this process, which checks every address.
//! Only this client knows the password of the proxy. TLS goes through it untouched.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use stepwell_http::hosts::{DeniedHost, HostRules};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::dial;

const USER: &str = "stepwell";
/// The version of the protocol.
const SOCKS: u8 = 5;
/// The only way to log in: a name and a password.
const PASSWORD: u8 = 2;

/// A proxy that ends when it is dropped.
#[derive(Debug)]
pub(crate) struct CheckedProxy {
    address: SocketAddr,
    password: String,
    denied: Arc<Mutex<Option<DeniedHost>>>,
    task: JoinHandle<()>,
}

impl Drop for CheckedProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl CheckedProxy {
    /// Listens on this machine, at any port.
    pub(crate) async fn open(rules: &Arc<HostRules>) -> io::Result<CheckedProxy> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let password = uuid::Uuid::new_v4().to_string();
        let denied = Arc::new(Mutex::new(None));
        let (rules, expected, note) = (Arc::clone(rules), password.clone(), Arc::clone(&denied));
        let task = tokio::spawn(async move {
            // The connections end with the listener: with the task.
            let mut open = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (rules, expected, note) =
                    (Arc::clone(&rules), expected.clone(), Arc::clone(&note));
                open.spawn(async move {
                    // The client sees that the connection ends.
                    let _ = serve(client, &rules, &expected, &note).await;
                });
                while open.try_join_next().is_some() {}
            }
        });
        Ok(CheckedProxy {
            address,
            password,
            denied,
            task,
        })
    }

    /// Address, user and password.
    pub(crate) fn access(&self) -> (String, String, String) {
        (
            self.address.to_string(),
            USER.to_owned(),
            self.password.clone(),
        )
    }

    /// The last address that was refused.
    pub(crate) fn denied(&self) -> Option<DeniedHost> {
        self.denied
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// One connection: login, request, then bytes in both directions.
async fn serve(
    mut client: TcpStream,
    rules: &HostRules,
    password: &str,
    note: &Mutex<Option<DeniedHost>>,
) -> io::Result<()> {
    let wrong = || io::Error::other("this is no SOCKS5 client of this process");
    let methods = [client.read_u8().await?, client.read_u8().await?];
    let mut offered = vec![0; usize::from(methods[1])];
    client.read_exact(&mut offered).await?;
    if methods[0] != SOCKS || !offered.contains(&PASSWORD) {
        client.write_all(&[SOCKS, 0xff]).await?;
        return Err(wrong());
    }
    client.write_all(&[SOCKS, PASSWORD]).await?;
    client.read_u8().await?;
    let user = read_text(&mut client).await?;
    let given = read_text(&mut client).await?;
    if user != USER || given != password {
        client.write_all(&[1, 1]).await?;
        return Err(wrong());
    }
    client.write_all(&[1, 0]).await?;
    let mut request = [0; 4];
    client.read_exact(&mut request).await?;
    let host = match request {
        [SOCKS, 1, _, 1] => {
            let mut bytes = [0; 4];
            client.read_exact(&mut bytes).await?;
            std::net::Ipv4Addr::from(bytes).to_string()
        }
        [SOCKS, 1, _, 4] => {
            let mut bytes = [0; 16];
            client.read_exact(&mut bytes).await?;
            std::net::Ipv6Addr::from(bytes).to_string()
        }
        [SOCKS, 1, _, 3] => read_text(&mut client).await?,
        _ => return Err(wrong()),
    };
    let port = client.read_u16().await?;
    // Version, answer, nothing, and an address that no client needs.
    let answer = |code: u8| [SOCKS, code, 0, 1, 0, 0, 0, 0, 0, 0];
    match dial::tcp(&host, port, rules).await {
        Ok(mut broker) => {
            client.write_all(&answer(0)).await?;
            tokio::io::copy_bidirectional(&mut client, &mut broker).await?;
            Ok(())
        }
        Err(error) => {
            let denied = DeniedHost::behind(&*error).cloned();
            // 2: the rules do not allow it; 5: refused.
            client
                .write_all(&answer(if denied.is_some() { 2 } else { 5 }))
                .await?;
            if denied.is_some() {
                *note.lock().unwrap_or_else(PoisonError::into_inner) = denied;
            }
            Err(io::Error::other(error))
        }
    }
}

/// A text with its length before it.
async fn read_text(client: &mut TcpStream) -> io::Result<String> {
    let length = client.read_u8().await?;
    let mut bytes = vec![0; usize::from(length)];
    client.read_exact(&mut bytes).await?;
    String::from_utf8(bytes).map_err(io::Error::other)
}
