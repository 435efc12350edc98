// What a diffusion transformer does with its time step, and ops over pictures. Sines, and the sums
// of groups in float64, are computed on the CPU, which needs no kernels of double precision.

#include <cmath>
#include <vector>

#include "base/trig.h"
#include "gpu/runners/flat.h"

namespace oxibonsai::gpu {
namespace {

int64_t bytes_of(const Step& s, const ValueRef& v) {
  return s.values_of(v) * static_cast<int64_t>(sizeof(float));
}

int64_t runs_of(int64_t pixels) { return (pixels + graph::kRunPixels - 1) / graph::kRunPixels; }

args::PictureArgs picture_args(const Step& s, const ValueRef& x, int64_t groups) {
  args::PictureArgs a{};
  a.pixels = static_cast<uint64_t>(s.rows_of(x));
  a.channels = static_cast<uint32_t>(x.cols);
  a.groups = static_cast<uint32_t>(groups);
  return a;
}

class GroupMomentsRunner : public Runner {
 public:
  GroupMomentsRunner(const graph::GroupMoments& op, const RunnerContext& c)
      : op_(op), x_(c.value(op.x)), out_(c.value(op.out)) {}

  int64_t workspace_bytes(const Step& s) const override {
    return sums(s) * static_cast<int64_t>(sizeof(float));
  }

  void run(const Step& s) const override {
    std::vector<float> moments(static_cast<size_t>(2 * op_.groups));
    for (const bool squares : {false, true}) {
      std::vector<float> sums_of_runs = sum_runs(s, squares);
      for (int g = 0; g < op_.groups; ++g) {
        const float moment =
            graph::group_mean(sums_of_runs.data(), s.rows_of(x_), x_.cols, x_.cols / op_.groups, g);
        moments[static_cast<size_t>(squares ? op_.groups + g : g)] =
            squares ? 1.0f / std::sqrt(moment + op_.eps) : moment;
      }
      s.upload(moments.data(), s.address(out_), bytes_of(s, out_));
    }
  }

 private:
  int64_t sums(const Step& s) const { return runs_of(s.rows_of(x_)) * x_.cols; }

  std::vector<float> sum_runs(const Step& s, bool squares) const {
    args::PictureArgs a = picture_args(s, x_, op_.groups);
    a.count = static_cast<uint64_t>(sums(s));
    a.run = graph::kRunPixels;
    a.squares = squares;
    s.launch("sum_runs", flat_grid(sums(s)), kFlatThreads, a,
             std::array<Address, 3>{s.address(x_), s.address(out_), s.workspace});
    std::vector<float> result(static_cast<size_t>(sums(s)));
    s.download(s.workspace, result.data(), workspace_bytes(s));
    return result;
  }

  const graph::GroupMoments op_;
  const ValueRef x_, out_;
};

// A normalised picture lies in the workspace.
class Conv2dRunner : public Runner {
 public:
  Conv2dRunner(const graph::Conv2d& op, const RunnerContext& c)
      : op_(op),
        x_(c.value(op.x)),
        out_(c.value(op.out)),
        weight_(c.constants->put(op.weight)),
        bias_(c.constants->put(op.bias)),
        norm_weight_(c.constants->put(op.norm_weight)),
        norm_bias_(c.constants->put(op.norm_bias)) {
    if (op.moments != graph::kNoValue) moments_ = c.value(op.moments);
    if (op.add != graph::kNoValue) add_ = c.value(op.add);
  }

  int64_t workspace_bytes(const Step& s) const override {
    return moments_.buffer < 0 ? 0 : bytes_of(s, x_);
  }

