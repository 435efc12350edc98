// Preloaded into a process: lets the n-th call of one kind fail, on the thread that armed it.
//
// fail_nth_arm(kind, n) starts to count; fail_nth_disarm() ends it and says how many calls there
// were, negative where one of them failed.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { kNone, kMalloc, kRead, kMap, kWrite, kSync, kRename };

// Small allocations are the interpreter's own.
static const size_t kLeastBytes = 8192;
// Libraries in Rust, which ends the process when an allocation fails: by its design, not by ours.
static const char* const kSpared[] = {"tokenizers", "safetensors"};
// numpy's iterators crash without their buffers, which have 8192 elements; arrays may be larger.
static const size_t kBufferBytes = 1 << 16;

static __thread int armed_kind, failed;
static __thread long wanted, seen;

void fail_nth_arm(int kind, long n) {
  armed_kind = kind;
  wanted = n;
  seen = failed = 0;
}

long fail_nth_disarm(void) {
  armed_kind = kNone;
  return failed ? -seen : seen;
}

static int fails(int kind, int error) {
  if (armed_kind != kind || ++seen != wanted) return 0;
  failed = 1;
  errno = error;
  return 1;
}

static int allocation_fails(size_t size, const void* caller) {
  if (size < kLeastBytes || armed_kind != kMalloc) return 0;
  Dl_info from;
  if (dladdr(caller, &from) != 0 && from.dli_fname != NULL) {
    for (size_t i = 0; i < sizeof kSpared / sizeof kSpared[0]; ++i)
      if (strstr(from.dli_fname, kSpared[i]) != NULL) return 0;
    if (strstr(from.dli_fname, "numpy") != NULL && size <= kBufferBytes) return 0;
  }
  return fails(kMalloc, ENOMEM);
}

#define CALLER __builtin_return_address(0)
#define REAL(name)               \
  static __typeof__(name)* real; \
  if (real == NULL) real = (__typeof__(name)*)dlsym(RTLD_NEXT, #name)

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);

void* malloc(size_t size) { return allocation_fails(size, CALLER) ? NULL : __libc_malloc(size); }

void* calloc(size_t count, size_t size) {
  return allocation_fails(count * size, CALLER) ? NULL : __libc_calloc(count, size);
}

void* realloc(void* old, size_t size) {
  return allocation_fails(size, CALLER) ? NULL : __libc_realloc(old, size);
}

ssize_t read(int fd, void* data, size_t size) {
  REAL(read);
  return fails(kRead, EIO) ? -1 : real(fd, data, size);
}

ssize_t pread64(int fd, void* data, size_t size, off64_t at) {
  REAL(pread64);
  return fails(kRead, EIO) ? -1 : real(fd, data, size, at);
}

size_t fread(void* data, size_t size, size_t count, FILE* file) {
  REAL(fread);
  return fails(kRead, EIO) ? 0 : real(data, size, count, file);
}

void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
  REAL(mmap);
  return fd >= 0 && fails(kMap, ENODEV) ? MAP_FAILED
                                        : real(at, size, protection, flags, fd, offset);
}

void* mmap64(void* at, size_t size, int protection, int flags, int fd, off64_t offset) {
  return mmap(at, size, protection, flags, fd, offset);
}

ssize_t write(int fd, const void* data, size_t size) {
  REAL(write);
  return fails(kWrite, ENOSPC) ? -1 : real(fd, data, size);
}

ssize_t writev(int fd, const struct iovec* parts, int count) {
  REAL(writev);
  return fails(kWrite, ENOSPC) ? -1 : real(fd, parts, count);
}

int fsync(int fd) {
  REAL(fsync);
  return fails(kSync, EIO) ? -1 : real(fd);
}

int rename(const char* from, const char* to) {
  REAL(rename);
  return fails(kRename, EACCES) ? -1 : real(from, to);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) {
  REAL(renameat);
  return fails(kRename, EACCES) ? -1 : real(from_folder, from, to_folder, to);
}
