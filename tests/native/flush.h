#pragma once

// Computes as devices do that know no subnormal numbers (docs/arithmetic.md, rule 11): while an
// object of this class lives, the calling thread's subnormal results and operands become zero.

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "check.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace test {

class FlushSubnormals {
 public:
  FlushSubnormals() : before_(mode()) { set_mode(before_ | kFlush); }
  ~FlushSubnormals() { set_mode(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr uint64_t kFlush = 0x8040;  // FTZ and DAZ
  static uint64_t mode() { return _mm_getcsr(); }
  static void set_mode(uint64_t mode) { _mm_setcsr(static_cast<uint32_t>(mode)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kFlush = uint64_t{1} << 24;  // FPCR.FZ
  static uint64_t mode() {
    uint64_t value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set_mode(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
#endif
  uint64_t before_;
};

// What `call` returns where subnormals are flushed.
template <class F>
auto flushed(F call) {
  const FlushSubnormals guard;
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
