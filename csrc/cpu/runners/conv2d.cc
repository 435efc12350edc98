// Ops over pictures. Statistics of a group are sums over runs of 64 pixels, in float32, which then
// are added up in double, run by run and channel by channel: no result depends on threads or tiles.
// A convolution normalises what its tile reads just before, in a patch that stays in the cache, so
// that no normalised picture is ever in memory and the picture's size costs its values alone.

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/runner.h"

namespace oxibonsai::cpu {
namespace {

using graph::kRunPixels;

class GroupMomentsRunner : public Runner {
 public:
  GroupMomentsRunner(const graph::GroupMoments& op, const RunnerContext& c)
      : op_(op), x_(c.value(op.x)), out_(c.value(op.out)), workspace_(c.workspace) {}

  // Sums of runs, means, squares of runs, deviations.
  int phases() const override { return 4; }
  int64_t items(const Step& s, int phase) const override {
    return phase % 2 == 0 ? runs(s) : op_.groups;
  }
  int64_t workspace_bytes(const Step& s) const override {
    return runs(s) * x_.cols * static_cast<int64_t>(sizeof(float));
  }
  void run(const Step& s, int phase, int64_t item) const override {
    float* result = s.floats(out_);
    if (phase % 2 == 0) return sum_run(s, item, phase == 0 ? nullptr : result);
    const float moment = graph::group_mean(sums(s, 0), s.rows_of(x_), x_.cols, width(), item);
    result[phase == 1 ? item : op_.groups + item] =
        phase == 1 ? moment : 1.0f / std::sqrt(moment + op_.eps);
  }

 private:
  int64_t runs(const Step& s) const { return (s.rows_of(x_) + kRunPixels - 1) / kRunPixels; }
  int64_t width() const { return x_.cols / op_.groups; }
  float* sums(const Step& s, int64_t run) const {
    return s.workspace_floats(workspace_) + run * x_.cols;
  }

  void sum_run(const Step& s, int64_t run, const float* means) const {
    const int64_t first = run * kRunPixels;
    const int64_t pixels = std::min(kRunPixels, s.rows_of(x_) - first);
    thread_local std::vector<float> of_channel;
    if (means != nullptr) {
      of_channel.resize(static_cast<size_t>(x_.cols));
      for (int64_t i = 0; i < x_.cols; ++i) of_channel[static_cast<size_t>(i)] = means[i / width()];
    }
    s.kernels->sum_pixels(s.row(x_, first), means != nullptr ? of_channel.data() : nullptr, pixels,
                          x_.cols, sums(s, run));
  }

  const graph::GroupMoments op_;
  const ValueRef x_, out_;
  const int workspace_;
};

// An item is a tile of the output with all its channels.
class Conv2dRunner : public Runner {
 public:
  Conv2dRunner(const graph::Conv2d& op, const RunnerContext& c)
      : op_(op), x_(c.value(op.x)), out_(c.value(op.out)) {
    if (op.moments != graph::kNoValue) moments_ = c.value(op.moments);
    if (op.add != graph::kNoValue) add_ = c.value(op.add);
  }

  int64_t items(const Step& s, int) const override {
    const Tiling t = tiling(s);
    return t.down * t.across;
  }

  void run(const Step& s, int, int64_t item) const override {
    const Tiling t = tiling(s);
    const int64_t top = item / t.across * t.rows;
    const int64_t left = item % t.across * kTileCols;
    const auto rows = static_cast<int>(std::min<int64_t>(t.rows, t.height - top));
    const auto cols = static_cast<int>(std::min<int64_t>(kTileCols, t.width - left));
    const int64_t patch_rows = int64_t{rows - 1} * op_.stride + op_.kernel;
    const int64_t patch_cols = int64_t{cols - 1} * op_.stride + op_.kernel;
    thread_local std::vector<float> patch;
    const auto floats = static_cast<size_t>(patch_rows * patch_cols * x_.cols);
    if (patch.size() < floats) patch.resize(floats);
    fill_patch(s, t, top * op_.stride - op_.pad, left * op_.stride - op_.pad, patch_rows,
               patch_cols, patch.data());
    ConvTileArgs a{};
    a.x = patch.data();
    a.patch_cols = patch_cols;
    a.channels = x_.cols;
    a.row_floats = t.width * out_.cols;
    a.pixel_floats = out_.cols;
    a.kernel = op_.kernel;
    a.stride = op_.stride;
    a.rows = rows;
    a.cols = cols;
    const int64_t block_floats = int64_t{op_.kernel} * op_.kernel * x_.cols * kConvBlock;
    for (int64_t channel = 0; channel < out_.cols; channel += kConvBlock) {
      a.columns = static_cast<int>(std::min(kConvBlock, out_.cols - channel));
      a.weight = op_.weight->data() + channel / kConvBlock * block_floats;
      a.bias = op_.bias != nullptr ? op_.bias->data() + channel : nullptr;
      a.y = s.row(out_, top * t.width + left) + channel;
      a.add = add_.storage >= 0 ? s.row(add_, top * t.width + left) + channel : nullptr;
      s.kernels->conv_tile(a);
    }
  }

