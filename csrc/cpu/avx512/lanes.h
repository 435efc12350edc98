#pragma once

// What linear_tiles.h needs of a 512-bit tier besides its dot product: 16 rows in the lanes of a
// zmm.

#include <immintrin.h>

#include <cstdint>

namespace {
namespace dot {

constexpr int kRows = 16;
constexpr int kMaxTokens = 8;  // 8 quads + 8 inner + 8 row accumulators of the 32 registers

using Codes = __m512i;
using Sums = __m512i;
using Floats = __m512;

inline Codes load(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline Codes byte_splat(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
inline Codes band(Codes a, Codes b) { return _mm512_and_si512(a, b); }
inline Codes bor(Codes a, Codes b) { return _mm512_or_si512(a, b); }
// Of 16-bit lanes: bits that cross a byte are masked away by the caller.
template <int n>
inline Codes shift_left(Codes a) {
  return _mm512_slli_epi16(a, n);
}
template <int n>
inline Codes shift_right(Codes a) {
  return _mm512_srli_epi16(a, n);
}

// A table of 16 bytes, and its entries at indices below 16.
inline Codes load_table(const uint8_t* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Codes lookup(Codes table, Codes index) { return _mm512_shuffle_epi8(table, index); }

// Four activation bytes in every lane.
inline Codes quad_splat(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, sizeof four);
  return _mm512_set1_epi32(four);
}

inline Sums sum_splat(int32_t v) { return _mm512_set1_epi32(v); }
template <int n>
inline Sums sum_shift_left(Sums a) {
  return _mm512_slli_epi32(a, n);
}
inline Sums sum_add(Sums a, Sums b) { return _mm512_add_epi32(a, b); }
inline Sums sum_sub(Sums a, Sums b) { return _mm512_sub_epi32(a, b); }
inline Sums sum_max(Sums a, Sums b) { return _mm512_max_epi32(a, b); }
inline Sums sum_mul(Sums a, Sums b) { return _mm512_mullo_epi32(a, b); }
inline Sums load_signed(const uint8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Sums load_unsigned(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

inline Floats as_floats(Sums a) { return _mm512_castsi512_ps(a); }  // the same bits
inline Floats to_float(Sums a) { return _mm512_cvtepi32_ps(a); }
inline Floats splat(float v) { return _mm512_set1_ps(v); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
// +0 where |v| < bound; NaN stays.
inline Floats flush_below(Floats v, float bound) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(_mm512_abs_ps(v), splat(bound), _CMP_NLT_UQ), v);
}
inline Floats load_halves(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Floats load_floats(const float* p) { return _mm512_loadu_ps(p); }
inline void store_floats(float* p, Floats v) { _mm512_storeu_ps(p, v); }

}  // namespace dot
}  // namespace
