#pragma once

// The groups of IQ2 and IQ3 (see fit_codebook_block.h): magnitudes from a codebook, signs beside
// them.

#include <cstdint>

#include "quant/codebook_search.h"

namespace oxibonsai::quant {

// With `kEven`, seven bits stand for the signs of eight weights, of which an even number is set.
template <int kDims, int kCount, bool kEven, const Codebook<kDims>& (*kBook)()>
struct SignedGroup {
  static constexpr int kWeights = kCount;
  static constexpr int kScales = 16;

  struct Codes {
    uint16_t index[kWeights / kDims];
    uint8_t signs[kWeights / 8];
  };

  // Magnitudes, negative where the sign bit is the wrong one.
  struct Target {
    Target() = default;
    Target(const float* values, const float* weights);

    float value[kWeights];
    float weight[kWeights];
    uint8_t signs[kWeights / 8];
  };

  static Sums fit(const Target& target, float scale, Codes* codes);
};

template <int kDims, int kCount, bool kEven, const Codebook<kDims>& (*kBook)()>
SignedGroup<kDims, kCount, kEven, kBook>::Target::Target(const float* values,
                                                         const float* weights) {
  for (int first = 0; first < kCount; first += 8) {
    int bits = 0, odd = 0;
    int cheapest = first;
    for (int j = first; j < first + 8; ++j) {
      const int negative = values[j] < 0.0f ? 1 : 0;
      value[j] = negative ? -values[j] : values[j];
      weight[j] = weights[j];
      bits |= negative << (j - first);
      odd ^= negative;
      if (weight[j] * value[j] < weight[cheapest] * value[cheapest]) cheapest = j;
    }
    // With the wrong sign for x the error grows by 4 * weight * x * scale * value, and most such
    // weights have the smallest value.
    if (kEven && odd != 0) {
      bits ^= 1 << (cheapest - first);
      value[cheapest] = -value[cheapest];
    }
    signs[first / 8] = static_cast<uint8_t>(bits);
  }
}

template <int kDims, int kCount, bool kEven, const Codebook<kDims>& (*kBook)()>
Sums SignedGroup<kDims, kCount, kEven, kBook>::fit(const Target& target, float scale,
                                                   Codes* codes) {
  const Codebook<kDims>& book = kBook();
  Sums sums;
  for (int j = 0; j < kWeights; j += kDims) {
    const float* value = target.value + j;
    const float* weight = target.weight + j;
    const int index = book.nearest(value, weight, scale, 0.0f).index;
    codes->index[j / kDims] = static_cast<uint16_t>(index);
    book.add_sums(index, value, weight, 0.0f, &sums);
  }
  for (int i = 0; i < kWeights / 8; ++i) codes->signs[i] = target.signs[i];
  return sums;
}

}  // namespace oxibonsai::quant
