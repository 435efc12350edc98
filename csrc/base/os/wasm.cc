// WebAssembly under Emscripten: memory is the module's own, files are those of its file system, and
// there are neither libraries to load nor processes.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/os/os.h"

namespace oxibonsai::os {
namespace {

constexpr size_t kPage = 65536;  // of WebAssembly's memory

// Null where there is no memory.
uint8_t* allocate(size_t bytes) {
  if (bytes > SIZE_MAX - kPage) return nullptr;
  return static_cast<uint8_t*>(std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage));
}

bool read_whole(int file, uint8_t* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t count = pread(file, data + done, bytes - done, static_cast<off_t>(done));
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

}  // namespace

std::string error_text() { return std::strerror(errno); }

int64_t process_id() { return 1; }  // there is no other

File open_to_read(const std::string& path) { return open(path.c_str(), O_RDONLY); }

std::optional<FileState> file_state(File file) {
  struct stat info;
  if (fstat(static_cast<int>(file), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return FileState{static_cast<uint64_t>(info.st_size),
                   int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

// A copy: addresses cannot stand for a file here.
const uint8_t* map_file(File file, uint64_t bytes) {
  uint8_t* const data = bytes > SIZE_MAX ? nullptr : allocate(static_cast<size_t>(bytes));
  if (data == nullptr) errno = ENOMEM;
  if (data == nullptr || read_whole(static_cast<int>(file), data, static_cast<size_t>(bytes)))
    return data;
  std::free(data);
  return nullptr;
}

void unmap_file(const uint8_t* data, uint64_t) { std::free(const_cast<uint8_t*>(data)); }

void close_file(File file) { close(static_cast<int>(file)); }

// Memory cannot be given back in parts.
void release_file_pages(const uint8_t*, size_t) {}

// Reads of memory do not fail.
void repair_failed_reads(RepairRead) {}

bool replace_by_zeros(uintptr_t, uintptr_t) { return false; }

uint8_t* allocate_pages(size_t bytes) {
  uint8_t* const data = allocate(bytes);
  if (data != nullptr) std::memset(data, 0, bytes);
  return data;
}

uint8_t* allocate_zeros(size_t bytes) { return allocate_pages(bytes); }

uint8_t* reserve_pages(size_t bytes) { return allocate_pages(bytes); }

bool commit(uint8_t*, size_t) { return true; }

void decommit(uint8_t*, size_t) {}

void discard_pages(uint8_t*, size_t) {}

void free_pages(uint8_t* data, size_t) { std::free(data); }

void prefer_huge_pages(uint8_t*, size_t) {}

const char* const kCudaDriverLibrary = "";
const char* const kOpenClLibrary = "";

void* open_library(const std::string&, std::string* reason) {
  *reason = "WebAssembly loads no libraries";
  return nullptr;
}

void* find_symbol(void*, const char*) { return nullptr; }

bool arm_has_dot_products() { return false; }

}  // namespace oxibonsai::os