  void run(const Step& s) const override {
    if (moments_.buffer >= 0) normalize(s);
    args::ConvArgs a{};
    a.pixels = static_cast<uint64_t>(s.rows_of(out_));
    const graph::PictureSize size =
        graph::output_size(op_, s.rows_of(x_), s.batch->rows(), s.batch->grid_width);
    a.width = static_cast<uint32_t>(size.width);
    a.large_height = static_cast<uint32_t>(size.height * op_.stride);
    a.large_width = static_cast<uint32_t>(size.width * op_.stride);
    a.channels = static_cast<uint32_t>(x_.cols);
    a.out_channels = static_cast<uint32_t>(out_.cols);
    a.side = static_cast<uint32_t>(op_.kernel);
    a.stride = static_cast<uint32_t>(op_.stride);
    a.upsample = static_cast<uint32_t>(op_.upsample);
    a.pad = static_cast<uint32_t>(op_.pad);
    a.has_bias = op_.bias != nullptr;
    a.has_added = add_.buffer >= 0;
    const Grid grid{blocks_of(s.rows_of(out_), kBlockPixels),
                    blocks_of(out_.cols, static_cast<uint32_t>(graph::kConvBlock))};
    s.launch("conv2d", grid, kFlatThreads, a,
             std::array<Address, 5>{moments_.buffer < 0 ? s.address(x_) : s.workspace, weight_,
                                    bias_, s.address(add_), s.address(out_)});
  }

 private:
  static constexpr uint32_t kBlockPixels = 32;  // of the kernel's 8 warps

  void normalize(const Step& s) const {
    args::PictureArgs a = picture_args(s, x_, moments_.cols / 2);
    a.count = static_cast<uint64_t>(s.values_of(x_));
    a.silu = op_.silu;
    s.launch("norm_pixels", flat_grid(s.values_of(x_)), kFlatThreads, a,
             std::array<Address, 5>{s.address(x_), s.address(moments_), norm_weight_, norm_bias_,
                                    s.workspace});
  }

  const graph::Conv2d op_;
  const ValueRef x_, out_;
  ValueRef moments_, add_;  // of no buffer where there is none
  const Address weight_, bias_, norm_weight_, norm_bias_;
};

}  // namespace

RunnerPtr make_runner(const graph::Sinusoids& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), out = c.value(op.out);
  return flat_runner(out, [=](const Step& s) {
    std::vector<float> numbers(static_cast<size_t>(s.rows_of(x)));
    s.download(s.address(x), numbers.data(), bytes_of(s, x));
    std::vector<float> made;
    for (const float number : numbers) {
      for (const float f : *op.frequencies) made.push_back(sin_cos(number * f).cos);
      for (const float f : *op.frequencies) made.push_back(sin_cos(number * f).sin);
    }
    s.upload(made.data(), s.address(out), bytes_of(s, out));
  });
}

RunnerPtr make_runner(const graph::Modulate& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), scale = c.value(op.scale), shift = c.value(op.shift),
                 out = c.value(op.out);
  return flat_runner(out, [=](const Step& s) {
    const Result r = result_of(s, out);
    s.launch("modulate", flat_grid(s.values_of(out)), kFlatThreads, flat_args(s, out),
             std::array<Address, 7>{s.address(x), s.address(scale), s.address(shift), r.y,
                                    r.rounded.q, r.rounded.scale, r.rounded.sums});
  });
}

RunnerPtr make_runner(const graph::AddGated& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), y = c.value(op.y), gate = c.value(op.gate),
                 out = c.value(op.out);
  return flat_runner(out, [=](const Step& s) {
    s.launch("add_gated", flat_grid(s.values_of(out)), kFlatThreads, flat_args(s, out),
             std::array<Address, 4>{s.address(x), s.address(y), s.address(gate), s.address(out)});
  });
}

RunnerPtr make_runner(const graph::JoinRows& op, const RunnerContext& c) {
  const ValueRef a = c.value(op.a), b = c.value(op.b), out = c.value(op.out);
  return flat_runner(out, [=](const Step& s) {
    s.copy(s.address(a), s.address(out), bytes_of(s, a));
    s.copy(s.address(b), s.address(out) + bytes_of(s, a), bytes_of(s, b));
  });
}

RunnerPtr make_runner(const graph::SplitRows& op, const RunnerContext& c) {
  const ValueRef x = c.value(op.x), first = c.value(op.first), last = c.value(op.last);
  return flat_runner(x, [=](const Step& s) {
    s.copy(s.address(x), s.address(first), bytes_of(s, first));
    s.copy(s.address(x) + bytes_of(s, first), s.address(last), bytes_of(s, last));
  });
}

RunnerPtr make_runner(const graph::GroupMoments& op, const RunnerContext& c) {
  return std::make_unique<GroupMomentsRunner>(op, c);
}

RunnerPtr make_runner(const graph::Conv2d& op, const RunnerContext& c) {
  return std::make_unique<Conv2dRunner>(op, c);
}

}  // namespace oxibonsai::gpu
