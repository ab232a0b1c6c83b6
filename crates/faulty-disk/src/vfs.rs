//! Between SQLite and the system: the default functions of SQLite for files, with those for opening, deleting, writing,
//! cutting and syncing replaced. A file on a disk of `disk` has the replaced functions; any other file has its own.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rusqlite::ffi;

use crate::disk::{self, Verdict};

/// What a function of SQLite for files is given back.
const OK: c_int = ffi::SQLITE_OK;

/// Pointers that SQLite never frees and never changes once they are made.
struct Shared {
    system: *mut ffi::sqlite3_vfs,
    ours: *mut ffi::sqlite3_vfs,
}

// SAFETY: both point to tables that live as long as the process and are only read after they are registered.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

static SHARED: OnceLock<Option<Shared>> = OnceLock::new();

/// What is known of an open file: its path, and the functions of the system for it.
#[derive(Clone, Copy)]
struct Methods {
    /// Lives as long as the process: a table of SQLite.
    system: &'static ffi::sqlite3_io_methods,
    ours: &'static ffi::sqlite3_io_methods,
}

#[derive(Clone)]
struct OpenFile {
    path: String,
    methods: Methods,
}

/// The open files on disks, by address.
fn open_files() -> MutexGuard<'static, HashMap<usize, OpenFile>> {
    static FILES: OnceLock<Mutex<HashMap<usize, OpenFile>>> = OnceLock::new();
    let files = FILES.get_or_init(Mutex::default);
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_file(file: *mut ffi::sqlite3_file) -> Option<OpenFile> {
    open_files().get(&(file as usize)).cloned()
}

/// The replaced tables, by the address of the system's; SQLite has a few.
fn replaced(system: &'static ffi::sqlite3_io_methods) -> Methods {
    static TABLES: OnceLock<Mutex<HashMap<usize, Methods>>> = OnceLock::new();
    let tables = TABLES.get_or_init(Mutex::default);
    let mut tables = tables.lock().unwrap_or_else(PoisonError::into_inner);
    let address = std::ptr::from_ref(system) as usize;
    *tables.entry(address).or_insert_with(|| {
        let ours = ffi::sqlite3_io_methods {
            xClose: Some(close),
            xWrite: Some(write),
            xTruncate: Some(truncate),
            xSync: Some(sync),
            ..*system
        };
        Methods {
            system,
            ours: Box::leak(Box::new(ours)),
        }
    })
}

/// Registers the functions as the default ones of this process, once.
pub(crate) fn register() -> io::Result<()> {
    let shared = SHARED.get_or_init(|| {
        // SAFETY: without a name SQLite gives its default table, which lives as long as the process.
        let system = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
        // SAFETY: a pointer of SQLite is null or valid.
        let table = unsafe { system.as_ref() }?;
        let ours = Box::leak(Box::new(ffi::sqlite3_vfs {
            zName: c"stepwell-faulty".as_ptr(),
            pNext: std::ptr::null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            ..*table
        }));
        // SAFETY: the table is valid and is never freed.
        let registered = unsafe { ffi::sqlite3_vfs_register(ours, 1) };
        (registered == OK).then_some(Shared { system, ours })
    });
    match shared {
        Some(_) => Ok(()),
        None => Err(io::Error::other(
            "SQLite takes no other functions for files",
        )),
    }
}

/// The table of the system.
fn system() -> Option<*mut ffi::sqlite3_vfs> {
    let shared = SHARED.get()?.as_ref()?;
    debug_assert!(!shared.ours.is_null());
    Some(shared.system)
}

