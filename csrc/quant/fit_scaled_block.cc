#include "base/f16.h"
#include "quant/fit_block.h"

namespace oxibonsai::quant {
namespace {

constexpr int kMostGroups = 16;
constexpr int kRounds = 2;

template <class Codes>
struct ScaledBlock {
  const BlockForm& form;
  const Codes& codes;
  Group group[kMostGroups];
  float own_scale[kMostGroups];

  // d in units of which the groups' own scales are nearly integers. A scale matters as much as its
  // codes are large.
  float fit_d() {
    Group scales;
    scales.count = form.groups;
    for (int g = 0; g < form.groups; ++g) {
      own_scale[g] = fit_scale(group[g], codes, form.places);
      scales.value[g] = own_scale[g];
      scales.weight[g] = moments(group[g], codes, {own_scale[g], 0.0f}).wqq;
    }
    return fit_scale(scales, form.scales, form.scale_places);
  }

  // The best scale of each group for this d, among the integers around its own; the error.
  float choose_scales(float d, float* scale) const {
    float total = 0.0f;
    for (int g = 0; g < form.groups; ++g) {
      const Lanes around = own_scale[g] * inverse(d) + Lanes{-1.0f, 0.0f, 1.0f, 0.0f};
      const Lanes tried = form.scales.nearest(around);
      const Lanes error = errors_of_four(group[g], codes, d * tried, all(0.0f));
      int best = 0;
      for (int k = 1; k < 3; ++k)
        if (error[k] < error[best]) best = k;
      scale[g] = tried[best];
      total += error[best];
    }
    return total;
  }

  // The d that suits the codes of these scales best.
  float solve_d(float d, const float* scale) const {
    float wxq = 0.0f, wqq = 0.0f;
    for (int g = 0; g < form.groups; ++g) {
      const Moments m = moments(group[g], codes, {d * scale[g], 0.0f});
      wxq += scale[g] * m.wxq;
      wqq += scale[g] * scale[g] * m.wqq;
    }
    return wqq > 0.0f ? wxq / wqq : 0.0f;
  }
};

}  // namespace

template <class Codes>
void fit_scaled_block(const float* values, const float* importance, const BlockForm& form,
                      const Codes& codes, BlockParts* parts, float* q) {
  ScaledBlock<Codes> block{form, codes, {}, {}};
  const int size = kBlock / form.groups;
  for (int g = 0; g < form.groups; ++g)
    block.group[g].set(values + g * size, importance == nullptr ? nullptr : importance + g * size,
                       size);
  float d = block.fit_d();
  float least = -1.0f;
  for (int round = 0; round < kRounds; ++round) {
    const uint16_t half = float_to_half(d);
    if (round > 0 && half == parts->d) break;
    const float stored = half_to_float(half);
    float scale[kMostGroups];
    const float error = block.choose_scales(stored, scale);
    if (least >= 0.0f && error >= least) break;
    least = error;
    parts->d = half;
    for (int g = 0; g < form.groups; ++g) parts->scale[g] = static_cast<int8_t>(scale[g]);
    d = block.solve_d(stored, scale);
  }
  const float stored = half_to_float(parts->d);
  for (int g = 0; g < form.groups; ++g)
    round_to(block.group[g], codes, {stored * static_cast<float>(parts->scale[g]), 0.0f},
             q + g * size);
}

template void fit_scaled_block(const float*, const float*, const BlockForm&, const Integers&,
                               BlockParts*, float*);
template void fit_scaled_block(const float*, const float*, const BlockForm&, const Levels&,
                               BlockParts*, float*);

}  // namespace oxibonsai::quant
