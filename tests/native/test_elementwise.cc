// Norms, rope, rounding, gated units and the rest of a step: every tier against scalar, byte for
// byte, over lengths with every tail, and where subnormal numbers are flushed; norms against the
// text of their definition, a few against double arithmetic.

#include <cmath>
#include <functional>
#include <limits>

#include "base/f16.h"
#include "check.h"
#include "cpu/dispatch.h"
#include "cpu/quantized_rows.h"
#include "flush.h"

using namespace oxibonsai;

namespace {

const cpu::KernelTable& scalar() { return cpu::table("scalar"); }

std::string where(const cpu::KernelTable& t, const char* op, int n) {
  return std::string(t.name) + " " + op + " n " + std::to_string(n);
}

float without_tiny(float v) { return std::fabs(v) < 0x1p-60f ? 0.0f : v; }

// Lane i of 64 takes elements i, i + 64 ..., then lanes fold, i with i + half.
template <class F>
float fold_64_lanes(const std::vector<float>& x, F step) {
  float lane[64] = {};
  for (size_t i = 0; i < x.size(); ++i) lane[i % 64] = step(lane[i % 64], x[i]);
  for (int half = 32; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] = lane[i] + lane[i + half];
  return lane[0];
}

float squares_of(const std::vector<float>& x) {
  return fold_64_lanes(x, [](float sum, float v) { return std::fma(v, v, sum); });
}

// docs/arithmetic.md, rule 2, in plain words.
std::vector<float> plain_rms_norm(const std::vector<float>& x, const std::vector<float>& w,
                                  float eps) {
  const float mean = squares_of(x) / static_cast<float>(x.size());
  const float factor = 1.0f / std::sqrt(mean + eps);
  std::vector<float> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const float unit = x[i] * factor;
    y[i] = without_tiny(unit * w[i]);
  }
  return y;
}

std::vector<float> plain_layer_norm(const std::vector<float>& x, const std::vector<float>& w,
                                    const float* b, float eps) {
  const auto n = static_cast<float>(x.size());
  const float mean = fold_64_lanes(x, [](float sum, float v) { return sum + v; }) / n;
  std::vector<float> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = without_tiny(x[i] - mean);
  const float variance = squares_of(y) / n;
  const float factor = 1.0f / std::sqrt(variance + eps);
  for (size_t i = 0; i < x.size(); ++i) {
    const float unit = y[i] * factor;
    y[i] = without_tiny(std::fma(unit, w[i], b != nullptr ? b[i] : 0.0f));
  }
  return y;
}

void check_norms(const cpu::KernelTable& t, std::mt19937& random, int n) {
  const auto size = static_cast<size_t>(n);
  const auto x = test::normal(random, size, 3.0f);
  const auto w = test::normal(random, size);
  const auto b = test::normal(random, size);
  std::vector<float> y(size);
  auto truth = plain_rms_norm(x, w, 1e-6f);
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
    truth = plain_layer_norm(x, w, shift, 1e-5f);
    t.layer_norm(x.data(), w.data(), shift, n, 1e-5f, y.data());
    CHECK(test::same_bytes(y, truth), where(t, "layer_norm", n));
  }
}

constexpr double kPi = 3.14159265358979323846;  // C++17 has no name for it

