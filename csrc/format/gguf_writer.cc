#include "format/gguf_writer.h"

#include <utility>

#include "base/check.h"
#include "format/cursor.h"

namespace oxibonsai::format {
namespace {

template <class T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

GgufWriter::GgufWriter(Sink sink, uint64_t alignment)
    : sink_(std::move(sink)), alignment_(alignment) {
  require(alignment != 0 && (alignment & (alignment - 1)) == 0, "alignment is no power of two");
}

void GgufWriter::require(bool holds, const char* what) const {
  if (!holds) throw RequestError(std::string("a GGUF file can't be written: ") + what);
}

std::string GgufWriter::encode_string(std::string_view text) {
  return raw<uint64_t>(text.size()) + std::string(text);
}

std::string GgufWriter::encode_array(ValueType element, uint64_t count, std::string_view elements) {
  return raw(static_cast<uint32_t>(element)) + raw(count) + std::string(elements);
}

void GgufWriter::add_metadata(std::string_view key, ValueType type, std::string_view value) {
  require(!header_done_, "metadata come before the header is written");
  metadata_ += encode_string(key) + raw(static_cast<uint32_t>(type)) + std::string(value);
  ++keys_;
}

void GgufWriter::copy_metadata(const GgufFile& file, const std::string& key) {
  const MetadataEntry* entry = file.find_key(key);
  require(entry != nullptr, "the file to copy from lacks the key");
  Cursor value(file.bytes(), file.size(), entry->offset);
  value.skip_value(entry->type, key);
  add_metadata(key, entry->type,
               {reinterpret_cast<const char*>(file.bytes() + entry->offset),
                static_cast<size_t>(value.at() - entry->offset)});
}

void GgufWriter::add_tensor(std::string_view name, const std::vector<uint64_t>& dims,
                            int32_t gguf_id, uint64_t bytes) {
  require(!header_done_, "tensors are declared before the header is written");
  require(!dims.empty() && dims.size() <= 4, "a tensor has 1 to 4 dimensions");
  infos_ += encode_string(name) + raw(static_cast<uint32_t>(dims.size()));
  for (const uint64_t d : dims) infos_ += raw(d);
  infos_ += raw(gguf_id) + raw(offset_);
  offset_ += (bytes + alignment_ - 1) / alignment_ * alignment_;
  sizes_.push_back(bytes);
}

void GgufWriter::write(std::string_view bytes) {
  sink_(bytes);
  written_ += bytes.size();
}

void GgufWriter::pad(uint64_t alignment) {
  write(std::string((alignment - written_ % alignment) % alignment, '\0'));
}

void GgufWriter::write_header() {
  require(!header_done_, "the header is written once");
  write("GGUF" + raw<uint32_t>(3) + raw<uint64_t>(sizes_.size()) + raw(keys_));
  write(metadata_);
  write(infos_);
  if (!sizes_.empty()) pad(alignment_);
  header_done_ = true;
}

void GgufWriter::write_tensor(const uint8_t* data, uint64_t bytes) {
  require(header_done_, "the header comes before the tensors");
  require(next_ < sizes_.size() && sizes_[next_] == bytes,
          "tensors are written in the order and sizes of their declaration");
  write({reinterpret_cast<const char*>(data), static_cast<size_t>(bytes)});
  pad(alignment_);
  ++next_;
}

void GgufWriter::check_complete() const {
  require(header_done_ && next_ == sizes_.size(), "not every tensor has been written");
}

}  // namespace oxibonsai::format
