#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/data_owner.h"
#include "base/mapped_file.h"
#include "format/gguf_types.h"
#include "quant/quant_type.h"

namespace oxibonsai::format {

// One metadata entry; its value stays in the file and is read through ValueReader.
struct MetadataEntry {
  std::string key;
  ValueType type;
  uint64_t offset;  // of the value's first byte, after its type
};

struct TensorInfo {
  std::string name;
  std::vector<int64_t> dims;  // fastest first, as in the file
  int32_t gguf_id;
  const char* type_name;
  std::optional<quant::QuantType> type;  // empty where there is no decoder
  uint64_t offset;                       // of its bytes, from the start of the file
  uint64_t bytes;
};

// A GGUF file (version 2 or 3, little-endian), checked whole when it is opened: every count,
// length, product, offset and enumeration is in range before it is used. FormatError names the
// field and its byte offset.
class GgufFile : public DataOwner {
 public:
  // `id42` forces the layout of id-42 tensors: "Q2_0_g64", "Q2_0_g128" or "TQ2_0_g128"; empty: the
  // layout is found from sizes and contents (gguf_layout.h).
  static std::shared_ptr<const GgufFile> open(const std::string& path,
                                              const std::string& id42 = "");

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  uint64_t size() const { return file_.size(); }
  const std::vector<MetadataEntry>& metadata() const { return metadata_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const MetadataEntry* find_key(const std::string& key) const;
  const TensorInfo* find_tensor(const std::string& name) const;
  const uint8_t* data(const TensorInfo& tensor) const { return file_.data() + tensor.offset; }
  const uint8_t* bytes() const { return file_.data(); }
  void release(const uint8_t* data, int64_t bytes) const override { file_.release(data, bytes); }
  bool maps_file() const override { return true; }
  // FormatError where the file has been changed since it was opened.
  void check_unchanged() const { file_.check_unchanged(); }

 private:
  explicit GgufFile(const std::string& path) : path_(path), file_(path) {}
  void read_header();
  void place_tensors(uint64_t data_start, const std::string& id42);

  const std::string path_;
  const MappedFile file_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  uint64_t data_start_ = 0;
  std::vector<MetadataEntry> metadata_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> keys_, names_;
};

}  // namespace oxibonsai::format
