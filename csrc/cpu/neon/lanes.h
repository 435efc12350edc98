#pragma once

// What linear_tiles.h needs of a NEON tier besides its dot product: four rows in the lanes of a q
// register.

#include <arm_neon.h>

#include <cstdint>

namespace {
namespace dot {

constexpr int kRows = 4;
constexpr int kMaxTokens = 8;  // 8 quads + 8 inner + 8 row accumulators of the 32 registers
constexpr bool kUnsignedBytes = false;

using Codes = uint8x16_t;
using Sums = int32x4_t;
using Floats = float32x4_t;

inline Codes load(const uint8_t* p) { return vld1q_u8(p); }
inline Codes byte_splat(int v) { return vdupq_n_u8(static_cast<uint8_t>(v)); }
inline Codes band(Codes a, Codes b) { return vandq_u8(a, b); }
inline Codes bor(Codes a, Codes b) { return vorrq_u8(a, b); }
template <int n>
inline Codes shift_left(Codes a) {
  return vshlq_n_u8(a, n);
}
template <int n>
inline Codes shift_right(Codes a) {
  return vshrq_n_u8(a, n);
}

// A table of 16 bytes, and its entries at indices below 16.
inline Codes load_table(const uint8_t* p) { return vld1q_u8(p); }
inline Codes lookup(Codes table, Codes index) { return vqtbl1q_u8(table, index); }

// Four activation bytes in every lane.
inline int8x16_t quad_splat(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, sizeof four);
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

// Codes below 128 as they are; full bytes (Q8_0) without their offset of 128.
template <int kMaxCode>
inline int8x16_t signed_codes(Codes w) {
  if constexpr (kMaxCode == 255) w = veorq_u8(w, vdupq_n_u8(128));
  return vreinterpretq_s8_u8(w);
}

inline Sums sum_splat(int32_t v) { return vdupq_n_s32(v); }
template <int n>
inline Sums sum_shift_left(Sums a) {
  return vshlq_n_s32(a, n);
}
inline Sums sum_add(Sums a, Sums b) { return vaddq_s32(a, b); }
inline Sums sum_sub(Sums a, Sums b) { return vsubq_s32(a, b); }
inline Sums sum_max(Sums a, Sums b) { return vmaxq_s32(a, b); }
inline Sums sum_mul(Sums a, Sums b) { return vmulq_s32(a, b); }
inline uint8x8_t load_four(const uint8_t* p) {
  uint32_t four;
  __builtin_memcpy(&four, p, sizeof four);
  return vreinterpret_u8_u32(vdup_n_u32(four));
}
inline Sums load_signed(const uint8_t* p) {
  return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(load_four(p)))));
}
inline Sums load_unsigned(const uint8_t* p) {
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(vmovl_u8(load_four(p)))));
}

inline Floats as_floats(Sums a) { return vreinterpretq_f32_s32(a); }  // the same bits
inline Floats to_float(Sums a) { return vcvtq_f32_s32(a); }
inline Floats splat(float v) { return vdupq_n_f32(v); }
inline Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
inline Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
inline Floats sub(Floats a, Floats b) { return vsubq_f32(a, b); }
// +0 where |v| < bound; NaN stays.
inline Floats flush_below(Floats v, float bound) {
  return vbslq_f32(vcaltq_f32(v, splat(bound)), splat(0.0f), v);
}
inline Floats load_halves(const uint16_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
inline Floats load_floats(const float* p) { return vld1q_f32(p); }
inline void store_floats(float* p, Floats v) { vst1q_f32(p, v); }

}  // namespace dot
}  // namespace
