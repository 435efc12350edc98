#pragma once

#include <cmath>
#include <cstdint>

#include "base/f16.h"

namespace oxibonsai::quant {

// To the nearest integer, halves away from zero, for magnitudes below 2^31.
inline int round_half_away(float v) {
  const int whole = static_cast<int>(v);
  const float rest = v - static_cast<float>(whole);
  return whole + (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0);
}

// 3 * 2^22: adding it to a magnitude below 2^22 leaves no room for a fraction, and the addition
// itself rounds halves to even.
constexpr float kRoundingMagic = 12582912.0f;

inline float round_half_even(float v) { return (v + kRoundingMagic) - kRoundingMagic; }

inline int clamp(int v, int low, int high) { return v < low ? low : v > high ? high : v; }

// n / d, or 0 where that is not finite.
inline float ratio(float n, float d) {
  const float result = n / d;
  return result - result == 0.0f ? result : 0.0f;
}

inline float inverse(float d) { return ratio(1.0f, d); }

// binary16, where what is too large becomes the largest: a fitted scale may lie beyond what the
// weights themselves need.
inline uint16_t nearest_half(float v) {
  return float_to_half(v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v);
}

// The number of the largest magnitude, with its sign; the first of several.
inline float extreme(const float* values, int count) {
  float found = 0.0f;
  for (int j = 0; j < count; ++j)
    if (std::fabs(values[j]) > std::fabs(found)) found = values[j];
  return found;
}

}  // namespace oxibonsai::quant
