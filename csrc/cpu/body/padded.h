#pragma once

// Partial loads and stores of simd.h for tiers without masks, which include this at its end: they
// go through a padded copy, so that nothing past the end is touched.

#include <cstdint>

namespace {
namespace simd {

inline Vec load_n(const float* p, int n) {
  float padded[kLanes];
  for (int i = 0; i < kLanes; ++i) padded[i] = i < n ? p[i] : 0.0f;
  return load(padded);
}
inline void store_n(float* p, Vec a, int n) {
  float all[kLanes];
  store(all, a);
  for (int i = 0; i < n; ++i) p[i] = all[i];
}

inline void pad_halves(const uint16_t* p, int n, uint16_t* padded) {
  for (int i = 0; i < kLanes; ++i) padded[i] = i < n ? p[i] : uint16_t{0};
}
inline Vec load_half_n(const uint16_t* p, int n) {
  uint16_t padded[kLanes];
  pad_halves(p, n, padded);
  return load_half(padded);
}
inline void store_half_n(uint16_t* p, Vec a, int n) {
  uint16_t all[kLanes];
  store_half(all, a);
  for (int i = 0; i < n; ++i) p[i] = all[i];
}
inline Vec load_bf16_n(const uint16_t* p, int n) {
  uint16_t padded[kLanes];
  pad_halves(p, n, padded);
  return load_bf16(padded);
}

}  // namespace simd
}  // namespace
