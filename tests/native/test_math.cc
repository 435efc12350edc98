// exp, tanh, erf, softplus and the rope table's sin and cos: largest error over a dense sweep of
// float32 against double, and the values at the ends.

#include <cmath>
#include <limits>

#include "base/exp_log.h"
#include "base/f16.h"
#include "base/trig.h"
#include "check.h"
#include "cpu/dispatch.h"

using namespace oxibonsai;

namespace {

// Distance of a float from the exact value, in units of the float32 grid at that value.
double ulps(float got, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (got == nearest) return 0.0;
  int exponent;
  std::frexp(exact, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::fabs(got - exact) / unit;
}

template <class F>
double worst(void (*kernel)(const float*, int64_t, float*), F exact, float low, float high) {
  double largest = 0.0;
  std::vector<float> x, y;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 977) {
    const float v = bits_to_float(static_cast<uint32_t>(bits));
    if (v >= low && v <= high) x.push_back(v);
  }
  y.resize(x.size());
  kernel(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) largest = std::max(largest, ulps(y[i], exact(x[i])));
  return largest;
}

// Of double against long double, in units of the double grid.
double worst_double(double (*function)(double), long double (*exact)(long double), double low,
                    double high) {
  std::mt19937_64 random(5);
  double largest = 0.0;
  for (int i = 0; i < 2000000; ++i) {
    uint64_t bits = random();
    double x;
    std::memcpy(&x, &bits, sizeof x);
    if (!(x >= low && x <= high))
      x = low + (high - low) * (static_cast<double>(bits >> 11) * 0x1p-53);
    const long double want = exact(x);
    int exponent;
    std::frexp(static_cast<double>(want), &exponent);
    const long double unit = std::ldexp(1.0L, std::max(exponent - 53, -1074));
    largest = std::max(largest, static_cast<double>(std::fabs(function(x) - want) / unit));
  }
  return largest;
}

void check_doubles() {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  // Where long double is no wider than double, or its functions are double's (musl's of binary128),
  // the rounding of these adds half a unit.
  const bool wide = std::numeric_limits<long double>::digits > 53 &&
                    std::fabs(std::exp(1.0L) - 2.718281828459045235360287471352662498L) < 0x1p-60L;
  const double slack = wide ? 0.0 : 0.5;
  const auto exp_of = [](long double x) { return std::exp(x); };
  const auto log_of = [](long double x) { return std::log(x); };
  const double exp_error = worst_double(exact_exp, exp_of, -708.0, 709.0);
  double log_error = worst_double(exact_log, log_of, 0x1p-1022, 1e300);
  log_error = std::max(log_error, worst_double(exact_log, log_of, 0.5, 2.0));
  std::printf("double exp: %.3f ulp, log: %.3f ulp\n", exp_error, log_error);
  CHECK(exp_error <= 0.9 + slack, std::to_string(exp_error));
  CHECK(log_error <= 0.9 + slack, std::to_string(log_error));
  CHECK(exact_exp(0.0) == 1.0 && exact_exp(-kInf) == 0.0 && exact_exp(kInf) == kInf, "ends of exp");
  CHECK(exact_log(1.0) == 0.0 && exact_log(0.0) == -kInf && exact_log(kInf) == kInf, "ends of log");
  CHECK(exact_exp(-708.0) > 0x1p-1022 && exact_exp(-708.1) == 0.0, "no subnormal result");
  CHECK(exact_log(0x1p-1022) > -709.0 && exact_log(0x1p-1023) == -kInf, "subnormals are 0");
  CHECK(std::isnan(exact_log(-1.0)), "log below 0");
  CHECK(std::isnan(exact_exp(kInf - kInf)), "NaN");
}

}  // namespace

