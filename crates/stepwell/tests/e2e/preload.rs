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

/// Names that end in `.test` have the addresses that the name server of the test at the port `TEST_DNS` answers with.
const NAMES: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
typedef int (*look_up)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
  look_up real = (look_up)dlsym(RTLD_NEXT, "getaddrinfo");
  const char *port = getenv("TEST_DNS");
  size_t length = name ? strlen(name) : 0;
  if (!port || length < 5 || strcmp(name + length - 5, ".test")) return real(name, service, hints, found);
  struct sockaddr_in server = {0};
  server.sin_family = AF_INET;
  server.sin_port = htons(atoi(port));
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  struct timeval patience = {10, 0};
  int line = socket(AF_INET, SOCK_DGRAM, 0);
  setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sendto(line, name, length, 0, (struct sockaddr *)&server, sizeof server);
  char answer[64];
  ssize_t size = recv(line, answer, sizeof answer - 1, 0);
  close(line);
  if (size <= 0) return EAI_AGAIN;
  answer[size] = 0;
  return real(answer, service, hints, found);
}
"#;

/// The library with the names of the test.
pub(crate) fn names(folder: &Path) -> Option<PathBuf> {
    compile(folder, "names", NAMES)
}

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
        .arg("-ldl")
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
