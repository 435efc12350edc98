#pragma once

// The packed structs of every quant type as they lie in a file, little-endian, no padding.
// d, m, dmin are IEEE binary16 bit patterns. Facts: docs/formats.md.

#include <cstdint>
#include <cstring>

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

// 32 weights as in Q8_0, with s = d times the sum of q (not needed to decode).
struct BlockQ8_1 {
  uint16_t d;
  uint16_t s;
  int8_t q[32];
};
static_assert(sizeof(BlockQ8_1) == 36);

// 256 weights, w[j] = d * q[j] with a binary32 d; sums[i] is that of 16 consecutive q.
struct BlockQ8_K {
  float d;
  int8_t q[256];
  int16_t sums[16];
};
static_assert(sizeof(BlockQ8_K) == 292);

// 256 weights in 16 groups of 16: the low nibble of scales[g] is a scale, the high one a minimum.
// Codes as in TQ2_0. w = d * scale * code - dmin * min.
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t codes[64];
  uint16_t d;
  uint16_t dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

// 256 weights in 16 groups of 16. Low two bits as in TQ2_0; bit g of high[i] is bit 2 of weight
// 32 * g + i. Scale g has its low nibble in scales[g % 8] (low nibble for g < 8, high above) and
// its upper two bits in bits 2 * (g / 4) of scales[8 + g % 4]. w = d * (scale - 32) * (code - 4).
struct BlockQ3_K {
  uint8_t high[32];
  uint8_t codes[64];
  uint8_t scales[12];
  uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

// 32 weights, nibbles as in Q4_0. w = d * kIq4Values[nibble] (quant/codebook_values.h).
struct BlockIQ4_NL {
  uint16_t d;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

// 256 weights in 8 groups of 32, each with nibbles as in Q4_0. The low nibble of scale g is in
// scales_low[g / 2] (low nibble for even g), bits 4-5 in bits 2g of scales_high.
// w = d * (scale - 32) * kIq4Values[nibble].
struct BlockIQ4_XS {
  uint16_t d;
  uint16_t scales_high;
  uint8_t scales_low[4];
  uint8_t nibbles[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

// 32 weights, nibbles as in Q4_0. w = 2^(exponent - 128) * kFp4Values[nibble].
struct BlockMXFP4 {
  uint8_t exponent;
  uint8_t nibbles[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

// 64 weights in 4 groups of 16: the low nibble of nibbles[8g + i] is weight 16g + i, the high one
// weight 16g + 8 + i. w = scale / 2 * kFp4Values[nibble]; scales[g] is an unsigned E4M3.
struct BlockNVFP4 {
  uint8_t scales[4];
  uint8_t nibbles[32];
};
static_assert(sizeof(BlockNVFP4) == 36);

// In the types below, eight or four weights together are an entry of a codebook (codebooks.h), and
// a set sign bit negates. Seven sign bits stand for eight: the eighth makes their number even.

// 256 weights in 8 groups of 32, each two words of 32 bits: four indices of 8 bits; four times
// seven sign bits, then a scale of 4 bits. w = d / 8 * (2 * scale + 1) * value.
struct BlockIQ2_XXS {
  uint16_t d;
  uint32_t groups[8][2];
};
static_assert(sizeof(BlockIQ2_XXS) == 66);

// 256 weights; entries[i], of weights 8i to 8i + 7, holds an index of 9 bits, then seven sign bits.
// A nibble of scales for each 16 weights, the low one first. w as in IQ2_XXS.
struct BlockIQ2_XS {
  uint16_t d;
  uint16_t entries[32];
  uint8_t scales[8];
};
static_assert(sizeof(BlockIQ2_XS) == 74);

// As IQ2_XS with indices of 10 bits, the upper two of entry i in bits 2 * (i % 4) of high[i / 4],
// and eight sign bits.
struct BlockIQ2_S {
  uint16_t d;
  uint8_t low[32];
  uint8_t signs[32];
  uint8_t high[8];
  uint8_t scales[8];
};
static_assert(sizeof(BlockIQ2_S) == 82);

// 256 weights; low[i] is the index of weights 4i to 4i + 3. signs[g], of 32 weights: four times
// seven sign bits, then a scale of 4 bits. w = d / 4 * (2 * scale + 1) * value.
struct BlockIQ3_XXS {
  uint16_t d;
  uint8_t low[64];
  uint32_t signs[8];
};
static_assert(sizeof(BlockIQ3_XXS) == 98);

// As IQ3_XXS with indices of 9 bits, the upper one of entry i in bit i % 8 of high[i / 8], eight
// sign bits and a nibble of scales for each 32 weights. w = d * (2 * scale + 1) * value.
struct BlockIQ3_S {
  uint16_t d;
  uint8_t low[64];
  uint8_t high[8];
  uint8_t signs[32];
  uint8_t scales[4];
};
static_assert(sizeof(BlockIQ3_S) == 110);

// 256 weights in 8 groups of 32; low[i] is the index of weights 8i to 8i + 7. groups[g]: four times
// the upper three bits of an index, then a scale of 3 bits, then the sign of the shift.
// w = d / 8 * (2 * scale + 1) * (8 * value ± 1).
struct BlockIQ1_S {
  uint16_t d;
  uint8_t low[32];
  uint16_t groups[8];
};
static_assert(sizeof(BlockIQ1_S) == 50);

// As IQ1_S with a nibble of high for each entry: the upper three bits of an index, then the sign of
// its shift. scales: 3 bits for each 16 weights, four to a word; the upper four bits of the words
// are d, its lowest nibble first.
struct BlockIQ1_M {
  uint8_t low[32];
  uint8_t high[16];
  uint16_t scales[4];
};
static_assert(sizeof(BlockIQ1_M) == 56);

// 32 weights in eight bits each, E4M3 without infinities, or E5M2 (OCP 8-bit floating point), and
// the scale last. Written by OxiBonsai under ids 43 and 44. w = d * code.
struct BlockF8 {
  uint8_t codes[32];
  uint16_t d;
};
static_assert(sizeof(BlockF8) == 34);

#pragma pack(pop)

// The block at an address of any alignment.
template <class Block>
Block read_block(const uint8_t* bytes) {
  Block b;
  std::memcpy(&b, bytes, sizeof b);
  return b;
}

}  // namespace oxibonsai::quant
