#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"
#include "format/gguf_types.h"

namespace oxibonsai::format {

// Reads little-endian values from the front of a file, never past its end. Every error names the
// field that was being read and its offset.
class Cursor {
 public:
  Cursor(const uint8_t* data, uint64_t size, uint64_t at = 0) : data_(data), size_(size), at_(at) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return size_ - at_; }

  [[noreturn]] void fail(const std::string& field, const std::string& problem) const {
    throw FormatError(field + " at byte " + std::to_string(at_) + " " + problem);
  }

  template <class T>
  T number(const std::string& field) {
    if (left() < sizeof(T)) fail(field, "is cut off by the end of the file");
    T value;
    std::memcpy(&value, data_ + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  // A view into the file.
  std::string_view string(const std::string& field) {
    const auto length = number<uint64_t>(field);
    if (length > left())
      fail(field, "claims " + std::to_string(length) + " bytes, more than the file has left");
    const std::string_view text(reinterpret_cast<const char*>(data_ + at_), length);
    at_ += length;
    return text;
  }

  ValueType value_type(const std::string& field) {
    const auto type = number<uint32_t>(field);
    if (type >= static_cast<uint32_t>(ValueType::kCount)) {
      at_ -= sizeof type;
      fail(field, "is value type " + std::to_string(type) + ", which GGUF does not know");
    }
    return static_cast<ValueType>(type);
  }

  // Passes over a value, checking all of it.
  void skip_value(ValueType type, const std::string& field, int depth = 0);

 private:
  void skip_bytes(uint64_t count, const std::string& field) {
    if (count > left()) fail(field, "is cut off by the end of the file");
    at_ += count;
  }

  const uint8_t* data_;
  uint64_t size_;
  uint64_t at_;
};

}  // namespace oxibonsai::format
