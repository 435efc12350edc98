#include "quant/fit_even.h"

#include "base/f16.h"
#include "quant/lanes.h"
#include "quant/range.h"
#include "quant/rounding.h"

namespace oxibonsai::quant {
namespace {

constexpr int kCount = 32;
constexpr float kCountAsFloat = kCount;

Lanes round_up_to(float high, Lanes v) {
  const Lanes magic = all(kRoundingMagic);
  return (smaller(v, all(high)) + magic) - magic;
}

// Sums over the codes q of four starts, a lane each, and over the values.
struct FourSums {
  Lanes q = all(0.0f), qq = all(0.0f), xq = all(0.0f);

  // No code may be below the range.
  FourSums(const float* values, Lanes inverted, float high) {
    for (int i = 0; i < kCount; ++i) {
      const Lanes code = round_up_to(high, values[i] * inverted);
      q += code;
      qq += code * code;
      xq += code * values[i];
    }
  }
};

// The lane of the largest number, without branches.
int largest_lane(Lanes v) {
  float of[kLanes];
  store(of, v);
  const int left = of[1] > of[0], right = 2 + (of[3] > of[2]);
  return of[right] > of[left] ? right : left;
}

void set_codes(const float* values, float scale, float min, float low, float high,
               BlockParts* parts) {
  const Lanes inverted = all(inverse(scale));
  float q[kCount];
  for (int i = 0; i < kCount; i += kLanes)
    store(q + i, round_up_to(high, larger((load(values + i) - min) * inverted, all(low))) - low);
  for (int j = 0; j < kCount; ++j) parts->code[j] = static_cast<uint8_t>(static_cast<int>(q[j]));
}

}  // namespace

// Of given codes the best scale is cov / var, and takes cov * scale off the error. The starts
// spread the values over high - 2 to high + 1 steps: integers, so that values on such a line are
// found.
void fit_even_line(const float* values, float high, BlockParts* parts) {
  const Range range = range_of(values, kCount);
  const float width = range.top - range.low;
  float over[kCount];
  Lanes sums = all(0.0f);
  for (int i = 0; i < kCount; i += kLanes) {
    const Lanes v = load(values + i) - range.low;
    store(over + i, v);
    sums += v;
  }
  const float total = sum(sums);
  float d = 0.0f, q = 0.0f;
  if (width >= kTiny) {
    const Lanes steps = high + Lanes{-2.0f, -1.0f, 0.0f, 1.0f};
    const FourSums s(over, steps / width, high);
    const Lanes cov = kCountAsFloat * s.xq - total * s.q;
    const Lanes scale = cov * inverse(kCountAsFloat * s.qq - s.q * s.q);
    const int best = largest_lane(scale * cov);
    d = scale[best];
    q = s.q[best];
  }
  parts->d = nearest_half(d);
  d = half_to_float(parts->d);
  parts->m = nearest_half(range.low + (total - d * q) / kCountAsFloat);
  set_codes(values, d, half_to_float(parts->m), 0.0f, high, parts);
}

void fit_even_integers(const float* values, BlockParts* parts) {
  const float largest = extreme(range_of(values, kCount));
  float d = 0.0f;
  if (std::fabs(largest) >= kTiny) {
    // Code 0 is further from 16 than code 31 is: the largest weight goes there, or near. A place of
    // -16.5 might be rounded to -17.
    const FourSums s(values, Lanes{-16.4f, -16.0f, -15.5f, -15.0f} / largest, 15.0f);
    const Lanes scale = s.xq * inverse(s.qq);
    d = scale[largest_lane(scale * s.xq)];
  }
  parts->d = nearest_half(d);
  set_codes(values, half_to_float(parts->d), 0.0f, -16.0f, 15.0f, parts);
}

}  // namespace oxibonsai::quant
