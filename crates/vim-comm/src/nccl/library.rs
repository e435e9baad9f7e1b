//! NCCL's library, opened by path: the few functions that a run calls.
//!
//! `cudarc` has bindings too, but asks the linker for names that NVIDIA's wheels do not have
//! (`libnccl.so`), and its errors do not say what NCCL says.

#![expect(unsafe_code, reason = "calling a C library")]

use std::env;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::CommError;

/// Variable with the path of the library to take.
pub const VARIABLE: &str = "VIM_TRAIN_NCCL";
/// The library as the linker knows it.
const NAME: &str = "libnccl.so.2";
/// The oldest version with all functions, as NCCL counts: 2.12.
const OLDEST: c_int = 21_200;

/// By what the ranks of a communicator find each other.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId(pub(super) [u8; 128]);

/// A communicator of the library.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawComm(*mut c_void);

// SAFETY: the library allows calls on a communicator from any thread; those that queue work are
// made on one thread, the device's.
unsafe impl Send for RawComm {}
// SAFETY: as above; the one call on several threads at once reads an error code.
unsafe impl Sync for RawComm {}

/// A `CUstream`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream(pub(super) *mut c_void);

/// A kind of number, with NCCL's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    U8 = 1,
    F32 = 7,
    F64 = 8,
    Bf16 = 9,
}

const SUM: c_int = 0;
/// The code of a communicator that works on something.
const IN_PROGRESS: c_int = 7;

