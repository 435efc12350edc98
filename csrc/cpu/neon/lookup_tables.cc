// The tables of cpu/body/linear_1bit.h, made from rounded activations, one quad at a time: from the
// eight bytes p0..p3 m0..m3 (positive and negative parts), four lookups pick p or m for each of the
// four bits in all 16 entries; pairs add up to at most 254 in a byte, and the pairs' nibbles to at
// most 30.

#include <arm_neon.h>

#include "cpu/body/fill.h"
#include "cpu/body/lookup_pick.h"

namespace oxibonsai::cpu::neon {
namespace {

uint8x16_t pick(uint8x16_t parts, int bit) { return vqtbl1q_u8(parts, vld1q_u8(kPick[bit])); }

void put_tables(uint8x16_t parts, uint8_t* group, int quad) {
  const uint8x16_t fifteen = vdupq_n_u8(15);
  const uint8x16_t a = vaddq_u8(pick(parts, 0), pick(parts, 1));
  const uint8x16_t b = vaddq_u8(pick(parts, 2), pick(parts, 3));
  uint8_t* table = group + 16 * (quad % 2 * 4 + quad / 2);
  vst1q_u8(table, vaddq_u8(vandq_u8(a, fifteen), vandq_u8(b, fifteen)));
  vst1q_u8(table + kTableBytes / 2, vaddq_u8(vshrq_n_u8(a, 4), vshrq_n_u8(b, 4)));
}

void make_tables(const int8_t* q, int64_t n, const QuantizedRows& out) {
  for (int64_t g = 0; g < n / 32; ++g) {
    uint8_t* group = out.tables + g * kTableBytes;
    int sum = 0;
    for (int half = 0; half < 2; ++half) {
      const int8x16_t x = vld1q_s8(q + 32 * g + 16 * half);
      const int8x16_t zero = vdupq_n_s8(0);
      const uint32x4_t positive = vreinterpretq_u32_s8(vmaxq_s8(x, zero));
      const uint32x4_t negative = vreinterpretq_u32_s8(vmaxq_s8(vnegq_s8(x), zero));
      const uint32x4_t first = vzip1q_u32(positive, negative);   // quads 0 1
      const uint32x4_t second = vzip2q_u32(positive, negative);  // quads 2 3
      put_tables(vreinterpretq_u8_u32(first), group, 4 * half);
      put_tables(vreinterpretq_u8_u32(vextq_u32(first, first, 2)), group, 4 * half + 1);
      put_tables(vreinterpretq_u8_u32(second), group, 4 * half + 2);
      put_tables(vreinterpretq_u8_u32(vextq_u32(second, second, 2)), group, 4 * half + 3);
      sum += vaddlvq_s8(vabsq_s8(x));
    }
    out.minus_abs[g] = -sum;
  }
}

}  // namespace

void fill_lookup_tables(KernelTable& table) { table.make_tables = &make_tables; }

}  // namespace oxibonsai::cpu::neon
