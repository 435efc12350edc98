#include "sampling/sampling.h"

#include "base/threefry.h"
#include "cpu/dispatch.h"
#include "sampling/top.h"

namespace oxibonsai::sampling {

int64_t argmax(const float* logits, int64_t n) { return cpu::kernels().argmax(logits, n); }

std::vector<int32_t> top_k(const float* logits, int64_t n, int64_t k) {
  return TopFinder().find(logits, n, k);
}

void exp(const float* x, int64_t n, float* y) { cpu::kernels().exp(x, n, y); }

double uniform(uint64_t seed, uint64_t counter) {
  const Words2 w = threefry2x32(threefry_key(seed), threefry_key(counter));
  const uint64_t bits = (static_cast<uint64_t>(w.a) << 32) | w.b;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace oxibonsai::sampling
