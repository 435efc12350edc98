#include "sampling/top.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/f16.h"

namespace oxibonsai::sampling {
namespace {

constexpr int64_t kBlock = 64;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

float or_lowest(float x) { return x > kLowest ? x : kLowest; }

// Sixteen chains, so that the compiler can use vectors.
float block_top(const float* x) {
  float top[16];
  for (int j = 0; j < 16; ++j) top[j] = or_lowest(x[j]);
  for (int i = 16; i < kBlock; i += 16)
    for (int j = 0; j < 16; ++j) top[j] = x[i + j] > top[j] ? x[i + j] : top[j];
  return *std::max_element(top, top + 16);
}

// Ascending keys are descending values, then ascending indices. Adding 0 makes -0 equal to +0.
uint64_t key_of(float value, int64_t index) {
  const uint32_t bits = float_to_bits(value + 0.0f);
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return (static_cast<uint64_t>(~ascending) << 32) | static_cast<uint32_t>(index);
}

// By value; keys of equal values are in the order of their indices already.
void radix_sort(std::vector<uint64_t>& keys, std::vector<uint64_t>& spare) {
  constexpr int kBits = 11;
  spare.resize(keys.size());
  for (int shift = 32; shift < 64; shift += kBits) {
    std::vector<size_t> starts(size_t{1} << kBits, 0);
    const auto digit = [shift](uint64_t key) { return key >> shift & ((1u << kBits) - 1); };
    for (const uint64_t key : keys) ++starts[digit(key)];
    size_t sum = 0;
    for (size_t& start : starts) sum += std::exchange(start, sum);
    for (const uint64_t key : keys) spare[starts[digit(key)]++] = key;
    keys.swap(spare);
  }
}

}  // namespace

const std::vector<int32_t>& TopFinder::find(const float* x, int64_t n, int64_t k, float divisor) {
  k = std::clamp<int64_t>(k, 0, n);
  order_.clear();
  if (k == 0) return order_;
  const int64_t blocks = n / kBlock;
  // The k-th largest of the blocks' largest values is no more than the k-th largest of all.
  float floor = kLowest;
  block_tops_.resize(static_cast<size_t>(blocks));
  for (int64_t b = 0; b < blocks; ++b) block_tops_[b] = block_top(x + b * kBlock);
  if (k <= blocks) {
    scratch_ = block_tops_;
    std::nth_element(scratch_.begin(), scratch_.begin() + (k - 1), scratch_.end(),
                     std::greater<float>());
    floor = scratch_[k - 1] / divisor;
  }
  keys_.clear();
  const auto collect = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const float value = or_lowest(x[i]) / divisor;
      if (value >= floor) keys_.push_back(key_of(value, i));
    }
  };
  for (int64_t b = 0; b < blocks; ++b)
    if (block_tops_[b] / divisor >= floor) collect(b * kBlock, (b + 1) * kBlock);
  collect(blocks * kBlock, n);
  if (k == n && n > 1024) {
    radix_sort(keys_, spare_keys_);
  } else {
    const auto end = keys_.begin() + k;
    std::nth_element(keys_.begin(), end - 1, keys_.end());
    std::sort(keys_.begin(), end);
  }
  for (int64_t i = 0; i < k; ++i)
    order_.push_back(static_cast<int32_t>(static_cast<uint32_t>(keys_[i])));
  return order_;
}

}  // namespace oxibonsai::sampling
