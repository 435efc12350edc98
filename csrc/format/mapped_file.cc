#include "format/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace oxibonsai::format {

MappedFile::MappedFile(const std::string& path) {
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
  const int error = errno;
  close(fd);
  if (mapped == MAP_FAILED) throw FormatError("cannot map " + path + ": " + std::strerror(error));
  data_ = static_cast<const uint8_t*>(mapped);
}

void MappedFile::release(const uint8_t* data, int64_t bytes) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (address + page - 1) / page * page;
  const uintptr_t last = (address + static_cast<uintptr_t>(bytes)) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

MappedFile::~MappedFile() { munmap(const_cast<uint8_t*>(data_), size_); }

}  // namespace oxibonsai::format
