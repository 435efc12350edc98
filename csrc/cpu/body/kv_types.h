// How keys and values of each type are read from a page and rounded to it (docs/arithmetic.md, rule
// 5; the layout is KvLayout's). Include after a tier's simd.h.

#include <cstdint>

#include "cpu/kernel_table.h"

namespace {

using oxibonsai::cpu::kKvGroup;
using oxibonsai::cpu::kPagePositions;
using oxibonsai::cpu::KvType;

// A type says how 16 values become floats. kBytes: one position in a row of keys, which holds
// kPacked dims. load<i>: of the 16 values that stand at p for the i-th dim, or the i-th vector of
// dims. A code times its scale is exact: 8 bits times 11.

struct KvF32 {
  static constexpr int kBytes = 4, kPacked = 1;
  static constexpr bool kScaled = false;
  template <int>
  static simd::Vec load(const uint8_t* p, simd::Vec) {
    return simd::load(reinterpret_cast<const float*>(p));
  }
};

struct KvF16 {
  static constexpr int kBytes = 2, kPacked = 1;
  static constexpr bool kScaled = false;
  template <int>
  static simd::Vec load(const uint8_t* p, simd::Vec) {
    return simd::load_half(reinterpret_cast<const uint16_t*>(p));
  }
};

// A code's bits, as a binary16, are smaller by 2^8 (base/fp8.h); the product is exact.
struct KvFp8 {
  static constexpr int kBytes = 1, kPacked = 1;
  static constexpr bool kScaled = false;
  template <int>
  static simd::Vec load(const uint8_t* p, simd::Vec) {
    alignas(32) uint16_t halves[simd::kLanes];
    for (int i = 0; i < simd::kLanes; ++i) {
      const uint16_t magnitude = p[i] & 0x7Fu;
      const uint16_t half = magnitude == 0x7Fu ? 0x7E00u : static_cast<uint16_t>(magnitude << 7);
      halves[i] = static_cast<uint16_t>((p[i] & 0x80u) << 8 | half);
    }
    return simd::mul(simd::load_half(halves), simd::splat(256.0f));
  }
};

struct KvQ8 {
  static constexpr int kBytes = 1, kPacked = 1;
  static constexpr bool kScaled = true;
  template <int>
  static simd::Vec load(const uint8_t* p, simd::Vec scale) {
    return simd::mul(simd::load_int8(reinterpret_cast<const int8_t*>(p)), scale);
  }
};

struct KvQ4 {
  static constexpr int kBytes = 1, kPacked = 2;
  static constexpr bool kScaled = true;
  template <int kWhich>
  static simd::Vec load(const uint8_t* p, simd::Vec scale) {
    return simd::mul(simd::load_nibbles<kWhich>(p), scale);
  }
};

// Scales of a group of dims, one a position.
inline const uint16_t* group_scales(const uint8_t* scales, int group) {
  return reinterpret_cast<const uint16_t*>(scales) + group * kPagePositions;
}

// Nearest f16 of x within its finite range, at *half and as a float.
inline float round_scale(float x, uint16_t* half) {
  using namespace simd;
  store_half_n(half, max(min(splat(x), splat(65504.0f)), splat(-65504.0f)), 1);
  return first(load_half_n(half, 1));
}

// The value of largest magnitude; of two equal ones the positive.
inline float signed_peak(simd::Vec a, simd::Vec b) {
  using namespace simd;
  const float high = fold_max(max(a, b));
  const float low = fold_max(max(sub(zero(), a), sub(zero(), b)));
  return low > high ? -low : high;
}

void round_kv(KvType type, const float* x, int n, int8_t* codes, uint16_t* scales) {
  using namespace simd;
  const bool wide = type == KvType::kQ8_0;
  const Vec lowest = splat(wide ? -127.0f : -8.0f);
  const Vec highest = splat(wide ? 127.0f : 7.0f);
  for (int g = 0; g * kKvGroup < n; ++g, x += kKvGroup, codes += kKvGroup) {
    const int rest = n - g * kKvGroup;
    const Vec a = load_n(x, rest < kLanes ? rest : kLanes);
    const Vec b =
        rest > kLanes ? load_n(x + kLanes, rest < kKvGroup ? rest - kLanes : kLanes) : zero();
    const float peak = wide ? fold_max(max(abs(a), abs(b))) : signed_peak(a, b);
    const float wanted = first(div(splat(peak), splat(wide ? 127.0f : -8.0f)));
    const float scale = round_scale(wanted, scales + g);
    const Vec inverse = scale != 0.0f ? div(splat(1.0f), splat(scale)) : zero();
    store_int8(codes, to_int(round_even(min(max(mul(a, inverse), lowest), highest))));
    store_int8(codes + kLanes, to_int(round_even(min(max(mul(b, inverse), lowest), highest))));
  }
}

}  // namespace
