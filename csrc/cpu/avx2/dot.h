#pragma once

// The dot product of four bytes a lane without VNNI: vpmaddubsw sums two products in int16, as many
// of which are added as can't overflow, then vpmaddwd by ones widens. Full bytes (Q8_0) are taken
// as signed: their magnitude times the activation with their sign, 128 * 127 * 2 < 2^15.

#include "cpu/avx2/lanes.h"

namespace {
namespace dot {

constexpr int kQuadsAtOnce = 8;  // that share a widening
constexpr int kTilesAtOnce = 1, kTokensAtOnce = 1;
constexpr bool kUnsignedBytes = false;

inline Sums widen(Codes words) { return _mm256_madd_epi16(words, _mm256_set1_epi16(1)); }

inline Codes signed_products(Codes code, Codes x) {
  const Codes w = _mm256_xor_si256(code, byte_splat(128));
  return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

template <int kMaxCode, int kQuads, bool kSplit>
inline Sums dot_quads(const Codes* w, const int8_t* x, Sums start) {
  if constexpr (kMaxCode == 255) {
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q)
      start = sum_add(start, widen(signed_products(w[q], quad_splat(x + 4 * q))));
  } else {
    constexpr int kFit = 32767 / (kMaxCode * 2 * 127);
    constexpr int kRun = kFit < kQuads ? (kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1) : kQuads;
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; q += kRun) {
      Codes words = _mm256_maddubs_epi16(w[q], quad_splat(x + 4 * q));
#pragma GCC unroll 8
      for (int i = 1; i < kRun; ++i)
        words =
            _mm256_add_epi16(words, _mm256_maddubs_epi16(w[q + i], quad_splat(x + 4 * (q + i))));
      start = sum_add(start, widen(words));
    }
  }
  return start;
}

}  // namespace dot
}  // namespace
