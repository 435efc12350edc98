#pragma once

// WebAssembly promises no fused multiply-add (its relaxed one may round twice), so that one is made
// of doubles: the product of two floats is exact in a double, and the sum, rounded to 53 bits and
// then to 24, is what one rounding gives unless it lies halfway between two floats. Those few sums
// are done again, each by itself. Subnormal floats, whose midpoints have other bits, don't count
// (docs/arithmetic.md, rule 11).

#include <wasm_simd128.h>

#include <cmath>
#include <cstdint>

namespace {

__attribute__((noinline)) v128_t fma_each(v128_t a, v128_t b, v128_t c) {
  float x[4], y[4], z[4];
  wasm_v128_store(x, a);
  wasm_v128_store(y, b);
  wasm_v128_store(z, c);
  for (int i = 0; i < 4; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return wasm_v128_load(z);
}

// Whether one of four doubles, two in each vector, lies halfway between two floats: of the 29 bits
// that a float lacks, which are in the lower halves, the first alone is set.
inline bool halfway(v128_t low, v128_t high) {
  const v128_t lower = wasm_i32x4_shuffle(low, high, 0, 2, 4, 6);
  const v128_t lacked = wasm_v128_and(lower, wasm_i32x4_splat(0x1FFFFFFF));
  return wasm_v128_any_true(wasm_i32x4_eq(lacked, wasm_i32x4_splat(0x10000000)));
}

inline v128_t upper(v128_t a) { return wasm_i32x4_shuffle(a, a, 2, 3, 2, 3); }

inline v128_t fma2(v128_t a, v128_t b, v128_t c) {
  return wasm_f64x2_add(
      wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(a), wasm_f64x2_promote_low_f32x4(b)),
      wasm_f64x2_promote_low_f32x4(c));
}

// a * b + c, rounded once.
inline v128_t fma4(v128_t a, v128_t b, v128_t c) {
  const v128_t low = fma2(a, b, c);
  const v128_t high = fma2(upper(a), upper(b), upper(c));
  if (halfway(low, high)) return fma_each(a, b, c);
  return wasm_i32x4_shuffle(wasm_f32x4_demote_f64x2_zero(low), wasm_f32x4_demote_f64x2_zero(high),
                            0, 1, 4, 5);
}

// Four binary16 numbers in the low halves of the lanes.
inline v128_t from_halves(v128_t h) {
  const v128_t sign = wasm_i32x4_shl(wasm_v128_and(h, wasm_i32x4_splat(0x8000)), 16);
  const v128_t magnitude = wasm_v128_and(h, wasm_i32x4_splat(0x7FFF));
  // The exponents differ by 112; this way subnormal ones become normal.
  const v128_t value = wasm_f32x4_mul(wasm_i32x4_shl(magnitude, 13), wasm_f32x4_splat(0x1p112f));
  const v128_t not_finite = wasm_i32x4_gt(magnitude, wasm_i32x4_splat(0x7BFF));
  const v128_t exponent = wasm_v128_and(not_finite, wasm_i32x4_splat(0x7F800000));
  return wasm_v128_or(wasm_v128_or(value, exponent), sign);
}

}  // namespace
