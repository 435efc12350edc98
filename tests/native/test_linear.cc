// Every tier's linear layers against the scalar definition, byte for byte: all types, tails in
// rows, columns and tokens, parts of the rows, bias and sum, and where subnormal numbers are
// flushed. And the definition against double arithmetic.

#include <cmath>
#include <optional>

#include "blocks.h"
#include "check.h"
#include "cpu/dispatch.h"
#include "cpu/packed_weight.h"
#include "cpu/quantized_rows.h"
#include "flush.h"

using namespace oxibonsai;
using quant::QuantType;

namespace {

struct Case {
  QuantType type;
  int64_t rows, cols, tokens;
  bool extras;  // bias and sum
};

struct Inputs {
  std::vector<uint8_t> weight;
  std::vector<float> x, bias, add;
};

// By one expert of the weights.
std::vector<float> run(const cpu::KernelTable& table, const Case& c, const Inputs& in,
                       int64_t expert = 0, int64_t experts = 1) {
  ThreadPool pool(1);
  const auto weight = std::make_shared<graph::Weight>("w", c.type, c.rows, c.cols, in.weight.data(),
                                                      nullptr, experts);
  const auto packed = cpu::pack_weights({weight}, table, pool, [](int64_t) {}).weights.front();
  cpu::LinearArgs a{};
  const cpu::LinearKernel& kernel = packed->kernel();
  std::optional<cpu::RoundedRows> rounded;
  if (quant::is_integer(c.type))
    a.x = rounded.emplace(table, in.x.data(), c.tokens, c.cols, cpu::reads_tables(kernel)).values();
  a.xf = in.x.data();
  a.bias = c.extras ? in.bias.data() : nullptr;
  a.add = c.extras ? in.add.data() : nullptr;
  std::vector<float> y(static_cast<size_t>(c.tokens * c.rows), NAN);
  a.y = y.data();
  a.stride = c.rows;
  // In parts, as threads would.
  for (int64_t t = 0; t < c.tokens; t += cpu::kPanelTokens) {
    a.first_token = t;
    a.last_token = std::min(c.tokens, t + cpu::kPanelTokens);
    for (int64_t item = 0; item < packed->items(); ++item) {
      packed->bind_item(expert, item, &a);
      kernel.run(a);
    }
  }
  return y;
}

std::string name(const Case& c, const char* tier) {
  return std::string(tier) + " " + quant::traits(c.type).name + " rows " + std::to_string(c.rows) +
         " cols " + std::to_string(c.cols) + " tokens " + std::to_string(c.tokens);
}

// |error| of one output: activations are off by half a step, sums by a few roundings.
void check_definition(const Case& c, const Inputs& in, const std::vector<float>& y) {
  std::vector<float> w(static_cast<size_t>(c.rows * c.cols));
  quant::traits(c.type).decode(in.weight.data(), w.data(), c.rows * c.cols);
  const bool rounded = quant::is_integer(c.type);
  for (int64_t t = 0; t < c.tokens; ++t)
    for (int64_t r = 0; r < c.rows; ++r) {
      double exact = 0.0, bound = 1e-30;
      for (int64_t g = 0; g < c.cols; g += 32) {
        double largest = 0.0, weights = 0.0;
        for (int64_t k = g; k < std::min(g + 32, c.cols); ++k) {
          const double x = in.x[t * c.cols + k];
          const double v = w[r * c.cols + k];
          exact += x * v;
          largest = std::max(largest, std::fabs(x));
          weights += std::fabs(v);
          bound += 1e-5 * std::fabs(x * v);
        }
        if (rounded) bound += weights * largest / 127.0 * 0.51;
      }
      CHECK(std::fabs(y[t * c.rows + r] - exact) <= bound, name(c, "definition"));
    }
}

void compare(std::mt19937& random, const Case& c) {
  Inputs in{test::random_rows(random, c.type, c.rows, c.cols),
            test::normal(random, static_cast<size_t>(c.tokens * c.cols)),
            test::normal(random, static_cast<size_t>(c.rows)),
            test::normal(random, static_cast<size_t>(c.tokens * c.rows))};
  const std::vector<float> truth = run(cpu::table("scalar"), c, in);
  if (!c.extras) check_definition(c, in, truth);
  for (const std::string& tier : cpu::available_tiers())
    CHECK(test::same_bytes(truth, run(cpu::table(tier), c, in)), name(c, tier.c_str()));
}

// Each of three experts, whose tiles are its own, gives what its rows alone give.
void check_experts(std::mt19937& random, const Case& c) {
  constexpr int64_t kExperts = 3;
  const Inputs in{test::random_rows(random, c.type, kExperts * c.rows, c.cols),
                  test::normal(random, static_cast<size_t>(c.tokens * c.cols)),
                  {},
                  {}};
  const auto bytes = static_cast<std::ptrdiff_t>(in.weight.size() / kExperts);
  for (int64_t e = 0; e < kExperts; ++e) {
    Inputs alone = in;
    alone.weight.assign(in.weight.begin() + e * bytes, in.weight.begin() + (e + 1) * bytes);
    const std::vector<float> truth = run(cpu::table("scalar"), c, alone);
    for (const std::string& tier : cpu::available_tiers())
      CHECK(test::same_bytes(truth, run(cpu::table(tier), c, in, e, kExperts)),
            name(c, tier.c_str()) + ", expert " + std::to_string(e));
  }
}

// Groups of activations from 2^-60 on, rows of them all small, subnormal biases.
void check_flushed(std::mt19937& random, const Case& c) {
  Inputs in{test::random_rows(random, c.type, c.rows, c.cols),
            test::small_activations(random, static_cast<size_t>(c.tokens * c.cols)),
            test::normal(random, static_cast<size_t>(c.rows), 1e-39f),
            test::small_activations(random, static_cast<size_t>(c.tokens * c.rows))};
  for (int64_t i = 0; i < c.tokens * c.cols; ++i) {
    const auto group = static_cast<int>(i / 32 % 3 + i / c.cols);
    float& v = in.x[static_cast<size_t>(i)];
    v = std::ldexp(v, -20 * (group % 4));
    if (std::fabs(v) < 0x1p-60f) v = 0.0f;
  }
  for (int64_t i = 0; i < c.rows; ++i) in.add[static_cast<size_t>(i)] = 0.0f;
  const std::vector<float> truth = run(cpu::table("scalar"), c, in);
  for (const std::string& tier : cpu::available_tiers()) {
    const auto y = test::flushed([&] { return run(cpu::table(tier), c, in); });
    CHECK(test::same_bytes(truth, y), name(c, tier.c_str()) + ", flushed");
  }
}

}  // namespace

int main() {
  std::mt19937 random(1);
  for (int i = 0; i < static_cast<int>(QuantType::kCount); ++i) {
    const auto type = static_cast<QuantType>(i);
    const int64_t group = quant::traits(type).group;
    const int64_t unit = group == 1 ? 24 : group;  // floats: a tail past the 16 lanes
    for (const int64_t rows : {1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 47, 48, 49, 50, 63, 65, 97, 130})
      compare(random, {type, rows, unit, 1, false});
    for (const int64_t tokens : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 130})
      compare(random, {type, 19, 3 * unit, tokens, tokens % 2 == 0});
    compare(random, {type, 70, 5 * unit, 6, true});
    check_experts(random, {type, 50, 2 * unit, 3, false});
    check_flushed(random, {type, 70, 5 * unit, 9, true});
    check_flushed(random, {type, 70, 5 * unit, 9, false});
  }
  return test::finish("linear");
}
