#include "quant/codec.h"

#include <cstring>

#include "base/f16.h"
#include "quant/split.h"

namespace oxibonsai::quant {
namespace {

template <class F>
void decode_halves(const uint8_t* from, float* out, int64_t count, F widen) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t h;
    std::memcpy(&h, from + 2 * i, sizeof h);
    out[i] = widen(h);
  }
}

// Rounded in this order: d * scale, m * min, the product with the integer, the sum.
void decode_parts(const BlockParts& p, const CodeForm& form, int group, float* out) {
  const float d = half_to_float(p.d);
  const float m = half_to_float(p.m);
  for (int j = 0; j < group; ++j) {
    const auto value = static_cast<float>(form.step * p.code[j] - form.offset);
    if (form.scale_group == 0) {
      out[j] = form.has_min ? d * value + m : d * value;
      continue;
    }
    const float scaled = d * static_cast<float>(p.scale[j / form.scale_group]) * value;
    out[j] = form.has_min ? scaled - m * static_cast<float>(p.min[j / 32]) : scaled;
  }
}

}  // namespace

void decode_f32(const uint8_t* blocks, float* out, int64_t count) {
  std::memcpy(out, blocks, static_cast<size_t>(count) * sizeof(float));
}

void decode_f16(const uint8_t* blocks, float* out, int64_t count) {
  decode_halves(blocks, out, count, half_to_float);
}

void decode_bf16(const uint8_t* blocks, float* out, int64_t count) {
  decode_halves(blocks, out, count, bf16_to_float);
}

template <QuantType kType>
void decode_blocks(const uint8_t* blocks, float* out, int64_t count) {
  const QuantTraits& t = traits(kType);
  const CodeForm form = code_form(kType);
  BlockParts parts;
  for (int64_t i = 0; i < count; i += t.group, blocks += t.bytes) {
    split_block(kType, blocks, &parts);
    decode_parts(parts, form, t.group, out + i);
  }
}

template void decode_blocks<QuantType::kQ8_0>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kQ4_0>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kQ4_1>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kQ5_0>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kQ5_1>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kQ4_K>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kQ5_K>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kQ6_K>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kQ1_0>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kQ2_0_g64>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kQ2_0_g128>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kPTQ1_0>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kTQ2_0_g128>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kTQ1_0>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kTQ2_0>(const uint8_t*, float*, int64_t);

}  // namespace oxibonsai::quant
