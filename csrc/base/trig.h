#pragma once

// sin and cos for rope tables (docs/arithmetic.md, rule 3): double arithmetic of adds and
// multiplies alone, rounded to float32 at the end, so no libm and the same bits everywhere. Within
// 0.501 ulp of float32 for |x| < 2^20, past any position that a model knows.

#include <cmath>

namespace oxibonsai {

struct SinCos {
  float sin, cos;
};

inline SinCos sin_cos(float angle) {
  // pi / 2 in two parts; the first has 33 bits, so that its product with n < 2^20 is exact.
  constexpr double kHigh = 1.57079632673412561417e+00;
  constexpr double kLow = 6.07710050650619224932e-11;
  const double x = angle;
  const double n = std::floor(x * 0.63661977236758134308 + 0.5);
  const double r = (x - n * kHigh) - n * kLow;
  // Taylor series on |r| <= pi / 4: the first term left out is below 2^-63.
  const double s = r * r;
  double even = -1.0 / 1307674368000.0;  // of sin: r * (1 + s * even)
  even = even * s + 1.0 / 6227020800.0;
  even = even * s - 1.0 / 39916800.0;
  even = even * s + 1.0 / 362880.0;
  even = even * s - 1.0 / 5040.0;
  even = even * s + 1.0 / 120.0;
  even = even * s - 1.0 / 6.0;
  const double sine = r + r * s * even;
  double odd = 1.0 / 20922789888000.0;  // of cos: 1 + s * odd
  odd = odd * s - 1.0 / 87178291200.0;
  odd = odd * s + 1.0 / 479001600.0;
  odd = odd * s - 1.0 / 3628800.0;
  odd = odd * s + 1.0 / 40320.0;
  odd = odd * s - 1.0 / 720.0;
  odd = odd * s + 1.0 / 24.0;
  odd = odd * s - 0.5;
  const double cosine = 1.0 + s * odd;
  switch (static_cast<long long>(n) & 3) {
    case 0:
      return {static_cast<float>(sine), static_cast<float>(cosine)};
    case 1:
      return {static_cast<float>(cosine), static_cast<float>(-sine)};
    case 2:
      return {static_cast<float>(-sine), static_cast<float>(-cosine)};
    default:
      return {static_cast<float>(-cosine), static_cast<float>(sine)};
  }
}

}  // namespace oxibonsai
