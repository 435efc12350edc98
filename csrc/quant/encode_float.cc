#include <cmath>
#include <cstring>

#include "base/f16.h"
#include "quant/block.h"
#include "quant/encoders.h"
#include "quant/rounding.h"

namespace oxibonsai::quant {
namespace {

template <class F>
void encode_halves(const float* values, int64_t cols, uint8_t* blocks, F narrow) {
  for (int64_t i = 0; i < cols; ++i) {
    const uint16_t h = narrow(values[i]);
    std::memcpy(blocks + 2 * i, &h, sizeof h);
  }
}

// The magnitudes that an 8-bit float has, in the order of their codes, which is ascending.
template <QuantType kType>
struct SmallFloat {
  static constexpr int kFinite = kType == QuantType::kF8_E4M3 ? 127 : 124;
  float magnitude[kFinite];

  SmallFloat() {
    for (int start = 0; start < 128; start += 32) {
      BlockF8 b{};
      for (int j = 0; j < 32; ++j) b.codes[j] = static_cast<uint8_t>(start + j);
      b.d = float_to_half(1.0f);
      float decoded[32];
      traits(kType).decode(reinterpret_cast<const uint8_t*>(&b), decoded, 32);
      for (int j = 0; j < 32 && start + j < kFinite; ++j) magnitude[start + j] = decoded[j];
    }
  }

  // The nearest, halves to the even code.
  uint8_t encode(float v) const {
    const float size = std::fabs(v);
    int code = 0;
    for (int step = 64; step > 0; step /= 2)
      if (code + step < kFinite && magnitude[code + step] <= size) code += step;
    if (code + 1 < kFinite) {
      const float below = size - magnitude[code];
      const float above = magnitude[code + 1] - size;
      if (above < below || (above == below && code % 2 == 1)) ++code;
    }
    return static_cast<uint8_t>(code | (std::signbit(v) ? 0x80 : 0));
  }
};

// The group's largest weight gets the largest code, as far as binary16 has so small a scale.
template <QuantType kType>
void encode_f8(const float* values, int64_t cols, uint8_t* blocks) {
  static const SmallFloat<kType> small;
  for (int64_t i = 0; i < cols; i += 32, blocks += sizeof(BlockF8)) {
    const float largest = std::fabs(extreme(values + i, 32));
    BlockF8 b;
    b.d = float_to_half(largest / small.magnitude[small.kFinite - 1]);
    if (b.d == 0 && largest > 0.0f) b.d = 1;
    const float d = half_to_float(b.d);
    for (int j = 0; j < 32; ++j) b.codes[j] = small.encode(d > 0.0f ? values[i + j] / d : 0.0f);
    std::memcpy(blocks, &b, sizeof b);
  }
}

}  // namespace

void encode_f32(const float* values, const float*, int64_t cols, uint8_t* blocks) {
  std::memcpy(blocks, values, static_cast<size_t>(cols) * sizeof(float));
}

void encode_f16(const float* values, const float*, int64_t cols, uint8_t* blocks) {
  encode_halves(values, cols, blocks, float_to_half);
}

void encode_bf16(const float* values, const float*, int64_t cols, uint8_t* blocks) {
  encode_halves(values, cols, blocks, float_to_bf16);
}

void encode_f8_e4m3(const float* values, const float*, int64_t cols, uint8_t* blocks) {
  encode_f8<QuantType::kF8_E4M3>(values, cols, blocks);
}

void encode_f8_e5m2(const float* values, const float*, int64_t cols, uint8_t* blocks) {
  encode_f8<QuantType::kF8_E5M2>(values, cols, blocks);
}

}  // namespace oxibonsai::quant
