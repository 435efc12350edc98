#pragma once

// What linear_1bit.h needs: 16 rows, one in each byte of a vector.

#include <wasm_simd128.h>

#include <cstdint>

namespace {
namespace bytes {

constexpr int kRows = 16;

using Vec = v128_t;

inline Vec load(const uint8_t* p) { return wasm_v128_load(p); }
inline Vec load_table(const uint8_t* p) { return wasm_v128_load(p); }
inline Vec lookup(Vec table, Vec index) { return wasm_i8x16_swizzle(table, index); }
inline Vec add(Vec a, Vec b) { return wasm_i8x16_add(a, b); }
inline Vec low_nibbles(Vec a) { return wasm_v128_and(a, wasm_i8x16_splat(15)); }
inline Vec high_nibbles(Vec a) { return wasm_u8x16_shr(a, 4); }

// 2^23 + 2 * (16 * high + low), as floats, in the order of the rows.
inline void weigh(Vec low, Vec high, v128_t* out) {
  const Vec exponent = wasm_i16x8_splat(0x4B00);
  const Vec a = wasm_i16x8_add(wasm_i16x8_shl(wasm_u16x8_extend_low_u8x16(low), 1),
                               wasm_i16x8_shl(wasm_u16x8_extend_low_u8x16(high), 5));
  const Vec b = wasm_i16x8_add(wasm_i16x8_shl(wasm_u16x8_extend_high_u8x16(low), 1),
                               wasm_i16x8_shl(wasm_u16x8_extend_high_u8x16(high), 5));
  out[0] = wasm_i16x8_shuffle(a, exponent, 0, 8, 1, 9, 2, 10, 3, 11);
  out[1] = wasm_i16x8_shuffle(a, exponent, 4, 12, 5, 13, 6, 14, 7, 15);
  out[2] = wasm_i16x8_shuffle(b, exponent, 0, 8, 1, 9, 2, 10, 3, 11);
  out[3] = wasm_i16x8_shuffle(b, exponent, 4, 12, 5, 13, 6, 14, 7, 15);
}

}  // namespace bytes
}  // namespace
