//! Servers that do not behave, for as long as a test needs them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A server that does this with each connection once it has heard the request; its address.
pub(crate) fn server(answer: impl Fn(&mut TcpStream, &str) + Send + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                if let Ok(read @ 1..) = stream.read(&mut request) {
                    answer(&mut stream, &String::from_utf8_lossy(&request[..read]));
                }
            });
        }
    });
    address
}

/// Three pages of a list, for clients that retry after the first answer, which is "busy".
pub(crate) fn pages() -> String {
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    server(move |stream, request| {
        let count = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let (status, body) = match (count, request.contains("page=3")) {
            (0, _) => ("503 Service Unavailable", "{}"),
            (_, false) => (
                "200 OK",
                r#"{"data": [1, 2, 3], "paging": {"hasMore": true}}"#,
            ),
            (_, true) => ("200 OK", r#"{"data": [4], "paging": {"hasMore": false}}"#),
        };
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        );
        let _ = stream.write_all(answer.as_bytes());
    })
}

/// Redirects each request to the page it came from.
pub(crate) fn redirects() -> String {
    server(|stream, _| {
        let answer = "HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\
                      Connection: close\r\n\r\n";
        let _ = stream.write_all(answer.as_bytes());
    })
}

/// Answers with one byte from time to time, without end.
pub(crate) fn drips() -> String {
    server(|stream, _| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000000\r\n\r\n";
        let mut sent = stream.write_all(head.as_bytes());
        while sent.is_ok() {
            sent = stream.write_all(b"x");
            std::thread::sleep(Duration::from_millis(20));
        }
    })
}
