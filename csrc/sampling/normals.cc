#include "sampling/normals.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/exp_log.h"
#include "base/threefry.h"
#include "base/trig.h"

namespace oxibonsai::sampling {
namespace {

constexpr int64_t kMostNumbers = int64_t{1} << 32;  // counters have 32 bits

// MLX's numbers ---------------------------------------------------------------------------------

// The logarithm of single precision as glibc (2.28 and later) computes it: 1/c and log c for 16
// subintervals of [0x1.66p-1, 0x1.66p0), then a polynomial of degree 3, all in double. Equal to it
// for every float in (0, 1), with or without fused multiply-add.
struct LogInterval {
  double inverse, log;
};

constexpr LogInterval kLogIntervals[16] = {
    {0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2}, {0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2},
    {0x1.49539f0f010bp+0, -0x1.01eae7f513a67p-2},  {0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3},
    {0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3}, {0x1.25e227b0b8eap+0, -0x1.1aa2bc79c81p-3},
    {0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4}, {0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4},
    {0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5}, {0x1p+0, 0x0p+0},
    {0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5},  {0x1.ca4b31f026aap-1, 0x1.c5e53aa362eb4p-4},
    {0x1.b2036576afce6p-1, 0x1.526e57720db08p-3},  {0x1.9c2d163a1aa2dp-1, 0x1.bc2860d22477p-3},
    {0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2},  {0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2},
};

// For normal x > 0.
float log_float(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t offset = bits - 0x3f330000u;
  const LogInterval& interval = kLogIntervals[(offset >> 19) % 16];
  const auto exponent = static_cast<double>(static_cast<int32_t>(offset) >> 23);
  const uint32_t mantissa = bits - (offset & 0xff800000u);
  float z;
  std::memcpy(&z, &mantissa, sizeof z);
  const double r = static_cast<double>(z) * interval.inverse - 1.0;
  const double start = interval.log + exponent * 0x1.62e42fefa39efp-1;
  const double square = r * r;
  double y = 0x1.5575b0be00b6ap-2 * r - 0x1.ffffef20a4123p-2;
  y = -0x1.00ea348b88334p-2 * square + y;
  return static_cast<float>(y * square + (start + r));
}

// The inverse of the error function, Giles' form of two polynomials in log(1 - x^2), each step
// fused.
float inverse_erf(float x) {
  constexpr float kTail[] = {3.03697567e-10f, 2.93243101e-8f,  1.22150334e-6f,
                             2.84108955e-5f,  3.93552968e-4f,  3.02698812e-3f,
                             4.83185798e-3f,  -2.64646143e-1f, 8.40016484e-1f};
  constexpr float kCentre[] = {5.43877832e-9f,  1.43285448e-7f,  1.22774793e-6f, 1.12963626e-7f,
                               -5.61530760e-5f, -1.47697632e-4f, 2.31468678e-3f, 1.15392581e-2f,
                               -2.32015476e-1f, 8.86226892e-1f};
  const float t = log_float(std::fma(x, -x, 1.0f));
  float p = 0.0f;
  if (std::fabs(t) > 6.125f) {
    for (const float c : kTail) p = std::fma(p, t, c);
  } else {
    for (const float c : kCentre) p = std::fma(p, t, c);
  }
  return x * p;
}

// Uniform in [-1, 1) from 32 bits, then normal.
float normal_of(uint32_t bits) {
  constexpr float kBelowOne = 1.0f - 0x1p-24f;
  const float u = std::fmin(static_cast<float>(bits) / 4294967296.0f, kBelowOne);
  const float x = 2.0f * u - kBelowOne;
  return 1.41421356237309504880f * inverse_erf(x);
}

// torch's numbers -------------------------------------------------------------------------------

// MT19937 (Matsumoto and Nishimura 1998), seeded with 32 bits.
class MersenneTwister {
 public:
  explicit MersenneTwister(uint32_t seed) {
    state_[0] = seed;
    for (uint32_t i = 1; i < kWords; ++i)
      state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }

  uint32_t next() {
    if (at_ == kWords) renew();
    uint32_t y = state_[at_++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }

 private:
  static constexpr uint32_t kWords = 624, kAhead = 397;

  void renew() {
    for (uint32_t i = 0; i < kWords; ++i) {
      const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kWords] & 0x7fffffffu);
      state_[i] = state_[(i + kAhead) % kWords] ^ (y >> 1) ^ ((y & 1) != 0 ? 0x9908b0dfu : 0u);
    }
    at_ = 0;
  }

  std::array<uint32_t, kWords> state_;
  uint32_t at_ = kWords;
};

// Sixteen uniform numbers to sixteen normal ones (Box and Muller): the first eight give radii, the
// others angles.
void box_muller(float* values) {
  for (int i = 0; i < 8; ++i) {
    const float u = 1.0f - values[i];  // in (0, 1]
    const auto radius = static_cast<float>(std::sqrt(-2.0 * exact_log(u)));
    const SinCos angle = sin_cos(static_cast<float>(2.0 * 3.14159265358979323846) * values[i + 8]);
    values[i] = radius * angle.cos;
    values[i + 8] = radius * angle.sin;
  }
}

}  // namespace

void mlx_normals(uint64_t seed, int64_t count, float* out) {
  if (count < 0 || count >= kMostNumbers) throw RequestError("too many random numbers");
  const Words2 key = threefry_key(seed);
  const int64_t half = count / 2, odd = count % 2;
  for (int64_t i = 0; i < half; ++i) {
    const auto [a, b] =
        threefry2x32(key, {static_cast<uint32_t>(i), static_cast<uint32_t>(i + half + odd)});
    out[i] = normal_of(a);
    out[i + half + odd] = normal_of(b);
  }
  if (odd != 0) out[half] = normal_of(threefry2x32(key, {static_cast<uint32_t>(half), 0}).a);
}

void torch_normals(uint64_t seed, int64_t count, float* out) {
  if (count < 16 || count >= kMostNumbers)
    throw RequestError("torch's generator gives from 16 to 2^32 - 1 numbers here");
  MersenneTwister generator(static_cast<uint32_t>(seed));
  const auto uniform = [&] { return static_cast<float>(generator.next() & 0xffffffu) * 0x1p-24f; };
  for (int64_t i = 0; i < count; ++i) out[i] = uniform();
  for (int64_t i = 0; i + 16 <= count; i += 16) box_muller(out + i);
  if (count % 16 != 0) {
    float* last = out + count - 16;
    for (int i = 0; i < 16; ++i) last[i] = uniform();
    box_muller(last);
  }
}

}  // namespace oxibonsai::sampling
