#pragma once

// Sixteen float lanes as a plain array: the definition that every other tier's simd.h must match,
// operation by operation (docs/arithmetic.md). Written to be obviously right, never to be fast.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/f16.h"

namespace {
namespace simd {

constexpr int kLanes = 16;
constexpr int kQueries = 4;                  // that attention takes at once
constexpr int kChains = 4;                   // of fmas that the registers hold
constexpr int kDotRows = 3, kDotTokens = 2;  // whose sums the registers hold

struct Vec {
  float v[kLanes];
};
struct Int {
  int32_t v[kLanes];
};
struct Mask {
  bool v[kLanes];
};

template <class F>
inline Vec map(F f) {
  Vec r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = f(i);
  return r;
}
template <class F>
inline Int imap(F f) {
  Int r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = f(i);
  return r;
}
template <class F>
inline Mask mmap(F f) {
  Mask r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = f(i);
  return r;
}

inline Vec splat(float a) {
  return map([=](int) { return a; });
}
inline Vec zero() { return splat(0.0f); }
inline Vec load(const float* p) {
  return map([=](int i) { return p[i]; });
}
// The first n lanes from p, +0 in the rest.
inline Vec load_n(const float* p, int n) {
  return map([=](int i) { return i < n ? p[i] : 0.0f; });
}
inline void store(float* p, Vec a) { std::memcpy(p, a.v, sizeof a.v); }
inline void store_n(float* p, Vec a, int n) {
  for (int i = 0; i < n; ++i) p[i] = a.v[i];
}
inline Vec load_half(const uint16_t* p) {
  return map([=](int i) { return oxibonsai::half_to_float(p[i]); });
}
inline Vec load_half_n(const uint16_t* p, int n) {
  return map([=](int i) { return i < n ? oxibonsai::half_to_float(p[i]) : 0.0f; });
}
inline void store_half(uint16_t* p, Vec a) {
  for (int i = 0; i < kLanes; ++i) p[i] = oxibonsai::float_to_half(a.v[i]);
}
inline void store_half_n(uint16_t* p, Vec a, int n) {
  for (int i = 0; i < n; ++i) p[i] = oxibonsai::float_to_half(a.v[i]);
}
inline Vec load_bf16_n(const uint16_t* p, int n) {
  return map([=](int i) { return i < n ? oxibonsai::bf16_to_float(p[i]) : 0.0f; });
}
inline Vec load_bf16(const uint16_t* p) { return load_bf16_n(p, kLanes); }

inline Vec add(Vec a, Vec b) {
  return map([&](int i) { return a.v[i] + b.v[i]; });
}
inline Vec sub(Vec a, Vec b) {
  return map([&](int i) { return a.v[i] - b.v[i]; });
}
inline Vec mul(Vec a, Vec b) {
  return map([&](int i) { return a.v[i] * b.v[i]; });
}
inline Vec div(Vec a, Vec b) {
  return map([&](int i) { return a.v[i] / b.v[i]; });
}
// a * b + c, rounded once.
inline Vec fma(Vec a, Vec b, Vec c) {
  return map([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
inline Vec sqrt(Vec a) {
  return map([&](int i) { return std::sqrt(a.v[i]); });
}
// The second operand where the comparison is false, so also where one is NaN.
inline Vec max(Vec a, Vec b) {
  return map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec min(Vec a, Vec b) {
  return map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec abs(Vec a) {
  return map([&](int i) { return std::fabs(a.v[i]); });
}
inline Mask less(Vec a, Vec b) {
  return mmap([&](int i) { return a.v[i] < b.v[i]; });
}
inline Vec select(Mask m, Vec yes, Vec no) {
  return map([&](int i) { return m.v[i] ? yes.v[i] : no.v[i]; });
}
// +0 where |a| < bound; NaN stays.
inline Vec flush_below(Vec a, float bound) {
  return map([&](int i) { return std::fabs(a.v[i]) < bound ? 0.0f : a.v[i]; });
}
// The nearest integer, ties to even.
inline Vec round_even(Vec a) {
  return map([&](int i) { return std::nearbyint(a.v[i]); });
}

// Of integral values that fit.
inline Int to_int(Vec a) {
  return imap([&](int i) { return static_cast<int32_t>(a.v[i]); });
}
inline Int isplat(int32_t a) {
  return imap([=](int) { return a; });
}
inline Int iadd(Int a, Int b) {
  return imap([&](int i) { return a.v[i] + b.v[i]; });
}
inline Int isub(Int a, Int b) {
  return imap([&](int i) { return a.v[i] - b.v[i]; });
}
inline Int half_of(Int a) {
  return imap([&](int i) { return a.v[i] >> 1; });
}
// 2^a for a in [-126, 127].
inline Vec pow2(Int a) {
  return map([&](int i) {
    const uint32_t bits = static_cast<uint32_t>(a.v[i] + 127) << 23;
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return f;
  });
}
inline Vec load_int8(const int8_t* p) {
  return map([=](int i) { return static_cast<float>(p[i]); });
}
// The low (0) or high (1) four bits of 16 bytes, minus 8.
template <int kWhich>
inline Vec load_nibbles(const uint8_t* p) {
  return map([=](int i) { return static_cast<float>((p[i] >> (4 * kWhich) & 15) - 8); });
}
// Of values in [-128, 127].
inline void store_int8(int8_t* p, Int a) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(a.v[i]);
}
inline int32_t fold_sum(Int a) {
  int32_t s = 0;
  for (int i = 0; i < kLanes; ++i) s += a.v[i];
  return s;
}

// Lane i with lane i + half, 16 to 8 to 4 to 2 to 1.
inline float fold_sum(Vec a) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] + a.v[i + half];
  return a.v[0];
}
inline float fold_max(Vec a) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
  return a.v[0];
}
inline float first(Vec a) { return a.v[0]; }

// 32 consecutive values at p as their even and their odd ones, and back.
inline void load_pairs(const float* p, Vec& even, Vec& odd) {
  even = map([=](int i) { return p[2 * i]; });
  odd = map([=](int i) { return p[2 * i + 1]; });
}
inline void store_pairs(float* p, Vec even, Vec odd) {
  for (int i = 0; i < kLanes; ++i) {
    p[2 * i] = even.v[i];
    p[2 * i + 1] = odd.v[i];
  }
}

}  // namespace simd
}  // namespace
