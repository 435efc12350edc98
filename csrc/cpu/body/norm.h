// RMSNorm and LayerNorm (docs/arithmetic.md, rule 2). Include after a tier's simd.h.
//
// A sum has 64 lanes, four vectors, so that four chains of fmas hide each other's latency.

#include <cstdint>

#include "cpu/body/flush.h"

namespace {

constexpr int kSums = 4;  // vectors of lanes

// f(lane, element) over n values in 64 lanes, which then fold 64 to 32 to ... to 1, i with i +
// half.
template <class F>
inline float reduce(const float* x, int64_t n, F f) {
  using namespace simd;
  Vec sum[kSums];
  for (Vec& s : sum) s = zero();
  int64_t i = 0;
  for (; i + kSums * kLanes <= n; i += kSums * kLanes)
    for (int v = 0; v < kSums; ++v) sum[v] = f(sum[v], load(x + i + v * kLanes));
  for (int v = 0; i < n; ++v, i += kLanes)
    sum[v] = f(sum[v], load_n(x + i, static_cast<int>(n - i < kLanes ? n - i : kLanes)));
  return fold_sum(add(add(sum[0], sum[2]), add(sum[1], sum[3])));
}

inline float sum_squares(const float* x, int64_t n) {
  return reduce(x, n, [](simd::Vec sum, simd::Vec a) { return simd::fma(a, a, sum); });
}

inline float sum_values(const float* x, int64_t n) {
  return reduce(x, n, [](simd::Vec sum, simd::Vec a) { return simd::add(sum, a); });
}

// y = f(x, lanes) a vector at a time; lanes(p) loads the values of p that stand beside those of x.
template <class F>
inline void map_row(const float* x, int64_t n, float* y, F f) {
  using namespace simd;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    store(y + i, f(load(x + i), [i](const float* p) { return load(p + i); }));
  if (i == n) return;
  const int rest = static_cast<int>(n - i);
  store_n(y + i, f(load_n(x + i, rest), [=](const float* p) { return load_n(p + i, rest); }), rest);
}

// 1 / sqrt(sum / n + eps), in this order, each operation rounded.
inline float inverse_root(float sum, int64_t n, float eps) {
  using namespace simd;
  const Vec mean = div(splat(sum), splat(static_cast<float>(n)));
  return first(div(splat(1.0f), sqrt(add(mean, splat(eps)))));
}

void rms_norm(const float* x, const float* w, int64_t n, float eps, int64_t first, int64_t last,
              float* y) {
  using namespace simd;
  const Vec s = splat(inverse_root(sum_squares(x, n), n, eps));
  const auto scaled = [s](Vec a, Vec weight) { return flush_tiny(mul(mul(a, s), weight)); };
  int64_t i = first;
  for (; i + kLanes <= last; i += kLanes) store(y + i, scaled(load(x + i), load(w + i)));
  if (i < last) {
    const int rest = static_cast<int>(last - i);
    store_n(y + i, scaled(load_n(x + i, rest), load_n(w + i, rest)), rest);
  }
}

void layer_norm(const float* x, const float* w, const float* b, int64_t n, float eps, float* y) {
  using namespace simd;
  const Vec mean = div(splat(sum_values(x, n)), splat(static_cast<float>(n)));
  // Tiny distances from the mean have squares that are subnormal.
  map_row(x, n, y, [=](Vec v, auto) { return flush_tiny(sub(v, mean)); });
  const Vec s = splat(inverse_root(sum_squares(y, n), n, eps));
  map_row(y, n, y, [=](Vec v, auto lanes) {
    return flush_tiny(fma(mul(v, s), lanes(w), b != nullptr ? lanes(b) : zero()));
  });
}

void match_rms(const float* x, const float* like, int64_t n, float floor, float* y) {
  using namespace simd;
  const Vec count = splat(static_cast<float>(n));
  const Vec wanted = sqrt(div(splat(sum_squares(like, n)), count));
  const Vec own = sqrt(max(div(splat(sum_squares(x, n)), count), splat(floor)));
  map_row(x, n, y, [=](Vec v, auto) { return flush_tiny(div(mul(v, wanted), own)); });
}

void gaussian_top_k(const float* x, int64_t n, float deviations, float* y) {
  using namespace simd;
  const Vec count = splat(static_cast<float>(n));
  const Vec mean = div(splat(sum_values(x, n)), count);
  map_row(x, n, y, [=](Vec v, auto) { return flush_tiny(sub(v, mean)); });
  const Vec deviation = sqrt(div(splat(sum_squares(y, n)), count));
  const Vec cut = mul(splat(deviations), deviation);
  map_row(y, n, y, [=](Vec v, auto) { return flush_tiny(max(sub(v, cut), zero())); });
}

}  // namespace
