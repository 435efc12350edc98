#include "base/f16.h"
#include "quant/fit_block.h"

namespace oxibonsai::quant {
namespace {

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

  // The best of the integers around the group's own scale in units of d.
  float choose_scale(int g, float d) const {
    const Lanes around = own_scale[g] * inverse(d) + Lanes{0.0f, -1.0f, 1.0f, 0.0f};
    const Lanes tried = form.scales.nearest(around);
    const Lanes error = errors_of_four(group[g], codes, d * tried, all(0.0f));
    int best = 0;
    for (int k = 1; k < 3; ++k)
      if (error[k] < error[best]) best = k;
    return tried[best];
  }
};

}  // namespace

template <class Codes>
void fit_scaled_block(const float* values, const float* importance, const BlockForm& form,
                      const Codes& codes, BlockParts* parts, float* q) {
  ScaledBlock<Codes> block{form, codes, {}, {}};
  const int size = kBlock / form.groups;
  set_groups(values, importance, form.groups, block.group);
  parts->d = nearest_half(block.fit_d());
  const float d = half_to_float(parts->d);
  for (int g = 0; g < form.groups; ++g) {
    const float scale = block.choose_scale(g, d);
    parts->scale[g] = static_cast<int8_t>(scale);
    round_to(block.group[g], codes, {d * scale, 0.0f}, q + g * size);
  }
}

template void fit_scaled_block(const float*, const float*, const BlockForm&, const Integers&,
                               BlockParts*, float*);
template void fit_scaled_block(const float*, const float*, const BlockForm&, const CodebookValues&,
                               BlockParts*, float*);

}  // namespace oxibonsai::quant
