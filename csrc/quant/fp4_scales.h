#pragma once

// The 8-bit scales of types of E2M1 codes, halved, because kFp4Values are E2M1 times two.

#include <cstdint>

#include "base/f16.h"

namespace oxibonsai::quant {

// MXFP4: 2^(exponent - 128), below 2 a subnormal number.
inline float mxfp4_scale(uint32_t exponent) {
  return bits_to_float(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

inline uint8_t mxfp4_exponent(float scale) {
  const uint32_t bits = float_to_bits(scale);
  return static_cast<uint8_t>(bits < 0x00800000u ? bits >> 22 : (bits >> 23) + 1);
}

// NVFP4: half of an unsigned E4M3; its NaN counts as 0, as in llama.cpp.
inline float nvfp4_scale(uint8_t code) {
  if ((code & 0x7F) == 0 || code == 0x7F) return 0.0f;
  return half_to_float(static_cast<uint16_t>((code & 0x7F) << 7)) * 128.0f;
}

inline uint8_t nvfp4_code(float scale) {
  return static_cast<uint8_t>(float_to_half(scale * 0.0078125f) >> 7);  // 2^-7
}

}  // namespace oxibonsai::quant
