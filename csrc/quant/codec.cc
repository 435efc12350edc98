#include "quant/codec.h"

#include <cstring>
#include <limits>

#include "base/f16.h"
#include "quant/block.h"
#include "quant/unpack.h"

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
  const float half = half_to_float(p.d);
  const float m = half_to_float(p.m);
  for (int j = 0; j < group; ++j) {
    const float d = form.wide_group != 0 ? p.wide[j / form.wide_group] : half;
    const auto value = static_cast<float>(form.value(p.code[j]));
    if (form.scale_group == 0) {
      out[j] = form.has_min ? d * value + m : d * value;
      continue;
    }
    const float scaled = d * static_cast<float>(p.scale[j / form.scale_group]) * value;
    out[j] = form.has_min ? scaled - m * static_cast<float>(p.min[j / form.scale_group]) : scaled;
  }
}

// NaN where E4M3 has it, which binary16 would read as 480 / 256.
float e4m3_to_float(uint8_t code) {
  if ((code & 0x7F) == 0x7F) return std::numeric_limits<float>::quiet_NaN();
  const auto half = static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7F) << 7);
  return half_to_float(half) * 256.0f;
}

float e5m2_to_float(uint8_t code) { return half_to_float(static_cast<uint16_t>(code << 8)); }

template <class F>
void decode_f8(const uint8_t* blocks, float* out, int64_t count, F widen) {
  for (int64_t i = 0; i < count; i += 32, blocks += sizeof(BlockF8)) {
    const auto b = read_block<BlockF8>(blocks);
    const float d = half_to_float(b.d);
    for (int j = 0; j < 32; ++j) out[i + j] = d * widen(b.codes[j]);
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

void decode_f8_e4m3(const uint8_t* blocks, float* out, int64_t count) {
  decode_f8(blocks, out, count, e4m3_to_float);
}

void decode_f8_e5m2(const uint8_t* blocks, float* out, int64_t count) {
  decode_f8(blocks, out, count, e5m2_to_float);
}

template <QuantType kType>
void decode_blocks(const uint8_t* blocks, float* out, int64_t count) {
  const QuantTraits& t = traits(kType);
  const CodeForm form = code_form(kType);
  BlockParts parts;
  for (int64_t i = 0; i < count; i += t.group, blocks += t.bytes) {
    unpack_block(kType, blocks, &parts);
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
template void decode_blocks<QuantType::kQ8_1>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kQ8_K>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kQ2_K>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kQ3_K>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kIQ4_NL>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kIQ4_XS>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kMXFP4>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kNVFP4>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kIQ2_XXS>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kIQ2_XS>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kIQ2_S>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kIQ3_XXS>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kIQ3_S>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kIQ1_S>(const uint8_t*, float*, int64_t);
template void decode_blocks<QuantType::kIQ1_M>(const uint8_t*, float*, int64_t);

}  // namespace oxibonsai::quant
