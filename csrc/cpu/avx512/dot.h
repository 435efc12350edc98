#pragma once

// vpmaddubsw for the dot product of four bytes a lane (cpu/body/dot_words.h).

#include "cpu/avx512/lanes.h"

namespace {
namespace dot {

constexpr int kQuadsAtOnce = 8;  // that share a widening
// As with AVX2; the 16 unpacked quads stay in registers, too.
constexpr int kTilesAtOnce = 2, kTokensAtOnce = 4;
constexpr int kBitsOfTilesAtOnce = 4;
// Fewer than kMaxTokens tokens meet several tiles, too, whose quads are unpacked where they are
// used; one token this many of two bits.
constexpr int kTilesOfOneToken = 4;
constexpr bool kUnsignedBytes = false;

inline Codes products(Codes code, Codes x) { return _mm512_maddubs_epi16(code, x); }
inline Codes add_words(Codes a, Codes b) { return _mm512_add_epi16(a, b); }
// The compiler may not sum in another order, which would need other registers.
inline Codes keep_order(Codes words) {
  __asm__("" : "+v"(words));
  return words;
}
inline Sums widen(Codes words) { return _mm512_madd_epi16(words, _mm512_set1_epi16(1)); }

inline Codes signed_products(Codes code, Codes x) {
  const Codes w = _mm512_xor_si512(code, byte_splat(128));
  const Codes turned = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
  return products(_mm512_abs_epi8(w), turned);
}

}  // namespace dot
}  // namespace

#include "cpu/body/dot_words.h"
