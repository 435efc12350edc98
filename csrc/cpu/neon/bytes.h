#pragma once

// What linear_1bit.h needs of NEON: 16 rows, one in each byte of a q register.

#include <arm_neon.h>

#include <cstdint>

namespace {
namespace bytes {

constexpr int kRows = 16;

using Vec = uint8x16_t;

inline Vec load(const uint8_t* p) { return vld1q_u8(p); }
inline Vec load_table(const uint8_t* p) { return vld1q_u8(p); }
inline Vec lookup(Vec table, Vec index) { return vqtbl1q_u8(table, index); }
inline Vec add(Vec a, Vec b) { return vaddq_u8(a, b); }
inline Vec low_nibbles(Vec a) { return vandq_u8(a, vdupq_n_u8(15)); }
inline Vec high_nibbles(Vec a) { return vshrq_n_u8(a, 4); }

// 2^23 + 2 * (16 * high + low), as floats, in the order of the rows.
inline void weigh(Vec low, Vec high, float32x4_t* out) {
  const uint16x8_t exponent = vdupq_n_u16(0x4B00);
  const uint8x8_t by = vdup_n_u8(32);
  const uint16x8_t a = vmlal_u8(vshll_n_u8(vget_low_u8(low), 1), vget_low_u8(high), by);
  const uint16x8_t b = vmlal_u8(vshll_n_u8(vget_high_u8(low), 1), vget_high_u8(high), by);
  out[0] = vreinterpretq_f32_u16(vzip1q_u16(a, exponent));
  out[1] = vreinterpretq_f32_u16(vzip2q_u16(a, exponent));
  out[2] = vreinterpretq_f32_u16(vzip1q_u16(b, exponent));
  out[3] = vreinterpretq_f32_u16(vzip2q_u16(b, exponent));
}

}  // namespace bytes
}  // namespace
