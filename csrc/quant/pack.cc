#include "quant/pack.h"

#include <cstring>
#include <string>

#include "base/check.h"
#include "quant/block.h"
#include "quant/fp4_scales.h"

namespace oxibonsai::quant {
namespace {

template <class Block>
void write_block(const Block& b, uint8_t* bytes) {
  std::memcpy(bytes, &b, sizeof b);
}

void pack_nibbles(const uint8_t* code, uint8_t* nibbles) {
  for (int j = 0; j < 16; ++j)
    nibbles[j] = static_cast<uint8_t>((code[j] & 15) | (code[j + 16] << 4));
}

template <class Block>
void pack_q8(const BlockParts& p, uint8_t* bytes) {
  Block b{};
  for (size_t j = 0; j < sizeof b.q; ++j) b.q[j] = static_cast<int8_t>(p.code[j] - 128);
  if constexpr (sizeof(Block) == sizeof(BlockQ8_K)) {
    b.d = p.wide[0];
    for (int j = 0; j < 256; ++j) b.sums[j / 16] = static_cast<int16_t>(b.sums[j / 16] + b.q[j]);
  } else {
    b.d = p.d;
  }
  if constexpr (sizeof(Block) == sizeof(BlockQ8_1)) b.s = p.m;
  write_block(b, bytes);
}

template <class Block>
void pack_q4(const BlockParts& p, uint8_t* bytes) {
  Block b{};
  b.d = p.d;
  if constexpr (sizeof(Block) == sizeof(BlockQ4_1)) b.m = p.m;
  pack_nibbles(p.code, b.nibbles);
  write_block(b, bytes);
}

// Bit 4 of eight codes, the first one lowest: the product moves bit 8 * i to bit 56 + i.
uint8_t fifth_bits(const uint8_t* code) {
  uint64_t eight;
  std::memcpy(&eight, code, sizeof eight);
  return static_cast<uint8_t>((eight >> 4 & 0x0101010101010101u) * 0x0102040810204080u >> 56);
}

template <class Block>
void pack_q5(const BlockParts& p, uint8_t* bytes) {
  Block b{};
  b.d = p.d;
  if constexpr (sizeof(Block) == sizeof(BlockQ5_1)) b.m = p.m;
  pack_nibbles(p.code, b.nibbles);
  for (int i = 0; i < 4; ++i) b.fifth[i] = fifth_bits(p.code + 8 * i);
  write_block(b, bytes);
}

void pack_k_scales(const BlockParts& p, uint8_t* s) {
  for (int g = 0; g < 4; ++g) {
    const int scale = p.scale[g + 4];
    const int min = p.min[g + 4];
    s[g] = static_cast<uint8_t>(p.scale[g] | (scale >> 4 << 6));
    s[g + 4] = static_cast<uint8_t>(p.min[g] | (min >> 4 << 6));
    s[g + 8] = static_cast<uint8_t>((scale & 15) | ((min & 15) << 4));
  }
}

template <class Block>
void pack_k(const BlockParts& p, uint8_t* bytes) {
  Block b{};
  b.d = p.d;
  b.dmin = p.m;
  pack_k_scales(p, b.scales);
  for (int j = 0; j < 256; ++j) {
    const int group = j / 32;
    b.nibbles[32 * (group / 2) + j % 32] |=
        static_cast<uint8_t>((p.code[j] & 15) << (4 * (group % 2)));
    if constexpr (sizeof(Block) == sizeof(BlockQ5_K))
      b.fifth[j % 32] |= static_cast<uint8_t>((p.code[j] >> 4) << group);
  }
  write_block(b, bytes);
}

void pack_q6_k(const BlockParts& p, uint8_t* bytes) {
  BlockQ6_K b{};
  b.d = p.d;
  std::memcpy(b.scales, p.scale, sizeof b.scales);
  for (int j = 0; j < 256; ++j) {
    const int half = j / 128;
    const int quarter = j % 128 / 32;
    const int i = j % 32;
    b.low[64 * half + 32 * (quarter % 2) + i] |=
        static_cast<uint8_t>((p.code[j] & 15) << (quarter < 2 ? 0 : 4));
    b.high[32 * half + i] |= static_cast<uint8_t>((p.code[j] >> 4) << (2 * quarter));
  }
  write_block(b, bytes);
}

void pack_q1_0(const BlockParts& p, uint8_t* bytes) {
  BlockQ1_0 b{};
  b.d = p.d;
  for (int j = 0; j < 128; ++j) b.bits[j / 8] |= static_cast<uint8_t>(p.code[j] << (j % 8));
  write_block(b, bytes);
}

template <class Block>
void pack_q2(const BlockParts& p, uint8_t* bytes) {
  Block b{};
  b.d = p.d;
  for (size_t j = 0; j < 4 * sizeof b.codes; ++j)
    b.codes[j / 4] |= static_cast<uint8_t>(p.code[j] << (2 * (j % 4)));
  write_block(b, bytes);
}

void pack_strided_pairs(const uint8_t* code, uint8_t* codes) {
  for (int j = 0; j < 256; ++j)
    codes[32 * (j / 128) + j % 32] |= static_cast<uint8_t>((code[j] & 3) << (2 * (j % 128 / 32)));
}

void pack_tq2_0(const BlockParts& p, uint8_t* bytes) {
  BlockTQ2_0 b{};
  b.d = p.d;
  pack_strided_pairs(p.code, b.codes);
  write_block(b, bytes);
}

void pack_q2_k(const BlockParts& p, uint8_t* bytes) {
  BlockQ2_K b{};
  b.d = p.d;
  b.dmin = p.m;
  for (int g = 0; g < 16; ++g) b.scales[g] = static_cast<uint8_t>(p.scale[g] | (p.min[g] << 4));
  pack_strided_pairs(p.code, b.codes);
  write_block(b, bytes);
}

void pack_q3_k(const BlockParts& p, uint8_t* bytes) {
  BlockQ3_K b{};
  b.d = p.d;
  for (int g = 0; g < 16; ++g) {
    const int scale = p.scale[g] + 32;
    b.scales[g % 8] |= static_cast<uint8_t>((scale & 15) << (g < 8 ? 0 : 4));
    b.scales[8 + g % 4] |= static_cast<uint8_t>((scale >> 4) << (2 * (g / 4)));
  }
  pack_strided_pairs(p.code, b.codes);
  for (int j = 0; j < 256; ++j)
    b.high[j % 32] |= static_cast<uint8_t>((p.code[j] >> 2) << (j / 32));
  write_block(b, bytes);
}

void pack_iq4_xs(const BlockParts& p, uint8_t* bytes) {
  BlockIQ4_XS b{};
  b.d = p.d;
  for (int g = 0; g < 8; ++g) {
    const int scale = p.scale[g] + 32;
    b.scales_low[g / 2] |= static_cast<uint8_t>((scale & 15) << (4 * (g % 2)));
    b.scales_high = static_cast<uint16_t>(b.scales_high | ((scale >> 4) << (2 * g)));
    pack_nibbles(p.code + 32 * g, b.nibbles + 16 * g);
  }
  write_block(b, bytes);
}

void pack_mxfp4(const BlockParts& p, uint8_t* bytes) {
  BlockMXFP4 b{};
  b.exponent = mxfp4_exponent(p.wide[0]);
  pack_nibbles(p.code, b.nibbles);
  write_block(b, bytes);
}

void pack_nvfp4(const BlockParts& p, uint8_t* bytes) {
  BlockNVFP4 b{};
  for (int g = 0; g < 4; ++g) {
    b.scales[g] = nvfp4_code(p.wide[g]);
    for (int i = 0; i < 8; ++i)
      b.nibbles[8 * g + i] =
          static_cast<uint8_t>(p.code[16 * g + i] | (p.code[16 * g + 8 + i] << 4));
  }
  write_block(b, bytes);
}

// The inverse of unpack_trits() (unpack.cc): a number of five digits is rounded up in units of
// 1/256, one of four has a fifth digit 0.
void pack_trits(const uint8_t* code, int bytes, int digits, uint8_t* to) {
  for (int m = 0; m < bytes; ++m) {
    int number = 0;
    for (int n = 0; n < 5; ++n) number = 3 * number + (n < digits ? code[n * bytes + m] : 0);
    to[m] = static_cast<uint8_t>((number * 256 + 242) / 243);
  }
}

void pack_tq1_0(const BlockParts& p, uint8_t* bytes) {
  BlockTQ1_0 b{};
  b.d = p.d;
  pack_trits(p.code, 32, 5, b.trits);
  pack_trits(p.code + 160, 16, 5, b.trits + 32);
  pack_trits(p.code + 240, 4, 4, b.tail);
  write_block(b, bytes);
}

void pack_ptq1_0(const BlockParts& p, uint8_t* bytes) {
  BlockPTQ1_0 b{};
  b.d = p.d;
  pack_trits(p.code, 16, 5, b.trits);
  pack_trits(p.code + 80, 8, 5, b.trits + 16);
  pack_trits(p.code + 120, 2, 4, b.tail);
  write_block(b, bytes);
}

struct Join {
  QuantType type;
  void (*join)(const BlockParts& parts, uint8_t* bytes);
};

constexpr Join kJoins[] = {
    {QuantType::kQ8_0, pack_q8<BlockQ8_0>},
    {QuantType::kQ8_1, pack_q8<BlockQ8_1>},
    {QuantType::kQ8_K, pack_q8<BlockQ8_K>},
    {QuantType::kQ4_0, pack_q4<BlockQ4_0>},
    {QuantType::kQ4_1, pack_q4<BlockQ4_1>},
    {QuantType::kQ5_0, pack_q5<BlockQ5_0>},
    {QuantType::kQ5_1, pack_q5<BlockQ5_1>},
    {QuantType::kQ1_0, pack_q1_0},
    {QuantType::kQ2_0_g64, pack_q2<BlockQ2_0_g64>},
    {QuantType::kQ2_0_g128, pack_q2<BlockQ2_0_g128>},
    {QuantType::kTQ2_0_g128, pack_q2<BlockTQ2_0_g128>},
    {QuantType::kPTQ1_0, pack_ptq1_0},
    {QuantType::kTQ1_0, pack_tq1_0},
    {QuantType::kTQ2_0, pack_tq2_0},
    {QuantType::kQ2_K, pack_q2_k},
    {QuantType::kQ3_K, pack_q3_k},
    {QuantType::kQ4_K, pack_k<BlockQ4_K>},
    {QuantType::kQ5_K, pack_k<BlockQ5_K>},
    {QuantType::kQ6_K, pack_q6_k},
    {QuantType::kIQ4_NL, pack_q4<BlockIQ4_NL>},
    {QuantType::kIQ4_XS, pack_iq4_xs},
    {QuantType::kMXFP4, pack_mxfp4},
    {QuantType::kNVFP4, pack_nvfp4},
};

}  // namespace

void pack_block(QuantType type, const BlockParts& parts, uint8_t* block) {
  for (const Join& row : kJoins)
    if (row.type == type) return row.join(parts, block);
  throw UnsupportedError(std::string(traits(type).name) + " blocks are not joined from parts");
}

}  // namespace oxibonsai::quant
