#include "quant/unpack.h"

#include <cstring>

#include "base/check.h"
#include "quant/block.h"
#include "quant/codebook_values.h"
#include "quant/fp4_scales.h"
#include "quant/unpack_grid.h"

namespace oxibonsai::quant {
namespace {

void unpack_nibbles(const uint8_t* nibbles, uint8_t* code) {
  for (int j = 0; j < 16; ++j) {
    code[j] = nibbles[j] & 15;
    code[j + 16] = nibbles[j] >> 4;
  }
}

void add_fifth_bits(const uint8_t* fifth, uint8_t* code) {
  for (int j = 0; j < 32; ++j)
    code[j] |= static_cast<uint8_t>(((fifth[j / 8] >> (j % 8)) & 1) << 4);
}

template <class Block>
void unpack_q8(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<Block>(bytes);
  if constexpr (sizeof(Block) == sizeof(BlockQ8_K)) {
    p->wide[0] = b.d;
  } else {
    p->d = b.d;
  }
  for (size_t j = 0; j < sizeof b.q; ++j) p->code[j] = static_cast<uint8_t>(b.q[j] + 128);
}

template <class Block>
void unpack_q4(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<Block>(bytes);
  p->d = b.d;
  if constexpr (sizeof(Block) == sizeof(BlockQ4_1)) p->m = b.m;
  unpack_nibbles(b.nibbles, p->code);
}

template <class Block>
void unpack_q5(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<Block>(bytes);
  p->d = b.d;
  if constexpr (sizeof(Block) == sizeof(BlockQ5_1)) p->m = b.m;
  unpack_nibbles(b.nibbles, p->code);
  add_fifth_bits(b.fifth, p->code);
}

// Eight 6-bit scales and minima in 12 bytes: the first four of each in the low six bits of bytes
// 0-3 and 4-7; the others as nibbles of bytes 8-11 with their upper two bits on top of bytes 0-7.
void unpack_k_scales(const uint8_t* s, BlockParts* p) {
  for (int g = 0; g < 4; ++g) {
    p->scale[g] = static_cast<int8_t>(s[g] & 63);
    p->min[g] = s[g + 4] & 63;
    p->scale[g + 4] = static_cast<int8_t>((s[g + 8] & 15) | ((s[g] >> 6) << 4));
    p->min[g + 4] = static_cast<uint8_t>((s[g + 8] >> 4) | ((s[g + 4] >> 6) << 4));
  }
}

template <class Block>
void unpack_k(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<Block>(bytes);
  p->d = b.d;
  p->m = b.dmin;
  unpack_k_scales(b.scales, p);
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) {
      const uint8_t pair = b.nibbles[32 * (g / 2) + i];
      p->code[32 * g + i] = g % 2 == 0 ? pair & 15 : pair >> 4;
    }
  }
  if constexpr (sizeof(Block) == sizeof(BlockQ5_K)) {
    for (int j = 0; j < 256; ++j)
      p->code[j] |= static_cast<uint8_t>(((b.fifth[j % 32] >> (j / 32)) & 1) << 4);
  }
}

void unpack_q6_k(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockQ6_K>(bytes);
  p->d = b.d;
  std::memcpy(p->scale, b.scales, sizeof p->scale);
  for (int j = 0; j < 256; ++j) {
    const int half = j / 128;
    const int quarter = j % 128 / 32;
    const int i = j % 32;
    const uint8_t low = b.low[64 * half + 32 * (quarter % 2) + i];
    const uint8_t nibble = quarter < 2 ? low & 15 : low >> 4;
    const uint8_t upper = (b.high[32 * half + i] >> (2 * quarter)) & 3;
    p->code[j] = static_cast<uint8_t>(nibble | (upper << 4));
  }
}

void unpack_q1_0(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockQ1_0>(bytes);
  p->d = b.d;
  for (int j = 0; j < 128; ++j) p->code[j] = (b.bits[j / 8] >> (j % 8)) & 1;
}

template <class Block, int kGroup>
void unpack_q2(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<Block>(bytes);
  p->d = b.d;
  for (int j = 0; j < kGroup; ++j) p->code[j] = (b.codes[j / 4] >> (2 * (j % 4))) & 3;
}