/// The text of a name that SQLite gives.
///
/// # Safety
/// `name` is null or a string that ends with a zero.
unsafe fn text(name: *const c_char) -> Option<String> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller says so.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().ok().map(str::to_owned)
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let Some(vfs) = system() else {
        return ffi::SQLITE_CANTOPEN;
    };
    // SAFETY: the table of the system is valid.
    let Some(system_open) = (unsafe { (*vfs).xOpen }) else {
        return ffi::SQLITE_CANTOPEN;
    };
    // SAFETY: SQLite's own arguments are passed on, with the table that the function belongs to; a file of ours is as
    // large as one of the system.
    let opened = unsafe { system_open(vfs, name, file, flags, out) };
    // SAFETY: SQLite gives null or a name.
    let path = unsafe { text(name) };
    if let Some(path) = path.filter(|path| opened == OK && disk::has(path)) {
        // SAFETY: after a successful open the file points to a table of SQLite that lives as long as the process.
        if let Some(table) = unsafe { (*file).pMethods.as_ref::<'static>() } {
            let methods = replaced(table);
            // SAFETY: the file is open, and nobody else has it yet.
            unsafe { (*file).pMethods = methods.ours };
            open_files().insert(file as usize, OpenFile { path, methods });
        }
    }
    opened
}

unsafe extern "C" fn delete(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync_folder: c_int,
) -> c_int {
    let Some(vfs) = system() else {
        return ffi::SQLITE_IOERR_DELETE;
    };
    // SAFETY: SQLite gives null or a name.
    let path = unsafe { text(name) };
    if path.is_some_and(|path| disk::delete(&path) != Verdict::Pass) {
        return ffi::SQLITE_IOERR_DELETE;
    }
    // SAFETY: the table of the system is valid.
    let Some(system_delete) = (unsafe { (*vfs).xDelete }) else {
        return ffi::SQLITE_IOERR_DELETE;
    };
    // SAFETY: SQLite's own arguments are passed on, with the table that the function belongs to.
    unsafe { system_delete(vfs, name, sync_folder) }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let Some(known) = open_files().remove(&(file as usize)) else {
        return ffi::SQLITE_IOERR_CLOSE;
    };
    // SAFETY: the file is open, and SQLite uses it no more after this call.
    unsafe { (*file).pMethods = known.methods.system };
    match known.methods.system.xClose {
        // SAFETY: the system's function for a file that the system has opened.
        Some(system_close) => unsafe { system_close(file) },
        None => OK,
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    data: *const c_void,
    length: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    let Some(known) = open_file(file) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    let (Ok(size), Ok(place)) = (usize::try_from(length), usize::try_from(at)) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    // SAFETY: SQLite gives so many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) };
    match disk::write(&known.path, place, bytes) {
        Verdict::Pass => {}
        Verdict::Done => return OK,
        Verdict::Fail => return ffi::SQLITE_IOERR_WRITE,
        Verdict::Full => return ffi::SQLITE_FULL,
    }
    match known.methods.system.xWrite {
        // SAFETY: SQLite's own arguments are passed on, for a file that the system has opened.
        Some(system_write) => unsafe { system_write(file, data, length, at) },
        None => ffi::SQLITE_IOERR_WRITE,
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    let Some(known) = open_file(file) else {
        return ffi::SQLITE_IOERR_TRUNCATE;
    };
    let Ok(length) = usize::try_from(size) else {
        return ffi::SQLITE_IOERR_TRUNCATE;
    };
    if disk::truncate(&known.path, length) != Verdict::Pass {
        return ffi::SQLITE_IOERR_TRUNCATE;
    }
    match known.methods.system.xTruncate {
        // SAFETY: SQLite's own arguments are passed on, for a file that the system has opened.
        Some(system_truncate) => unsafe { system_truncate(file, size) },
        None => ffi::SQLITE_IOERR_TRUNCATE,
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    let Some(known) = open_file(file) else {
        return ffi::SQLITE_IOERR_FSYNC;
    };
    match disk::sync(&known.path) {
        Verdict::Done => OK,
        Verdict::Fail | Verdict::Full => ffi::SQLITE_IOERR_FSYNC,
        Verdict::Pass => match known.methods.system.xSync {
            // SAFETY: SQLite's own arguments are passed on, for a file that the system has opened.
            Some(system_sync) => unsafe { system_sync(file, flags) },
            None => OK,
        },
    }
}
