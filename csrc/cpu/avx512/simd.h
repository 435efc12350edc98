#pragma once

// Sixteen float lanes in one zmm register; the operations are defined by cpu/scalar/simd.h.

#include <immintrin.h>

#include <cstdint>

namespace {
namespace simd {

constexpr int kLanes = 16;
constexpr int kQueries = 8;                  // that attention takes at once
constexpr int kChains = 16;                  // of fmas that the registers hold
constexpr int kDotRows = 6, kDotTokens = 4;  // whose sums the registers hold

using Vec = __m512;
using Int = __m512i;
using Mask = __mmask16;

inline Mask first_lanes(int n) { return static_cast<Mask>((1u << n) - 1u); }

inline Vec splat(float a) { return _mm512_set1_ps(a); }
inline Vec zero() { return _mm512_setzero_ps(); }
inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline Vec load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
inline void store(float* p, Vec a) { _mm512_storeu_ps(p, a); }
inline void store_n(float* p, Vec a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a); }
inline Vec load_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec load_half_n(const uint16_t* p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
inline __m256i to_half(Vec a) { return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT); }
inline void store_half(uint16_t* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_half(a));
}
inline void store_half_n(uint16_t* p, Vec a, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), to_half(a));
}
inline Vec widen_bf16(__m256i h) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
inline Vec load_bf16(const uint16_t* p) {
  return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec load_bf16_n(const uint16_t* p, int n) {
  return widen_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}

inline Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec sqrt(Vec a) { return _mm512_sqrt_ps(a); }
inline Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec abs(Vec a) { return _mm512_abs_ps(a); }
inline Mask less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline Vec select(Mask m, Vec yes, Vec no) { return _mm512_mask_blend_ps(m, no, yes); }
inline Vec flush_below(Vec a, float bound) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(abs(a), splat(bound), _CMP_NLT_UQ), a);
}
inline Vec round_even(Vec a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

inline Int to_int(Vec a) { return _mm512_cvttps_epi32(a); }
inline Int isplat(int32_t a) { return _mm512_set1_epi32(a); }
inline Int iadd(Int a, Int b) { return _mm512_add_epi32(a, b); }
inline Int isub(Int a, Int b) { return _mm512_sub_epi32(a, b); }
inline Int half_of(Int a) { return _mm512_srai_epi32(a, 1); }
inline Vec pow2(Int a) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(a, _mm512_set1_epi32(127)), 23));
}
inline Vec load_int8(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
template <int kWhich>
inline Vec load_nibbles(const uint8_t* p) {
  const Vec values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  const Int b = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  // The permutation looks at the low four bits of an index.
  return _mm512_permutexvar_ps(kWhich == 0 ? b : _mm512_srli_epi32(b, 4), values);
}
inline void store_int8(int8_t* p, Int a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
}
inline int32_t fold_sum(Int a) { return _mm512_reduce_add_epi32(a); }

inline float fold_sum(Vec a) {
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
// Lane i of the result is fold_sum(a[i]), with a third of the instructions. 2 <= R <= 8.
template <int R>
inline Vec fold_sums(const Vec (&a)[R]) {
  const auto at = [&](int i) { return i < R ? a[i] : zero(); };
  const auto halves = [](Vec p, Vec q) {
    return add(_mm512_shuffle_f32x4(p, q, 0x44), _mm512_shuffle_f32x4(p, q, 0xEE));
  };
  // A quarter of a vector for each of four.
  const auto quarters = [&](int i) {
    const Vec p = halves(at(i), at(i + 1));
    const Vec q = halves(at(i + 2), at(i + 3));
    return add(_mm512_shuffle_f32x4(p, q, 0x88), _mm512_shuffle_f32x4(p, q, 0xDD));
  };
  const Vec low = quarters(0);
  Vec pairs;
  if constexpr (R > 4) {
    const __m512d p = _mm512_castps_pd(low);
    const __m512d q = _mm512_castps_pd(quarters(4));
    pairs =
        add(_mm512_castpd_ps(_mm512_unpacklo_pd(p, q)), _mm512_castpd_ps(_mm512_unpackhi_pd(p, q)));
  } else {
    pairs = add(low, _mm512_permute_ps(low, 0x4E));
  }
  const Vec sums = add(pairs, _mm512_movehdup_ps(pairs));
  const Int order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_permutexvar_ps(order, sums);
}
inline float fold_max(Vec a) {
  const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}
inline float first(Vec a) { return _mm512_cvtss_f32(a); }

inline void load_pairs(const float* p, Vec& even, Vec& odd) {
  const Vec a = load(p);
  const Vec b = load(p + kLanes);
  const Int evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  even = _mm512_permutex2var_ps(a, evens, b);
  odd = _mm512_permutex2var_ps(a, iadd(evens, isplat(1)), b);
}
inline void store_pairs(float* p, Vec even, Vec odd) {
  const Int low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  store(p, _mm512_permutex2var_ps(even, low, odd));
  store(p + kLanes, _mm512_permutex2var_ps(even, iadd(low, isplat(8)), odd));
}

}  // namespace simd
}  // namespace