void unpack_strided_pairs(const uint8_t* codes, uint8_t* code) {
  for (int j = 0; j < 256; ++j)
    code[j] = (codes[32 * (j / 128) + j % 32] >> (2 * (j % 128 / 32))) & 3;
}

void unpack_tq2_0(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockTQ2_0>(bytes);
  p->d = b.d;
  unpack_strided_pairs(b.codes, p->code);
}

void unpack_q2_k(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockQ2_K>(bytes);
  p->d = b.d;
  p->m = b.dmin;
  for (int g = 0; g < 16; ++g) {
    p->scale[g] = static_cast<int8_t>(b.scales[g] & 15);
    p->min[g] = b.scales[g] >> 4;
  }
  unpack_strided_pairs(b.codes, p->code);
}

void unpack_q3_k(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockQ3_K>(bytes);
  p->d = b.d;
  for (int g = 0; g < 16; ++g) {
    const int low = (b.scales[g % 8] >> (g < 8 ? 0 : 4)) & 15;
    const int high = (b.scales[8 + g % 4] >> (2 * (g / 4))) & 3;
    p->scale[g] = static_cast<int8_t>((low | (high << 4)) - 32);
  }
  unpack_strided_pairs(b.codes, p->code);
  for (int j = 0; j < 256; ++j)
    p->code[j] |= static_cast<uint8_t>(((b.high[j % 32] >> (j / 32)) & 1) << 2);
}

void unpack_iq4_xs(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockIQ4_XS>(bytes);
  p->d = b.d;
  for (int g = 0; g < 8; ++g) {
    const int low = (b.scales_low[g / 2] >> (4 * (g % 2))) & 15;
    const int high = (b.scales_high >> (2 * g)) & 3;
    p->scale[g] = static_cast<int8_t>((low | (high << 4)) - 32);
    unpack_nibbles(b.nibbles + 16 * g, p->code + 32 * g);
  }
}

void unpack_mxfp4(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockMXFP4>(bytes);
  p->wide[0] = mxfp4_scale(b.exponent);
  unpack_nibbles(b.nibbles, p->code);
}

void unpack_nvfp4(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockNVFP4>(bytes);
  for (int g = 0; g < 4; ++g) {
    p->wide[g] = nvfp4_scale(b.scales[g]);
    for (int i = 0; i < 8; ++i) {
      p->code[16 * g + i] = b.nibbles[8 * g + i] & 15;
      p->code[16 * g + 8 + i] = b.nibbles[8 * g + i] >> 4;
    }
  }
}

// Digit n, most significant first, of the base-3 number in a byte (quant/block.h, TQ1_0).
uint8_t trit(uint8_t byte, int n) {
  static constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  const auto shifted = static_cast<uint8_t>(byte * kPowers[n]);
  return static_cast<uint8_t>((shifted * 3) >> 8);
}

// `bytes` bytes of `digits` digits each, digit-major: digit n of byte m goes to code[n * bytes +
// m].
void unpack_trits(const uint8_t* from, int bytes, int digits, uint8_t* code) {
  for (int n = 0; n < digits; ++n)
    for (int m = 0; m < bytes; ++m) code[n * bytes + m] = trit(from[m], n);
}

void unpack_tq1_0(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockTQ1_0>(bytes);
  p->d = b.d;
  unpack_trits(b.trits, 32, 5, p->code);
  unpack_trits(b.trits + 32, 16, 5, p->code + 160);
  unpack_trits(b.tail, 4, 4, p->code + 240);
}

void unpack_ptq1_0(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockPTQ1_0>(bytes);
  p->d = b.d;
  unpack_trits(b.trits, 16, 5, p->code);
  unpack_trits(b.trits + 16, 8, 5, p->code + 80);
  unpack_trits(b.tail, 2, 4, p->code + 120);
}

using Split = void (*)(const uint8_t* bytes, BlockParts* parts);

struct IntegerForm {
  CodeForm form;
  Split split;  // null: the type has no integers
};

constexpr CodeForm kTernary{1, 1, false, 0};
constexpr IntegerForm kFloats{{}, nullptr};

