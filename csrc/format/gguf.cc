#include "format/gguf.h"

#include <algorithm>

#include "base/check.h"
#include "format/cursor.h"
#include "format/gguf_layout.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Files and weights are used as they lie in memory: big-endian processors are not supported."
#endif

namespace oxibonsai::format {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMaxNameBytes = 65535;

uint32_t read_version(Cursor* c) {
  if (c->number<uint32_t>("the magic") != kMagic)
    throw FormatError("the magic at byte 0 is not \"GGUF\": this is no GGUF file");
  const auto version = c->number<uint32_t>("the version");
  if ((version & 0xFFFF) == 0)
    throw FormatError(
        "the version at byte 4 has its bytes swapped: a big-endian GGUF file, which is "
        "not supported; convert it to little-endian");
  if (version != 2 && version != 3)
    throw FormatError("the version at byte 4 is " + std::to_string(version) +
                      "; versions 2 and 3 are supported" +
                      (version == 1 ? " (convert the file again with a current tool)" : ""));
  return version;
}

// Well-formed UTF-8: no stray or missing continuation, no overlong form, no surrogate.
bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const size_t length = lead < 0x80   ? 1
                          : lead < 0xC2 ? 0
                          : lead < 0xE0 ? 2
                          : lead < 0xF0 ? 3
                          : lead < 0xF5 ? 4
                                        : 0;
    if (length == 0 || length > text.size() - i) return false;
    uint32_t value = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<uint8_t>(text[i + k]);
      if ((next & 0xC0) != 0x80) return false;
      value = (value << 6) | (next & 0x3Fu);
    }
    constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (value < kSmallest[length] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      return false;
    i += length;
  }
  return true;
}

// A key or a tensor name, copied: part of error messages, so it must be short and printable.
std::string read_name(Cursor* c, const std::string& field) {
  const uint64_t start = c->at();
  const std::string_view name = c->string(field);
  if (name.empty() || name.size() > kMaxNameBytes || name.find('\0') != std::string_view::npos ||
      !is_utf8(name))
    throw FormatError(field + " at byte " + std::to_string(start) +
                      " is empty, longer than 65535 bytes, holds a zero byte or is no UTF-8");
  return std::string(name);
}

uint64_t padded(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

TensorInfo read_tensor(Cursor* c, uint64_t index) {
  TensorInfo t;
  const std::string number = "tensor " + std::to_string(index);
  t.name = read_name(c, "the name of " + number);
  const std::string what = "of tensor " + t.name;
  const auto dims = c->number<uint32_t>("the number of dimensions " + what);
  if (dims == 0 || dims > kMaxDims)
    c->fail("the shape " + what, "has " + std::to_string(dims) + " dimensions, not 1 to 4");
  uint64_t elements = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    const auto size = c->number<uint64_t>("dimension " + std::to_string(i) + " " + what);
    if (size == 0 || size > (uint64_t{1} << 48) / elements)
      c->fail("dimension " + std::to_string(i) + " " + what,
              "is " + std::to_string(size) + ": zero, or more weights than any file can hold");
    elements *= size;
    t.dims.push_back(static_cast<int64_t>(size));
  }
  t.gguf_id = c->number<int32_t>("the type " + what);
  const std::optional<TensorType> type = find_tensor_type(t.gguf_id);
  if (!type)
    c->fail("the type " + what,
            "is id " + std::to_string(t.gguf_id) + ", which no known format has");
  if (type->group == 0)
    c->fail("the type " + what, "is id " + std::to_string(t.gguf_id) + " (" + type->name +
                                    "), which has been retired: convert the model again");
  t.type_name = type->name;
  t.type = quant_type_of(t.gguf_id);
  t.offset = c->number<uint64_t>("the offset " + what);
  if (t.gguf_id == kIdAmbiguous2Bit) return t;  // sized once its layout is known
  if (t.dims[0] % type->group != 0)
    c->fail("the shape " + what, "has rows of " + std::to_string(t.dims[0]) +
                                     " weights, no multiple of " + type->name + "'s block of " +
                                     std::to_string(type->group));
  t.bytes = elements / static_cast<uint64_t>(type->group) * static_cast<uint64_t>(type->bytes);
  if (t.gguf_id == kIdI2S) t.bytes += kI2SScaleBytes;
  return t;
}

}  // namespace

