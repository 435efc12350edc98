#include "quant/unpack_grid.h"

#include "base/f16.h"
#include "quant/block.h"
#include "quant/codebooks.h"

namespace oxibonsai::quant {
namespace {

int8_t odd_scale(uint32_t scale) { return static_cast<int8_t>(2 * scale + 1); }

uint32_t nibble(const uint8_t* bytes, int i) { return (bytes[i / 2] >> (4 * (i % 2))) & 15u; }

// Eight signs from seven: the eighth makes the number of set bits even.
uint32_t with_parity(uint32_t seven) {
  uint32_t odd = seven ^ (seven >> 4);
  odd ^= odd >> 2;
  odd ^= odd >> 1;
  return seven | ((odd & 1u) << 7);
}

// An entry's eight values of 2 bits and their signs, as codes of quant/codebook_values.h.
void put_eight(uint32_t entry, uint32_t signs, uint8_t* code) {
  for (int j = 0; j < 8; ++j)
    code[j] = static_cast<uint8_t>(((entry >> (2 * j)) & 3u) | (((signs >> j) & 1u) << 3));
}

// An entry's four values of 3 bits and their signs.
void put_four(uint32_t entry, uint32_t signs, uint8_t* code) {
  for (int j = 0; j < 4; ++j)
    code[j] = static_cast<uint8_t>(((entry >> (4 * j)) & 7u) | (((signs >> j) & 1u) << 3));
}

// An entry's eight values of IQ1, all shifted down or up.
void put_shifted(uint32_t entry, bool down, uint8_t* code) {
  put_eight(entry, down ? 0xFFu : 0u, code);
}

}  // namespace

void unpack_iq2_xxs(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockIQ2_XXS>(bytes);
  p->wide[0] = half_to_float(b.d) * 0.125f;
  for (int g = 0; g < 8; ++g) {
    const uint32_t indices = b.groups[g][0];
    const uint32_t signs = b.groups[g][1];
    p->scale[g] = odd_scale(signs >> 28);
    for (int i = 0; i < 4; ++i)
      put_eight(kIq2XxsGrid[(indices >> (8 * i)) & 255u], with_parity((signs >> (7 * i)) & 127u),
                p->code + 32 * g + 8 * i);
  }
}

void unpack_iq2_xs(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockIQ2_XS>(bytes);
  p->wide[0] = half_to_float(b.d) * 0.125f;
  for (int g = 0; g < 16; ++g) p->scale[g] = odd_scale(nibble(b.scales, g));
  for (int i = 0; i < 32; ++i) {
    const uint32_t entry = b.entries[i];
    put_eight(kIq2XsGrid[entry & 511u], with_parity(entry >> 9), p->code + 8 * i);
  }
}

void unpack_iq2_s(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockIQ2_S>(bytes);
  p->wide[0] = half_to_float(b.d) * 0.125f;
  for (int g = 0; g < 16; ++g) p->scale[g] = odd_scale(nibble(b.scales, g));
  for (int i = 0; i < 32; ++i) {
    const uint32_t high = (b.high[i / 4] >> (2 * (i % 4))) & 3u;
    put_eight(kIq2SGrid[b.low[i] | (high << 8)], b.signs[i], p->code + 8 * i);
  }
}

void unpack_iq3_xxs(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockIQ3_XXS>(bytes);
  p->wide[0] = half_to_float(b.d) * 0.25f;
  for (int g = 0; g < 8; ++g) {
    p->scale[g] = odd_scale(b.signs[g] >> 28);
    for (int i = 0; i < 8; ++i) {
      const uint32_t signs = with_parity((b.signs[g] >> (7 * (i / 2))) & 127u);
      put_four(kIq3XxsGrid[b.low[8 * g + i]], signs >> (4 * (i % 2)), p->code + 32 * g + 4 * i);
    }
  }
}

void unpack_iq3_s(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockIQ3_S>(bytes);
  p->wide[0] = half_to_float(b.d);
  for (int g = 0; g < 8; ++g) p->scale[g] = odd_scale(nibble(b.scales, g));
  for (int i = 0; i < 64; ++i) {
    const uint32_t high = (b.high[i / 8] >> (i % 8)) & 1u;
    const uint32_t signs = b.signs[i / 2] >> (4 * (i % 2));
    put_four(kIq3SGrid[b.low[i] | (high << 8)], signs, p->code + 4 * i);
  }
}

void unpack_iq1_s(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockIQ1_S>(bytes);
  p->wide[0] = half_to_float(b.d) * 0.125f;
  for (int g = 0; g < 8; ++g) {
    const uint32_t group = b.groups[g];
    p->scale[g] = odd_scale((group >> 12) & 7u);
    for (int i = 0; i < 4; ++i) {
      const uint32_t high = (group >> (3 * i)) & 7u;
      put_shifted(kIq1Grid[b.low[4 * g + i] | (high << 8)], (group >> 15) != 0,
                  p->code + 32 * g + 8 * i);
    }
  }
}

uint16_t scale_of_iq1_m(const uint8_t* bytes) {
  const auto b = read_block<BlockIQ1_M>(bytes);
  uint32_t d = 0;
  for (int i = 0; i < 4; ++i) d |= static_cast<uint32_t>(b.scales[i] >> 12) << (4 * i);
  return static_cast<uint16_t>(d);
}

void unpack_iq1_m(const uint8_t* bytes, BlockParts* p) {
  const auto b = read_block<BlockIQ1_M>(bytes);
  p->wide[0] = half_to_float(scale_of_iq1_m(bytes)) * 0.125f;
  for (int g = 0; g < 16; ++g) p->scale[g] = odd_scale((b.scales[g / 4] >> (3 * (g % 4))) & 7u);
  for (int i = 0; i < 32; ++i) {
    const uint32_t high = nibble(b.high, i);
    put_shifted(kIq1Grid[b.low[i] | ((high & 7u) << 8)], (high & 8u) != 0, p->code + 8 * i);
  }
}

}  // namespace oxibonsai::quant
