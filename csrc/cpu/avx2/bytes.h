#pragma once

// What linear_1bit.h needs of AVX2: 32 rows, one in each byte of a ymm.

#include <immintrin.h>

#include <cstdint>

namespace {
namespace bytes {

constexpr int kRows = 32;

using Vec = __m256i;

inline Vec load(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
// A table of 16 bytes, in every 16-byte lane.
inline Vec load_table(const uint8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Vec lookup(Vec table, Vec index) { return _mm256_shuffle_epi8(table, index); }
inline Vec add(Vec a, Vec b) { return _mm256_add_epi8(a, b); }
inline Vec low_nibbles(Vec a) { return _mm256_and_si256(a, _mm256_set1_epi8(15)); }
inline Vec high_nibbles(Vec a) { return low_nibbles(_mm256_srli_epi16(a, 4)); }

// 2^23 + 2 * (16 * high + low), as floats, in the order of the rows (byte_of_row in cpu/pack.cc).
inline void weigh(Vec low, Vec high, __m256* out) {
  const Vec weights = _mm256_set1_epi16(0x2002);
  const Vec exponent = _mm256_set1_epi16(0x4B00);
  const Vec a = _mm256_maddubs_epi16(_mm256_unpacklo_epi8(low, high), weights);
  const Vec b = _mm256_maddubs_epi16(_mm256_unpackhi_epi8(low, high), weights);
  out[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(a, exponent));
  out[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(a, exponent));
  out[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(b, exponent));
  out[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(b, exponent));
}

}  // namespace bytes
}  // namespace
