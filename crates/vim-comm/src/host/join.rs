//! How the ranks of a machine get their sockets: rank 0 listens, the others connect.

use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, mpsc};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::frame::{Kind, receive, send};
use crate::error::CommError;
use crate::place::Place;
use crate::rendezvous::Rendezvous;

/// The longest path of a socket; the limit of Linux is 107 bytes, of other systems 103.
const LONGEST: usize = 100;
const SOCKET: &str = "socket";
/// The file that says where the socket is.
const ADDRESS: &str = "socket.json";
/// Between two looks for a new connection, and for the end of the attempt.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(100)];
/// How long a rank that has connected may take to say which one it is.
const HELLO: Duration = Duration::from_secs(10);

/// Where rank 0 listens.
#[derive(Serialize, Deserialize)]
struct Address {
    host: String,
    path: PathBuf,
}

/// A socket's path, and a folder of its own where that of the rendezvous has too long a name;
/// removed when dropped.
struct SocketPath {
    path: PathBuf,
    folder: Option<PathBuf>,
    /// The folder of the rendezvous.
    of: PathBuf,
}

impl SocketPath {
    fn new(folder: &Path) -> Result<Self, CommError> {
        let path = folder.join(SOCKET);
        let absolute = std::path::absolute(&path).map_err(CommError::io("find", &path))?;
        if absolute.as_os_str().as_bytes().len() <= LONGEST {
            fs::create_dir_all(folder).map_err(CommError::io("make", folder))?;
            return Ok(Self { path: absolute, folder: None, of: folder.to_owned() });
        }
        let mut hash = DefaultHasher::new();
        absolute.hash(&mut hash);
        let name = format!("vim-{:016x}-{}", hash.finish(), process::id());
        let short = std::env::temp_dir().join(name);
        let made = DirBuilder::new().mode(0o700).create(&short);
        made.map_err(no_socket("make", &short, folder))?;
        Ok(Self { path: short.join(SOCKET), folder: Some(short), of: folder.to_owned() })
    }

    fn bind(&self) -> Result<UnixListener, CommError> {
        let bound = UnixListener::bind(&self.path);
        match self.folder {
            None => bound.map_err(CommError::io("listen at", &self.path)),
            Some(_) => bound.map_err(no_socket("listen at", &self.path, &self.of)),
        }
    }
}

/// The error of a socket that is at `path` because the path of `folder` is too long for one.
fn no_socket(
    action: &'static str,
    path: &Path,
    folder: &Path,
) -> impl FnOnce(io::Error) -> CommError {
    let (path, folder) = (path.to_owned(), folder.to_owned());
    move |source| CommError::Socket { action, path, folder, source: Arc::new(source) }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// As rank 0: the sockets of ranks 1, 2, ….
pub(super) fn listen(rendezvous: &Rendezvous) -> Result<Vec<UnixStream>, CommError> {
    let socket = SocketPath::new(&rendezvous.folder)?;
    let path = &socket.path;
    let listener = socket.bind()?;
    listener.set_nonblocking(true).map_err(CommError::io("listen at", path))?;
    let address = Address { host: host(), path: path.clone() };
    let text =
        serde_json::to_vec(&address).map_err(|error| CommError::io("write", path)(error.into()))?;
    rendezvous.publish(ADDRESS, &text)?;
    let mut streams: Vec<Option<UnixStream>> = Vec::new();
    streams.resize_with(rendezvous.place.world() - 1, || None);
    let (begin, mut looked) = (Instant::now(), Instant::now());
    let (sender, greetings) = mpsc::channel::<(Place, UnixStream)>();
    while streams.iter().any(Option::is_none) {
        while let Ok((other, stream)) = greetings.try_recv() {
            let refused = |what| CommError::Refused { why: format!("{what} {}", path.display()) };
            if rendezvous.place.with_rank(other.rank()).as_ref() != Some(&other) {
                return Err(refused(format!("{other:?} is not of this run, but connected to")));
            }
            let slot = streams.get_mut(other.rank().wrapping_sub(1)).filter(|slot| slot.is_none());
            let twice = || refused(format!("rank {} connected twice to", other.rank()));
            *slot.ok_or_else(twice)? = Some(stream);
        }
        match listener.accept() {
            Ok((stream, _)) => {
                let sender = sender.clone();
                // Each in a thread of its own: one that stays silent holds up no other. What does
                // not speak as a rank does is none, and is dropped.
                let hear = move || {
                    if let Ok(greeting) = greeted(stream) {
                        // Fails where the attempt is over.
                        let _ = sender.send(greeting);
                    }
                };
                let heard = thread::Builder::new().spawn(hear);
                heard.map_err(CommError::io("listen at", path))?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if looked.elapsed() >= PAUSES[1] {
                    looked = Instant::now();
                    if let Some(reason) = rendezvous.aborted() {
                        return Err(CommError::Aborted { reason });
                    }
                    if begin.elapsed() >= rendezvous.timeout {
                        let there = |rank: usize| rank == 0 || streams[rank - 1].is_some();
                        return Err(rendezvous.missing(there));
                    }
                }
                sleep(PAUSES[0]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CommError::io("listen at", path)(error)),
        }
    }
    Ok(streams.into_iter().flatten().collect())
}

/// What a new connection says it is.
fn greeted(mut stream: UnixStream) -> io::Result<(Place, UnixStream)> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(HELLO))?;
    let frame = receive(&mut stream, Vec::new())?;
    stream.set_read_timeout(None)?;
    if frame.kind != Kind::Hello {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((serde_json::from_slice(&frame.bytes)?, stream))
}

/// As another rank: the socket of rank 0.
pub(super) fn connect(rendezvous: &Rendezvous) -> Result<UnixStream, CommError> {
    let file = rendezvous.folder.join(ADDRESS);
    let text = rendezvous.receive(ADDRESS)?;
    let address: Address = serde_json::from_slice(&text)
        .map_err(|error| CommError::io("read", &file)(error.into()))?;
    if address.host != host() {
        let what = format!(
            "ranks on CPUs must be on one machine: rank 0 is on {}, rank {} on {}",
            address.host,
            rendezvous.place.rank(),
            host()
        );
        return Err(CommError::Unsupported { what });
    }
    let failed = CommError::io("connect to", &address.path);
    let connect = || {
        let mut stream = UnixStream::connect(&address.path)?;
        let hello = serde_json::to_vec(&rendezvous.place)?;
        send(&mut stream, Kind::Hello, 0, &hello)?;
        Ok(stream)
    };
    connect().map_err(failed)
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