// Of the C library, which a tier without an instruction for it relies on: sums that a double rounds
// to the middle of two floats, and that lie below it, above it and on it.
void check_fma() {
  volatile float x = 0x1p-24f * (1.0f - 0x1p-18f), y = 1.0f + 0x1p-18f, z = 1.0f,
                 two = 1.0f + 0x1p-23f;
  CHECK(std::fma(x, y, z) == 1.0f, "fma below the middle");
  CHECK(std::fma(x, -y, -z) == -1.0f, "fma below the middle, negative");
  x = 0x1p-24f * (1.0f + 0x1p-12f), y = 1.0f - 0x1p-12f + 0x1p-24f;
  CHECK(std::fma(x, y, z) == 1.0f + 0x1p-23f, "fma above the middle");
  x = 0x1p-24f, y = 1.0f;
  CHECK(std::fma(x, y, z) == 1.0f, "fma on the middle, to even below");
  CHECK(std::fma(x, y, two) == 1.0f + 0x1p-22f, "fma on the middle, to even above");
}

int main() {
  check_fma();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const cpu::KernelTable& t = cpu::kernels();
  const double exp_error = worst(
      t.exp, [](double x) { return std::exp(x); }, -87.0f, 88.7f);
  const double tanh_error = worst(
      t.tanh, [](double x) { return std::tanh(x); }, -20.0f, 20.0f);
  const double erf_error = worst(
      t.erf, [](double x) { return std::erf(x); }, -20.0f, 20.0f);
  const double softplus_error = worst(
      t.softplus, [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); },
      -87.0f, 1e30f);
  std::printf("exp: %.3f ulp, tanh: %.3f ulp, erf: %.3f ulp, softplus: %.3f ulp\n", exp_error,
              tanh_error, erf_error, softplus_error);
  CHECK(softplus_error <= 2.0, std::to_string(softplus_error));
  CHECK(exp_error <= 0.9, std::to_string(exp_error));
  CHECK(tanh_error <= 1.5, std::to_string(tanh_error));
  CHECK(erf_error <= 1.0, std::to_string(erf_error));
  const float x[] = {-kInf, -200.0f, 0.0f, 90.0f, kInf};
  float y[5];
  t.exp(x, 5, y);
  CHECK(y[0] == 0.0f && y[1] == 0.0f && y[2] == 1.0f && y[3] == kInf && y[4] == kInf,
        "ends of exp");
  const float lowest[] = {-87.0f, std::nextafter(-87.0f, -kInf)};
  t.exp(lowest, 2, y);
  CHECK(y[0] > std::numeric_limits<float>::min() && y[1] == 0.0f && !std::signbit(y[1]),
        "no subnormal result");
  t.tanh(x, 5, y);
  CHECK(y[0] == -1.0f && y[2] == 0.0f && y[4] == 1.0f, "ends of tanh");
  t.erf(x, 5, y);
  CHECK(y[0] == -1.0f && y[1] == -1.0f && y[2] == 0.0f && y[3] == 1.0f && y[4] == 1.0f,
        "ends of erf");
  t.softplus(x, 5, y);
  CHECK(y[0] == 0.0f && y[1] == 0.0f && y[3] == 90.0f && y[4] == kInf, "ends of softplus");
  t.activate[static_cast<int>(graph::Activation::kSigmoid)](x, 5, y);
  CHECK(y[2] == 0.5f && y[3] == 1.0f && y[4] == 1.0f, "ends of sigmoid");
  double trig_error = 0.0;
  for (int position = 0; position < 1 << 20; position += 37)
    for (const float frequency : {1.0f, 0.7498942f, 0.0131f, 1e-5f}) {
      const float angle = static_cast<float>(position) * frequency;
      const SinCos v = sin_cos(angle);
      trig_error = std::max(trig_error, ulps(v.sin, std::sin(static_cast<double>(angle))));
      trig_error = std::max(trig_error, ulps(v.cos, std::cos(static_cast<double>(angle))));
    }
  std::printf("sin, cos: %.4f ulp\n", trig_error);
  CHECK(trig_error <= 0.501, std::to_string(trig_error));
  check_doubles();
  return test::finish("math");
}
