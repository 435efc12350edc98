// Kernels of pictures, and of rows that a time step changes: every tier against scalar, byte for
// byte, also where subnormal numbers are flushed, and scalar against double.

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "cpu/dispatch.h"
#include "flush.h"

using namespace oxibonsai;

namespace {

using Floats = std::vector<float>;
using Kernel = std::function<void(const cpu::KernelTable&, float*)>;

// The same bytes as scalar, which flushes nothing; returns them.
Floats same(const cpu::KernelTable& t, const std::string& name, size_t n, const Kernel& run) {
  Floats truth(n), y(n), flushed(n);
  run(cpu::table("scalar"), truth.data());
  run(t, y.data());
  test::flushed([&] { return run(t, flushed.data()), 0; });
  const std::string where = std::string(t.name) + ", " + name + ", " + std::to_string(n);
  CHECK(test::same_bytes(y, truth), where);
  CHECK(test::same_bytes(flushed, truth), where + ", flushed");
  return truth;
}

struct Tile {
  int rows, cols, kernel, stride;
  int64_t channels;
  int columns;
};

void check_tile(const cpu::KernelTable& t, std::mt19937& random, const Tile& tile) {
  const int64_t patch_rows = (tile.rows - 1) * tile.stride + tile.kernel;
  const int64_t patch_cols = (tile.cols - 1) * tile.stride + tile.kernel;
  const int taps = tile.kernel * tile.kernel;
  const auto x =
      test::small_activations(random, static_cast<size_t>(patch_rows * patch_cols * tile.channels));
  const auto w = test::normal(random, static_cast<size_t>(taps * tile.channels * cpu::kConvBlock));
  const auto pixels = static_cast<size_t>(tile.rows * tile.cols * tile.columns);
  const auto added = test::small_activations(random, pixels);
  const auto bias = test::normal(random, static_cast<size_t>(tile.columns));
  for (const bool extras : {false, true}) {
    const Floats y = same(t, "conv_tile", pixels, [&](const cpu::KernelTable& k, float* out) {
      cpu::ConvTileArgs a{};
      a.x = x.data();
      a.weight = w.data();
      a.bias = extras ? bias.data() : nullptr;
      a.add = extras ? added.data() : nullptr;
      a.y = out;
      a.patch_cols = patch_cols;
      a.channels = tile.channels;
      a.row_floats = int64_t{tile.cols} * tile.columns;
      a.pixel_floats = tile.columns;
      a.kernel = tile.kernel;
      a.stride = tile.stride;
      a.rows = tile.rows;
      a.cols = tile.cols;
      a.columns = tile.columns;
      k.conv_tile(a);
    });
    // The last pixel's last channel.
    double sum = 0.0, size = 0.0;
    const int column = tile.columns - 1;
    for (int tap = 0; tap < taps; ++tap)
      for (int64_t c = 0; c < tile.channels; ++c) {
        const int64_t row = (tile.rows - 1) * tile.stride + tap / tile.kernel;
        const int64_t col = (tile.cols - 1) * tile.stride + tap % tile.kernel;
        const double product =
            static_cast<double>(
                x[static_cast<size_t>((row * patch_cols + col) * tile.channels + c)]) *
            w[static_cast<size_t>((tap * tile.channels + c) * cpu::kConvBlock + column)];
        sum += product;
        size += std::fabs(product);
      }
    if (extras) sum += static_cast<double>(bias.back()) + static_cast<double>(added.back());
    CHECK(std::fabs(sum - static_cast<double>(y.back())) <= 1e-5 * (size + 1.0), "conv in double");
  }
}

void check_rows(const cpu::KernelTable& t, std::mt19937& random, int64_t n) {
  const auto size = static_cast<size_t>(n);
  const auto x = test::small_activations(random, size), y = test::small_activations(random, size);
  const auto w = test::normal(random, size), b = test::small_activations(random, size);
  using Table = cpu::KernelTable;
  same(t, "modulate", size,
       [&](const Table& k, float* out) { k.modulate(x.data(), w.data(), b.data(), n, out); });
  same(t, "add_gated", size,
       [&](const Table& k, float* out) { k.add_gated(x.data(), y.data(), w.data(), n, out); });
  constexpr int64_t kPixels = 5;
  const auto pixels = test::small_activations(random, size * kPixels);
  auto mean = test::small_activations(random, size);
  mean[0] = pixels[0];  // a distance of zero
  for (const bool squares : {false, true})
    same(t, "sum_pixels", size, [&](const Table& k, float* out) {
      k.sum_pixels(pixels.data(), squares ? mean.data() : nullptr, kPixels, n, out);
    });
  const auto inverse = test::normal(random, size, 30.0f);
  for (const bool silu : {false, true})
    same(t, "norm_pixels", size * kPixels, [&](const Table& k, float* out) {
      cpu::NormPixelsArgs a{};
      a.x = pixels.data();
      a.mean = mean.data();
      a.inverse = inverse.data();
      a.weight = w.data();
      a.bias = b.data();
      a.pixels = kPixels;
      a.channels = n;
      a.silu = silu;
      a.y = out;
      k.norm_pixels(a);
    });
}

}  // namespace

int main() {
  std::mt19937 random(3);
  for (const std::string& name : cpu::available_tiers()) {
    const cpu::KernelTable& t = cpu::table(name);
    for (const Tile& tile :
         {Tile{8, 12, 3, 1, 40, 32}, Tile{1, 1, 1, 1, 3, 1}, Tile{3, 7, 3, 1, 17, 20},
          Tile{4, 11, 3, 2, 9, 16}, Tile{2, 6, 5, 1, 33, 17}, Tile{8, 5, 1, 1, 64, 31}})
      check_tile(t, random, tile);
    for (const int64_t n : {1, 15, 16, 40, 129}) check_rows(t, random, n);
  }
  return test::finish("picture");
}
