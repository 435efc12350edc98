#pragma once

// vpmaddubsw for the dot product of four bytes a lane (cpu/body/dot_words.h).

#include "cpu/avx2/lanes.h"

namespace {
namespace dot {

constexpr int kQuadsAtOnce = 8;  // that share a widening
// Eight int16 sums, two codes and what is on its way fit 16 registers; unpacked quads, inner and
// row sums are memory.
constexpr int kTilesAtOnce = 2, kTokensAtOnce = 4;
constexpr int kBitsOfTilesAtOnce = 4;
// Fewer than kMaxTokens tokens meet several tiles, too, whose quads are unpacked where they are
// used; one token this many of two bits.
constexpr int kTilesOfOneToken = 4;
constexpr bool kUnsignedBytes = false;

inline Codes products(Codes code, Codes x) { return _mm256_maddubs_epi16(code, x); }
inline Codes add_words(Codes a, Codes b) { return _mm256_add_epi16(a, b); }
// The compiler may not sum in another order, which would need other registers.
inline Codes keep_order(Codes words) {
  __asm__("" : "+x"(words));
  return words;
}
inline Sums widen(Codes words) { return _mm256_madd_epi16(words, _mm256_set1_epi16(1)); }

inline Codes signed_products(Codes code, Codes x) {
  const Codes w = _mm256_xor_si256(code, byte_splat(128));
  return products(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

}  // namespace dot
}  // namespace

#include "cpu/body/dot_words.h"
