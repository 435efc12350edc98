// Fuzz target of what touches a weight's bytes: looking at blocks, decoding, packing and
// multiplying them, in every tier. Any bytes are decoded or refused, and all tiers give the bytes
// of scalar.
//
// Input: type, rows, blocks in a row, tokens, then activations, then the weight's rows; what is
// missing is zero.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "cpu/dispatch.h"
#include "cpu/packed_weight.h"
#include "cpu/quantized_rows.h"
#include "quant/unpack.h"

using namespace oxibonsai;
using quant::QuantType;
using Floats = std::vector<float>;

namespace {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}
  uint8_t next() { return at_ < end_ ? *at_++ : uint8_t{0}; }
  int64_t count(int most) { return 1 + next() % most; }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

struct Layer {
  QuantType type;
  int64_t rows, cols, tokens;
  Floats x;
  std::vector<uint8_t> weight;
};

Layer read_layer(Bytes bytes) {
  Layer l{};
  l.type = static_cast<QuantType>(bytes.next() % static_cast<int>(QuantType::kCount));
  const auto& traits = quant::traits(l.type);
  l.rows = bytes.count(20);
  l.cols = bytes.count(3) * (traits.group == 1 ? 8 : traits.group);
  l.tokens = bytes.count(5);
  l.x.resize(static_cast<size_t>(l.tokens * l.cols));
  for (float& v : l.x) {  // of many sizes, and none so large that a sum of them overflows
    const uint8_t b = bytes.next();
    v = std::ldexp(static_cast<float>(b % 16) - 8.0f, b / 16 - 8);
  }
  l.weight.resize(static_cast<size_t>(l.rows * quant::row_bytes(l.type, l.cols)));
  for (uint8_t& b : l.weight) b = bytes.next();
  return l;
}

Floats multiply(const cpu::KernelTable& table, const Layer& l, ThreadPool& pool) {
  const auto w =
      std::make_shared<graph::Weight>("w", l.type, l.rows, l.cols, l.weight.data(), nullptr);
  const auto packed = cpu::pack_weights({w}, table, pool, [](int64_t) {}).weights.front();
  cpu::LinearArgs a{};
  packed->bind(0, &a);
  const cpu::LinearKernel& kernel = packed->kernel();
  std::optional<cpu::RoundedRows> rounded;
  if (quant::is_integer(l.type))
    a.x = rounded.emplace(table, l.x.data(), l.tokens, l.cols, cpu::reads_tables(kernel)).values();
  a.xf = l.x.data();
  a.last = l.rows;
  a.last_token = l.tokens;
  Floats y(static_cast<size_t>(l.tokens * l.rows));
  a.y = y.data();
  a.stride = l.rows;
  kernel.run(a);
  return y;
}

// Which NaN an operation gives is the processor's choice.
bool same(const Floats& a, const Floats& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof a[i]) != 0 && !(std::isnan(a[i]) && std::isnan(b[i])))
      return false;
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static ThreadPool pool(1);
  const Layer l = read_layer({data, size});
  const int64_t weights = l.rows * l.cols;
  Floats decoded(static_cast<size_t>(weights));
  quant::traits(l.type).decode(l.weight.data(), decoded.data(), weights);
  const bool finite = quant::inspect(l.type, l.weight.data(), weights).not_finite == 0;
  if (finite != (quant::find_not_finite(l.type, l.weight.data(), weights) < 0)) std::abort();
  if (!finite) {
    try {
      multiply(cpu::kernels(), l, pool);
    } catch (const FormatError&) {
    }
    return 0;
  }
  const Floats truth = multiply(cpu::table("scalar"), l, pool);
  for (const auto& tier : cpu::available_tiers())
    if (!same(truth, multiply(cpu::table(tier), l, pool))) std::abort();
  return 0;
}
