// LD_PRELOAD shim: a disk that fails on command. $FAILFS names a file that is
// mapped; while its byte 0 is 1, fsync and fdatasync fail with EIO, and while
// its byte 1 is 1, writes of a page or more fail with ENOSPC.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static volatile unsigned char *control;
static int tried;

static int on(int i) {
  if (!control && !tried) {
    tried = 1;
    const char *path = getenv("FAILFS");
    int fd = path ? open(path, O_RDONLY) : -1;
    if (fd >= 0) {
      void *m = mmap(0, 8, PROT_READ, MAP_SHARED, fd, 0);
      if (m != MAP_FAILED) control = m;
      close(fd);
    }
  }
  return control && control[i];
}

int fdatasync(int fd) {
  if (on(0)) {
    errno = EIO;
    return -1;
  }
  return syscall(SYS_fdatasync, fd);
}

int fsync(int fd) {
  if (on(0)) {
    errno = EIO;
    return -1;
  }
  return syscall(SYS_fsync, fd);
}

ssize_t pwrite64(int fd, const void *buf, size_t n, off_t at) {
  if (n >= 8192 && on(1)) {
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_pwrite64, fd, buf, n, at);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at) {
  return pwrite64(fd, buf, n, at);
}

ssize_t pwritev(int fd, const struct iovec *v, int n, off_t at) {
  if (on(1)) {
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_pwritev, fd, v, n, (long)at, 0L);
}
