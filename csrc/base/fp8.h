#pragma once

#include <cstdint>

#include "base/f16.h"

namespace oxibonsai {

// FP8 E4M3 (OCP 8-bit Floating Point Specification 1.0): a sign, 4 bits of exponent with bias 7, 3
// of fraction; no infinity, and NaN where all other bits are set.

// Exact.
inline float fp8_to_float(uint8_t code) {
  const uint32_t magnitude = code & 0x7Fu;
  const uint32_t sign = (code & 0x80u) << 8;
  // The same bits as a binary16 are smaller by 2^8, the difference of the biases.
  const uint32_t half = magnitude == 0x7Fu ? 0x7E00u : magnitude << 7;
  return half_to_float(static_cast<uint16_t>(sign | half)) * 256.0f;
}

// Round to nearest even, within -448 and 448; a NaN stays one.
inline uint8_t float_to_fp8(float f) {
  const uint32_t bits = float_to_bits(f);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint8_t>(sign | 0x7Fu);
  if (magnitude >= 0x43E00000u) return static_cast<uint8_t>(sign | 0x7Eu);  // 448 and above
  if (magnitude < 0x3C800000u) {
    // Below 2^-6: adding 2^14 leaves the value in units of 2^-9 in the low bits, rounded by the
    // addition itself.
    const float sum = bits_to_float(magnitude) + 16384.0f;
    return static_cast<uint8_t>(sign | (float_to_bits(sum) - 0x46800000u));
  }
  const uint32_t odd = (magnitude >> 20) & 1u;
  return static_cast<uint8_t>(sign | ((magnitude - 0x3C000000u + 0x7FFFFu + odd) >> 20));
}

}  // namespace oxibonsai
