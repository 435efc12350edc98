#pragma once

// exp and log of single numbers for sampling (docs/arithmetic.md, rule 3): double arithmetic of
// adds, multiplies and divisions alone, so no libm and the same bits everywhere. Largest errors
// (tests/native/test_math.cc): exp 0.9 ulp, log 0.9 ulp of double.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace oxibonsai {

// ln 2 in two parts; the first has 33 bits, so that its product with an exponent is exact.
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;

// 2^n for -1022 <= n <= 1023.
inline double power_of_two(int64_t n) {
  const uint64_t bits = static_cast<uint64_t>(n + 1023) << 52;
  double power;
  std::memcpy(&power, &bits, sizeof power);
  return power;
}

inline double exact_exp(double x) {
  if (!(x < 709.79)) return x != x ? x : std::numeric_limits<double>::infinity();
  if (x < -708.0) return 0.0;  // below, results would be subnormal
  const double n = std::floor(x * 1.44269504088896338700 + 0.5);
  const double high = x - n * kLn2High;
  const double low = n * kLn2Low;
  const double r = high - low;
  // Taylor series on |r| <= ln(2) / 2: the first term left out is below 2^-57.
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  const double value = 1.0 + (high + (r * r * p - low));
  // Two factors, since 2^n alone leaves the range of normal numbers.
  const auto whole = static_cast<int64_t>(n);
  const int64_t half = whole / 2;
  return value * power_of_two(half) * power_of_two(whole - half);
}

// -inf for 0, which subnormal numbers count as, NaN below.
inline double exact_log(double x) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (!(x >= 0x1p-1022)) return x > -0x1p-1022 ? -kInf : std::numeric_limits<double>::quiet_NaN();
  if (x == kInf) return kInf;
  // x = 2^exponent * m with m in [sqrt(1/2), sqrt(2)).
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0xFFFFFFFFFFFFFull) | (uint64_t{1023} << 52);
  double m;
  std::memcpy(&m, &bits, sizeof m);
  if (m > 1.41421356237309504880) {
    m *= 0.5;
    ++exponent;
  }
  // ln m = 2 artanh(s) with s = f / (2 + f), as f - (f^2/2 - s (f^2/2 + rest)): the leading term f
  // is exact. The first term left out of the series is below 2^-59.
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double rest = 2.0 / 23.0;
  for (int odd = 21; odd >= 3; odd -= 2) rest = rest * z + 2.0 / odd;
  const double half_square = 0.5 * f * f;
  const auto e = static_cast<double>(exponent);
  return e * kLn2High - ((half_square - (s * (half_square + rest * z) + e * kLn2Low)) - f);
}

}  // namespace oxibonsai
