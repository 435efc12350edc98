#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <cerrno>
#include <cstring>

#include "base/os/os.h"

namespace oxibonsai::os {
namespace {

uintptr_t page_bytes() {
  static const auto bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

int64_t time_of_writing(const struct stat& info) {
#ifdef __APPLE__
  const timespec& time = info.st_mtimespec;
#else
  const timespec& time = info.st_mtim;
#endif
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

uint8_t* map_zeros(size_t bytes, int access, int flags) {
  void* mapped = mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<uint8_t*>(mapped);
}

void forget_whole_pages(const uint8_t* data, size_t bytes) {
  const uintptr_t page = page_bytes();
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (address + page - 1) / page * page;
  const uintptr_t last = (address + bytes) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

RepairRead repair_read = nullptr;
// The handler that was there first: one that came later may itself hand back to ours.
struct sigaction previous;

// Runs in the thread that has read; nothing but atomics and system calls is allowed here.
void on_bus_error(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const bool repaired =
      info->si_code > 0 && repair_read(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = error;
  if (repaired) return;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(number, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(number);
  } else {
    signal(number, SIG_DFL);
    if (info->si_code <= 0) raise(number);  // sent; a read is done again, and ends the process
  }
}

}  // namespace

std::string error_text() { return std::strerror(errno); }

int64_t process_id() { return getpid(); }

File open_to_read(const std::string& path) {
  // O_NONBLOCK: a pipe must not keep us waiting for a writer before it is refused.
  return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

std::optional<FileState> file_state(File file) {
  struct stat info;
  if (fstat(static_cast<int>(file), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return FileState{static_cast<uint64_t>(info.st_size), time_of_writing(info)};
}

const uint8_t* map_file(File file, uint64_t bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, static_cast<int>(file), 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<const uint8_t*>(mapped);
}

void unmap_file(const uint8_t* data, uint64_t bytes) { munmap(const_cast<uint8_t*>(data), bytes); }

void close_file(File file) { close(static_cast<int>(file)); }

void release_file_pages(const uint8_t* data, size_t bytes) { forget_whole_pages(data, bytes); }

void repair_failed_reads(RepairRead repair) {
  struct sigaction now;
  if (sigaction(SIGBUS, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &on_bus_error) return;
  if (repair_read == nullptr) previous = now;
  repair_read = repair;
  page_bytes();  // so that the handler finds it computed
  struct sigaction own = {};
  own.sa_sigaction = &on_bus_error;
  own.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&own.sa_mask);
  sigaction(SIGBUS, &own, nullptr);
}

bool replace_by_zeros(uintptr_t first, uintptr_t last) {
  const uintptr_t page = first / page_bytes() * page_bytes();
  return mmap(reinterpret_cast<void*>(page), last - page, PROT_READ,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

uint8_t* allocate_pages(size_t bytes) { return map_zeros(bytes, PROT_READ | PROT_WRITE, 0); }

uint8_t* allocate_zeros(size_t bytes) { return map_zeros(bytes, PROT_READ, MAP_NORESERVE); }

uint8_t* reserve_pages(size_t bytes) {
  return map_zeros(bytes, PROT_READ | PROT_WRITE, MAP_NORESERVE);
}

bool commit(uint8_t*, size_t) { return true; }

void decommit(uint8_t* data, size_t bytes) { madvise(data, bytes, MADV_DONTNEED); }

void discard_pages(uint8_t* data, size_t bytes) { forget_whole_pages(data, bytes); }

void free_pages(uint8_t* data, size_t bytes) { munmap(data, bytes); }

void prefer_huge_pages([[maybe_unused]] uint8_t* data, [[maybe_unused]] size_t bytes) {
#ifdef MADV_HUGEPAGE
  madvise(data, bytes, MADV_HUGEPAGE);
#endif
}

const char* const kCudaDriverLibrary = "libcuda.so.1";
const char* const kOpenClLibrary = "libOpenCL.so.1";

void* open_library(const std::string& path, std::string* reason) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* const words = dlerror();
  *reason = words == nullptr ? "no reason is given" : words;
  return nullptr;
}

void* find_symbol(void* library, const char* name) { return dlsym(library, name); }

bool arm_has_dot_products() {
#if defined(__aarch64__) && defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__aarch64__) && defined(__APPLE__)
  return true;  // every Apple 64-bit desktop processor
#else
  return false;
#endif
}

}  // namespace oxibonsai::os
