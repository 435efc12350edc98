#include "quant/split.h"

#include <cstring>

#include "base/check.h"
#include "quant/block.h"

namespace oxibonsai::quant {
namespace {

template <class Block>
Block read(const uint8_t* bytes) {
  Block b;
  std::memcpy(&b, bytes, sizeof b);
  return b;
}

void split_nibbles(const uint8_t* nibbles, uint8_t* code) {
  for (int j = 0; j < 16; ++j) {
    code[j] = nibbles[j] & 15;
    code[j + 16] = nibbles[j] >> 4;
  }
}

void add_fifth_bits(const uint8_t* fifth, uint8_t* code) {
  for (int j = 0; j < 32; ++j)
    code[j] |= static_cast<uint8_t>(((fifth[j / 8] >> (j % 8)) & 1) << 4);
}

void split_q8_0(const uint8_t* bytes, BlockParts* p) {
  const auto b = read<BlockQ8_0>(bytes);
  p->d = b.d;
  for (int j = 0; j < 32; ++j) p->code[j] = static_cast<uint8_t>(b.q[j] + 128);
}

template <class Block>
void split_q4(const uint8_t* bytes, BlockParts* p) {
  const auto b = read<Block>(bytes);
  p->d = b.d;
  if constexpr (sizeof(Block) == sizeof(BlockQ4_1)) p->m = b.m;
  split_nibbles(b.nibbles, p->code);
}

template <class Block>
void split_q5(const uint8_t* bytes, BlockParts* p) {
  const auto b = read<Block>(bytes);
  p->d = b.d;
  if constexpr (sizeof(Block) == sizeof(BlockQ5_1)) p->m = b.m;
  split_nibbles(b.nibbles, p->code);
  add_fifth_bits(b.fifth, p->code);
}

// Eight 6-bit scales and minima in 12 bytes: the first four of each in the low six bits of bytes
// 0-3 and 4-7; the others as nibbles of bytes 8-11 with their upper two bits on top of bytes 0-7.
void split_k_scales(const uint8_t* s, BlockParts* p) {
  for (int g = 0; g < 4; ++g) {
    p->scale[g] = static_cast<int8_t>(s[g] & 63);
    p->min[g] = s[g + 4] & 63;
    p->scale[g + 4] = static_cast<int8_t>((s[g + 8] & 15) | ((s[g] >> 6) << 4));
    p->min[g + 4] = static_cast<uint8_t>((s[g + 8] >> 4) | ((s[g + 4] >> 6) << 4));
  }
}

template <class Block>
void split_k(const uint8_t* bytes, BlockParts* p) {
  const auto b = read<Block>(bytes);
  p->d = b.d;
  p->m = b.dmin;
  split_k_scales(b.scales, p);
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

void split_q6_k(const uint8_t* bytes, BlockParts* p) {
  const auto b = read<BlockQ6_K>(bytes);
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

void split_q1_0(const uint8_t* bytes, BlockParts* p) {
  const auto b = read<BlockQ1_0>(bytes);
  p->d = b.d;
  for (int j = 0; j < 128; ++j) p->code[j] = (b.bits[j / 8] >> (j % 8)) & 1;
}

template <class Block, int kGroup>
void split_q2(const uint8_t* bytes, BlockParts* p) {
  const auto b = read<Block>(bytes);
  p->d = b.d;
  for (int j = 0; j < kGroup; ++j) p->code[j] = (b.codes[j / 4] >> (2 * (j % 4))) & 3;
}

void split_tq2_0(const uint8_t* bytes, BlockParts* p) {
  const auto b = read<BlockTQ2_0>(bytes);
  p->d = b.d;
  for (int j = 0; j < 256; ++j)
    p->code[j] = (b.codes[32 * (j / 128) + j % 32] >> (2 * (j % 128 / 32))) & 3;
}

// Digit n, most significant first, of the base-3 number in a byte (quant/block.h, TQ1_0).
uint8_t trit(uint8_t byte, int n) {
  static constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
  const auto shifted = static_cast<uint8_t>(byte * kPowers[n]);
  return static_cast<uint8_t>((shifted * 3) >> 8);
}

// `bytes` bytes of `digits` digits each, digit-major: digit n of byte m goes to code[n * bytes +
// m].
void split_trits(const uint8_t* from, int bytes, int digits, uint8_t* code) {
  for (int n = 0; n < digits; ++n)
    for (int m = 0; m < bytes; ++m) code[n * bytes + m] = trit(from[m], n);
}

void split_tq1_0(const uint8_t* bytes, BlockParts* p) {
  const auto b = read<BlockTQ1_0>(bytes);
  p->d = b.d;
  split_trits(b.trits, 32, 5, p->code);
  split_trits(b.trits + 32, 16, 5, p->code + 160);
  split_trits(b.tail, 4, 4, p->code + 240);
}

void split_ptq1_0(const uint8_t* bytes, BlockParts* p) {
  const auto b = read<BlockPTQ1_0>(bytes);
  p->d = b.d;
  split_trits(b.trits, 16, 5, p->code);
  split_trits(b.trits + 16, 8, 5, p->code + 80);
  split_trits(b.tail, 2, 4, p->code + 120);
}

}  // namespace

bool is_integer(QuantType type) {
  return type != QuantType::kF32 && type != QuantType::kF16 && type != QuantType::kBF16;
}

CodeForm code_form(QuantType type) {
  switch (type) {
    case QuantType::kQ8_0:
      return {1, 128, false, 0};
    case QuantType::kQ4_0:
      return {1, 8, false, 0};
    case QuantType::kQ4_1:
      return {1, 0, true, 0};
    case QuantType::kQ5_0:
      return {1, 16, false, 0};
    case QuantType::kQ5_1:
      return {1, 0, true, 0};
    case QuantType::kQ4_K:
      return {1, 0, true, 32};
    case QuantType::kQ5_K:
      return {1, 0, true, 32};
    case QuantType::kQ6_K:
      return {1, 32, false, 16};
    case QuantType::kQ1_0:
      return {2, 1, false, 0};
    case QuantType::kQ2_0_g64:
    case QuantType::kQ2_0_g128:
    case QuantType::kPTQ1_0:
    case QuantType::kTQ2_0_g128:
    case QuantType::kTQ1_0:
    case QuantType::kTQ2_0:
      return {1, 1, false, 0};
    default:
      throw UnsupportedError(std::string(traits(type).name) + " has no integer form");
  }
}

void split_block(QuantType type, const uint8_t* block, BlockParts* p) {
  p->m = 0;
  switch (type) {
    case QuantType::kQ8_0:
      return split_q8_0(block, p);
    case QuantType::kQ4_0:
      return split_q4<BlockQ4_0>(block, p);
    case QuantType::kQ4_1:
      return split_q4<BlockQ4_1>(block, p);
    case QuantType::kQ5_0:
      return split_q5<BlockQ5_0>(block, p);
    case QuantType::kQ5_1:
      return split_q5<BlockQ5_1>(block, p);
    case QuantType::kQ4_K:
      return split_k<BlockQ4_K>(block, p);
    case QuantType::kQ5_K:
      return split_k<BlockQ5_K>(block, p);
    case QuantType::kQ6_K:
      return split_q6_k(block, p);
    case QuantType::kQ1_0:
      return split_q1_0(block, p);
    case QuantType::kQ2_0_g64:
      return split_q2<BlockQ2_0_g64, 64>(block, p);
    case QuantType::kQ2_0_g128:
      return split_q2<BlockQ2_0_g128, 128>(block, p);
    case QuantType::kTQ2_0_g128:
      return split_q2<BlockTQ2_0_g128, 128>(block, p);
    case QuantType::kPTQ1_0:
      return split_ptq1_0(block, p);
    case QuantType::kTQ1_0:
      return split_tq1_0(block, p);
    case QuantType::kTQ2_0:
      return split_tq2_0(block, p);
    default:
      throw UnsupportedError(std::string(traits(type).name) + " has no integer form");
  }
}

}  // namespace oxibonsai::quant
