#include "sampling/sampling.h"

#include <algorithm>
#include <numeric>

#include "base/threefry.h"
#include "cpu/dispatch.h"

namespace oxibonsai::sampling {

int64_t argmax(const float* logits, int64_t n) { return cpu::kernels().argmax(logits, n); }

std::vector<int32_t> top_k(const float* logits, int64_t n, int64_t k) {
  std::vector<int32_t> index(static_cast<size_t>(n));
  std::iota(index.begin(), index.end(), 0);
  k = std::clamp<int64_t>(k, 0, n);
  const auto before = [logits](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  std::nth_element(index.begin(), index.begin() + std::max<int64_t>(k - 1, 0), index.end(), before);
  index.resize(static_cast<size_t>(k));
  std::sort(index.begin(), index.end(), before);
  return index;
}

void exp(const float* x, int64_t n, float* y) { cpu::kernels().exp(x, n, y); }

double uniform(uint64_t seed, uint64_t counter) {
  const Words2 w = threefry2x32(threefry_key(seed), threefry_key(counter));
  const uint64_t bits = (static_cast<uint64_t>(w.a) << 32) | w.b;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace oxibonsai::sampling
