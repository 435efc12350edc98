#include "quant/block.h"
#include "quant/codebook_values.h"
#include "quant/codebooks.h"
#include "quant/encoders.h"
#include "quant/fit_codebook_block.h"
#include "quant/signed_group.h"

namespace oxibonsai::quant {
namespace {

const Codebook<8>& xxs_book() {
  static const Codebook<8> book(kIq2XxsGrid, 256, kIq2Values);
  return book;
}

const Codebook<8>& xs_book() {
  static const Codebook<8> book(kIq2XsGrid, 512, kIq2Values);
  return book;
}

const Codebook<8>& s_book() {
  static const Codebook<8> book(kIq2SGrid, 1024, kIq2Values);
  return book;
}

template <int kCount, bool kEven, const Codebook<8>& (*kBook)()>
struct Iq2Group : SignedGroup<8, kCount, kEven, kBook> {
  static constexpr float kUnits = 8.0f;
  static constexpr float kSpread = 21.0f;
  static constexpr float kPeaks[] = {8, 43, 54};
};

using Iq2XxsGroup = Iq2Group<32, true, xxs_book>;
using Iq2XsGroup = Iq2Group<16, true, xs_book>;
using Iq2SGroup = Iq2Group<16, false, s_book>;

void put_nibbles(const int (&scale)[16], uint8_t (&bytes)[8]) {
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(scale[2 * i] | scale[2 * i + 1] << 4);
}

BlockIQ2_XXS pack_xxs(const CodebookBlock<Iq2XxsGroup>& from) {
  BlockIQ2_XXS b{};
  b.d = from.d;
  for (int g = 0; g < 8; ++g) {
    uint32_t indices = 0;
    uint32_t signs = static_cast<uint32_t>(from.scale[g]) << 28;
    for (int i = 0; i < 4; ++i) {
      indices |= static_cast<uint32_t>(from.codes[g].index[i]) << (8 * i);
      signs |= (from.codes[g].signs[i] & 127u) << (7 * i);
    }
    b.groups[g][0] = indices;
    b.groups[g][1] = signs;
  }
  return b;
}

BlockIQ2_XS pack_xs(const CodebookBlock<Iq2XsGroup>& from) {
  BlockIQ2_XS b{};
  b.d = from.d;
  for (int i = 0; i < 32; ++i) {
    const auto& codes = from.codes[i / 2];
    b.entries[i] = static_cast<uint16_t>(codes.index[i % 2] | (codes.signs[i % 2] & 127) << 9);
  }
  put_nibbles(from.scale, b.scales);
  return b;
}

BlockIQ2_S pack_s(const CodebookBlock<Iq2SGroup>& from) {
  BlockIQ2_S b{};
  b.d = from.d;
  for (int i = 0; i < 32; ++i) {
    const auto& codes = from.codes[i / 2];
    b.low[i] = static_cast<uint8_t>(codes.index[i % 2]);
    b.high[i / 4] |= static_cast<uint8_t>(codes.index[i % 2] >> 8 << (2 * (i % 4)));
    b.signs[i] = codes.signs[i % 2];
  }
  put_nibbles(from.scale, b.scales);
  return b;
}

}  // namespace

void encode_iq2_xxs(const float* values, const float* importance, int64_t cols, uint8_t* blocks) {
  encode_codebook_row(values, importance, cols, blocks, pack_xxs);
}

void encode_iq2_xs(const float* values, const float* importance, int64_t cols, uint8_t* blocks) {
  encode_codebook_row(values, importance, cols, blocks, pack_xs);
}

void encode_iq2_s(const float* values, const float* importance, int64_t cols, uint8_t* blocks) {
  encode_codebook_row(values, importance, cols, blocks, pack_s);
}

}  // namespace oxibonsai::quant
