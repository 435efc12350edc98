#pragma once

// Sixteen float lanes in four vectors; the operations are defined by cpu/scalar/simd.h.

#include <wasm_simd128.h>

#include <cstdint>

#include "cpu/simd128/fma.h"

namespace {
namespace simd {

constexpr int kLanes = 16;
constexpr int kQueries = 4;                  // that attention takes at once
constexpr int kChains = 2;                   // of fmas that the registers hold
constexpr int kDotRows = 2, kDotTokens = 1;  // whose sums the registers hold

struct Vec {
  v128_t q[4];
};
struct Int {
  v128_t q[4];
};
struct Mask {
  v128_t q[4];
};

template <class F>
inline Vec each(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}
template <class F>
inline Int each_int(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}

inline Vec splat(float a) {
  return each([=](int) { return wasm_f32x4_splat(a); });
}
inline Vec zero() { return splat(0.0f); }
inline Vec load(const float* p) {
  return each([=](int i) { return wasm_v128_load(p + 4 * i); });
}
inline void store(float* p, Vec a) {
  for (int i = 0; i < 4; ++i) wasm_v128_store(p + 4 * i, a.q[i]);
}
inline Vec load_half(const uint16_t* p) {
  return each([=](int i) { return from_halves(wasm_u32x4_load16x4(p + 4 * i)); });
}
// To the low halves of the lanes, as float_to_half() does it.
inline v128_t to_halves(v128_t a) {
  const v128_t sign = wasm_u32x4_shr(wasm_v128_and(a, wasm_i32x4_splat(INT32_MIN)), 16);
  const v128_t magnitude = wasm_v128_and(a, wasm_i32x4_splat(INT32_MAX));
  const v128_t odd = wasm_v128_and(wasm_u32x4_shr(magnitude, 13), wasm_i32x4_splat(1));
  const v128_t rounded =
      wasm_i32x4_add(wasm_i32x4_add(magnitude, odd), wasm_i32x4_splat(0xFFF - 0x38000000));
  const v128_t normal = wasm_u32x4_shr(rounded, 13);
  const v128_t tiny = wasm_i32x4_sub(wasm_f32x4_add(magnitude, wasm_f32x4_splat(0.5f)),
                                     wasm_i32x4_splat(0x3F000000));
  const v128_t payload = wasm_v128_and(wasm_u32x4_shr(magnitude, 13), wasm_i32x4_splat(0x3FF));
  const v128_t nan = wasm_v128_or(payload, wasm_i32x4_splat(0x7E00));
  const v128_t small = wasm_i32x4_lt(magnitude, wasm_i32x4_splat(0x38800000));
  const v128_t large = wasm_i32x4_ge(magnitude, wasm_i32x4_splat(0x477FF000));
  v128_t half = wasm_v128_bitselect(tiny, normal, small);
  half = wasm_v128_bitselect(wasm_i32x4_splat(0x7C00), half, large);
  half = wasm_v128_bitselect(nan, half, wasm_f32x4_ne(a, a));
  return wasm_v128_or(half, sign);
}
inline void store_half(uint16_t* p, Vec a) {
  for (int i = 0; i < 4; i += 2)
    wasm_v128_store(p + 4 * i, wasm_i16x8_shuffle(to_halves(a.q[i]), to_halves(a.q[i + 1]), 0, 2, 4,
                                                  6, 8, 10, 12, 14));
}
inline Vec load_bf16(const uint16_t* p) {
  return each([=](int i) { return wasm_i32x4_shl(wasm_u32x4_load16x4(p + 4 * i), 16); });
}

inline Vec add(Vec a, Vec b) {
  return each([&](int i) { return wasm_f32x4_add(a.q[i], b.q[i]); });
}
inline Vec sub(Vec a, Vec b) {
  return each([&](int i) { return wasm_f32x4_sub(a.q[i], b.q[i]); });
}
inline Vec mul(Vec a, Vec b) {
  return each([&](int i) { return wasm_f32x4_mul(a.q[i], b.q[i]); });
}
inline Vec div(Vec a, Vec b) {
  return each([&](int i) { return wasm_f32x4_div(a.q[i], b.q[i]); });
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return each([&](int i) { return fma4(a.q[i], b.q[i], c.q[i]); });
}
inline Vec sqrt(Vec a) {
  return each([&](int i) { return wasm_f32x4_sqrt(a.q[i]); });
}
// pmax(a, b) is a < b ? b : a.
inline v128_t max4(v128_t a, v128_t b) { return wasm_f32x4_pmax(b, a); }
inline Vec max(Vec a, Vec b) {
  return each([&](int i) { return max4(a.q[i], b.q[i]); });
}
inline Vec min(Vec a, Vec b) {
  return each([&](int i) { return wasm_f32x4_pmin(b.q[i], a.q[i]); });
}
inline Vec abs(Vec a) {
  return each([&](int i) { return wasm_f32x4_abs(a.q[i]); });
}
inline Mask less(Vec a, Vec b) {
  Mask m;
  for (int i = 0; i < 4; ++i) m.q[i] = wasm_f32x4_lt(a.q[i], b.q[i]);
  return m;
}
inline Vec select(Mask m, Vec yes, Vec no) {
  return each([&](int i) { return wasm_v128_bitselect(yes.q[i], no.q[i], m.q[i]); });
}
inline Vec flush_below(Vec a, float bound) {
  return each([&](int i) {
    const v128_t below = wasm_f32x4_lt(wasm_f32x4_abs(a.q[i]), wasm_f32x4_splat(bound));
    return wasm_v128_andnot(a.q[i], below);
  });
}
inline Vec round_even(Vec a) {
  return each([&](int i) { return wasm_f32x4_nearest(a.q[i]); });
}

inline Int to_int(Vec a) {
  return each_int([&](int i) { return wasm_i32x4_trunc_sat_f32x4(a.q[i]); });
}
inline Int isplat(int32_t a) {
  return each_int([=](int) { return wasm_i32x4_splat(a); });
}
inline Int iadd(Int a, Int b) {
  return each_int([&](int i) { return wasm_i32x4_add(a.q[i], b.q[i]); });
}
inline Int isub(Int a, Int b) {
  return each_int([&](int i) { return wasm_i32x4_sub(a.q[i], b.q[i]); });
}
inline Int half_of(Int a) {
  return each_int([&](int i) { return wasm_i32x4_shr(a.q[i], 1); });
}
inline Vec pow2(Int a) {
  return each(
      [&](int i) { return wasm_i32x4_shl(wasm_i32x4_add(a.q[i], wasm_i32x4_splat(127)), 23); });
}
inline Vec widen_int8(v128_t bytes) {
  const v128_t low = wasm_i16x8_extend_low_i8x16(bytes);
  const v128_t high = wasm_i16x8_extend_high_i8x16(bytes);
  return {{wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(low)),
           wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(low)),
           wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(high)),
           wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(high))}};
}
inline Vec load_int8(const int8_t* p) { return widen_int8(wasm_v128_load(p)); }
template <int kWhich>
inline Vec load_nibbles(const uint8_t* p) {
  const v128_t b = wasm_v128_load(p);
  const v128_t code = kWhich == 0 ? wasm_v128_and(b, wasm_i8x16_splat(15)) : wasm_u8x16_shr(b, 4);
  return widen_int8(wasm_i8x16_sub(code, wasm_i8x16_splat(8)));
}
inline void store_int8(int8_t* p, Int a) {
  const v128_t low = wasm_i16x8_narrow_i32x4(a.q[0], a.q[1]);
  const v128_t high = wasm_i16x8_narrow_i32x4(a.q[2], a.q[3]);
  wasm_v128_store(p, wasm_i8x16_narrow_i16x8(low, high));
}
inline int32_t fold_sum(Int a) {
  const v128_t c = wasm_i32x4_add(wasm_i32x4_add(a.q[0], a.q[1]), wasm_i32x4_add(a.q[2], a.q[3]));
  return wasm_i32x4_extract_lane(c, 0) + wasm_i32x4_extract_lane(c, 1) +
         wasm_i32x4_extract_lane(c, 2) + wasm_i32x4_extract_lane(c, 3);
}

