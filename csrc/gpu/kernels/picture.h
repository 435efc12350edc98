// Rows that a time step changes, group norms and convolutions of pictures (docs/arithmetic.md, rule
// 15). A convolution is not tuned: a warp takes 32 output channels, which lie side by side in the
// weights, of four pixels; weights come from memory as whole lines, pixels as broadcasts.

KERNEL(modulate, FlatArgs, READ(1, float, x), READ(2, float, factors), READ(3, float, shift),
       WRITE(4, float, y), WRITE(5, int8_t, q), WRITE(6, float, scales), WRITE(7, int32_t, sums)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;  // whole warps where the result is rounded
  const uint64_t col = i % args.cols;
  put_value(flush_tiny(fused(x[i], 1.0f + factors[col], shift[col])), LANE, i, args.round, y, q,
            scales, sums);
}

KERNEL(add_gated, FlatArgs, READ(1, float, x), READ(2, float, added), READ(3, float, gate),
       WRITE(4, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i < args.count) y[i] = flush_tiny(fused(gate[i % args.cols], added[i], x[i]));
}

// A channel over a run of pixels: their sum, or that of the squares of the distances from the mean.
KERNEL(sum_runs, PictureArgs, READ(1, float, x), READ(2, float, moments), WRITE(3, float, sums)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;
  const uint32_t channel = uint32_t(i % args.channels);
  const uint64_t first = i / args.channels * args.run;
  const uint64_t last = first + args.run < args.pixels ? first + args.run : args.pixels;
  float sum = 0.0f;
  if (args.squares) {
    const float mean = moments[channel / (args.channels / args.groups)];
    for (uint64_t p = first; p < last; ++p) {
      const float d = flush_tiny(x[p * args.channels + channel] - mean);
      sum = fused(d, d, sum);
    }
  } else {
    for (uint64_t p = first; p < last; ++p) sum = sum + x[p * args.channels + channel];
  }
  sums[i] = sum;
}

// Moments are the means of the groups, then their inverse deviations.
KERNEL(norm_pixels, PictureArgs, READ(1, float, x), READ(2, float, moments), READ(3, float, w),
       READ(4, float, b), WRITE(5, float, y)) {
  const uint64_t i = uint64_t(BLOCK_X) * 256 + THREAD;
  if (i >= args.count) return;
  const uint32_t channel = uint32_t(i % args.channels);
  const uint32_t group = channel / (args.channels / args.groups);
  const float d = flush_tiny(x[i] - moments[group]);
  const float v = flush_tiny(fused(d * moments[args.groups + group], w[channel], b[channel]));
  y[i] = args.silu ? flush_tiny(activation_of(kSilu, v)) : v;
}

#define CONV_PIXELS 4

// BLOCK_Y is a block of 32 output channels.
KERNEL(conv2d, ConvArgs, READ(1, float, x), READ(2, float, weight), READ(3, float, bias),
       READ(4, float, added), WRITE(5, float, y)) {
  const uint32_t channel = BLOCK_Y * 32 + LANE;
  const uint64_t first = (uint64_t(BLOCK_X) * 8 + THREAD / 32) * CONV_PIXELS;
  const uint32_t taps = args.side * args.side;
  float sum[CONV_PIXELS];
  for (uint32_t j = 0; j < CONV_PIXELS; ++j) sum[j] = 0.0f;
  for (uint32_t tap = 0; tap < taps; ++tap) {
    const uint64_t w = (uint64_t(BLOCK_Y) * taps + tap) * args.channels * 32 + LANE;
    uint64_t from[CONV_PIXELS];
    bool inside[CONV_PIXELS];
    for (uint32_t j = 0; j < CONV_PIXELS; ++j) {
      const uint64_t pixel = first + j;
      // Before the first row or column these are large numbers.
      const uint32_t row = uint32_t(pixel / args.width) * args.stride + tap / args.side - args.pad;
      const uint32_t col = uint32_t(pixel % args.width) * args.stride + tap % args.side - args.pad;
      inside[j] = pixel < args.pixels && row < args.large_height && col < args.large_width;
      from[j] = inside[j] ? (uint64_t(row / args.upsample) * (args.large_width / args.upsample) +
                             col / args.upsample) *
                                args.channels
                          : 0;
    }
    for (uint32_t c = 0; c < args.channels; ++c) {
      const float factor = weight[w + uint64_t(c) * 32];
      for (uint32_t j = 0; j < CONV_PIXELS; ++j)
        sum[j] = fused(inside[j] ? x[from[j] + c] : 0.0f, factor, sum[j]);
    }
  }
  if (channel >= args.out_channels) return;
  for (uint32_t j = 0; j < CONV_PIXELS; ++j) {
    if (first + j >= args.pixels) return;
    const uint64_t at = (first + j) * args.out_channels + channel;
    float v = sum[j];
    if (args.has_bias) v = v + bias[channel];
    if (args.has_added) v = v + added[at];
    y[at] = flush_tiny(v);
  }
}
