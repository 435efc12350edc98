#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bus_guard.h"
#include "base/os/os.h"

namespace oxibonsai {

// A whole file, mapped read-only. FormatError where it can't be opened or mapped.
//
// Mapped bytes are those that the file has when they are read: a program that writes into it, as cp
// does with a target that exists, changes them. check_unchanged() tells, after they were used.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }

  // The mapped file that these bytes are in; null where they are in none.
  static const MappedFile* find(const void* data);

  // Takes the whole pages within these bytes out of memory; the next read brings them back.
  void release(const uint8_t* data, int64_t bytes) const;
  // FormatError where the file has been written to since it was mapped: what was read may be wrong.
  void check_unchanged() const;

 private:
  const std::string path_;
  os::File file_ = os::kNoFile;
  const uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
  int64_t written_ = 0;  // when, in nanoseconds
  std::optional<BusGuard> guard_;
};

}  // namespace oxibonsai
