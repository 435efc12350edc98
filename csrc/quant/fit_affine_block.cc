#include <algorithm>

#include "base/f16.h"
#include "quant/fit_block.h"

namespace oxibonsai::quant {
namespace {

constexpr int kRounds = 2;

// What is stored: group g's line is d * scale[g] * code - m * min[g].
struct Stored {
  float d = 0.0f, m = 0.0f;
  float scale[kMostGroups] = {};
  float min[kMostGroups] = {};

  Line line(int g) const { return {d * scale[g], -(m * min[g])}; }
};

float nearest(const Integers& range, float v) { return range.nearest(all(v))[0]; }

float to_stored_half(float v) { return half_to_float(nearest_half(v)); }

struct AffineBlock {
  const BlockForm& form;
  const Integers codes;
  Group group[kMostGroups];

  // d for the groups' own scales, then dmin for the minima that go with the scales it leaves.
  Stored start() const {
    Stored s;
    Moments m[kMostGroups];
    Group scales, mins;
    scales.count = mins.count = form.groups;
    for (int g = 0; g < form.groups; ++g) {
      const Line own = fit_line(group[g], codes.high, form.places, Minimum::kNotPositive);
      const float w = GroupSums(group[g]).w;
      m[g] = moments(group[g], codes, own);
      scales.value[g] = own.scale;
      // How much a wrong scale costs: less where the minimum can follow it.
      const float followed = own.min < 0.0f ? m[g].wq * m[g].wq / w : 0.0f;
      scales.weight[g] = std::max(m[g].wqq - followed, 0.01f * m[g].wqq);
    }
    s.d = to_stored_half(fit_scale(scales, form.scales, form.scale_places));
    for (int g = 0; g < form.groups; ++g) {
      s.scale[g] = nearest(form.scales, scales.value[g] * inverse(s.d));
      const GroupSums sums(group[g]);
      mins.value[g] = std::max((s.d * s.scale[g] * m[g].wq - sums.wx) / sums.w, 0.0f);
      mins.weight[g] = sums.w;
    }
    s.m = to_stored_half(fit_scale(mins, form.scales, form.scale_places));
    for (int g = 0; g < form.groups; ++g)
      s.min[g] = nearest(form.scales, mins.value[g] * inverse(s.m));
    return s;
  }

  // Moves each group's scale and minimum by at most one where that helps; the error.
  float improve_groups(Stored* s) const {
    float total = 0.0f;
    for (int g = 0; g < form.groups; ++g) {
      const Lanes scales = form.scales.nearest(s->scale[g] + Lanes{0.0f, -1.0f, 1.0f, 0.0f});
      float least = -1.0f, best_min = 0.0f;
      for (const float step : {0.0f, -1.0f, 1.0f}) {
        const float min = nearest(form.scales, s->min[g] + step);
        const Lanes error = errors_of_four(group[g], codes, s->d * scales, all(-(s->m * min)));
        for (int k = 0; k < 3; ++k) {
          if (least >= 0.0f && error[k] >= least) continue;
          least = error[k];
          s->scale[g] = scales[k];
          best_min = min;
        }
      }
      s->min[g] = best_min;
      total += least;
    }
    return total;
  }

  // d and dmin that suit the codes of these scales and minima best.
  void solve(Stored* s) const {
    float aa = 0.0f, ab = 0.0f, bb = 0.0f, ax = 0.0f, bx = 0.0f;
    for (int g = 0; g < form.groups; ++g) {
      const GroupSums sums(group[g]);
      const Moments m = moments(group[g], codes, s->line(g));
      const float a = s->scale[g], b = s->min[g];
      aa += a * a * m.wqq;
      ab += a * b * m.wq;
      bb += b * b * sums.w;
      ax += a * m.wxq;
      bx += b * sums.wx;
    }
    const float det = aa * bb - ab * ab;
    if (det > 0.0f) {
      const float d = (ax * bb - ab * bx) / det;
      const float m = (ab * ax - aa * bx) / det;
      if (d > 0.0f && m > 0.0f) {
        s->d = to_stored_half(d);
        s->m = to_stored_half(m);
      }
    } else if (aa > 0.0f) {
      s->d = to_stored_half(ax / aa);
    }
  }
};

}  // namespace

void fit_affine_block(const float* values, const float* importance, const BlockForm& form,
                      float high, BlockParts* parts) {
  AffineBlock block{form, {0.0f, high}, {}};
  const int size = kBlock / form.groups;
  set_groups(values, importance, form.groups, block.group);
  Stored best, next = block.start();
  float least = -1.0f;
  for (int round = 0; round < kRounds; ++round) {
    const float error = block.improve_groups(&next);
    if (least >= 0.0f && error >= least) break;
    least = error;
    best = next;
    if (round + 1 < kRounds) block.solve(&next);
  }
  parts->d = float_to_half(best.d);
  parts->m = float_to_half(best.m);
  for (int g = 0; g < form.groups; ++g) {
    parts->scale[g] = static_cast<int8_t>(best.scale[g]);
    parts->min[g] = static_cast<uint8_t>(best.min[g]);
    float q[Group::kMost];
    round_to(block.group[g], block.codes, best.line(g), q);
    for (int i = 0; i < size; ++i) parts->code[g * size + i] = static_cast<uint8_t>(q[i]);
  }
}

}  // namespace oxibonsai::quant
