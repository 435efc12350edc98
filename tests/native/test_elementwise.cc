// Norms, rope, rounding, gated units and the rest of a step: every tier against scalar, byte for
// byte, over lengths with every tail; a few against double arithmetic.

#include <cmath>
#include <limits>

#include "check.h"
#include "cpu/dispatch.h"
#include "cpu/quantized_rows.h"

using namespace oxibonsai;

namespace {

const cpu::KernelTable& scalar() { return cpu::table("scalar"); }

std::string where(const cpu::KernelTable& t, const char* op, int n) {
  return std::string(t.name) + " " + op + " n " + std::to_string(n);
}

void check_norms(const cpu::KernelTable& t, std::mt19937& random, int n) {
  const auto size = static_cast<size_t>(n);
  const auto x = test::normal(random, size, 3.0f);
  const auto w = test::normal(random, size);
  const auto b = test::normal(random, size);
  std::vector<float> y(size), truth(size);
  scalar().rms_norm(x.data(), w.data(), n, 1e-6f, 0, n, truth.data());
  t.rms_norm(x.data(), w.data(), n, 1e-6f, 0, n / 2, y.data());
  t.rms_norm(x.data(), w.data(), n, 1e-6f, n / 2, n, y.data());
  CHECK(test::same_bytes(y, truth), where(t, "rms_norm", n));
  double squares = 0.0;
  for (const float v : x) squares += static_cast<double>(v) * v;
  const double factor = 1.0 / std::sqrt(squares / n + 1e-6);
  for (size_t i = 0; i < size; ++i)
    CHECK(std::fabs(y[i] - x[i] * factor * w[i]) <= 1e-5 * std::fabs(y[i]) + 1e-30,
          where(t, "rms_norm against double", n));
  for (const float* shift : {b.data(), static_cast<const float*>(nullptr)}) {
    scalar().layer_norm(x.data(), w.data(), shift, n, 1e-5f, truth.data());
    t.layer_norm(x.data(), w.data(), shift, n, 1e-5f, y.data());
    CHECK(test::same_bytes(y, truth), where(t, "layer_norm", n));
  }
}

void check_units(const cpu::KernelTable& t, std::mt19937& random, int n) {
  const auto size = static_cast<size_t>(n);
  const auto a = test::normal(random, size, 4.0f);
  const auto b = test::normal(random, size, 4.0f);
  std::vector<float> y(size), truth(size);
  const auto both = [&](const char* op, auto call) {
    call(scalar(), truth.data());
    call(t, y.data());
    CHECK(test::same_bytes(y, truth), where(t, op, n));
  };
  using Table = cpu::KernelTable;
  both("swiglu", [&](const Table& k, float* out) { k.swiglu(a.data(), b.data(), n, out); });
  both("geglu", [&](const Table& k, float* out) { k.geglu(a.data(), b.data(), n, out); });
  both("gelu", [&](const Table& k, float* out) { k.gelu(a.data(), n, out); });
  for (size_t i = 0; i < size; ++i) {
    const double v = a[i];
    const double exact = 0.5 * v * (1.0 + std::erf(v * std::sqrt(0.5)));
    // Where 1 + erf cancels, what is left is erf's rounding of 2^-25 at most, times x.
    CHECK(std::fabs(y[i] - exact) <= 3e-7 * std::fabs(exact) + 0x1p-24 * std::fabs(v),
          where(t, "gelu against double", n));
  }
  both("add", [&](const Table& k, float* out) { k.add(a.data(), b.data(), n, out); });
  both("scale", [&](const Table& k, float* out) { k.scale(a.data(), 0.3f, n, out); });
  both("softcap", [&](const Table& k, float* out) { k.softcap(a.data(), 5.0f, n, out); });
  both("exp", [&](const Table& k, float* out) { k.exp(a.data(), n, out); });
  both("tanh", [&](const Table& k, float* out) { k.tanh(a.data(), n, out); });
  both("erf", [&](const Table& k, float* out) { k.erf(a.data(), n, out); });
  std::vector<uint16_t> half(size), half_truth(size);
  scalar().to_half(a.data(), n, half_truth.data());
  t.to_half(a.data(), n, half.data());
  CHECK(test::same_bytes(half, half_truth), where(t, "to_half", n));
}

void check_rope(const cpu::KernelTable& t, std::mt19937& random, int pairs) {
  const int dim = 2 * pairs + 6;  // six dims pass through
  const auto x = test::normal(random, static_cast<size_t>(3 * dim));
  const auto c = test::normal(random, static_cast<size_t>(pairs));
  const auto s = test::normal(random, static_cast<size_t>(pairs));
  for (const bool halves : {true, false}) {
    auto y = x;
    auto truth = x;
    const auto rotate = [&](const cpu::KernelTable& k, std::vector<float>& v) {
      const cpu::RopeArgs a{v.data(), c.data(), s.data(), 3, dim, pairs};
      (halves ? k.rope_halves : k.rope_pairs)(a);
    };
    rotate(scalar(), truth);
    rotate(t, y);
    CHECK(test::same_bytes(y, truth), where(t, halves ? "rope_halves" : "rope_pairs", pairs));
    const size_t other = halves ? static_cast<size_t>(pairs) : 1;
    CHECK(std::fabs(y[0] - (x[0] * c[0] - x[other] * s[0])) < 1e-5f, where(t, "rope value", pairs));
    CHECK(y[2 * pairs] == x[2 * pairs], where(t, "rope leaves the rest", pairs));
  }
}

void check_quantize(const cpu::KernelTable& t, std::mt19937& random) {
  auto x = test::normal(random, 32 * 8);
  for (int i = 0; i < 32; ++i) x[32 + i] = 0.0f;
  for (int i = 0; i < 32; ++i) x[64 + i] = std::ldexp(x[64 + i], -140);  // subnormal
  for (int i = 0; i < 32; ++i) x[96 + i] = std::ldexp(x[96 + i], 100);
  x[128] = 127.0f;
  for (int i = 1; i < 32; ++i) x[128 + i] = static_cast<float>(i) + 0.5f;  // ties
  const auto rounded = [&](const cpu::KernelTable& k) {
    const auto n = static_cast<int64_t>(x.size());
    std::vector<int8_t> memory(static_cast<size_t>(cpu::quantized_bytes(1, n, false)) + 64);
    const auto start = (reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64;
    const auto values = cpu::quantized_rows(reinterpret_cast<uint8_t*>(start), 1, n, false);
    k.quantize(x.data(), n, values);
    return std::vector<int8_t>(values.q, values.q + cpu::quantized_bytes(1, n, false));
  };
  const auto q = rounded(t);
  CHECK(test::same_bytes(q, rounded(scalar())), where(t, "quantize", 256));
  CHECK(q[128] == 127 && q[129] == 2 && q[130] == 2 && q[131] == 4, where(t, "ties to even", 256));
  CHECK(q[32] == 0 && q[64] == 0, where(t, "zero and subnormal groups", 256));
}

void check_argmax(const cpu::KernelTable& t, std::mt19937& random, int n) {
  auto x = test::normal(random, static_cast<size_t>(n));
  const auto best = static_cast<size_t>(random() % static_cast<uint32_t>(n));
  x[best] = 100.0f;
  if (best + 1 < x.size()) x.back() = 100.0f;  // a tie: the first one counts
  CHECK(t.argmax(x.data(), n) == static_cast<int64_t>(best), where(t, "argmax", n));
  std::vector<float> lowest(x.size(), -std::numeric_limits<float>::infinity());
  CHECK(t.argmax(lowest.data(), n) == 0, where(t, "argmax of -inf", n));
  lowest.back() = -1e30f;
  lowest.front() = std::numeric_limits<float>::quiet_NaN();
  if (n > 1) CHECK(t.argmax(lowest.data(), n) == n - 1, where(t, "argmax beside NaN", n));
}

}  // namespace

int main() {
  for (const std::string& tier : cpu::available_tiers()) {
    const cpu::KernelTable& t = cpu::table(tier);
    std::mt19937 random(2);
    for (int n = 1; n <= 70; ++n) {
      check_norms(t, random, n);
      check_units(t, random, n);
      check_argmax(t, random, n);
    }
    for (const int n : {576, 640, 4096}) check_norms(t, random, n);
    for (int pairs = 1; pairs <= 40; ++pairs) check_rope(t, random, pairs);
    check_quantize(t, random);
  }
  return test::finish("elementwise");
}
