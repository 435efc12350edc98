#include "gpu/runners/flat.h"

namespace oxibonsai::gpu {
namespace {

constexpr uint32_t kNormThreads = 256;

// A block of threads for each row, or group of a row. Where groups are no whole groups of 32, the
// floats go to the workspace and are rounded from there.
class NormRunner : public Runner {
 public:
  // `weights` is how many there are: of a group, or of all groups of a row.
  NormRunner(const ValueRef& x, const ValueRef& out, int64_t width, size_t weights, float eps,
             Address weight, Address bias, bool layer)
      : x_(x), out_(out), width_(width), weight_(weight), bias_(bias), layer_(layer) {
    rounds_ = out.type == graph::ValueType::kInt8;
    apart_ = rounds_ && width % 32 != 0;
    args_.width = static_cast<uint32_t>(width);
    args_.own = static_cast<uint32_t>(static_cast<int64_t>(weights) / width);
    args_.eps = eps;
    args_.has_bias = bias.buffer != nullptr;
    args_.round = rounds_ && !apart_;
  }

  int64_t workspace_bytes(const Step& s) const override {
    return apart_ ? s.values_of(x_) * static_cast<int64_t>(sizeof(float)) : 0;
  }

  void run(const Step& s) const override {
    if (s.values_of(x_) == 0) return;
    Result r = result_of(s, out_);
    if (apart_) r.y = s.workspace;
    const Grid grid{blocks_of(s.values_of(x_), width_)};
    if (layer_)
      s.launch("layer_norm", grid, kNormThreads, args_,
               std::array<Address, 7>{s.address(x_), weight_, bias_, r.y, r.rounded.q,
                                      r.rounded.scale, r.rounded.sums});
    else
      s.launch("rms_norm", grid, kNormThreads, args_,
               std::array<Address, 6>{s.address(x_), weight_, r.y, r.rounded.q, r.rounded.scale,
                                      r.rounded.sums});
    if (apart_)
      s.launch("round_int8", flat_grid(s.values_of(out_)), kFlatThreads, flat_args(s, out_),
               std::array<Address, 4>{r.y, r.rounded.q, r.rounded.scale, r.rounded.sums});
  }

 private:
  const ValueRef x_, out_;
  const int64_t width_;
  const Address weight_, bias_;
  const bool layer_;
  bool rounds_, apart_;
  args::NormArgs args_{};
};

}  // namespace

RunnerPtr make_runner(const graph::RmsNorm& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  return std::make_unique<NormRunner>(x, c.value(op.out), x.cols / op.groups, op.weight->size(),
                                      op.eps, c.constants->put(op.weight), Address{}, false);
}

RunnerPtr make_runner(const graph::LayerNorm& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x);
  return std::make_unique<NormRunner>(x, c.value(op.out), x.cols / op.groups, op.weight->size(),
                                      op.eps, c.constants->put(op.weight),
                                      c.constants->put(op.bias), true);
}

RunnerPtr make_runner(const graph::MatchRms& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), like = c.value(op.like), out = c.value(op.out);
  args::NormArgs a{};
  a.width = static_cast<uint32_t>(x.cols);
  a.eps = op.floor;
  return flat_runner(out, [=](const Step& s) {
    s.launch("match_rms", {static_cast<uint32_t>(s.rows_of(x))}, kNormThreads, a,
             std::array<Address, 3>{s.address(x), s.address(like), s.address(out)});
  });
}

RunnerPtr make_runner(const graph::GaussianTopK& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), out = c.value(op.out);
  args::NormArgs a{};
  a.width = static_cast<uint32_t>(x.cols);
  a.eps = op.deviations;
  return flat_runner(out, [=](const Step& s) {
    s.launch("gaussian_top_k", {static_cast<uint32_t>(s.rows_of(x))}, kNormThreads, a,
             std::array<Address, 2>{s.address(x), s.address(out)});
  });
}

}  // namespace oxibonsai::gpu
