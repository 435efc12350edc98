#pragma once

// Ops over pictures. The tokens of the batch's one sequence form a grid, row after row
// (Batch::grid_width); a value over pixels(k) has k x k rows for each of them, again row after row
// of the picture.

#include "graph/check.h"
#include "graph/conv_block.h"

namespace oxibonsai::graph {

// Mean and 1 / sqrt(variance + eps) of each group of neighbouring channels over the whole picture:
// [sequences, 2 * groups], the means first.
struct GroupMoments {
  static constexpr const char* kName = "group_moments";
  static constexpr const char* kDoc =
      "Return mean and 1 / sqrt(variance + eps) of groups of channels over a whole picture.";
  ValueId x = kNoValue;
  int groups = 0;
  float eps = 0.0f;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    f.reads("x", x).takes("groups", groups).takes("eps", eps).makes("out", out);
  }
};

// The weight of a convolution as one field, [out, in, kernel, kernel] in Python.
struct ConvWeight {
  Vector& blocked;  // blocked_weight()
  int64_t& channels;
  int& kernel;
};

// Convolution with a square kernel. With `moments` x is normalised first, (x - mean) / deviation *
// norm_weight + norm_bias, and silu taken of it if asked for. x may be enlarged, each pixel
// becoming upsample x upsample. Around it lie zeros: `pad` rows and columns at the top and on the
// left, and as many at the bottom and on the right as the output reads, which has 1 / stride of the
// enlarged rows and columns.
struct Conv2d {
  static constexpr const char* kName = "conv2d";
  static constexpr const char* kDoc =
      "Return the convolution of a picture, whose group norm may come before it.";
  ValueId x = kNoValue;
  ValueId moments = kNoValue;  // kNoValue: x is not normalised
  ValueId add = kNoValue;      // kNoValue: nothing is added to the result
  Vector norm_weight, norm_bias;
  bool silu = false;
  Vector weight;  // blocked_weight()
  Vector bias;
  int64_t channels = 0;  // of the output
  int kernel = 1, stride = 1, upsample = 1, pad = 0;
  ValueId out = kNoValue;

  template <class F>
  void fields(F& f) {
    ConvWeight kernels{weight, channels, kernel};
    f.reads("x", x)
        .takes("weight", kernels)
        .takes("bias", bias, kNullable)
        .reads("moments", moments, kNullable)
        .takes("norm_weight", norm_weight, kNullable)
        .takes("norm_bias", norm_bias, kNullable)
        .takes("silu", silu)
        .takes("stride", stride)
        .takes("upsample", upsample)
        .takes("pad", pad)
        .reads("add", add, kNullable)
        .makes("out", out);
  }
};

// A weight [out, in, kernel, kernel] as convolutions read it: for each block of kConvBlock output
// channels, the last filled up with zeros, [kernel, kernel, in, kConvBlock].
Vector blocked_weight(const float* weight, int64_t out, int64_t in, int kernel);

// Pixels whose sum is one chain of additions in float32, for each channel.
constexpr int64_t kRunPixels = 64;

// The mean of a group of `width` channels from the sums of the runs, [runs, channels]: added in
// double, run by run and channel by channel, and rounded once.
float group_mean(const float* sums, int64_t pixels, int64_t channels, int64_t width, int64_t group);

struct PictureSize {
  int64_t height, width;
};

// Of a convolution's result in a step of so many tokens; x has `rows` rows.
PictureSize output_size(const Conv2d& op, int64_t rows, int64_t tokens, int64_t grid_width);

std::vector<Value> infer(const GroupMoments& op, const Checker& c);
std::vector<Value> infer(const Conv2d& op, const Checker& c);

}  // namespace oxibonsai::graph
