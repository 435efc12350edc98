#include "quant/block.h"
#include "quant/codebook_values.h"
#include "quant/codebooks.h"
#include "quant/encoders.h"
#include "quant/fit_codebook_block.h"
#include "quant/signed_group.h"

namespace oxibonsai::quant {
namespace {

const Codebook<4>& xxs_book() {
  static const Codebook<4> book(kIq3XxsGrid, 256, kIq3XxsValues);
  return book;
}

const Codebook<4>& s_book() {
  static const Codebook<4> book(kIq3SGrid, 512, kIq3SValues);
  return book;
}

struct Iq3XxsGroup : SignedGroup<4, 32, true, xxs_book> {
  static constexpr float kUnits = 4.0f;
  static constexpr float kSpread = 24.0f;
  static constexpr float kPeaks[] = {4, 62, 78};
};

struct Iq3SGroup : SignedGroup<4, 32, false, s_book> {
  static constexpr float kUnits = 1.0f;
  static constexpr float kSpread = 6.0f;
  static constexpr float kPeaks[] = {1, 15, 19};
};

BlockIQ3_XXS pack_xxs(const CodebookBlock<Iq3XxsGroup>& from) {
  BlockIQ3_XXS b{};
  b.d = from.d;
  for (int i = 0; i < 64; ++i) b.low[i] = static_cast<uint8_t>(from.codes[i / 8].index[i % 8]);
  for (int g = 0; g < 8; ++g) {
    b.signs[g] = static_cast<uint32_t>(from.scale[g]) << 28;
    for (int i = 0; i < 4; ++i) b.signs[g] |= (from.codes[g].signs[i] & 127u) << (7 * i);
  }
  return b;
}

BlockIQ3_S pack_s(const CodebookBlock<Iq3SGroup>& from) {
  BlockIQ3_S b{};
  b.d = from.d;
  for (int i = 0; i < 64; ++i) {
    const int index = from.codes[i / 8].index[i % 8];
    b.low[i] = static_cast<uint8_t>(index);
    b.high[i / 8] |= static_cast<uint8_t>(index >> 8 << (i % 8));
  }
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 4; ++i) b.signs[4 * g + i] = from.codes[g].signs[i];
    b.scales[g / 2] |= static_cast<uint8_t>(from.scale[g] << (4 * (g % 2)));
  }
  return b;
}

}  // namespace

void encode_iq3_xxs(const float* values, const float* importance, int64_t cols, uint8_t* blocks) {
  encode_codebook_row(values, importance, cols, blocks, pack_xxs);
}

void encode_iq3_s(const float* values, const float* importance, int64_t cols, uint8_t* blocks) {
  encode_codebook_row(values, importance, cols, blocks, pack_s);
}

}  // namespace oxibonsai::quant
