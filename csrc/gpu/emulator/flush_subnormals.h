#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace oxibonsai::gpu::emulator {

// While an object of this class lives, the calling thread's subnormal results and operands become
// zero, if asked for and where the processor has such a mode.
class FlushSubnormals {
 public:
#if defined(__x86_64__) || defined(__aarch64__)
  static constexpr bool kAvailable = true;
#else
  static constexpr bool kAvailable = false;
#endif

  explicit FlushSubnormals(bool flush) : before_(mode()) {
    if (flush) set_mode(before_ | kFlush);
  }
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
#else
  static constexpr uint64_t kFlush = 0;
  static uint64_t mode() { return 0; }
  static void set_mode(uint64_t) {}
#endif
  const uint64_t before_;
};

}  // namespace oxibonsai::gpu::emulator
