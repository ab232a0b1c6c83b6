//! Servers that do not behave, for as long as a test needs them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A server that does this with each connection once it has heard the request; its address.
pub(crate) fn server(answer: impl Fn(&mut TcpStream, &str) + Send + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let own = address.clone();
    // Ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (answer, own) = (answer.clone(), own.clone());
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut request = [0; 4096];
                if stream.read(&mut request).is_ok_and(|read| read > 0) {
                    answer(&mut stream, &own);
                }
            });
        }
    });
    address
}

/// Sends whoever comes back to where they came from.
pub(crate) fn redirects() -> String {
    server(|stream, own| {
        let answer = format!(
            "HTTP/1.1 302 Found\r\nLocation: {own}/again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let _ = stream.write_all(answer.as_bytes());
    })
}

/// Answers with a byte now and then, for ever.
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
