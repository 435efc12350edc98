#pragma once

// Sixteen float lanes in four q registers; the operations are defined by cpu/scalar/simd.h.

#include <arm_neon.h>

#include <cstdint>

namespace {
namespace simd {

constexpr int kLanes = 16;
constexpr int kQueries = 4;                  // that attention takes at once
constexpr int kChains = 4;                   // of fmas that the registers hold
constexpr int kDotRows = 3, kDotTokens = 2;  // whose sums the registers hold

struct Vec {
  float32x4_t q[4];
};
struct Int {
  int32x4_t q[4];
};
struct Mask {
  uint32x4_t q[4];
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
  return each([=](int) { return vdupq_n_f32(a); });
}
inline Vec zero() { return splat(0.0f); }
inline Vec load(const float* p) {
  return each([=](int i) { return vld1q_f32(p + 4 * i); });
}
inline void store(float* p, Vec a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.q[i]);
}
inline Vec load_half(const uint16_t* p) {
  return each([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}
inline void store_half(uint16_t* p, Vec a) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.q[i])));
}
inline Vec load_bf16(const uint16_t* p) {
  return each([=](int i) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(p + 4 * i)), 16));
  });
}

inline Vec add(Vec a, Vec b) {
  return each([&](int i) { return vaddq_f32(a.q[i], b.q[i]); });
}
inline Vec sub(Vec a, Vec b) {
  return each([&](int i) { return vsubq_f32(a.q[i], b.q[i]); });
}
inline Vec mul(Vec a, Vec b) {
  return each([&](int i) { return vmulq_f32(a.q[i], b.q[i]); });
}
inline Vec div(Vec a, Vec b) {
  return each([&](int i) { return vdivq_f32(a.q[i], b.q[i]); });
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return each([&](int i) { return vfmaq_f32(c.q[i], a.q[i], b.q[i]); });
}
inline Vec sqrt(Vec a) {
  return each([&](int i) { return vsqrtq_f32(a.q[i]); });
}
// By comparison: the instructions for it treat NaN otherwise.
inline float32x4_t max4(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline Vec max(Vec a, Vec b) {
  return each([&](int i) { return max4(a.q[i], b.q[i]); });
}
inline Vec min(Vec a, Vec b) {
  return each([&](int i) { return vbslq_f32(vcltq_f32(a.q[i], b.q[i]), a.q[i], b.q[i]); });
}
inline Vec abs(Vec a) {
  return each([&](int i) { return vabsq_f32(a.q[i]); });
}
inline Mask less(Vec a, Vec b) {
  Mask m;
  for (int i = 0; i < 4; ++i) m.q[i] = vcltq_f32(a.q[i], b.q[i]);
  return m;
}
inline Vec select(Mask m, Vec yes, Vec no) {
  return each([&](int i) { return vbslq_f32(m.q[i], yes.q[i], no.q[i]); });
}
inline Vec flush_below(Vec a, float bound) {
  return each([&](int i) {
    return vbslq_f32(vcaltq_f32(a.q[i], vdupq_n_f32(bound)), vdupq_n_f32(0.0f), a.q[i]);
  });
}
inline Vec round_even(Vec a) {
  return each([&](int i) { return vrndnq_f32(a.q[i]); });
}

inline Int to_int(Vec a) {
  return each_int([&](int i) { return vcvtq_s32_f32(a.q[i]); });
}
inline Int isplat(int32_t a) {
  return each_int([=](int) { return vdupq_n_s32(a); });
}
inline Int iadd(Int a, Int b) {
  return each_int([&](int i) { return vaddq_s32(a.q[i], b.q[i]); });
}
inline Int isub(Int a, Int b) {
  return each_int([&](int i) { return vsubq_s32(a.q[i], b.q[i]); });
}
inline Int half_of(Int a) {
  return each_int([&](int i) { return vshrq_n_s32(a.q[i], 1); });
}
inline Vec pow2(Int a) {
  return each([&](int i) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(a.q[i], vdupq_n_s32(127)), 23));
  });
}
inline Vec widen_int8(int8x16_t bytes) {
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes));
  const int16x8_t high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
inline Vec load_int8(const int8_t* p) { return widen_int8(vld1q_s8(p)); }
template <int kWhich>
inline Vec load_nibbles(const uint8_t* p) {
  const uint8x16_t b = vld1q_u8(p);
  const uint8x16_t code = kWhich == 0 ? vandq_u8(b, vdupq_n_u8(15)) : vshrq_n_u8(b, 4);
  return widen_int8(vsubq_s8(vreinterpretq_s8_u8(code), vdupq_n_s8(8)));
}
inline void store_int8(int8_t* p, Int a) {
  const int16x8_t low = vcombine_s16(vmovn_s32(a.q[0]), vmovn_s32(a.q[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(a.q[2]), vmovn_s32(a.q[3]));
  vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}
inline int32_t fold_sum(Int a) {
  return vaddvq_s32(vaddq_s32(vaddq_s32(a.q[0], a.q[1]), vaddq_s32(a.q[2], a.q[3])));
}

inline float fold_sum(Vec a) {
  const float32x4_t c =
      vaddq_f32(vaddq_f32(a.q[0], a.q[2]), vaddq_f32(a.q[1], a.q[3]));  // lanes i, i + 8, then + 4
  const float32x2_t d = vadd_f32(vget_low_f32(c), vget_high_f32(c));
  return vget_lane_f32(d, 0) + vget_lane_f32(d, 1);
}
inline float fold_max(Vec a) {
  const float32x4_t c = max4(max4(a.q[0], a.q[2]), max4(a.q[1], a.q[3]));
  const float32x4_t d = max4(c, vextq_f32(c, c, 2));
  const float first = vgetq_lane_f32(d, 0);
  const float second = vgetq_lane_f32(d, 1);
  return first > second ? first : second;
}
inline float first(Vec a) { return vgetq_lane_f32(a.q[0], 0); }

inline void load_pairs(const float* p, Vec& even, Vec& odd) {
  for (int i = 0; i < 4; ++i) {
    const float32x4x2_t pair = vld2q_f32(p + 8 * i);
    even.q[i] = pair.val[0];
    odd.q[i] = pair.val[1];
  }
}
inline void store_pairs(float* p, Vec even, Vec odd) {
  for (int i = 0; i < 4; ++i) vst2q_f32(p + 8 * i, (float32x4x2_t{{even.q[i], odd.q[i]}}));
}

}  // namespace simd
}  // namespace

#include "cpu/body/padded.h"
