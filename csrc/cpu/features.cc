#include "cpu/features.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/os/os.h"

namespace oxibonsai::cpu {
namespace {

#if defined(__x86_64__)
struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return Registers{};
  return r;
}

bool bit(uint32_t word, int index) { return ((word >> index) & 1u) != 0; }

// Which register files the operating system saves (XCR0).
uint64_t saved_state() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

Features detect() {
  Features f;
  const Registers basic = cpuid(1);
  const Registers extended = cpuid(7);
  if (!bit(basic.c, 27)) return f;  // OSXSAVE: without it xgetbv may not be executed
  const uint64_t saved = saved_state();
  const bool ymm = (saved & 0x6) == 0x6;
  const bool zmm = ymm && (saved & 0xE0) == 0xE0;  // opmask, upper halves, upper sixteen registers
  f.avx2 = ymm && bit(extended.b, 5) && bit(basic.c, 12) && bit(basic.c, 29);
  f.avxvnni = f.avx2 && bit(cpuid(7, 1).a, 4);
  f.avx512 = zmm && f.avx2 && bit(extended.b, 16) && bit(extended.b, 17) && bit(extended.b, 30) &&
             bit(extended.b, 31);
  f.avx512vnni = f.avx512 && bit(extended.c, 11);
  f.avx512vbmi = f.avx512vnni && bit(extended.c, 1);
  return f;
}
#elif defined(__aarch64__)
Features detect() {
  Features f;
  f.neon = true;
  f.dotprod = os::arm_has_dot_products();
  return f;
}
#else
Features detect() { return Features{}; }
#endif

}  // namespace

const Features& features() {
  static const Features detected = detect();
  return detected;
}

}  // namespace oxibonsai::cpu