macro_rules! functions {
    ($($field:ident = $name:ident($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// The functions, named as in the library.
        struct Functions {
            $($field: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            last_error: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
            /// Keeps the functions in memory.
            _library: libloading::Library,
        }

        impl Functions {
            fn of(library: libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of nccl.h since version 2.12.
                unsafe {
                    Ok(Self {
                        $($field: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)*
                        // Since version 2.13.
                        last_error: library.get(b"ncclGetLastError\0").map(|found| *found).ok(),
                        _library: library,
                    })
                }
            }
        }
    };
}

functions! {
    get_version = ncclGetVersion(*mut c_int) -> c_int;
    get_unique_id = ncclGetUniqueId(*mut UniqueId) -> c_int;
    comm_init_rank = ncclCommInitRank(*mut *mut c_void, c_int, UniqueId, c_int) -> c_int;
    comm_destroy = ncclCommDestroy(*mut c_void) -> c_int;
    comm_get_async_error = ncclCommGetAsyncError(*mut c_void, *mut c_int) -> c_int;
    get_error_string = ncclGetErrorString(c_int) -> *const c_char;
    all_reduce = ncclAllReduce(*const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int;
    broadcast = ncclBroadcast(*const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int;
    all_gather = ncclAllGather(*const c_void, *mut c_void, usize, c_int, *mut c_void, *mut c_void) -> c_int;
    send = ncclSend(*const c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int;
    recv = ncclRecv(*mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int;
    group_start = ncclGroupStart() -> c_int;
    group_end = ncclGroupEnd() -> c_int;
}

/// An open library of NCCL. A clone is a further handle.
#[derive(Clone)]
pub struct Library {
    functions: Arc<Functions>,
    path: PathBuf,
    version: c_int,
}

impl fmt::Debug for Library {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "NCCL {} ({})", self.version(), self.path.display())
    }
}

impl Library {
    /// Opens the library that [`VARIABLE`] names; without it the first that opens and is not too
    /// old, of the linker's and of `candidates`.
    ///
    /// # Errors
    ///
    /// [`CommError::NoLibrary`] with what was tried.
    pub fn open(candidates: impl IntoIterator<Item = PathBuf>) -> Result<Self, CommError> {
        let named = env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let mut tried = Vec::new();
        let mut first = |path: PathBuf| {
            let opened = Self::open_one(&path);
            opened.map_err(|problem| tried.push(format!("{}: {problem}", path.display()))).ok()
        };
        let found = match named {
            Some(path) => first(path),
            None => [PathBuf::from(NAME)].into_iter().chain(candidates).find_map(first),
        };
        found.ok_or_else(|| CommError::NoLibrary { tried: tried.join("; ") })
    }

    fn open_one(path: &Path) -> Result<Self, String> {
        // SAFETY: NVIDIA's library may be opened at any time, from any thread.
        let library = unsafe { libloading::Library::new(path) };
        let functions = library.and_then(Functions::of).map_err(|error| error.to_string())?;
        let mut version = 0;
        // SAFETY: writes one number.
        let code = unsafe { (functions.get_version)(&mut version) };
        let library = Self { functions: Arc::new(functions), path: mapped(path), version };
        library.check("the version", code)?;
        if version < OLDEST {
            return Err(format!("version {} is too old", library.version()));
        }
        Ok(library)
    }

    /// Its version, such as `2.28.9`.
    pub fn version(&self) -> String {
        let v = self.version;
        // Until 2.8 a patch was a digit; those versions are too old.
        format!("{}.{}.{}", v / 10_000, v / 100 % 100, v % 100)
    }

    /// Its file, as far as it is known.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What NCCL says of a code that is not success.
    fn check(&self, what: &str, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let text = |text: *const c_char| {
            // SAFETY: a string of the library, which stays.
            let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
            text.unwrap_or_default().to_string_lossy().trim().replace('\n', " ")
        };
        // SAFETY: takes any code.
        let kind = text(unsafe { (self.functions.get_error_string)(code) });
        let last = self.functions.last_error.map_or_else(String::new, |last_error| {
            // SAFETY: no communicator asks for the last error of all.
            let last = text(unsafe { last_error(std::ptr::null_mut()) });
            if last.is_empty() { last } else { format!(": {last}") }
        });
        Err(format!("NCCL {}: {what} failed: {kind} ({code}){last}", self.version()))
    }

    /// For a new communicator.
    pub(super) fn unique_id(&self) -> Result<UniqueId, String> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: writes an id.
        self.check("the id", unsafe { (self.functions.get_unique_id)(&mut id) })?;
        Ok(id)
    }

    /// Joins the others' communicator on the current device; waits for all.
    pub(super) fn init(&self, world: usize, rank: usize, id: UniqueId) -> Result<RawComm, String> {
        let mut comm = std::ptr::null_mut();
        let (world, rank) = (world as c_int, rank as c_int);
        // SAFETY: writes a communicator.
        let code = unsafe { (self.functions.comm_init_rank)(&mut comm, world, id, rank) };
        self.check("joining", code)?;
        Ok(RawComm(comm))
    }

    /// Ends a communicator; no call with it may follow.
    pub(super) fn destroy(&self, comm: RawComm) -> Result<(), String> {
        // SAFETY: the caller calls nothing with it afterwards.
        self.check("the end", unsafe { (self.functions.comm_destroy)(comm.0) })
    }

    /// What went wrong beside the calls.
    pub(super) fn fault(&self, comm: RawComm) -> Option<String> {
        let mut fault = 0;
        // SAFETY: may be called at any time, also beside a call that blocks; writes one number.
        let code = unsafe { (self.functions.comm_get_async_error)(comm.0, &mut fault) };
        let code = if code == 0 { fault } else { code };
        if code == IN_PROGRESS { None } else { self.check("a collective", code).err() }
    }

    /// Sums `count` numbers over ranks, in an order of NCCL's choice.
    ///
    /// # Safety
    ///
    /// Both addresses, which may be the same, are of `count` numbers on the communicator's device;
    /// so they remain until what is queued on `stream` has run.
    pub(super) unsafe fn all_reduce(
        &self,
        (from, to): (u64, u64),
        (count, kind): (usize, Kind),
        (comm, stream): (RawComm, Stream),
    ) -> Result<(), String> {
        let (from, to) = (from as *const c_void, to as *mut c_void);
        // SAFETY: the caller's promise.
        self.check("a sum", unsafe {
            (self.functions.all_reduce)(from, to, count, kind as c_int, SUM, comm.0, stream.0)
        })
    }

    /// Copies `count` bytes of rank 0 to all.
    ///
    /// # Safety
    ///
    /// As [`Self::all_reduce`].
    pub(super) unsafe fn broadcast(
        &self,
        at: u64,
        count: usize,
        (comm, stream): (RawComm, Stream),
    ) -> Result<(), String> {
        let at = at as *mut c_void;
        // SAFETY: the caller's promise.
        self.check("a broadcast", unsafe {
            (self.functions.broadcast)(at, at, count, Kind::U8 as c_int, 0, comm.0, stream.0)
        })
    }

    /// Copies every rank's `count` numbers behind each other to all.
    ///
    /// # Safety
    ///
    /// As [`Self::all_reduce`]; `to` has room for all ranks' numbers, and `from` may be this
    /// rank's place there.
    pub(super) unsafe fn all_gather(
        &self,
        (from, to): (u64, u64),
        (count, kind): (usize, Kind),
        (comm, stream): (RawComm, Stream),
    ) -> Result<(), String> {
        let (from, to) = (from as *const c_void, to as *mut c_void);
        // SAFETY: the caller's promise.
        self.check("a gathering", unsafe {
            (self.functions.all_gather)(from, to, count, kind as c_int, comm.0, stream.0)
        })
    }

    /// Sends `count` numbers to the rank `peer`; only in [`Self::group`].
    ///
    /// # Safety
    ///
    /// As [`Self::all_reduce`].
    pub(super) unsafe fn send(
        &self,
        from: u64,
        (count, kind): (usize, Kind),
        peer: usize,
        (comm, stream): (RawComm, Stream),
    ) -> Result<(), String> {
        let (from, peer) = (from as *const c_void, peer as c_int);
        // SAFETY: the caller's promise.
        self.check("sending", unsafe {
            (self.functions.send)(from, count, kind as c_int, peer, comm.0, stream.0)
        })
    }

    /// Receives `count` numbers from the rank `peer`; only in [`Self::group`].
    ///
    /// # Safety
    ///
    /// As [`Self::all_reduce`].
    pub(super) unsafe fn receive(
        &self,
        to: u64,
        (count, kind): (usize, Kind),
        peer: usize,
        (comm, stream): (RawComm, Stream),
    ) -> Result<(), String> {
        let (to, peer) = (to as *mut c_void, peer as c_int);
        // SAFETY: the caller's promise.
        self.check("receiving", unsafe {
            (self.functions.recv)(to, count, kind as c_int, peer, comm.0, stream.0)
        })
    }

    /// What `calls` queues runs at once. After an error the library must not be called again.
    pub(super) fn group(&self, calls: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        // SAFETY: has no arguments; its end is below, on the same thread.
        self.check("a group's begin", unsafe { (self.functions.group_start)() })?;
        calls()?;
        // SAFETY: has no arguments.
        self.check("a group's end", unsafe { (self.functions.group_end)() })
    }
}

/// Where the library of this name lies, once it is open.
fn mapped(name: &Path) -> PathBuf {
    if name.is_absolute() {
        return name.to_owned();
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut paths = maps.lines().filter_map(|line| Some(&line[line.find('/')?..]));
    let file = |path: &&str| path.rsplit('/').next().is_some_and(|name| name.starts_with(NAME));
    paths.find(file).map_or_else(|| name.to_owned(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_tried_is_said() {
        if env::var_os(VARIABLE).is_some() {
            return;
        }
        let error = match Library::open([PathBuf::from("/nowhere/libnccl.so.2")]) {
            Err(error) => error.to_string(),
            // A machine with NCCL.
            Ok(library) => return assert!(library.version >= OLDEST, "{library:?}"),
        };
        assert!(error.contains("libnccl.so.2: "), "{error}");
        assert!(error.contains("; /nowhere/libnccl.so.2: "), "{error}");
    }
}
