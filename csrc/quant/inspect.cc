#include "quant/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/unpack.h"
#include "quant/unpack_grid.h"

namespace oxibonsai::quant {
namespace {

bool is_finite_half(uint16_t h) { return (h & 0x7C00) != 0x7C00; }

bool has_two_bit_codes(QuantType type) {
  return type == QuantType::kQ2_0_g64 || type == QuantType::kQ2_0_g128 ||
         type == QuantType::kTQ2_0_g128 || type == QuantType::kTQ2_0;
}

bool all_finite(const QuantTraits& t, const uint8_t* block) {
  float values[32];
  t.decode(block, values, t.group);
  return std::all_of(values, values + t.group, [](float v) { return std::isfinite(v); });
}

// Of types that have no binary16 scale at a place of its own, or codes that may be NaN.
bool is_finite_special(const QuantTraits& t, const uint8_t* block) {
  switch (t.type) {
    case QuantType::kQ8_K: {
      float d;
      std::memcpy(&d, block, sizeof d);
      return std::isfinite(d);
    }
    case QuantType::kMXFP4:
      return *block != 0xFF;
    case QuantType::kNVFP4:
      return true;
    case QuantType::kIQ1_M:
      return is_finite_half(scale_of_iq1_m(block));
    default:
      return all_finite(t, block);
  }
}

bool is_finite_block(const QuantTraits& t, const uint8_t* block) {
  if (t.half_at[0] < 0 || !(is_integer(t.type) || t.type == QuantType::kF16))
    return is_finite_special(t, block);
  for (const int16_t at : t.half_at) {
    uint16_t half;
    if (at < 0) continue;
    std::memcpy(&half, block + at, sizeof half);
    if (!is_finite_half(half)) return false;
  }
  return true;
}

}  // namespace

int64_t find_not_finite(QuantType type, const uint8_t* blocks, int64_t weights) {
  const QuantTraits& t = traits(type);
  for (int64_t i = 0; i < weights / t.group; ++i)
    if (!is_finite_block(t, blocks + i * t.bytes)) return i;
  return -1;
}

BlockReport inspect(QuantType type, const uint8_t* blocks, int64_t weights) {
  const QuantTraits& t = traits(type);
  const bool two_bits = has_two_bit_codes(type);
  BlockReport report;
  BlockParts parts;
  for (int64_t i = 0; i < weights; i += t.group, blocks += t.bytes, ++report.blocks) {
    if (!is_finite_block(t, blocks)) {
      if (report.first_bad_block < 0) report.first_bad_block = report.blocks;
      ++report.not_finite;
    }
    if (!two_bits) continue;
    unpack_block(type, blocks, &parts);
    report.codes_of_three += std::count(parts.code, parts.code + t.group, 3);
  }
  return report;
}

}  // namespace oxibonsai::quant
