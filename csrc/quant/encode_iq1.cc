#include <cstring>

#include "quant/block.h"
#include "quant/codebook_values.h"
#include "quant/codebooks.h"
#include "quant/encoders.h"
#include "quant/fit_codebook_block.h"

namespace oxibonsai::quant {
namespace {

// Added to the first three of kIq1Values, which are shifted up already.
constexpr float kShift[2] = {0.0f, -2.0f};

const Codebook<8>& ternary_book() {
  static const Codebook<8> book(kIq1Grid, 2048, kIq1Values);
  return book;
}

// Groups of IQ1 (see fit_codebook_block.h); `kShifted` weights in a row share a shift.
template <int kCount, int kShifted>
struct ShiftedGroup {
  static constexpr int kWeights = kCount;
  static constexpr int kScales = 8;
  static constexpr float kUnits = 8.0f;
  static constexpr float kSpread = 6.5f;
  static constexpr float kPeaks[] = {9, 11};

  struct Codes {
    uint16_t index[kWeights / 8];
    bool down[kWeights / kShifted];
  };

  struct Target {
    Target() = default;
    Target(const float* values, const float* weights) {
      std::memcpy(value, values, sizeof value);
      std::memcpy(weight, weights, sizeof weight);
    }

    float value[kWeights];
    float weight[kWeights];
  };

  static Sums fit(const Target& target, float scale, Codes* codes);
};

template <int kCount, int kShifted>
Sums ShiftedGroup<kCount, kShifted>::fit(const Target& target, float scale, Codes* codes) {
  const Codebook<8>& book = ternary_book();
  Sums sums;
  for (int first = 0; first < kWeights; first += kShifted) {
    int index[2][kShifted / 8];
    float error[2] = {0.0f, 0.0f};
    for (int down = 0; down < 2; ++down) {
      for (int i = 0; i < kShifted / 8; ++i) {
        const int j = first + 8 * i;
        const auto found = book.nearest(target.value + j, target.weight + j, scale, kShift[down]);
        index[down][i] = found.index;
        error[down] += found.error;
      }
    }
    const bool down = error[1] < error[0];
    codes->down[first / kShifted] = down;
    for (int i = 0; i < kShifted / 8; ++i) {
      const int j = first + 8 * i;
      codes->index[j / 8] = static_cast<uint16_t>(index[down][i]);
      book.add_sums(index[down][i], target.value + j, target.weight + j, kShift[down], &sums);
    }
  }
  return sums;
}

using Iq1SGroup = ShiftedGroup<32, 32>;
using Iq1MGroup = ShiftedGroup<16, 8>;

BlockIQ1_S pack_s(const CodebookBlock<Iq1SGroup>& from) {
  BlockIQ1_S b{};
  b.d = from.d;
  for (int g = 0; g < 8; ++g) {
    const auto& codes = from.codes[g];
    int group = from.scale[g] << 12 | codes.down[0] << 15;
    for (int i = 0; i < 4; ++i) {
      b.low[4 * g + i] = static_cast<uint8_t>(codes.index[i]);
      group |= codes.index[i] >> 8 << (3 * i);
    }
    b.groups[g] = static_cast<uint16_t>(group);
  }
  return b;
}

BlockIQ1_M pack_m(const CodebookBlock<Iq1MGroup>& from) {
  BlockIQ1_M b{};
  for (int i = 0; i < 32; ++i) {
    const auto& codes = from.codes[i / 2];
    const int high = codes.index[i % 2] >> 8 | codes.down[i % 2] << 3;
    b.low[i] = static_cast<uint8_t>(codes.index[i % 2]);
    b.high[i / 2] |= static_cast<uint8_t>(high << (4 * (i % 2)));
  }
  for (int g = 0; g < 16; ++g)
    b.scales[g / 4] |= static_cast<uint16_t>(from.scale[g] << (3 * (g % 4)));
  for (int i = 0; i < 4; ++i) b.scales[i] |= static_cast<uint16_t>((from.d >> (4 * i) & 15) << 12);
  return b;
}

}  // namespace

void encode_iq1_s(const float* values, const float* importance, int64_t cols, uint8_t* blocks) {
  encode_codebook_row(values, importance, cols, blocks, pack_s);
}

void encode_iq1_m(const float* values, const float* importance, int64_t cols, uint8_t* blocks) {
  encode_codebook_row(values, importance, cols, blocks, pack_m);
}

}  // namespace oxibonsai::quant
