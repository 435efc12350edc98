#pragma once

// The packed form of a quantized weight: tiles of R rows, R as the tier's kernel wants it.
//
// Weights are handled in quads: 4 consecutive weights of each of the R rows, one byte a weight,
// make a vector of 4R bytes in which byte 4r + i is weight i of row r: the shape of a dot-product
// instruction with four bytes a lane. Quads narrower than a byte share a vector: with b bits a
// code, bits b*p .. b*p + b - 1 of the bytes of vector v hold quad (8 / b) * v + p.
//
// A tile is a run of blocks, each the R rows' part of one or two dozen cache lines, so that a
// kernel reads one stream, front to back, and the next tile is its continuation. A block covers
// `group` columns and holds, without padding:
//   low    codes, low_bits each          [group / 32][4 * low_bits / 4 vectors]
//   high   their upper bits, if any      [group / 32][high_bits vectors]
//   d      binary16 scales               [R], or binary32 [group / wide_group][R], or 8-bit
//          exponents [R]
//   m      binary16 minima, if any       [R]; negated in Q4_K and Q5_K
//   scale  group scales, one byte each   [group / scale_group][R]
//   min    group minima, one byte each   [group / scale_group][R]
// A last tile of fewer rows is filled up with zero scales.
//
// One-bit codes are an exception (TileForm): kernels that look sums up want eight columns of one
// row in a byte, as the file has them. kByteRows: low is [group / 8][R bytes], rows in the order
// that widening sums of bytes leaves (byte_of_row in cpu/pack.cc). kWordRows: low is [group / 32][R
// words of 4 bytes].
//
// Base-3 digits, which are never 3, may lie in row triples (TileForm::kRowTriples, tiles of 48
// rows): the digits of rows r, r + 16 and r + 32 are a number t0 + 3 t1 + 9 t2 of five bits, and
// quads are of the numbers of 16 lanes. The eight quads of a group of 32 columns fill five vectors:
// low is [group / 32][5 vectors]. The low five bits of vector v are quad v; above them lie
//   bits 5..7   quad 5: vector 0, its bits 0..2    bits 6..7   vector 1, its bits 3..4
//               quad 6: vector 2, its bits 0..2                vector 3, its bits 3..4
//               quad 7: vector 4, its bits 0..2    bit 5       vectors 1 and 3, its bits 3 and 4

#include <cstdint>

#include "quant/codebook_values.h"
#include "quant/quant_type.h"

namespace oxibonsai::cpu {

struct TileFormat {
  int low_bits;       // 0: the type has no packed form
  int high_bits;      // 0: none
  int group;          // weights per d
  bool minima;        // has m
  int scale_group;    // weights per group scale; 0: none
  bool group_minima;  // has min
  int offset;         // subtracted from a code; a code of Q1_0 counts twice
  // Of 4-bit codes: what they stand for (quant/codebook_values.h), null if themselves. Then offset
  // is a power of two above all of them, which is added to make them unsigned.
  const int8_t* codebook = nullptr;
  int wide_group = 0;      // weights per binary32 d; 0: d is binary16
  bool exponents = false;  // d is the exponent of a power of two (quant/fp4_scales.h), in a byte

  // Of one row's d in a block.
  constexpr int d_bytes() const {
    if (exponents) return 1;
    return wide_group != 0 ? 4 * (group / wide_group) : 2;
  }
};

constexpr TileFormat kTernary64{2, 0, 64, false, 0, false, 1};
constexpr TileFormat kTernary128{2, 0, 128, false, 0, false, 1};
constexpr TileFormat kTernary256{2, 0, 256, false, 0, false, 1};

constexpr TileFormat with_codebook(const int8_t* codebook, int offset, int group, int scale_group,
                                   int wide_group, bool exponents = false) {
  return {4, 0, group, false, scale_group, false, offset, codebook, wide_group, exponents};
}

// In the order of QuantType. The ternary types share three forms: base-3 digits are unpacked to
// 2-bit codes at load, unless to row triples; entries of codebooks to one 4-bit code a weight, sign
// included.
constexpr TileFormat kTileFormats[] = {
    {0, 0, 0, false, 0, false, 0},                          // F32
    {0, 0, 0, false, 0, false, 0},                          // F16
    {0, 0, 0, false, 0, false, 0},                          // BF16
    {8, 0, 32, false, 0, false, 128},                       // Q8_0
    {4, 0, 32, false, 0, false, 8},                         // Q4_0
    {4, 0, 32, true, 0, false, 0},                          // Q4_1
    {4, 1, 32, false, 0, false, 16},                        // Q5_0
    {4, 1, 32, true, 0, false, 0},                          // Q5_1
    {4, 0, 256, true, 32, true, 0},                         // Q4_K
    {4, 1, 256, true, 32, true, 0},                         // Q5_K
    {4, 2, 256, false, 16, false, 32},                      // Q6_K
    {1, 0, 128, false, 0, false, 1},                        // Q1_0
    kTernary64,                                             // Q2_0_g64
    kTernary128,                                            // Q2_0_g128
    kTernary128,                                            // PTQ1_0
    kTernary128,                                            // TQ2_0_g128
    kTernary256,                                            // TQ1_0
    kTernary256,                                            // TQ2_0
    {8, 0, 32, false, 0, false, 128},                       // Q8_1
    {8, 0, 256, false, 0, false, 128, nullptr, 256},        // Q8_K
    {2, 0, 256, true, 16, true, 0},                         // Q2_K
    {2, 1, 256, false, 16, false, 4},                       // Q3_K
    with_codebook(quant::kIq4Values, 128, 32, 0, 0),        // IQ4_NL
    with_codebook(quant::kIq4Values, 128, 256, 32, 0),      // IQ4_XS
    with_codebook(quant::kFp4Values, 16, 32, 0, 0, true),   // MXFP4
    with_codebook(quant::kFp4Values, 16, 64, 0, 16),        // NVFP4
    with_codebook(quant::kIq2Values, 64, 256, 32, 256),     // IQ2_XXS
    with_codebook(quant::kIq2Values, 64, 256, 16, 256),     // IQ2_XS
    with_codebook(quant::kIq2Values, 64, 256, 16, 256),     // IQ2_S
    with_codebook(quant::kIq3XxsValues, 64, 256, 32, 256),  // IQ3_XXS
    with_codebook(quant::kIq3SValues, 16, 256, 32, 256),    // IQ3_S
    with_codebook(quant::kIq1Values, 16, 256, 32, 256),     // IQ1_S
    with_codebook(quant::kIq1Values, 16, 256, 16, 256),     // IQ1_M
    {0, 0, 0, false, 0, false, 0},                          // F8_E4M3
    {0, 0, 0, false, 0, false, 0},                          // F8_E5M2
};
static_assert(sizeof kTileFormats / sizeof kTileFormats[0] ==
              static_cast<int>(quant::QuantType::kCount));

// Byte offsets of the parts of a block, and its size.
struct TileBlock {
  int64_t low, high, d, m, scale, min, bytes;
};

}  // namespace oxibonsai::cpu
