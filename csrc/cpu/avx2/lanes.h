#pragma once

// What linear_tiles.h needs of a 256-bit tier besides its dot product: eight rows in the lanes of a
// ymm.

#include <immintrin.h>

#include <cstdint>

namespace {
namespace dot {

constexpr int kRows = 8;
constexpr int kMaxTokens = 4;  // the 8 quads spill from 16 registers, and still pay for themselves

using Codes = __m256i;
using Sums = __m256i;
using Floats = __m256;

inline Codes load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline Codes byte_splat(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
inline Codes band(Codes a, Codes b) { return _mm256_and_si256(a, b); }
inline Codes bor(Codes a, Codes b) { return _mm256_or_si256(a, b); }
// Of 16-bit lanes: bits that cross a byte are masked away by the caller.
template <int n>
inline Codes shift_left(Codes a) {
  return _mm256_slli_epi16(a, n);
}
template <int n>
inline Codes shift_right(Codes a) {
  return _mm256_srli_epi16(a, n);
}

// A table of 16 bytes, and its entries at indices below 16.
inline Codes load_table(const uint8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Codes lookup(Codes table, Codes index) { return _mm256_shuffle_epi8(table, index); }

// Four activation bytes in every lane.
inline Codes quad_splat(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, sizeof four);
  return _mm256_set1_epi32(four);
}

inline Sums sum_splat(int32_t v) { return _mm256_set1_epi32(v); }
template <int n>
inline Sums sum_shift_left(Sums a) {
  return _mm256_slli_epi32(a, n);
}
inline Sums sum_add(Sums a, Sums b) { return _mm256_add_epi32(a, b); }
inline Sums sum_sub(Sums a, Sums b) { return _mm256_sub_epi32(a, b); }
inline Sums sum_max(Sums a, Sums b) { return _mm256_max_epi32(a, b); }
inline Sums sum_mul(Sums a, Sums b) { return _mm256_mullo_epi32(a, b); }
inline __m128i load_eight(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
inline Sums load_signed(const uint8_t* p) { return _mm256_cvtepi8_epi32(load_eight(p)); }
inline Sums load_unsigned(const uint8_t* p) { return _mm256_cvtepu8_epi32(load_eight(p)); }

inline Floats as_floats(Sums a) { return _mm256_castsi256_ps(a); }  // the same bits
inline Floats to_float(Sums a) { return _mm256_cvtepi32_ps(a); }
inline Floats splat(float v) { return _mm256_set1_ps(v); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
// +0 where |v| < bound; NaN stays.
inline Floats flush_below(Floats v, float bound) {
  const Floats size = _mm256_andnot_ps(splat(-0.0f), v);
  return _mm256_and_ps(_mm256_cmp_ps(size, splat(bound), _CMP_NLT_UQ), v);
}
inline Floats load_halves(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Floats load_floats(const float* p) { return _mm256_loadu_ps(p); }
inline void store_floats(float* p, Floats v) { _mm256_storeu_ps(p, v); }

}  // namespace dot
}  // namespace
