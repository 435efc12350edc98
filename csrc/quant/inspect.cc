#include "quant/inspect.h"

#include <algorithm>
#include <cmath>

#include "quant/split.h"

namespace oxibonsai::quant {
namespace {

bool is_finite_half(uint16_t h) { return (h & 0x7C00) != 0x7C00; }

bool has_two_bit_codes(QuantType type) {
  return type == QuantType::kQ2_0_g64 || type == QuantType::kQ2_0_g128 ||
         type == QuantType::kTQ2_0_g128 || type == QuantType::kTQ2_0;
}

void count_block(bool finite, BlockReport* report) {
  if (!finite) {
    ++report->not_finite;
    if (report->first_bad_block < 0) report->first_bad_block = report->blocks;
  }
  ++report->blocks;
}

BlockReport inspect_floats(const QuantTraits& t, const uint8_t* values, int64_t weights) {
  BlockReport report;
  float v;
  for (int64_t i = 0; i < weights; ++i) {
    t.decode(values + i * t.bytes, &v, 1);
    count_block(std::isfinite(v), &report);
  }
  return report;
}

}  // namespace

BlockReport inspect(QuantType type, const uint8_t* blocks, int64_t weights) {
  const QuantTraits& t = traits(type);
  if (!is_integer(type)) return inspect_floats(t, blocks, weights);
  BlockReport report;
  BlockParts parts;
  const bool two_bits = has_two_bit_codes(type);
  for (int64_t i = 0; i < weights; i += t.group, blocks += t.bytes) {
    split_block(type, blocks, &parts);
    count_block(is_finite_half(parts.d) && is_finite_half(parts.m), &report);
    if (two_bits) report.codes_of_three += std::count(parts.code, parts.code + t.group, 3);
  }
  return report;
}

}  // namespace oxibonsai::quant
