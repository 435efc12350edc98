#pragma once

#include <cstdint>
#include <vector>

namespace oxibonsai::sampling {

// Finds the largest of many values without sorting them all; its buffers are used again.
class TopFinder {
 public:
  // Indices of the k largest x[i] / divisor, largest first, ties by lower index; k is cut to n. NaN
  // counts as -inf. Valid until the next call.
  const std::vector<int32_t>& find(const float* x, int64_t n, int64_t k, float divisor = 1.0f);

 private:
  std::vector<float> block_tops_;
  std::vector<float> scratch_;
  std::vector<uint64_t> keys_;
  std::vector<uint64_t> spare_keys_;
  std::vector<int32_t> order_;
};

}  // namespace oxibonsai::sampling
