#pragma once

// The search for the scales of a block whose codes come from a codebook. Scales are tried for each
// group of weights, each with the codes it leads to; a unit is chosen in which the best ones are
// nearly odd integers; the codes are found again for the scales as stored. `Group` says what is
// special to a type:
//   kWeights   in a group, which share a scale
//   kScales    stored scales: the first so many odd numbers, in units
//   kUnits     of the scales in the block's d
//   kSpread    most groups are met by a scale near the root of their mean square / kSpread
//   kPeaks     codebook values tried for a group's largest weight: the lowest for weights of one
//              magnitude, the highest and one above it for a few weights far from zero
//   Target     what is to be met: Target(const float* values, const float* weights)
//   Codes      indices, signs
//   Sums fit(const Target&, float scale, Codes*)   finds the codes of the least error

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/f16.h"
#include "quant/codebook_search.h"
#include "quant/rounding.h"

namespace oxibonsai::quant {

template <class Group>
struct CodebookBlock {
  static constexpr int kGroups = 256 / Group::kWeights;
  uint16_t d;          // binary16
  int scale[kGroups];  // stands for 2 * scale + 1
  typename Group::Codes codes[kGroups];
};

template <class Group>
class CodebookFit {
 public:
  // `weights` may be null: all 1.
  CodebookFit(const float* values, const float* weights);

  CodebookBlock<Group> run();

 private:
  static constexpr int kGroups = CodebookBlock<Group>::kGroups;

  void try_scales(int g);
  float choose_unit() const;
  float improved_unit() const;
  void set_unit(float unit);
  void store_group(int g);

  typename Group::Target target_[kGroups];
  float root_[kGroups];  // of the mean square
  float peak_[kGroups];
  Sums sums_[kGroups];  // of the codes found last
  float unit_ = 0.0f;
  CodebookBlock<Group> block_ = {};
};

template <class Group>
CodebookFit<Group>::CodebookFit(const float* values, const float* weights) {
  constexpr int kWeights = Group::kWeights;
  for (int g = 0; g < kGroups; ++g) {
    const float* x = values + g * kWeights;
    float w[kWeights];
    float sum = 0.0f, squares = 0.0f;
    for (int j = 0; j < kWeights; ++j) {
      w[j] = weights != nullptr ? weights[g * kWeights + j] : 1.0f;
      sum += w[j];
      squares += w[j] * x[j] * x[j];
    }
    target_[g] = typename Group::Target(x, w);
    root_[g] = std::sqrt(squares / sum);
    peak_[g] = std::fabs(extreme(x, kWeights));
  }
}

template <class Group>
CodebookBlock<Group> CodebookFit<Group>::run() {
  for (int g = 0; g < kGroups; ++g) try_scales(g);
  set_unit(choose_unit());
  for (int g = 0; g < kGroups; ++g) store_group(g);
  const uint16_t before = block_.d;
  set_unit(improved_unit());
  if (block_.d != before)
    for (int g = 0; g < kGroups; ++g) store_group(g);
  return block_;
}

template <class Group>
void CodebookFit<Group>::try_scales(int g) {
  static constexpr float kOfRoot[] = {0.8f, 0.95f, 1.1f, 1.25f};
  // Below this a weight is 0 in every type, and its square might be 0 already.
  static constexpr float kNegligible = 1e-12f;
  if (peak_[g] < kNegligible) return;
  const auto try_scale = [&](float scale) {
    typename Group::Codes codes;
    const Sums sums = Group::fit(target_[g], scale, &codes);
    if (sums.gain() > sums_[g].gain()) sums_[g] = sums;
  };
  for (const float ratio : kOfRoot) try_scale(ratio * root_[g] / Group::kSpread);
  for (const float value : Group::kPeaks) try_scale(peak_[g] / value);
}

// The number of the nearest odd multiple.
template <int kScales>
int nearest_odd(float scale, float unit) {
  return scale < unit * (2 * kScales) ? static_cast<int>(scale / unit * 0.5f) : kScales - 1;
}

// The largest scale is put to various places at the upper end of what can be stored.
template <class Group>
float CodebookFit<Group>::choose_unit() const {
  constexpr int kPlaces = 16;
  constexpr float kFirst = 0.9f, kStep = 0.05f;
  constexpr int kHighest = 2 * Group::kScales - 1;
  float largest = 0.0f;
  for (const Sums& sums : sums_) largest = sums.scale() > largest ? sums.scale() : largest;
  if (largest == 0.0f) return 0.0f;
  float best = 0.0f, least = 0.0f;
  for (int i = 0; i < kPlaces; ++i) {
    const float unit = largest / kHighest * (kFirst + kStep * static_cast<float>(i));
    float error = 0.0f;
    for (const Sums& sums : sums_) {
      const int scale = nearest_odd<Group::kScales>(sums.scale(), unit);
      const float off = sums.scale() - unit * static_cast<float>(2 * scale + 1);
      error += sums.wvv * off * off;
    }
    if (i > 0 && error >= least) continue;
    least = error;
    best = unit;
  }
  return best;
}

// Of least squares, for the scales and codes that were found.
template <class Group>
float CodebookFit<Group>::improved_unit() const {
  Sums all;
  for (int g = 0; g < kGroups; ++g) {
    const auto scale = static_cast<float>(2 * block_.scale[g] + 1);
    all.wxv += scale * sums_[g].wxv;
    all.wvv += scale * scale * sums_[g].wvv;
  }
  return all.scale();
}

template <class Group>
void CodebookFit<Group>::set_unit(float unit) {
  constexpr float kLargestHalf = 65504.0f;
  const float d = unit * Group::kUnits;
  block_.d = float_to_half(d < kLargestHalf ? d : kLargestHalf);
  unit_ = half_to_float(block_.d) / Group::kUnits;
}

template <class Group>
void CodebookFit<Group>::store_group(int g) {
  block_.scale[g] = unit_ > 0.0f ? nearest_odd<Group::kScales>(sums_[g].scale(), unit_) : 0;
  const float scale = unit_ * static_cast<float>(2 * block_.scale[g] + 1);
  sums_[g] = Group::fit(target_[g], scale, &block_.codes[g]);
}

// A row of blocks, each made by `pack` of what the search found.
template <class Group, class Block>
void encode_codebook_row(const float* values, const float* importance, int64_t cols,
                         uint8_t* blocks, Block (*pack)(const CodebookBlock<Group>&)) {
  for (int64_t i = 0; i < cols; i += 256, blocks += sizeof(Block)) {
    CodebookFit<Group> fit(values + i, importance != nullptr ? importance + i : nullptr);
    const Block b = pack(fit.run());
    std::memcpy(blocks, &b, sizeof b);
  }
}

}  // namespace oxibonsai::quant
