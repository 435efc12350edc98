#pragma once

#include <cstdint>
#include <string>

namespace oxibonsai::format {

// A whole file, mapped read-only. FormatError where it can't be opened or mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }

  // Takes the whole pages within these bytes out of memory; the next read brings them back.
  void release(const uint8_t* data, int64_t bytes) const;

 private:
  const uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace oxibonsai::format
