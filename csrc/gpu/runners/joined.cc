// Neighbouring ops in one launch: products of one token with what reads them
// (gpu/kernels/joined_gemv.h), and attention of single tokens. Steps of more rows run the two ops
// one after the other.

#include <algorithm>
#include <string>

#include "gpu/runners/flat.h"
#include "gpu/runners/linear.h"

namespace oxibonsai::gpu {
namespace {

constexpr int64_t kRoundedTogether = 32;

// A matrix of integers and its bias; what a kernel is told of them.
struct Matrix {
  Matrix(const graph::Linear& op, size_t i, const RunnerContext& c)
      : weight(c.packed(op.weights[i])),
        bias(op.biases.empty() ? Address{} : c.constants->put(op.biases[i])),
        y(c.value(op.out[i])) {}

  uint32_t blocks() const { return blocks_of(weight->weight().rows(), kGemvRows); }
  args::LinearArgs args(bool has_add) const {
    args::LinearArgs a = weight->integer_args();
    a.tokens = 1;
    a.has_bias = bias.buffer != nullptr;
    a.has_add = has_add;
    return a;
  }

  PackedWeightPtr weight;
  Address bias;  // null: none
  ValueRef y;
};

// Two ops: one launch for one row, those of each op for more.
template <class Launch>
class JoinedRunner : public Runner {
 public:
  JoinedRunner(RunnerPtr first, RunnerPtr second, const ValueRef& x, Launch launch)
      : first_(std::move(first)), second_(std::move(second)), x_(x), launch_(std::move(launch)) {}

  void prepare(Step* s) const override {
    first_->prepare(s);
    second_->prepare(s);
  }
  int64_t workspace_bytes(const Step& s) const override {
    return std::max(first_->workspace_bytes(s), second_->workspace_bytes(s));
  }
  void run(const Step& s) const override {
    if (s.rows_of(x_) == 1) return launch_(s);
    first_->run(s);
    second_->run(s);
  }

 private:
  const RunnerPtr first_, second_;
  const ValueRef x_;
  const Launch launch_;
};

template <class Next, class Launch>
RunnerPtr joined(const graph::Linear& op, const Next& next, const RunnerContext& c, Launch launch) {
  return std::make_unique<JoinedRunner<Launch>>(make_runner(op, c), make_runner(next, c),
                                                c.value(op.x), std::move(launch));
}

RunnerPtr with_norm(const graph::Linear& op, const graph::RmsNorm& norm, const RunnerContext& c) {
  if (op.weights.size() != 1 || !op.weights[0]->integer()) return nullptr;
  const ValueRef x = c.value(op.x), out = c.value(norm.out);
  const bool rounds = out.type == graph::ValueType::kInt8;
  if (norm.x != op.out[0] || norm.groups != 1 || (rounds && out.cols % kRoundedTogether != 0))
    return nullptr;
  const Matrix matrix(op, 0, c);
  const ValueRef add = op.add != graph::kNoValue ? c.value(op.add) : ValueRef{};
  const Address weight = c.constants->put(norm.weight), counters = c.counters;
  args::GemvNormArgs a{};
  a.matrix = matrix.args(add.buffer >= 0);
  a.norm.width = static_cast<uint32_t>(out.cols);
  a.norm.own = 1;
  a.norm.eps = norm.eps;
  a.norm.round = rounds;
  a.blocks = matrix.blocks();
  const std::string kernel = "gemv_norm_" + matrix.weight->form();
  return joined(op, norm, c, [=](const Step& s) {
    const RoundedRows rounded = s.rounded(x);
    const Result z = result_of(s, out);
    s.launch(
        kernel.c_str(), {1, a.blocks}, kGemvThreads, a,
        std::array<Address, 13>{rounded.q, rounded.scale, rounded.sums, s.address(add),
                                matrix.weight->data(), matrix.bias, weight, s.address(matrix.y),
                                z.y, z.rounded.q, z.rounded.scale, z.rounded.sums, counters});
  });
}

RunnerPtr with_gate(const graph::Linear& op, const graph::Gated& gated, const RunnerContext& c) {
  if (op.weights.size() != 2 || gated.gate != op.out[0] || gated.up != op.out[1]) return nullptr;
  for (const graph::WeightPtr& w : op.weights)
    if (!w->integer()) return nullptr;
  const Matrix gate(op, 0, c), up(op, 1, c);
  const ValueRef x = c.value(op.x), out = c.value(gated.out);
  const int64_t groups = out.cols / kRoundedTogether;
  if (gate.weight->form() != up.weight->form() || out.cols % kRoundedTogether != 0) return nullptr;
  // Blocks that have ended write the result while others still read x.
  if (groups > kCounters || out.buffer == x.buffer) return nullptr;
  args::GemvGatedArgs a{};
  a.matrices[0] = gate.args(false);
  a.matrices[1] = up.args(false);
  a.second = gate.blocks();
  a.function = function_of(gated.activation);
  a.round = out.type == graph::ValueType::kInt8;
  const Grid grid{1, gate.blocks() + up.blocks()};
  const Address counters = c.counters;
  const std::string kernel = "gemv_gated_" + gate.weight->form();
  return joined(op, gated, c, [=](const Step& s) {
    const RoundedRows rounded = s.rounded(x);
    const Result z = result_of(s, out);
    s.launch(kernel.c_str(), grid, kGemvThreads, a,
             std::array<Address, 14>{rounded.q, rounded.scale, rounded.sums, gate.weight->data(),
                                     up.weight->data(), gate.bias, up.bias, s.address(gate.y),
                                     s.address(up.y), z.y, z.rounded.q, z.rounded.scale,
                                     z.rounded.sums, counters});
  });
}

}  // namespace

RunnerPtr make_joined_runner(const graph::Op& op, const graph::Op& next, const RunnerContext& c) {
  if (!c.capabilities.last_block) return nullptr;
  const auto* heads = std::get_if<graph::PrepareHeads>(&op);
  const auto* attend = std::get_if<graph::Attend>(&next);
  if (heads != nullptr && attend != nullptr) return joined_attention(*heads, *attend, c);
  const auto* linear = std::get_if<graph::Linear>(&op);
  if (linear == nullptr) return nullptr;
  if (const auto* norm = std::get_if<graph::RmsNorm>(&next)) return with_norm(*linear, *norm, c);
  if (const auto* gated = std::get_if<graph::Gated>(&next)) return with_gate(*linear, *gated, c);
  return nullptr;
}

}  // namespace oxibonsai::gpu