double plain_activation(graph::Activation activation, double x) {
  switch (activation) {
    case graph::Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case graph::Activation::kGelu:
      return 0.5 * x * (1.0 + std::erf(x * std::sqrt(0.5)));
    case graph::Activation::kGeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / kPi) * (x + 0.044715 * x * x * x)));
    case graph::Activation::kRelu:
      return x > 0.0 ? x : 0.0;
    case graph::Activation::kRelu2:
      return x > 0.0 ? x * x : 0.0;
    case graph::Activation::kSigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case graph::Activation::kIdentity:
      return x;
    case graph::Activation::kSwigluOai:  // has no form without a gate
    case graph::Activation::kCount:
      break;
  }
  return 0.0;
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
  const float* rows[] = {a.data(), b.data(), a.data()};
  const float weights[] = {0.25f, -3.0f, 1e-3f};
  both("weighted_sum",
       [&](const Table& k, float* out) { k.weighted_sum(rows, weights, 3, n, out); });
  both("plain sum", [&](const Table& k, float* out) { k.weighted_sum(rows, nullptr, 3, n, out); });
  for (int f = 0; f < graph::kActivations; ++f) {
    both("gated", [&](const Table& k, float* out) { k.gated[f](a.data(), b.data(), n, out); });
    if (t.activate[f] == nullptr) continue;
    both("activate", [&](const Table& k, float* out) { k.activate[f](a.data(), n, out); });
    for (size_t i = 0; i < size; ++i) {
      const double exact = plain_activation(static_cast<graph::Activation>(f), a[i]);
      // Where 1 + erf cancels, what is left is erf's rounding of 2^-25 at most, times x.
      CHECK(std::fabs(y[i] - exact) <= 1e-6 * std::fabs(exact) + 0x1p-24 * std::fabs(a[i]),
            where(t, "activation against double", n));
    }
  }
  const cpu::XieluArgs xielu{0.8f, 1.3f, 0.5f, -1e-6f};
  both("xielu", [&](const Table& k, float* out) { k.xielu(a.data(), xielu, n, out); });
  for (size_t i = 0; i < size; ++i) {
    const double v = a[i];
    const double curve = v > 0.0 ? 0.8 * v * v : 1.3 * (std::expm1(std::min(v, -1e-6)) - v);
    CHECK(std::fabs(y[i] - (curve + 0.5 * v)) <= 1e-6 * (1.0 + std::fabs(curve)),
          where(t, "xielu against double", n));
  }
  const auto oai = static_cast<int>(graph::Activation::kSwigluOai);
  both("swiglu_oai", [&](const Table& k, float* out) { k.gated[oai](a.data(), b.data(), n, out); });
  for (size_t i = 0; i < size; ++i) {
    const double gate = std::min<double>(a[i], 7.0), up = std::clamp<double>(b[i], -7.0, 7.0);
    const double exact = gate / (1.0 + std::exp(-1.702 * gate)) * (up + 1.0);
    CHECK(std::fabs(y[i] - exact) <= 2e-6 * (1.0 + std::fabs(exact)),
          where(t, "swiglu_oai against double", n));
  }
  both("softplus", [&](const Table& k, float* out) { k.softplus(a.data(), n, out); });
  both("clamp", [&](const Table& k, float* out) { k.clamp(a.data(), 1.5f, n, out); });
  for (size_t i = 0; i < size; ++i)
    CHECK(y[i] == std::clamp(a[i], -1.5f, 1.5f), where(t, "clamp", n));
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

// A group of 32 counts from 2^-60 on.
void check_smallest_group(const cpu::KernelTable& t) {
  for (const bool live : {false, true}) {
    std::vector<float> x(32, 0.0f);
    x[7] = live ? -0x1p-60f : -std::nextafter(0x1p-60f, 0.0f);
    int8_t q[32];
    float scale, offset;
    int32_t sums[3];
    t.quantize(x.data(), 32, {q, &scale, sums, sums + 2, &offset, nullptr, nullptr, 32});
    CHECK(q[7] == (live ? -127 : 0), where(t, "smallest group", live));
    CHECK(scale == (live ? 0x1p-60f / 127.0f : 0.0f), where(t, "its scale", live));
  }
}

using Kernel = std::function<void(const cpu::KernelTable&, float* y)>;

// The bytes of scalar, which flushes nothing.
void check_flushed(const cpu::KernelTable& t, const char* op, size_t n, const Kernel& run) {
  std::vector<float> truth(n), y(n);
  run(scalar(), truth.data());
  test::flushed([&] { return run(t, y.data()), 0; });
  CHECK(test::same_bytes(y, truth), where(t, op, static_cast<int>(n)) + ", flushed");
}

