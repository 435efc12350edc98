#pragma once

// What linear_1bit.h needs of AVX-512: 64 rows, one in each byte of a zmm.

#include <immintrin.h>

#include <cstdint>

namespace {
namespace bytes {

constexpr int kRows = 64;

using Vec = __m512i;

inline Vec load(const uint8_t* p) { return _mm512_loadu_si512(p); }
// A table of 16 bytes, in every 16-byte lane.
inline Vec load_table(const uint8_t* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Vec lookup(Vec table, Vec index) { return _mm512_shuffle_epi8(table, index); }
inline Vec add(Vec a, Vec b) { return _mm512_add_epi8(a, b); }
inline Vec low_nibbles(Vec a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
inline Vec high_nibbles(Vec a) { return low_nibbles(_mm512_srli_epi16(a, 4)); }

// 2^23 + 2 * (16 * high + low), as floats, in the order of the rows (byte_of_row in cpu/pack.cc).
inline void weigh(Vec low, Vec high, __m512* out) {
  const Vec weights = _mm512_set1_epi16(0x2002);
  const Vec exponent = _mm512_set1_epi16(0x4B00);
  const Vec a = _mm512_maddubs_epi16(_mm512_unpacklo_epi8(low, high), weights);
  const Vec b = _mm512_maddubs_epi16(_mm512_unpackhi_epi8(low, high), weights);
  out[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(a, exponent));
  out[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(a, exponent));
  out[2] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(b, exponent));
  out[3] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(b, exponent));
}

}  // namespace bytes
}  // namespace
