#include "graph/conv2d.h"

namespace oxibonsai::graph {
namespace {

constexpr int kLargestKernel = 7;
constexpr int kLargestStep = 8;  // stride or enlargement
constexpr int kLargestScale = 64;

// Rows of a value on a side of a token of the grid; 0: it is no picture.
int scale_of(const RowSpace& rows) {
  if (rows == tokens()) return 1;
  return rows.kind == RowSpace::Kind::kPixels ? rows.k : 0;
}

int64_t blocks(int64_t channels) { return (channels + kConvBlock - 1) / kConvBlock; }

}  // namespace

Vector blocked_weight(const float* weight, int64_t out, int64_t in, int kernel) {
  const int64_t taps = int64_t{kernel} * kernel;
  std::vector<float> blocked(static_cast<size_t>(blocks(out) * taps * in * kConvBlock));
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in; ++i)
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t row = (o / kConvBlock * taps + t) * in + i;
        blocked[static_cast<size_t>(row * kConvBlock + o % kConvBlock)] =
            weight[(o * in + i) * taps + t];
      }
  return std::make_shared<const std::vector<float>>(std::move(blocked));
}

float group_mean(const float* sums, int64_t pixels, int64_t channels, int64_t width,
                 int64_t group) {
  double sum = 0.0;
  for (int64_t run = 0; run * kRunPixels < pixels; ++run) {
    const float* of_run = sums + run * channels + group * width;
    for (int64_t i = 0; i < width; ++i) sum += static_cast<double>(of_run[i]);
  }
  return static_cast<float>(sum / static_cast<double>(pixels * width));
}

PictureSize output_size(const Conv2d& op, int64_t rows, int64_t tokens, int64_t grid_width) {
  int64_t scale = 1;
  while (scale * scale < rows / tokens) ++scale;
  const int64_t large = scale * op.upsample;
  return {tokens / grid_width * large / op.stride, grid_width * large / op.stride};
}

std::vector<Value> infer(const GroupMoments& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  c.require(scale_of(x.rows) > 0, "the input is no picture");
  c.require(op.groups > 0 && x.cols % op.groups == 0, "the width has no such groups");
  return {{sequences(), 2 * int64_t{op.groups}}};
}

std::vector<Value> infer(const Conv2d& op, const Checker& c) {
  const Value& x = c.floats(op.x);
  const int scale = scale_of(x.rows);
  c.require(scale > 0, "the input is no picture");
  c.require(op.kernel >= 1 && op.kernel <= kLargestKernel, "a kernel has 1 to 7 rows");
  c.require(op.stride >= 1 && op.stride <= kLargestStep, "a stride is 1 to 8");
  c.require(op.upsample >= 1 && op.upsample <= kLargestStep, "an enlargement is 1 to 8");
  c.require(op.pad >= 0 && op.pad < op.kernel, "the padding is at least as wide as the kernel");
  c.require(scale * op.upsample % op.stride == 0 && scale * op.upsample <= kLargestScale,
            "the output has no whole rows for each token");
  c.require(op.channels > 0, "a convolution needs channels");
  c.vector(op.weight, blocks(op.channels) * op.kernel * op.kernel * x.cols * kConvBlock);
  if (op.bias != nullptr) c.vector(op.bias, op.channels);
  if (op.moments != kNoValue) {
    const Value& moments = c.floats(op.moments);
    c.require(
        moments.rows == sequences() && moments.cols % 2 == 0 && x.cols % (moments.cols / 2) == 0,
        "the moments are of other groups");
    c.vector(op.norm_weight, x.cols);
    c.vector(op.norm_bias, x.cols);
  } else {
    c.require(!op.silu, "silu goes with a norm");
  }
  const Value made{pixels(scale * op.upsample / op.stride), op.channels};
  if (op.add != kNoValue) {
    c.require(c.floats(op.add).rows == made.rows && c.value(op.add).cols == made.cols,
              "the sum has another shape");
  }
  return {made};
}

}  // namespace oxibonsai::graph
