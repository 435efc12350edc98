#pragma once

// Sixteen float lanes in two ymm registers (lo = lanes 0-7, hi = lanes 8-15); the operations are
// defined by cpu/scalar/simd.h.

#include <immintrin.h>

#include <cstdint>

namespace {
namespace simd {

constexpr int kLanes = 16;
constexpr int kQueries = 4;                  // that attention takes at once
constexpr int kChains = 4;                   // of fmas that the registers hold
constexpr int kDotRows = 3, kDotTokens = 2;  // whose sums the registers hold

struct Vec {
  __m256 lo, hi;
};
struct Int {
  __m256i lo, hi;
};
struct Mask {
  __m256 lo, hi;  // all bits of a lane set or clear
};

// Lanes of a group of eight that lie below n, as all-ones words.
inline __m256i lanes_below(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline Vec splat(float a) { return {_mm256_set1_ps(a), _mm256_set1_ps(a)}; }
inline Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Vec load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, lanes_below(n)),
          n > 8 ? _mm256_maskload_ps(p + 8, lanes_below(n - 8)) : _mm256_setzero_ps()};
}
inline void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline void store_n(float* p, Vec a, int n) {
  _mm256_maskstore_ps(p, lanes_below(n), a.lo);
  if (n > 8) _mm256_maskstore_ps(p + 8, lanes_below(n - 8), a.hi);
}
inline Vec load_half(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
// Copies n 16-bit values before a full load, so that no byte past them is read.
inline void copy_halves(uint16_t* to, const uint16_t* from, int n) {
  for (int i = 0; i < kLanes; ++i) to[i] = i < n ? from[i] : uint16_t{0};
}
inline Vec load_half_n(const uint16_t* p, int n) {
  uint16_t padded[kLanes];
  copy_halves(padded, p, n);
  return load_half(padded);
}
inline void store_half(uint16_t* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8),
                   _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_half_n(uint16_t* p, Vec a, int n) {
  uint16_t all[kLanes];
  store_half(all, a);
  for (int i = 0; i < n; ++i) p[i] = all[i];
}
inline __m256 widen_bf16(const uint16_t* p) {
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
inline Vec load_bf16(const uint16_t* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
inline Vec load_bf16_n(const uint16_t* p, int n) {
  uint16_t padded[kLanes];
  copy_halves(padded, p, n);
  return load_bf16(padded);
}

inline Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Vec sub(Vec a, Vec b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Vec div(Vec a, Vec b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Vec sqrt(Vec a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
inline Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline Vec abs(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline Mask less(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
inline Vec select(Mask m, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}
inline __m256 flush_eight(__m256 a, float bound) {
  const __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
  return _mm256_and_ps(_mm256_cmp_ps(size, _mm256_set1_ps(bound), _CMP_NLT_UQ), a);
}
inline Vec flush_below(Vec a, float bound) {
  return {flush_eight(a.lo, bound), flush_eight(a.hi, bound)};
}
inline Vec round_even(Vec a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
}

inline Int to_int(Vec a) { return {_mm256_cvttps_epi32(a.lo), _mm256_cvttps_epi32(a.hi)}; }
inline Int isplat(int32_t a) { return {_mm256_set1_epi32(a), _mm256_set1_epi32(a)}; }
inline Int iadd(Int a, Int b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline Int isub(Int a, Int b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
inline Int half_of(Int a) { return {_mm256_srai_epi32(a.lo, 1), _mm256_srai_epi32(a.hi, 1)}; }
inline Vec pow2(Int a) {
  const Int e = iadd(a, isplat(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(e.lo, 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(e.hi, 23))};
}
inline __m256 widen_int8(const void* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
}
inline Vec load_int8(const int8_t* p) { return {widen_int8(p), widen_int8(p + 8)}; }
template <int kWhich>
inline __m256 widen_nibbles(const void* p) {
  const __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  const __m256i code =
      kWhich == 0 ? _mm256_and_si256(b, _mm256_set1_epi32(15)) : _mm256_srli_epi32(b, 4);
  return _mm256_cvtepi32_ps(_mm256_sub_epi32(code, _mm256_set1_epi32(8)));
}
template <int kWhich>
inline Vec load_nibbles(const uint8_t* p) {
  return {widen_nibbles<kWhich>(p), widen_nibbles<kWhich>(p + 8)};
}
inline void store_int8(int8_t* p, Int a) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xD8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
inline int32_t fold_sum(Int a) {
  const __m256i b = _mm256_add_epi32(a.lo, a.hi);
  const __m128i c = _mm_add_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
  const __m128i d = _mm_add_epi32(c, _mm_unpackhi_epi64(c, c));
  return _mm_cvtsi128_si32(_mm_add_epi32(d, _mm_shuffle_epi32(d, 1)));
}

inline float fold_sum(Vec a) {
  const __m256 b = _mm256_add_ps(a.lo, a.hi);
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
inline float fold_max(Vec a) {
  const __m256 b = _mm256_max_ps(a.lo, a.hi);
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}
inline float first(Vec a) { return _mm256_cvtss_f32(a.lo); }

// Eight even (or odd) values of sixteen consecutive ones held in two registers.
inline __m256 every_second(__m256 a, __m256 b, bool odd) {
  const __m256 mixed = odd ? _mm256_shuffle_ps(a, b, 0xDD) : _mm256_shuffle_ps(a, b, 0x88);
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xD8));
}
inline void load_pairs(const float* p, Vec& even, Vec& odd) {
  const Vec a = load(p);
  const Vec b = load(p + kLanes);
  even = {every_second(a.lo, a.hi, false), every_second(b.lo, b.hi, false)};
  odd = {every_second(a.lo, a.hi, true), every_second(b.lo, b.hi, true)};
}
inline void store_eight_pairs(float* p, __m256 even, __m256 odd) {
  const __m256 a = _mm256_unpacklo_ps(even, odd);
  const __m256 b = _mm256_unpackhi_ps(even, odd);
  _mm256_storeu_ps(p, _mm256_permute2f128_ps(a, b, 0x20));
  _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(a, b, 0x31));
}
inline void store_pairs(float* p, Vec even, Vec odd) {
  store_eight_pairs(p, even.lo, odd.lo);
  store_eight_pairs(p + kLanes, even.hi, odd.hi);
}

}  // namespace simd
}  // namespace