void GgufFile::read_header() {
  Cursor c(file_.data(), file_.size());
  version_ = read_version(&c);
  const auto tensor_count = c.number<uint64_t>("the number of tensors");
  // A tensor's entry takes at least 33 bytes, a metadata entry at least 13.
  if (tensor_count > c.left() / 33)
    c.fail("the number of tensors", "is larger than the file has room for");
  const auto key_count = c.number<uint64_t>("the number of metadata entries");
  if (key_count > c.left() / 13)
    c.fail("the number of metadata entries", "is larger than the file has room for");
  for (uint64_t i = 0; i < key_count; ++i) {
    MetadataEntry e;
    e.key = read_name(&c, "the key of metadata entry " + std::to_string(i));
    e.type = c.value_type("the type of " + e.key);
    e.offset = c.at();
    c.skip_value(e.type, "the value of " + e.key);
    if (!keys_.emplace(e.key, metadata_.size()).second)
      throw FormatError("the key " + e.key + " appears twice, again before byte " +
                        std::to_string(c.at()));
    metadata_.push_back(std::move(e));
  }
  if (const MetadataEntry* e = find_key("general.alignment"); e != nullptr) {
    Cursor value(file_.data(), file_.size(), e->offset);
    if (e->type != ValueType::kU32) value.fail("general.alignment", "is not a u32");
    alignment_ = value.number<uint32_t>("general.alignment");
    if (alignment_ == 0 || (alignment_ & (alignment_ - 1)) != 0)
      throw FormatError("general.alignment at byte " + std::to_string(e->offset) + " is " +
                        std::to_string(alignment_) + ", not a power of two");
  }
  for (uint64_t i = 0; i < tensor_count; ++i) {
    TensorInfo t = read_tensor(&c, i);
    if (!names_.emplace(t.name, tensors_.size()).second)
      throw FormatError("the tensor " + t.name + " appears twice, again before byte " +
                        std::to_string(c.at()));
    tensors_.push_back(std::move(t));
  }
  data_start_ = padded(c.at(), alignment_);
  if (!tensors_.empty() && data_start_ > file_.size())
    throw FormatError("the tensor data should start at byte " + std::to_string(data_start_) +
                      ", past the end of the file: it is truncated");
}

// The data lie in the order of the entries, each at the padded end of the one before.
void GgufFile::place_tensors(uint64_t data_start, const std::string& id42) {
  const uint64_t room = tensors_.empty() ? 0 : file_.size() - data_start;
  resolve_two_bit_layout(&tensors_, alignment_, room, file_.data() + data_start, id42);
  uint64_t expected = 0;
  for (TensorInfo& t : tensors_) {
    if (t.offset != expected)
      throw FormatError("tensor " + t.name + " has offset " + std::to_string(t.offset) +
                        ", expected " + std::to_string(expected) +
                        ": the file is damaged, or a type has another layout than its id says");
    if (t.bytes > room || t.offset > room - t.bytes)
      throw FormatError(
          "tensor " + t.name + " ends at byte " + std::to_string(data_start + t.offset + t.bytes) +
          ", past the end of the file at " + std::to_string(file_.size()) + ": it is truncated");
    expected = padded(t.offset + t.bytes, alignment_);
    t.offset += data_start;
  }
}

std::shared_ptr<const GgufFile> GgufFile::open(const std::string& path, const std::string& id42) {
  std::shared_ptr<GgufFile> file(new GgufFile(path));
  try {
    file->read_header();
    file->place_tensors(file->data_start_, id42);
    file->check_unchanged();
  } catch (const FormatError& e) {
    throw FormatError(path + ": " + e.what());
  } catch (const UnsupportedError& e) {
    throw UnsupportedError(path + ": " + e.what());
  }
  return file;
}

const MetadataEntry* GgufFile::find_key(const std::string& key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : &metadata_[found->second];
}

const TensorInfo* GgufFile::find_tensor(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace oxibonsai::format
