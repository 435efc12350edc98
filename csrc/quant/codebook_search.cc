#include "quant/codebook_search.h"

#include <algorithm>
#include <utility>

namespace oxibonsai::quant {
namespace {

constexpr int power(int base, int exponent) {
  return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

// Which values lie between a point's coordinate and an entry's, one bit each for those above and
// those below: an entry lies between the point and another if its bits are among those of the
// other.
template <int kValues>
uint64_t steps_between(int from, int to) {
  const uint64_t up = to > from ? (1u << (to - from)) - 1u : 0u;
  const uint64_t down = from > to ? (1u << (from - to)) - 1u : 0u;
  return up | down << (kValues - 1);
}

// The sum of kCount numbers, always in the same order.
template <int kCount>
float sum_of(float (&parts)[kCount]) {
  for (int n = kCount / 2; n > 0; n /= 2)
    for (int j = 0; j < n; ++j) parts[j] += parts[j + n];
  return parts[0];
}

// How many of the nearest entries are looked at for a list.
constexpr size_t kDepth = 256;

}  // namespace

template <int kDims>
Codebook<kDims>::Codebook(const uint16_t* entries, int count, const int8_t* codebook) {
  for (int l = 0; l < kValues; ++l) {
    value_[l] = codebook[l];
    border_[l] = l > 0 ? 0.5f * (value_[l] + value_[l - 1]) : 0.0f;
  }
  for (int i = 0; i < count; ++i) {
    int number[kDims];
    for (int j = 0; j < kDims; ++j) {
      number[j] = (entries[i] >> (kBits * j)) & ((1 << kBits) - 1);
      numbers_.push_back(static_cast<uint8_t>(number[j]));
      points_.push_back(value_[number[j]]);
    }
    Halves halves;
    for (int h = 0; h < 2; ++h) {
      const int* n = number + h * kDims / 2;
      halves.half[h] = static_cast<uint8_t>(
          kDims == 8 ? n[0] + 3 * n[1] + kStride * (n[2] + 3 * n[3]) : n[0] + kStride * n[1]);
    }
    halves_.push_back(halves);
  }
  const int keys = power(kValues, kDims);
  start_.reserve(keys + 1);
  for (int key = 0; key < keys; ++key) list_near(key);
  start_.push_back(static_cast<uint32_t>(near_.size()));
}

// A point's distances in the sense of nearest(), all weights and the scale 1.
template <int kDims>
void Codebook<kDims>::list_near(int key) {
  int number[kDims];
  float cost[kValues][kDims];
  for (int j = 0; j < kDims; ++j, key /= kValues) {
    number[j] = key % kValues;
    for (int l = 0; l < kValues; ++l) {
      const float off = value_[l] - value_[number[j]];
      cost[l][j] = off * off;
    }
  }
  float low[kQuarter * kStride], high[kQuarter * kStride];
  add_quarters(cost, 0, low);
  add_quarters(cost, 1, high);
  using Candidate = std::pair<float, uint16_t>;  // distance, index
  std::vector<Candidate> all;
  for (size_t i = 0; i < halves_.size(); ++i)
    all.emplace_back(low[halves_[i].half[0]] + high[halves_[i].half[1]], i);
  const size_t depth = std::min(all.size(), kDepth);
  std::nth_element(all.begin(), all.begin() + (depth - 1), all.end());
  std::sort(all.begin(), all.begin() + depth);
  std::vector<uint64_t> kept;
  start_.push_back(static_cast<uint32_t>(near_.size()));
  for (size_t i = 0; i < depth && kept.size() < kLongest; ++i) {
    uint64_t steps = 0;
    for (int j = 0; j < kDims; ++j)
      steps = steps << (2 * kValues - 2) |
              steps_between<kValues>(number[j], numbers_[all[i].second * kDims + j]);
    if (std::any_of(kept.begin(), kept.end(), [&](uint64_t k) { return (k & ~steps) == 0; }))
      continue;
    kept.push_back(steps);
    near_.push_back(all[i].second);
  }
}

template <int kDims>
float Codebook<kDims>::error_of(int index, const float* values, const float* weights, float scale,
                                float shift) const {
  const float* entry = point(index);
  float part[kDims];
  for (int j = 0; j < kDims; ++j) {
    const float off = values[j] - scale * (entry[j] + shift);
    part[j] = weights[j] * off * off;
  }
  return sum_of(part);
}

template <int kDims>
void Codebook<kDims>::add_sums(int index, const float* values, const float* weights, float shift,
                               Sums* sums) const {
  const float* entry = point(index);
  float wxv[kDims], wvv[kDims];
  for (int j = 0; j < kDims; ++j) {
    const float v = entry[j] + shift;
    const float weighted = weights[j] * v;
    wxv[j] = weighted * values[j];
    wvv[j] = weighted * v;
  }
  sums->wxv += sum_of(wxv);
  sums->wvv += sum_of(wvv);
}

// The sums of a half of the coordinates for all values that they may have.
template <int kDims>
void Codebook<kDims>::add_quarters(const float (&cost)[kValues][kDims], int half, float* sums) {
  float quarter[2][kStride] = {};
  for (int q = 0; q < 2; ++q) {
    const int j = (2 * half + q) * kDims / 4;
    for (int i = 0; i < kQuarter; ++i)
      quarter[q][i] = kDims == 8 ? cost[i % 3][j] + cost[i / 3 % 3][j + 1] : cost[i % kValues][j];
  }
  for (int i = 0; i < kQuarter; ++i)
    for (int k = 0; k < kStride; ++k) sums[kStride * i + k] = quarter[1][i] + quarter[0][k];
}

template <int kDims>
typename Codebook<kDims>::Nearest Codebook<kDims>::nearest(const float* values,
                                                           const float* weights, float scale,
                                                           float shift) const {
  int number[kDims] = {};
  for (int l = 1; l < kValues; ++l) {
    const float border = scale * (border_[l] + shift);
    for (int j = 0; j < kDims; ++j) number[j] += values[j] > border ? 1 : 0;
  }
  int key = 0;
  for (int j = kDims - 1; j >= 0; --j) key = key * kValues + number[j];
  const uint16_t* list = near_.data() + start_[key];
  const uint16_t* end = near_.data() + start_[key + 1];
  if (end - list == 1) return {*list, error_of(*list, values, weights, scale, shift)};

  float cost[kValues][kDims];
  for (int l = 0; l < kValues; ++l) {
    const float stored = scale * (value_[l] + shift);
    for (int j = 0; j < kDims; ++j) {
      const float off = values[j] - stored;
      cost[l][j] = weights[j] * off * off;
    }
  }
  float low[kQuarter * kStride], high[kQuarter * kStride];
  add_quarters(cost, 0, low);
  add_quarters(cost, 1, high);
  Nearest best{*list, low[halves_[*list].half[0]] + high[halves_[*list].half[1]]};
  for (++list; list != end; ++list) {
    const Halves& h = halves_[*list];
    const float error = low[h.half[0]] + high[h.half[1]];
    if (error < best.error) best = {*list, error};
  }
  return best;
}

template class Codebook<4>;
template class Codebook<8>;

}  // namespace oxibonsai::quant
