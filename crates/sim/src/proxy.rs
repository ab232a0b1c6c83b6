//! A TCP proxy that misbehaves: it cuts connections before or after a request or before an answer, cuts a message in
//! the middle, delays, and lets everything disappear without an error. Only the standard library, because the tests of
//! the command include this file.

use std::io::{Read as _, Result, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// What happens to some bytes on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// They do not arrive, and the connection is cut.
    CutBefore,
    /// They arrive, and the connection is cut before anything else does.
    CutAfter,
    /// Only the first part of them arrives before the connection is cut: one in so many.
    Truncate(usize),
    /// They arrive, after this time.
    Delay(Duration),
    /// Nothing arrives from now on, in both directions, and nobody is told.
    BlackHole,
}

/// A fault for the next bytes that go a way, after some others have gone it.
#[derive(Clone, Copy, Debug)]
struct Armed {
    way: Direction,
    fault: Fault,
    /// How many pieces go by first.
    after: u32,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    /// Every connection is cut as soon as it is made.
    refuses: AtomicBool,
    /// Nothing arrives, on all connections.
    silent: AtomicBool,
    armed: Mutex<Option<Armed>>,
    /// How many armed faults have happened.
    happened: AtomicU64,
    open: Mutex<Vec<Arc<Link>>>,
}

/// Both ends of one connection.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    silent: AtomicBool,
}

impl Link {
    fn cut(&self) {
        // An end that is closed already is what was wanted.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

/// A proxy that listens until its process ends.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// A proxy in front of a server on this machine.
    pub fn start(server_port: u16) -> Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            target: Mutex::new((Ipv4Addr::LOCALHOST, server_port).into()),
            refuses: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            armed: Mutex::new(None),
            happened: AtomicU64::new(0),
            open: Mutex::new(Vec::new()),
        });
        let proxy = Proxy {
            port,
            shared: Arc::clone(&shared),
        };
        thread::Builder::new().spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                // Without a thread the connection is cut, which is what this proxy is for.
                let _ = thread::Builder::new().spawn(move || connect(client, &shared));
            }
        })?;
        Ok(proxy)
    }

    /// The port that clients connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// New connections go to another server.
    pub fn lead_to(&self, server_port: u16) {
        *lock(&self.shared.target) = (Ipv4Addr::LOCALHOST, server_port).into();
    }

    /// Cuts every connection that is open now.
    pub fn cut_all(&self) {
        for link in lock(&self.shared.open).drain(..) {
            link.cut();
        }
    }

    /// Cuts the connections on which nothing arrives.
    pub fn cut_silent(&self) {
        let open = lock(&self.shared.open);
        for link in open.iter().filter(|it| it.silent.load(Ordering::SeqCst)) {
            link.cut();
        }
    }

    /// Whether new connections are cut as soon as they are made.
    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Whether nothing arrives, on all connections. What was swallowed does not come back.
    pub fn silence(&self, silent: bool) {
        if silent {
            for link in lock(&self.shared.open).iter() {
                link.silent.store(true, Ordering::SeqCst);
            }
        }
        self.shared.silent.store(silent, Ordering::SeqCst);
    }

    /// Lets a fault happen to the next bytes that go this way after `after` other pieces.
    pub fn arm(&self, way: Direction, fault: Fault, after: u32) {
        *lock(&self.shared.armed) = Some(Armed { way, fault, after });
    }

    /// How many of the armed faults have happened.
    #[must_use]
    pub fn happened(&self) -> u64 {
        self.shared.happened.load(Ordering::SeqCst)
    }
}

fn connect(client: TcpStream, shared: &Arc<Shared>) {
    if shared.refuses.load(Ordering::SeqCst) {
        return;
    }
    let target = *lock(&shared.target);
    let Ok(server) = TcpStream::connect(target) else {
        return;
    };
    let (Ok(from_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else {
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let link = Arc::new(Link {
        client,
        server,
        silent: AtomicBool::new(shared.silent.load(Ordering::SeqCst)),
    });
    lock(&shared.open).push(Arc::clone(&link));
    let (other, more) = (Arc::clone(&link), Arc::clone(shared));
    let back = thread::Builder::new()
        .spawn(move || carry(from_server, Direction::ToClient, &other, &more));
    carry(from_client, Direction::ToServer, &link, shared);
    if let Ok(back) = back {
        let _ = back.join();
    }
    lock(&shared.open).retain(|it| !Arc::ptr_eq(it, &link));
}

/// Carries bytes one way until the connection ends.
fn carry(mut from: TcpStream, way: Direction, link: &Link, shared: &Shared) {
    let mut to = match way {
        Direction::ToServer => &link.server,
        Direction::ToClient => &link.client,
    };
    let mut piece = [0; 16 * 1024];
    while let Ok(count) = from.read(&mut piece) {
        if count == 0 {
            break;
        }
        let piece = &piece[..count];
        let fault = take(way, shared);
        if fault == Some(Fault::BlackHole) {
            link.silent.store(true, Ordering::SeqCst);
        }
        if link.silent.load(Ordering::SeqCst) {
            continue;
        }
        let sent = match fault {
            None | Some(Fault::CutAfter) => to.write_all(piece),
            Some(Fault::CutBefore | Fault::BlackHole) => Ok(()),
            Some(Fault::Truncate(part)) => to.write_all(&piece[..count / part.max(1)]),
            Some(Fault::Delay(delay)) => {
                thread::sleep(delay);
                to.write_all(piece)
            }
        };
        let cut = matches!(
            fault,
            Some(Fault::CutBefore | Fault::CutAfter | Fault::Truncate(_))
        );
        if cut || sent.is_err() {
            break;
        }
    }
    // A silent connection ends for one side only when that side gives up; the other one learns it then.
    link.cut();
}

/// The fault of this piece, if it is the one that a fault is armed for.
fn take(way: Direction, shared: &Shared) -> Option<Fault> {
    let mut armed = lock(&shared.armed);
    let it = armed.as_mut().filter(|it| it.way == way)?;
    if it.after > 0 {
        it.after -= 1;
        return None;
    }
    let fault = it.fault;
    *armed = None;
    shared.happened.fetch_add(1, Ordering::SeqCst);
    Some(fault)
}
