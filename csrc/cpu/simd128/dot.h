#pragma once

// What linear_tiles.h needs: four rows in the lanes of a vector, and the dot product of four bytes
// a lane. WebAssembly multiplies bytes to 16 bits, sums of which are widened as late as they fit.

#include <wasm_simd128.h>

#include <cstdint>

#include "cpu/simd128/fma.h"

namespace {
namespace dot {

constexpr int kRows = 4;
constexpr int kMaxTokens = 4;    // engines have 16 registers, and the 8 quads are half of them
constexpr int kQuadsAtOnce = 8;  // that share a widening
constexpr int kTilesAtOnce = 1, kTokensAtOnce = 1;
constexpr int kBitsOfTilesAtOnce = 0;
constexpr int kTilesOfOneToken = 1;
constexpr bool kUnsignedBytes = false;

using Codes = v128_t;
using Sums = v128_t;
using Floats = v128_t;

inline Codes load(const uint8_t* p) { return wasm_v128_load(p); }
inline Codes byte_splat(int v) { return wasm_i8x16_splat(static_cast<int8_t>(v)); }
inline Codes band(Codes a, Codes b) { return wasm_v128_and(a, b); }
inline Codes bor(Codes a, Codes b) { return wasm_v128_or(a, b); }
// Of 16-bit lanes, which processors have: bits that cross a byte are masked away by the caller.
template <int n>
inline Codes shift_left(Codes a) {
  return wasm_i16x8_shl(a, n);
}
template <int n>
inline Codes shift_right(Codes a) {
  return wasm_u16x8_shr(a, n);
}

// A table of 16 bytes, and its entries at indices below 16.
inline Codes load_table(const uint8_t* p) { return wasm_v128_load(p); }
inline Codes lookup(Codes table, Codes index) { return wasm_i8x16_swizzle(table, index); }

// Four activation bytes in every lane.
inline Codes quad_splat(const int8_t* x) { return wasm_v128_load32_splat(x); }

inline Sums sum_splat(int32_t v) { return wasm_i32x4_splat(v); }
template <int n>
inline Sums sum_shift_left(Sums a) {
  return wasm_i32x4_shl(a, n);
}
inline Sums sum_add(Sums a, Sums b) { return wasm_i32x4_add(a, b); }
inline Sums sum_sub(Sums a, Sums b) { return wasm_i32x4_sub(a, b); }
inline Sums sum_max(Sums a, Sums b) { return wasm_i32x4_max(a, b); }
inline Sums sum_mul(Sums a, Sums b) { return wasm_i32x4_mul(a, b); }
inline Sums load_signed(const uint8_t* p) {
  return wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(p)));
}
inline Sums load_unsigned(const uint8_t* p) {
  return wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p)));
}

inline Floats as_floats(Sums a) { return a; }  // the same bits
inline Floats to_float(Sums a) { return wasm_f32x4_convert_i32x4(a); }
inline Floats splat(float v) { return wasm_f32x4_splat(v); }
inline Floats fma(Floats a, Floats b, Floats c) { return fma4(a, b, c); }
inline Floats add(Floats a, Floats b) { return wasm_f32x4_add(a, b); }
inline Floats sub(Floats a, Floats b) { return wasm_f32x4_sub(a, b); }
// +0 where |v| < bound; NaN stays.
inline Floats flush_below(Floats v, float bound) {
  return wasm_v128_andnot(v, wasm_f32x4_lt(wasm_f32x4_abs(v), splat(bound)));
}
inline Floats load_halves(const uint16_t* p) { return from_halves(wasm_u32x4_load16x4(p)); }
inline Floats load_floats(const float* p) { return wasm_v128_load(p); }
inline void store_floats(float* p, Floats v) { wasm_v128_store(p, v); }

// Quads whose products fit into int16 together; full bytes lose their offset of 128 first.
template <int kMaxCode>
constexpr int kProductsThatFit = [] {
  constexpr int kFit = 32767 / ((kMaxCode == 255 ? 128 : kMaxCode) * 127);
  return kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
}();

// start + sum over kQuads quads of codes times activations.
template <int kMaxCode, int kQuads, bool kSplit>
inline Sums dot_quads(const Codes* w, const int8_t* x, Sums start) {
  constexpr int kFit = kProductsThatFit<kMaxCode>;
  constexpr int kRun = kFit < kQuads ? kFit : kQuads;
  const auto code = [&](int q) __attribute__((always_inline)) {
    return kMaxCode == 255 ? wasm_v128_xor(w[q], byte_splat(128)) : w[q];
  };
  Sums low = sum_splat(0);   // rows 0 and 1, two sums each
  Sums high = sum_splat(0);  // rows 2 and 3
#pragma GCC unroll 8
  for (int q = 0; q < kQuads; q += kRun) {
    Codes four = quad_splat(x + 4 * q);
    v128_t low_words = wasm_i16x8_extmul_low_i8x16(code(q), four);
    v128_t high_words = wasm_i16x8_extmul_high_i8x16(code(q), four);
#pragma GCC unroll 8
    for (int i = 1; i < kRun; ++i) {
      four = quad_splat(x + 4 * (q + i));
      low_words = wasm_i16x8_add(low_words, wasm_i16x8_extmul_low_i8x16(code(q + i), four));
      high_words = wasm_i16x8_add(high_words, wasm_i16x8_extmul_high_i8x16(code(q + i), four));
    }
    low = sum_add(low, wasm_i32x4_extadd_pairwise_i16x8(low_words));
    high = sum_add(high, wasm_i32x4_extadd_pairwise_i16x8(high_words));
  }
  return sum_add(start, sum_add(wasm_i32x4_shuffle(low, high, 0, 2, 4, 6),
                                wasm_i32x4_shuffle(low, high, 1, 3, 5, 7)));
}

}  // namespace dot
}  // namespace

#include "cpu/body/dot_chains.h"
