#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_types.h"

namespace oxibonsai::format {

// Writes a GGUF file (version 3) front to back: metadata and tensors are declared, then the header
// is written, then the bytes of every tensor in the order of their declaration. Nothing is read
// back or rewound, so that the bytes may go into a pipe.
class GgufWriter {
 public:
  static constexpr uint64_t kDefaultAlignment = 32;

  // Takes the next bytes of the file, all of them.
  using Sink = std::function<void(std::string_view)>;

  // `alignment` of the tensors' bytes; another than the default belongs in general.alignment too.
  explicit GgufWriter(Sink sink, uint64_t alignment = kDefaultAlignment);

  // `value` is the encoded value: the bytes of a number, see also encode_string and encode_array.
  void add_metadata(std::string_view key, ValueType type, std::string_view value);
  // A key of another file with its value, byte for byte.
  void copy_metadata(const GgufFile& file, const std::string& key);
  // `dims` fastest first.
  void add_tensor(std::string_view name, const std::vector<uint64_t>& dims, int32_t gguf_id,
                  uint64_t bytes);
  void write_header();
  void write_tensor(const uint8_t* data, uint64_t bytes);
  // RequestError where a tensor has not been written.
  void check_complete() const;

  static std::string encode_string(std::string_view text);
  static std::string encode_array(ValueType element, uint64_t count, std::string_view elements);

 private:
  void require(bool holds, const char* what) const;
  void write(std::string_view bytes);
  void pad(uint64_t alignment);

  const Sink sink_;
  const uint64_t alignment_;
  std::string metadata_, infos_;
  uint64_t keys_ = 0, offset_ = 0, written_ = 0;
  std::vector<uint64_t> sizes_;
  size_t next_ = 0;
  bool header_done_ = false;
};

}  // namespace oxibonsai::format
