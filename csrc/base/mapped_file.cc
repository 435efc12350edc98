#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace oxibonsai {

namespace {

int64_t time_of_writing(const struct stat& info) {
#ifdef __APPLE__
  const timespec& time = info.st_mtimespec;
#else
  const timespec& time = info.st_mtim;
#endif
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: a pipe must not keep us waiting for a writer before it is refused.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw FormatError("cannot open " + path + ": " + std::strerror(errno));
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    throw FormatError(path + " is not a regular file");
  }
  size_ = static_cast<uint64_t>(info.st_size);
  if (size_ == 0) {
    close(fd);
    throw FormatError(path + " is empty");
  }
  void* mapped = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    close(fd);
    throw FormatError("cannot map " + path + ": " + std::strerror(error));
  }
  file_ = fd;
  written_ = time_of_writing(info);
  data_ = static_cast<const uint8_t*>(mapped);
  try {
    guard_.emplace(data_, size_, this);
  } catch (...) {
    munmap(mapped, size_);
    close(fd);
    throw;
  }
}

const MappedFile* MappedFile::find(const void* data) {
  return static_cast<const MappedFile*>(BusGuard::find(data));
}

void MappedFile::release(const uint8_t* data, int64_t bytes) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (address + page - 1) / page * page;
  const uintptr_t last = (address + static_cast<uintptr_t>(bytes)) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

void MappedFile::check_unchanged() const {
  struct stat info;
  const bool same = fstat(file_, &info) == 0 && static_cast<uint64_t>(info.st_size) == size_ &&
                    time_of_writing(info) == written_;
  if (same && !guard_->is_lost()) return;
  throw FormatError(
      path_ +
      " was changed while it was in use, or its disk failed: load it again. To replace "
      "a file that is in use, write the new one under another name and rename it (mv)");
}

MappedFile::~MappedFile() {
  guard_.reset();
  munmap(const_cast<uint8_t*>(data_), size_);
  close(file_);
}

}  // namespace oxibonsai
