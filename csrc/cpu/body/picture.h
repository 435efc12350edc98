// Convolutions and group norms of pictures, and the modulation of a diffusion transformer's rows.
// Include after a tier's simd.h, body/math.h.
//
// A convolution is an implicit matrix product: the pixels that a tile reads lie in a patch, padding
// included, so that no kernel tap needs a test. Weights lie in blocks of 32 output channels, which
// are lanes: a result is one chain of fmas and no reduction across lanes. A step over input channel
// c loads kVectors weight vectors and serves kPixels pixels with a broadcast each: on AVX-512, 2
// loads, 12 broadcasts folded into 24 fmas, which the ports do in 12 cycles; on AVX2 (a vector is
// two registers) 2 loads, 6 broadcasts, 12 fmas in 6 cycles. Tap by tap over the whole tile, whose
// sums wait in the first-level cache, so that only the weights of one tap (64 KB for 512 channels)
// are read over and over.

#include <cstdint>

#include "cpu/body/flush.h"
#include "cpu/kernel_table.h"

namespace {

using oxibonsai::cpu::ConvTileArgs;
using oxibonsai::cpu::kConvBlock;
using oxibonsai::cpu::kConvPixels;
using oxibonsai::cpu::NormPixelsArgs;

constexpr int kConvVectors = simd::kChains >= 16 ? 2 : 1;    // of weights at once
constexpr int kConvTogether = simd::kChains >= 16 ? 12 : 6;  // pixels at once

// One tap for P neighbouring pixels of a row and V vectors of channels: sum = fma(x, w, sum).
template <int P, int V>
inline void add_tap(const float* x, int64_t step, const float* w, int64_t channels, bool first,
                    float* sums) {
  using namespace simd;
  Vec acc[P][V];
#pragma GCC unroll 12
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v)
      acc[p][v] = first ? zero() : load(sums + p * kConvBlock + v * kLanes);
  for (int64_t c = 0; c < channels; ++c, w += kConvBlock) {
    Vec weight[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) weight[v] = load(w + v * kLanes);
#pragma GCC unroll 12
    for (int p = 0; p < P; ++p) {
      const Vec pixel = splat(x[p * step + c]);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) acc[p][v] = fma(pixel, weight[v], acc[p][v]);
    }
  }
#pragma GCC unroll 12
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) store(sums + p * kConvBlock + v * kLanes, acc[p][v]);
}

// The first `pixels` <= P of them.
template <int P, int V>
inline void add_tap_of(int pixels, const float* x, int64_t step, const float* w, int64_t channels,
                       bool first, float* sums) {
  if (pixels == P) return add_tap<P, V>(x, step, w, channels, first, sums);
  if constexpr (P > 1) add_tap_of<P - 1, V>(pixels, x, step, w, channels, first, sums);
}

// All taps for V vectors of channels of the block, from channel `from` on.
template <int V>
inline void add_taps(const ConvTileArgs& a, int from, float* sums) {
  const int64_t step = a.stride * a.channels;
  for (int tap = 0; tap < a.kernel * a.kernel; ++tap) {
    const float* w = a.weight + tap * a.channels * kConvBlock + from;
    const int ky = tap / a.kernel;
    const int kx = tap % a.kernel;
    for (int row = 0; row < a.rows; ++row) {
      const float* x = a.x + ((int64_t{row} * a.stride + ky) * a.patch_cols + kx) * a.channels;
      for (int col = 0; col < a.cols; col += kConvTogether) {
        const int pixels = a.cols - col < kConvTogether ? a.cols - col : kConvTogether;
        add_tap_of<kConvTogether, V>(pixels, x + col * step, step, w, a.channels, tap == 0,
                                     sums + (row * a.cols + col) * kConvBlock + from);
      }
    }
  }
}

void conv_tile(const ConvTileArgs& a) {
  using namespace simd;
  alignas(64) float sums[kConvPixels * kConvBlock];
  int from = 0;
  for (; from + (kConvVectors - 1) * kLanes < a.columns; from += kConvVectors * kLanes)
    add_taps<kConvVectors>(a, from, sums);
  for (; from < a.columns; from += kLanes) add_taps<1>(a, from, sums);
  for (int row = 0; row < a.rows; ++row)
    for (int col = 0; col < a.cols; ++col) {
      const int64_t at = row * a.row_floats + col * a.pixel_floats;
      for (int i = 0; i < a.columns; i += kLanes) {
        const int n = a.columns - i < kLanes ? a.columns - i : kLanes;
        Vec sum = load(sums + (row * a.cols + col) * kConvBlock + i);
        if (a.bias != nullptr) sum = add(sum, load_n(a.bias + i, n));
        if (a.add != nullptr) sum = add(sum, load_n(a.add + at + i, n));
        store_n(a.y + at + i, flush_tiny(sum), n);
      }
    }
}

void norm_pixels(const NormPixelsArgs& a) {
  using namespace simd;
  for (int64_t p = 0; p < a.pixels; ++p) {
    const float* x = a.x + p * a.channels;
    float* y = a.y + p * a.channels;
    for (int64_t i = 0; i < a.channels; i += kLanes) {
      const int n = static_cast<int>(a.channels - i < kLanes ? a.channels - i : kLanes);
      const Vec d = flush_tiny(sub(load_n(x + i, n), load_n(a.mean + i, n)));
      const Vec scaled = mul(d, load_n(a.inverse + i, n));
      Vec v = flush_tiny(fma(scaled, load_n(a.weight + i, n), load_n(a.bias + i, n)));
      if (a.silu) v = flush_tiny(div(v, add(splat(1.0f), bounded_exp(sub(zero(), v)))));
      store_n(y + i, v, n);
    }
  }
}

void sum_pixels(const float* x, const float* mean, int64_t pixels, int64_t n, float* y) {
  using namespace simd;
  for (int64_t i = 0; i < n; i += kLanes) {
    const int lanes = static_cast<int>(n - i < kLanes ? n - i : kLanes);
    Vec sum = zero();
    if (mean == nullptr) {
      for (int64_t p = 0; p < pixels; ++p) sum = add(sum, load_n(x + p * n + i, lanes));
    } else {
      const Vec m = load_n(mean + i, lanes);
      for (int64_t p = 0; p < pixels; ++p) {
        const Vec d = flush_tiny(sub(load_n(x + p * n + i, lanes), m));
        sum = fma(d, d, sum);
      }
    }
    store_n(y + i, sum, lanes);
  }
}

void modulate(const float* x, const float* scale, const float* shift, int64_t n, float* y) {
  using namespace simd;
  for (int64_t i = 0; i < n; i += kLanes) {
    const int lanes = static_cast<int>(n - i < kLanes ? n - i : kLanes);
    const Vec factor = add(splat(1.0f), load_n(scale + i, lanes));
    store_n(y + i, flush_tiny(fma(load_n(x + i, lanes), factor, load_n(shift + i, lanes))), lanes);
  }
}

void add_gated(const float* x, const float* y, const float* gate, int64_t n, float* out) {
  using namespace simd;
  for (int64_t i = 0; i < n; i += kLanes) {
    const int lanes = static_cast<int>(n - i < kLanes ? n - i : kLanes);
    const Vec sum = fma(load_n(gate + i, lanes), load_n(y + i, lanes), load_n(x + i, lanes));
    store_n(out + i, flush_tiny(sum), lanes);
  }
}

}  // namespace