void check_flushed_steps(const cpu::KernelTable& t, std::mt19937& random, int n) {
  const auto size = static_cast<size_t>(n);
  const auto x = test::small_activations(random, size);
  auto w = test::small_activations(random, size);
  const auto b = test::small_activations(random, size);
  auto gate = test::normal(random, size, 60.0f);  // e^-gate and its inverse leave float32 both ways
  for (size_t i = 0; i < size; i += 3) gate[i] = x[i];
  using Table = cpu::KernelTable;
  const auto check = [&](const char* op, const Kernel& run) { check_flushed(t, op, size, run); };
  std::vector<float> apart(size, 0.0f);  // distances from the mean whose squares are subnormal
  apart[0] = 0x1p-59f;
  if (n < 100)
    check("layer_norm without eps", [&](const Table& k, float* y) {
      k.layer_norm(apart.data(), w.data(), b.data(), n, 0.0f, y);
    });
  for (const float eps : {1e-5f, 1e-12f}) {
    check("rms_norm",
          [&](const Table& k, float* y) { k.rms_norm(x.data(), w.data(), n, eps, 0, n, y); });
    check("layer_norm",
          [&](const Table& k, float* y) { k.layer_norm(x.data(), w.data(), b.data(), n, eps, y); });
  }
  const float* rows[] = {gate.data(), x.data()};
  const float weights[] = {0x1p-70f, 0x1p-50f};
  check("weighted_sum", [&](const Table& k, float* y) { k.weighted_sum(rows, weights, 2, n, y); });
  for (int f = 0; f < graph::kActivations; ++f) {
    check("gated", [&](const Table& k, float* y) { k.gated[f](gate.data(), x.data(), n, y); });
    if (t.activate[f] == nullptr) continue;
    check("activate", [&](const Table& k, float* y) { k.activate[f](gate.data(), n, y); });
  }
  check("xielu", [&](const Table& k, float* y) {
    k.xielu(x.data(), {0.8f, 1.3f, 0.5f, -1e-6f}, n, y);
  });
  check("softplus", [&](const Table& k, float* y) { k.softplus(gate.data(), n, y); });
  check("clamp", [&](const Table& k, float* y) { k.clamp(x.data(), 30.0f, n, y); });
  check("add", [&](const Table& k, float* y) { k.add(x.data(), b.data(), n, y); });
  check("scale", [&](const Table& k, float* y) { k.scale(x.data(), 0x1p-50f, n, y); });
  check("softcap", [&](const Table& k, float* y) { k.softcap(x.data(), 30.0f, n, y); });
  check("exp", [&](const Table& k, float* y) { k.exp(gate.data(), n, y); });
  check("tanh", [&](const Table& k, float* y) { k.tanh(x.data(), n, y); });
  check("erf", [&](const Table& k, float* y) { k.erf(x.data(), n, y); });
  std::vector<float> c(size), s(size);
  for (size_t i = 0; i < size; ++i) {
    s[i] = std::ldexp(1.0f, -static_cast<int>(i % 24));
    c[i] = std::sqrt(1.0f - s[i] * s[i]);
  }
  auto heads = test::small_activations(random, 2 * size);
  for (const bool halves : {true, false})
    check_flushed(t, "rope", 2 * size, [&](const Table& k, float* y) {
      std::copy(heads.begin(), heads.end(), y);
      (halves ? k.rope_halves : k.rope_pairs)({y, c.data(), s.data(), 1, 2 * n, n});
    });
  const auto many = test::small_activations(random, 64 * size);
  check_flushed(t, "hadamard", 64 * size, [&](const Table& k, float* y) {
    k.hadamard({many.data(), nullptr, many.data(), 64 * n, 64, y});
  });
}

// Whatever is rounded, subnormal numbers among it.
void check_flushed_rounding(const cpu::KernelTable& t, std::mt19937& random) {
  auto x = test::normal(random, 32 * 64);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(x[i], -static_cast<int>(3 * (i / 32)) + static_cast<int>(random() % 8));
  const auto bytes = [&](const cpu::KernelTable& k) {
    const auto n = static_cast<int64_t>(x.size());
    std::vector<int8_t> q(x.size());
    std::vector<float> numbers(2 * x.size() / 32);
    std::vector<int32_t> sums(3 * x.size() / 32);
    k.quantize(x.data(), n,
               {q.data(), numbers.data(), sums.data(), sums.data() + x.size() / 16,
                numbers.data() + x.size() / 32, nullptr, nullptr, n});
    for (const float v : numbers) sums.push_back(static_cast<int32_t>(float_to_bits(v)));
    sums.insert(sums.end(), q.begin(), q.end());
    std::vector<uint16_t> half(x.size());
    k.to_half(x.data(), n, half.data());
    sums.insert(sums.end(), half.begin(), half.end());
    return sums;
  };
  const auto y = test::flushed([&] { return bytes(t); });
  CHECK(test::same_bytes(y, bytes(scalar())), where(t, "rounding, flushed", 0));
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
    check_smallest_group(t);
    for (int n = 1; n <= 70; ++n) check_flushed_steps(t, random, n);
    check_flushed_steps(t, random, 4096);
    check_flushed_rounding(t, random);
  }
  return test::finish("elementwise");
}