// A form whose codes stand for codebook values, with float scales for each `wide_group` weights, if
// any.
constexpr CodeForm with_codebook(const int8_t* codebook, int scale_group, int wide_group) {
  return {0, 0, false, scale_group, codebook, wide_group};
}

// In the order of QuantType.
constexpr IntegerForm kForms[] = {
    kFloats,                                                    // F32
    kFloats,                                                    // F16
    kFloats,                                                    // BF16
    {{1, 128, false, 0}, unpack_q8<BlockQ8_0>},                 // Q8_0
    {{1, 8, false, 0}, unpack_q4<BlockQ4_0>},                   // Q4_0
    {{1, 0, true, 0}, unpack_q4<BlockQ4_1>},                    // Q4_1
    {{1, 16, false, 0}, unpack_q5<BlockQ5_0>},                  // Q5_0
    {{1, 0, true, 0}, unpack_q5<BlockQ5_1>},                    // Q5_1
    {{1, 0, true, 32}, unpack_k<BlockQ4_K>},                    // Q4_K
    {{1, 0, true, 32}, unpack_k<BlockQ5_K>},                    // Q5_K
    {{1, 32, false, 16}, unpack_q6_k},                          // Q6_K
    {{2, 1, false, 0}, unpack_q1_0},                            // Q1_0
    {kTernary, unpack_q2<BlockQ2_0_g64, 64>},                   // Q2_0_g64
    {kTernary, unpack_q2<BlockQ2_0_g128, 128>},                 // Q2_0_g128
    {kTernary, unpack_ptq1_0},                                  // PTQ1_0
    {kTernary, unpack_q2<BlockTQ2_0_g128, 128>},                // TQ2_0_g128
    {kTernary, unpack_tq1_0},                                   // TQ1_0
    {kTernary, unpack_tq2_0},                                   // TQ2_0
    {{1, 128, false, 0}, unpack_q8<BlockQ8_1>},                 // Q8_1
    {{1, 128, false, 0, nullptr, 256}, unpack_q8<BlockQ8_K>},   // Q8_K
    {{1, 0, true, 16}, unpack_q2_k},                            // Q2_K
    {{1, 4, false, 16}, unpack_q3_k},                           // Q3_K
    {with_codebook(kIq4Values, 0, 0), unpack_q4<BlockIQ4_NL>},  // IQ4_NL
    {with_codebook(kIq4Values, 32, 0), unpack_iq4_xs},          // IQ4_XS
    {with_codebook(kFp4Values, 0, 32), unpack_mxfp4},           // MXFP4
    {with_codebook(kFp4Values, 0, 16), unpack_nvfp4},           // NVFP4
    {with_codebook(kIq2Values, 32, 256), unpack_iq2_xxs},       // IQ2_XXS
    {with_codebook(kIq2Values, 16, 256), unpack_iq2_xs},        // IQ2_XS
    {with_codebook(kIq2Values, 16, 256), unpack_iq2_s},         // IQ2_S
    {with_codebook(kIq3XxsValues, 32, 256), unpack_iq3_xxs},    // IQ3_XXS
    {with_codebook(kIq3SValues, 32, 256), unpack_iq3_s},        // IQ3_S
    {with_codebook(kIq1Values, 32, 256), unpack_iq1_s},         // IQ1_S
    {with_codebook(kIq1Values, 16, 256), unpack_iq1_m},         // IQ1_M
    kFloats,                                                    // F8_E4M3
    kFloats,                                                    // F8_E5M2
};
static_assert(sizeof kForms / sizeof kForms[0] == static_cast<int>(QuantType::kCount));

const IntegerForm& form_of(QuantType type) {
  const IntegerForm& form = kForms[static_cast<int>(type)];
  if (form.split == nullptr)
    throw UnsupportedError(std::string(traits(type).name) + " has no integer form");
  return form;
}

}  // namespace

bool is_integer(QuantType type) { return kForms[static_cast<int>(type)].split != nullptr; }

CodeForm code_form(QuantType type) { return form_of(type).form; }

void unpack_block(QuantType type, const uint8_t* block, BlockParts* p) {
  p->m = 0;
  form_of(type).split(block, p);
}

}  // namespace oxibonsai::quant
