#pragma once

// Computes as devices do that know no subnormal numbers (docs/arithmetic.md, rule 11).

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "check.h"
#include "gpu/emulator/flush_subnormals.h"

namespace test {

// What `call` returns where subnormals are flushed; what it returns anyway on a processor that
// can't.
template <class F>
auto flushed(F call) {
  using oxibonsai::gpu::emulator::FlushSubnormals;
  if constexpr (!FlushSubnormals::kAvailable) return call();
  const FlushSubnormals guard(true);
  volatile float tiny = 0x1p-126f;
  volatile float half = tiny * 0.5f;
  CHECK(half == 0.0f, "this processor flushes");
  return call();
}

// Results of earlier steps: zero, or a magnitude from 2^-60 on; most of them small.
inline std::vector<float> small_activations(std::mt19937& random, size_t n) {
  std::vector<float> values = normal(random, n);
  for (float& v : values) {
    const int shift = static_cast<int>(random() % 64);
    v = std::ldexp(v, random() % 4 == 0 ? 0 : -shift);
    if (random() % 8 == 0 || std::fabs(v) < 0x1p-60f) v = 0.0f;
  }
  return values;
}

}  // namespace test
