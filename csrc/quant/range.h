#pragma once

#include "quant/lanes.h"

namespace oxibonsai::quant {

// Below this a value is 0 in every type with a binary16 scale, and its square might be 0 already.
constexpr float kTiny = 1e-12f;

struct Range {
  float low, top;
};

// Of `count` numbers, a multiple of kLanes.
inline Range range_of(const float* values, int count) {
  Lanes low = load(values), top = low;
  for (int i = kLanes; i < count; i += kLanes) {
    low = smaller(load(values + i), low);
    top = larger(load(values + i), top);
  }
  low = smaller(low, Lanes{low[2], low[3], low[0], low[1]});
  top = larger(top, Lanes{top[2], top[3], top[0], top[1]});
  return {low[0] < low[1] ? low[0] : low[1], top[0] > top[1] ? top[0] : top[1]};
}

// The one of the larger magnitude; the top of two alike.
inline float extreme(Range range) { return -range.low > range.top ? range.low : range.top; }

}  // namespace oxibonsai::quant
