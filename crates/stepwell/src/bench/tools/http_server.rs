//! The HTTP server for the tool `http`. It has its own thread, so that its CPU time can be subtracted.

use std::io;
use std::thread;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

use crate::bench::resource_usage::ASIDE;

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{\"ok\":true}";

/// The maximum size of a request header.
const LONGEST: usize = 16 << 10;

/// A server that runs until the process ends.
pub(super) struct HttpServer {
    port: u16,
}

impl HttpServer {
    pub(super) fn start() -> io::Result<HttpServer> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let runtime = Builder::new_current_thread().enable_io().build()?;
        thread::Builder::new().name(ASIDE.into()).spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = TcpListener::from_std(listener) else {
                    return;
                };
                while let Ok((stream, _)) = listener.accept().await {
                    // The client notices a closed connection.
                    tokio::spawn(async { drop(answer(stream).await) });
                }
            });
        })?;
        Ok(HttpServer { port })
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }
}

/// Answers each request until the client closes the connection.
async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head = Vec::new();
    while stream.read_buf(&mut head).await? > 0 && head.len() <= LONGEST {
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            stream.write_all(ANSWER).await?;
        }
    }
    Ok(())
}