inline float fold_sum(Vec a) {
  const v128_t c = wasm_f32x4_add(wasm_f32x4_add(a.q[0], a.q[2]),
                                  wasm_f32x4_add(a.q[1], a.q[3]));  // lanes i, i + 8, then + 4
  const v128_t d = wasm_f32x4_add(c, upper(c));
  return wasm_f32x4_extract_lane(d, 0) + wasm_f32x4_extract_lane(d, 1);
}
inline float fold_max(Vec a) {
  const v128_t c = max4(max4(a.q[0], a.q[2]), max4(a.q[1], a.q[3]));
  const v128_t d = max4(c, upper(c));
  const float first = wasm_f32x4_extract_lane(d, 0);
  const float second = wasm_f32x4_extract_lane(d, 1);
  return first > second ? first : second;
}
inline float first(Vec a) { return wasm_f32x4_extract_lane(a.q[0], 0); }

inline void load_pairs(const float* p, Vec& even, Vec& odd) {
  for (int i = 0; i < 4; ++i) {
    const v128_t low = wasm_v128_load(p + 8 * i);
    const v128_t high = wasm_v128_load(p + 8 * i + 4);
    even.q[i] = wasm_i32x4_shuffle(low, high, 0, 2, 4, 6);
    odd.q[i] = wasm_i32x4_shuffle(low, high, 1, 3, 5, 7);
  }
}
inline void store_pairs(float* p, Vec even, Vec odd) {
  for (int i = 0; i < 4; ++i) {
    wasm_v128_store(p + 8 * i, wasm_i32x4_shuffle(even.q[i], odd.q[i], 0, 4, 1, 5));
    wasm_v128_store(p + 8 * i + 4, wasm_i32x4_shuffle(even.q[i], odd.q[i], 2, 6, 3, 7));
  }
}

}  // namespace simd
}  // namespace

#include "cpu/body/padded.h"
