#include "quant/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/split.h"

namespace oxibonsai::quant {
namespace {

bool is_finite_half(uint16_t h) { return (h & 0x7C00) != 0x7C00; }

bool has_two_bit_codes(QuantType type) {
  return type == QuantType::kQ2_0_g64 || type == QuantType::kQ2_0_g128 ||
         type == QuantType::kTQ2_0_g128 || type == QuantType::kTQ2_0;
}

bool is_finite_block(const QuantTraits& t, const uint8_t* block) {
  if (t.half_at[0] < 0) {
    float v;
    t.decode(block, &v, 1);
    return std::isfinite(v);
  }
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
    split_block(type, blocks, &parts);
    report.codes_of_three += std::count(parts.code, parts.code + t.group, 3);
  }
  return report;
}

}  // namespace oxibonsai::quant
