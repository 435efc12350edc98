// The tables of cpu/body/linear_1bit.h, made from rounded activations, one quad at a time: from the
// eight bytes p0..p3 m0..m3 (positive and negative parts), four lookups pick p or m for each of the
// four bits in all 16 entries; pairs add up to at most 254 in a byte, and the pairs' nibbles to at
// most 30.

#include <wasm_simd128.h>

#include "cpu/body/fill.h"
#include "cpu/body/lookup_pick.h"

namespace oxibonsai::cpu::simd128 {
namespace {

v128_t pick(v128_t parts, int bit) { return wasm_i8x16_swizzle(parts, wasm_v128_load(kPick[bit])); }

void put_tables(v128_t parts, uint8_t* group, int quad) {
  const v128_t fifteen = wasm_i8x16_splat(15);
  const v128_t a = wasm_i8x16_add(pick(parts, 0), pick(parts, 1));
  const v128_t b = wasm_i8x16_add(pick(parts, 2), pick(parts, 3));
  uint8_t* table = group + 16 * (quad % 2 * 4 + quad / 2);
  wasm_v128_store(table, wasm_i8x16_add(wasm_v128_and(a, fifteen), wasm_v128_and(b, fifteen)));
  wasm_v128_store(table + kTableBytes / 2,
                  wasm_i8x16_add(wasm_u8x16_shr(a, 4), wasm_u8x16_shr(b, 4)));
}

int sum_of_bytes(v128_t unsigned_bytes) {
  const v128_t pairs = wasm_u16x8_extadd_pairwise_u8x16(unsigned_bytes);
  const v128_t quads = wasm_u32x4_extadd_pairwise_u16x8(pairs);
  return wasm_i32x4_extract_lane(quads, 0) + wasm_i32x4_extract_lane(quads, 1) +
         wasm_i32x4_extract_lane(quads, 2) + wasm_i32x4_extract_lane(quads, 3);
}

void make_tables(const int8_t* q, int64_t n, const QuantizedRows& out) {
  for (int64_t g = 0; g < n / 32; ++g) {
    uint8_t* group = out.tables + g * kTableBytes;
    int sum = 0;
    for (int half = 0; half < 2; ++half) {
      const v128_t x = wasm_v128_load(q + 32 * g + 16 * half);
      const v128_t zero = wasm_i8x16_splat(0);
      const v128_t positive = wasm_i8x16_max(x, zero);
      const v128_t negative = wasm_i8x16_max(wasm_i8x16_neg(x), zero);
      const v128_t first = wasm_i32x4_shuffle(positive, negative, 0, 4, 1, 5);   // quads 0 1
      const v128_t second = wasm_i32x4_shuffle(positive, negative, 2, 6, 3, 7);  // quads 2 3
      put_tables(first, group, 4 * half);
      put_tables(wasm_i64x2_shuffle(first, first, 1, 0), group, 4 * half + 1);
      put_tables(second, group, 4 * half + 2);
      put_tables(wasm_i64x2_shuffle(second, second, 1, 0), group, 4 * half + 3);
      sum += sum_of_bytes(wasm_i8x16_abs(x));
    }
    out.minus_abs[g] = -sum;
  }
}

}  // namespace

void fill_lookup_tables(KernelTable& table) { table.make_tables = &make_tables; }

}  // namespace oxibonsai::cpu::simd128
