#pragma once

// The packed structs of every quant type as they lie in a file, little-endian, no padding.
// d, m, dmin are IEEE binary16 bit patterns. Facts: docs/formats.md.

#include <cstdint>

namespace oxibonsai::quant {

#pragma pack(push, 1)

// 32 weights. w[j] = d * q[j].
struct BlockQ8_0 {
  uint16_t d;
  int8_t q[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

// 32 weights. The low nibble of nibbles[j] is weight j, the high one weight j + 16. w = d * (q -
// 8).
struct BlockQ4_0 {
  uint16_t d;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

// 32 weights, nibbles as in Q4_0. w = d * q + m.
struct BlockQ4_1 {
  uint16_t d;
  uint16_t m;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

// 32 weights, nibbles as in Q4_0; bit j of fifth is bit 4 of weight j. w = d * (q - 16).
struct BlockQ5_0 {
  uint16_t d;
  uint8_t fifth[4];
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

// 32 weights, codes as in Q5_0. w = d * q + m.
struct BlockQ5_1 {
  uint16_t d;
  uint16_t m;
  uint8_t fifth[4];
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

// 256 weights in 8 groups of 32, each with a 6-bit scale and a 6-bit minimum packed in `scales`.
// Byte 32 * p + i of nibbles holds weight 64 * p + i (low) and 64 * p + 32 + i (high), p in 0..3.
// w = d * scale * q - dmin * min.
struct BlockQ4_K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t nibbles[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

// As Q4_K; bit g of fifth[i] is bit 4 of weight 32 * g + i.
struct BlockQ5_K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t fifth[32];
  uint8_t nibbles[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

// 256 weights in two halves of 128, 16 groups of 16 with int8 scales. In half h, for i in 0..31:
// weights i, i + 32 take the low nibbles of low[64h + i], low[64h + 32 + i]; weights i + 64, i + 96
// the high ones; bits 0-1, 2-3, 4-5, 6-7 of high[32h + i] are their upper two bits in that order.
// w = d * scale * (q - 32).
struct BlockQ6_K {
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

// 128 weights. Bit j % 8 of bits[j / 8] is weight j: 1 -> +d, 0 -> -d.
struct BlockQ1_0 {
  uint16_t d;
  uint8_t bits[16];
};
static_assert(sizeof(BlockQ1_0) == 18);

// 64 weights. Bits 2 * (j % 4) of codes[j / 4] are weight j: code 0..3 -> d * (code - 1).
struct BlockQ2_0_g64 {
  uint16_t d;
  uint8_t codes[16];
};
static_assert(sizeof(BlockQ2_0_g64) == 18);

// 128 weights, codes as in Q2_0_g64. PrismML's PQ2_0 and their legacy Q2_0.
struct BlockQ2_0_g128 {
  uint16_t d;
  uint8_t codes[32];
};
static_assert(sizeof(BlockQ2_0_g128) == 34);

// 128 weights, codes as in Q2_0_g64, the scale last. Written by OxiBonsai under id 42.
struct BlockTQ2_0_g128 {
  uint8_t codes[32];
  uint16_t d;
};
static_assert(sizeof(BlockTQ2_0_g128) == 34);

// 128 ternary weights, five base-3 digits a byte (digits as in TQ1_0): digit n of trits[m] is
// weight 16n + m for m < 16 and weight 80 + 8n + (m - 16) above; digit n < 4 of tail[m] is weight
// 120 + 2n + m.
struct BlockPTQ1_0 {
  uint8_t trits[24];
  uint8_t tail[2];
  uint16_t d;
};
static_assert(sizeof(BlockPTQ1_0) == 28);

// 256 ternary weights. A byte holds ceil(v * 256 / 243) of five digits v in base 3, most
// significant first; digit n is (((byte * 3^n) mod 256) * 3) >> 8, and w = d * (digit - 1). Digit n
// of trits[m] is weight 32n + m for m < 32 and weight 160 + 16n + (m - 32) above; digit n < 4 of
// tail[m] is weight 240 + 4n + m.
struct BlockTQ1_0 {
  uint8_t trits[48];
  uint8_t tail[4];
  uint16_t d;
};
static_assert(sizeof(BlockTQ1_0) == 54);

// 256 weights in two halves. Bits 2l of codes[32h + m] are weight 128h + 32l + m. w = d * (code -
// 1).
struct BlockTQ2_0 {
  uint8_t codes[64];
  uint16_t d;
};
static_assert(sizeof(BlockTQ2_0) == 66);

#pragma pack(pop)

}  // namespace oxibonsai::quant
