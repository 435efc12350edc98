#include "format/gguf_layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/f16.h"
#include "quant/block.h"

namespace oxibonsai::format {
namespace {

using quant::QuantType;

constexpr char kAdvice[] = "; say which it is with --quant-type Q2_0_g64, Q2_0_g128 or TQ2_0_g128";

uint64_t padded(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Bytes under one reading; 0 where the rows are no whole number of groups.
uint64_t bytes_as(const TensorInfo& t, int64_t group) {
  if (t.dims[0] % group != 0) return 0;
  uint64_t weights = 1;
  for (const int64_t d : t.dims) weights *= static_cast<uint64_t>(d);
  return group == 64 ? weights / 64 * 18 : weights / 128 * 34;
}

// Which groups each tensor's size allows: the next tensor, or the end of the file, must lie at the
// padded end of the data. The end of a file may have padding or not, or be followed by nothing
// else.
struct Fits {
  bool g64 = true, g128 = true;
};

Fits possible_groups(const std::vector<TensorInfo>& tensors, uint64_t alignment, uint64_t room) {
  Fits fits;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& t = tensors[i];
    if (t.gguf_id != kIdAmbiguous2Bit) continue;
    const bool last = i + 1 == tensors.size();
    const uint64_t end = last ? room : tensors[i + 1].offset;
    const auto reaches = [&](int64_t group) {
      const uint64_t bytes = bytes_as(t, group);
      if (bytes == 0 || end > room || t.offset > end || bytes > end - t.offset) return false;
      return t.offset + bytes == end || padded(t.offset + bytes, alignment) == end;
    };
    fits.g64 = fits.g64 && reaches(64);
    fits.g128 = fits.g128 && reaches(128);
  }
  return fits;
}

// A block read rightly has a sane scale and, in a ternary model, hardly any code 3.
struct Score {
  int64_t blocks = 0, bad_scales = 0, codes_of_three = 0;
  bool plausible() const { return bad_scales == 0 && codes_of_three * 50 <= blocks * 128; }
};

void score_block(const uint8_t* codes, const uint8_t* scale, Score* score) {
  uint16_t bits;
  std::memcpy(&bits, scale, sizeof bits);
  const float d = half_to_float(bits);
  // A block of zeros has the scale zero.
  if (!(d >= 0.0f) || !(d < 100.0f) || (d > 0.0f && d < 1e-6f)) ++score->bad_scales;
  for (int i = 0; i < 32; ++i)
    for (int shift = 0; shift < 8; shift += 2)
      score->codes_of_three += ((codes[i] >> shift) & 3) == 3;
  ++score->blocks;
}

QuantType scale_place(const std::vector<TensorInfo>& tensors, const uint8_t* data) {
  constexpr int64_t kSamples = 1024;
  Score first, last;
  for (const TensorInfo& t : tensors) {
    if (t.gguf_id != kIdAmbiguous2Bit) continue;
    const auto blocks = static_cast<int64_t>(bytes_as(t, 128) / 34);
    const int64_t step = std::max<int64_t>(1, blocks / kSamples);
    for (int64_t i = 0; i < blocks && i / step < kSamples; i += step) {
      const uint8_t* block = data + t.offset + i * 34;
      score_block(block + 2, block, &first);
      score_block(block, block + 32, &last);
    }
  }
  if (first.plausible() && !last.plausible()) return QuantType::kQ2_0_g128;
  if (last.plausible() && !first.plausible()) return QuantType::kTQ2_0_g128;
  throw UnsupportedError(
      std::string(
          "its type-42 tensors have groups of 128, but the contents do not tell whether the "
          "scale comes first (PrismML) or last (OxiBonsai)") +
      kAdvice);
}

QuantType forced_type(const std::string& name) {
  const quant::QuantTraits* t = quant::find_by_name(name);
  if (t == nullptr || (t->type != QuantType::kQ2_0_g64 && t->type != QuantType::kQ2_0_g128 &&
                       t->type != QuantType::kTQ2_0_g128))
    throw RequestError(
        "--quant-type " + name +
        " is no layout of type 42; there are Q2_0_g64, Q2_0_g128 (PQ2_0) and TQ2_0_g128");
  return t->type;
}

QuantType find_type(const std::vector<TensorInfo>& tensors, uint64_t alignment, uint64_t room,
                    const uint8_t* data, const std::string& forced) {
  const Fits fits = possible_groups(tensors, alignment, room);
  if (!fits.g64 && !fits.g128)
    throw FormatError(
        "its type-42 tensors have sizes that neither groups of 64 nor of 128 explain: the "
        "file is truncated or damaged");
  if (!forced.empty()) {
    const QuantType type = forced_type(forced);
    if (type == QuantType::kQ2_0_g64 ? !fits.g64 : !fits.g128)
      throw FormatError("--quant-type " + forced +
                        " does not fit the sizes of its type-42 tensors, which have groups of " +
                        (fits.g64 ? "64" : "128"));
    return type;
  }
  if (fits.g64 && fits.g128)
    throw UnsupportedError(
        std::string("its type-42 tensors are too small to tell groups of 64 from groups of 128") +
        kAdvice);
  return fits.g64 ? QuantType::kQ2_0_g64 : scale_place(tensors, data);
}

}  // namespace

void resolve_two_bit_layout(std::vector<TensorInfo>* tensors, uint64_t alignment, uint64_t room,
                            const uint8_t* data, const std::string& forced) {
  const bool any = std::any_of(tensors->begin(), tensors->end(),
                               [](const TensorInfo& t) { return t.gguf_id == kIdAmbiguous2Bit; });
  if (!any) {
    if (!forced.empty()) forced_type(forced);
    return;
  }
  const QuantType type = find_type(*tensors, alignment, room, data, forced);
  for (TensorInfo& t : *tensors) {
    if (t.gguf_id != kIdAmbiguous2Bit) continue;
    t.type = type;
    t.type_name = quant::traits(type).name;
    t.bytes = bytes_as(t, type == QuantType::kQ2_0_g64 ? 64 : 128);
  }
}

}  // namespace oxibonsai::format