 private:
  static constexpr int kTileCols = 12;

  struct Tiling {
    int64_t height, width;  // of the output
    int64_t in_width;       // of x
    int64_t rows;           // of a tile
    int64_t down, across;   // tiles
  };

  // Tiles get lower where there would be too few for the threads.
  Tiling tiling(const Step& s) const {
    Tiling t{};
    const graph::PictureSize size =
        graph::output_size(op_, s.rows_of(x_), s.batch->rows(), s.batch->grid_width);
    t.height = size.height;
    t.width = size.width;
    t.in_width = t.width * op_.stride / op_.upsample;
    t.across = (t.width + kTileCols - 1) / kTileCols;
    t.rows = kConvPixels / kTileCols;
    while (t.rows > 1 && (t.height + t.rows - 1) / t.rows * t.across < 4 * s.threads) t.rows /= 2;
    t.down = (t.height + t.rows - 1) / t.rows;
    return t;
  }

  // The pixels of the enlarged x from (top, left) on, zeros where there are none.
  void fill_patch(const Step& s, const Tiling& t, int64_t top, int64_t left, int64_t rows,
                  int64_t cols, float* patch) const {
    const int64_t height = t.height * op_.stride;
    const int64_t width = t.width * op_.stride;
    NormPixelsArgs norm = norm_args(s);
    for (int64_t row = top; row < top + rows; ++row) {
      for (int64_t col = left; col < left + cols; ++col, patch += x_.cols) {
        if (row < 0 || row >= height || col < 0 || col >= width) {
          std::fill_n(patch, x_.cols, 0.0f);
          continue;
        }
        const float* x = s.row(x_, row / op_.upsample * t.in_width + col / op_.upsample);
        if (moments_.storage < 0) {
          std::copy_n(x, x_.cols, patch);
          continue;
        }
        norm.x = x;
        norm.y = patch;
        s.kernels->norm_pixels(norm);
      }
    }
  }

  // Of one pixel; without x and y.
  NormPixelsArgs norm_args(const Step& s) const {
    NormPixelsArgs a{};
    if (moments_.storage < 0) return a;
    thread_local std::vector<float> mean, inverse;
    mean.resize(static_cast<size_t>(x_.cols));
    inverse.resize(static_cast<size_t>(x_.cols));
    const float* moments = s.floats(moments_);
    const int64_t groups = moments_.cols / 2;
    const int64_t width = x_.cols / groups;
    for (int64_t i = 0; i < x_.cols; ++i) {
      mean[static_cast<size_t>(i)] = moments[i / width];
      inverse[static_cast<size_t>(i)] = moments[groups + i / width];
    }
    a.mean = mean.data();
    a.inverse = inverse.data();
    a.weight = op_.norm_weight->data();
    a.bias = op_.norm_bias->data();
    a.pixels = 1;
    a.channels = x_.cols;
    a.silu = op_.silu;
    return a;
  }

  const graph::Conv2d op_;
  const ValueRef x_, out_;
  ValueRef moments_, add_;  // of no storage where there is none
};

}  // namespace

RunnerPtr make_runner(const graph::GroupMoments& op, const RunnerContext& c) {
  return std::make_unique<GroupMomentsRunner>(op, c);
}

RunnerPtr make_runner(const graph::Conv2d& op, const RunnerContext& c) {
  return std::make_unique<Conv2dRunner>(op, c);
}

}  // namespace oxibonsai::cpu
