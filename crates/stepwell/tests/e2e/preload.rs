//! Small libraries that are loaded before the C library: the machine that a test wants. They are compiled when a test
//! needs one.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A clock of the machine that the test sets: the file in `TEST_CLOCK` has the seconds that it is ahead.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long long *ahead;
__attribute__((constructor)) static void start(void) {
  const char *path = getenv("TEST_CLOCK");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0) return;
  void *map = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
  if (map != MAP_FAILED) ahead = map;
  close(file);
}
int clock_gettime(clockid_t id, struct timespec *time) {
  int result = syscall(SYS_clock_gettime, id, time);
  if (result == 0 && id == CLOCK_REALTIME && ahead) time->tv_sec += *ahead;
  return result;
}
"#;

/// A disk that takes as many milliseconds for each sync as `TEST_SYNC_MS` says.
const SLOW_DISK: &str = r#"
#include <stdlib.h>
#include <unistd.h>
static int slow(void) {
  const char *text = getenv("TEST_SYNC_MS");
  for (int left = text ? atoi(text) : 0; left > 0; left--) usleep(1000);
  return 0;
}
int fsync(int file) { (void)file; return slow(); }
int fdatasync(int file) { (void)file; return slow(); }
"#;

/// The library with the clock that a test sets; none, and a word about it, on a machine without a C compiler.
pub(crate) fn clock(folder: &Path) -> Option<PathBuf> {
    compile(folder, "clock", CLOCK)
}

/// The library with the slow disk.
pub(crate) fn slow_disk(folder: &Path) -> Option<PathBuf> {
    compile(folder, "slow_disk", SLOW_DISK)
}

fn compile(folder: &Path, name: &str, text: &str) -> Option<PathBuf> {
    let source = folder.join(format!("{name}.c"));
    let library = folder.join(format!("{name}.so"));
    std::fs::write(&source, text).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .status();
    match compiled {
        Ok(status) => {
            assert!(status.success(), "cc cannot compile {name}.c");
            Some(library)
        }
        Err(error) => {
            eprintln!("SKIPPED: this test needs a C compiler (`cc`): {error}");
            None
        }
    }
}
