// RMSNorm and LayerNorm (docs/arithmetic.md, rules 1 and 2). Include after a tier's simd.h.

#include <cstdint>

namespace {

// Sum over n of (x - shift)^2, 16 lanes.
inline float sum_squares(const float* x, int64_t n, float shift) {
  using namespace simd;
  const Vec m = splat(shift);
  Vec acc = zero();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec d = sub(load(x + i), m);
    acc = fma(d, d, acc);
  }
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    float padded[kLanes];
    store(padded, splat(shift));  // lanes past the end add exactly zero
    for (int j = 0; j < rest; ++j) padded[j] = x[i + j];
    const Vec d = sub(load(padded), m);
    acc = fma(d, d, acc);
  }
  return fold_sum(acc);
}

inline float sum_values(const float* x, int64_t n) {
  using namespace simd;
  Vec acc = zero();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) acc = add(acc, load(x + i));
  if (i < n) acc = add(acc, load_n(x + i, static_cast<int>(n - i)));
  return fold_sum(acc);
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
  const Vec s = splat(inverse_root(sum_squares(x, n, 0.0f), n, eps));
  int64_t i = first;
  for (; i + kLanes <= last; i += kLanes) store(y + i, mul(mul(load(x + i), s), load(w + i)));
  if (i < last) {
    const int rest = static_cast<int>(last - i);
    store_n(y + i, mul(mul(load_n(x + i, rest), s), load_n(w + i, rest)), rest);
  }
}

void layer_norm(const float* x, const float* w, const float* b, int64_t n, float eps, float* y) {
  using namespace simd;
  const float mean = first(div(splat(sum_values(x, n)), splat(static_cast<float>(n))));
  const Vec m = splat(mean);
  const Vec s = splat(inverse_root(sum_squares(x, n, mean), n, eps));
  for (int64_t i = 0; i < n; i += kLanes) {
    const int rest = static_cast<int>(n - i < kLanes ? n - i : kLanes);
    const Vec shift = b != nullptr ? load_n(b + i, rest) : zero();
    const Vec unit = mul(sub(load_n(x + i, rest), m), s);
    store_n(y + i, fma(unit, load_n(w + i, rest), shift), rest);
  }
}

}  // namespace
