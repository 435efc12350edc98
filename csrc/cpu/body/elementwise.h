// Activation rounding, rope, gated units and other elementwise work of a step. Include after a
// tier's simd.h and body/math.h.

#include <cstdint>

#include "cpu/body/flush.h"
#include "cpu/kernel_table.h"

namespace {

using oxibonsai::cpu::QuantizedRows;
using oxibonsai::cpu::RopeArgs;

// Rule 4: scale = amax / 127, q = x * (1 / scale) rounded half to even.
void quantize(const float* x, int64_t n, const QuantizedRows& out) {
  using namespace simd;
  for (int64_t g = 0; g < n / 32; ++g) {
    const Vec a = load(x + 32 * g);
    const Vec b = load(x + 32 * g + 16);
    const float amax = fold_max(max(abs(a), abs(b)));
    const bool live = amax >= oxibonsai::cpu::kTiny;
    const float scale = live ? first(div(splat(amax), splat(127.0f))) : 0.0f;
    const Vec inverse = live ? div(splat(1.0f), splat(scale)) : zero();
    const Vec lowest = splat(-127.0f);
    const Vec highest = splat(127.0f);
    const Int qa = to_int(round_even(min(max(mul(a, inverse), lowest), highest)));
    const Int qb = to_int(round_even(min(max(mul(b, inverse), lowest), highest)));
    store_int8(out.q + 32 * g, qa);
    store_int8(out.q + 32 * g + 16, qb);
    const int32_t sum_a = fold_sum(qa);
    const int32_t sum_b = fold_sum(qb);
    out.scale[g] = scale;
    out.minus_sum16[2 * g] = -sum_a;
    out.minus_sum16[2 * g + 1] = -sum_b;
    out.minus_sum[g] = -(sum_a + sum_b);
    out.offset[g] = first(mul(splat(scale), splat(static_cast<float>(sum_a + sum_b))));
  }
}

// (a, b) -> (a cos - b sin, b cos + a sin), each as one product and one fma.
inline void rotate(simd::Vec& a, simd::Vec& b, simd::Vec c, simd::Vec s) {
  using namespace simd;
  const Vec turned = fma(a, c, sub(zero(), mul(b, s)));
  b = flush_tiny(fma(b, c, mul(a, s)));
  a = flush_tiny(turned);
}

void rope_halves(const RopeArgs& r) {
  using namespace simd;
  for (int h = 0; h < r.heads; ++h) {
    float* low = r.x + static_cast<int64_t>(h) * r.head_dim;
    float* high = low + r.pairs;
    for (int i = 0; i < r.pairs; i += kLanes) {
      const int n = r.pairs - i < kLanes ? r.pairs - i : kLanes;
      Vec a = load_n(low + i, n);
      Vec b = load_n(high + i, n);
      rotate(a, b, load_n(r.cos + i, n), load_n(r.sin + i, n));
      store_n(low + i, a, n);
      store_n(high + i, b, n);
    }
  }
}

void rope_pairs(const RopeArgs& r) {
  using namespace simd;
  for (int h = 0; h < r.heads; ++h) {
    float* x = r.x + static_cast<int64_t>(h) * r.head_dim;
    int i = 0;
    for (; i + kLanes <= r.pairs; i += kLanes) {
      Vec a, b;
      load_pairs(x + 2 * i, a, b);
      rotate(a, b, load(r.cos + i), load(r.sin + i));
      store_pairs(x + 2 * i, a, b);
    }
    if (i < r.pairs) {
      const int n = r.pairs - i;
      float padded[2 * kLanes] = {};
      for (int j = 0; j < 2 * n; ++j) padded[j] = x[2 * i + j];
      Vec a, b;
      load_pairs(padded, a, b);
      rotate(a, b, load_n(r.cos + i, n), load_n(r.sin + i, n));
      store_pairs(padded, a, b);
      for (int j = 0; j < 2 * n; ++j) x[2 * i + j] = padded[j];
    }
  }
}

// y[i] = f(a[i], b[i]) over n values, the tail in a partial vector.
template <class F>
inline void map_lanes(const float* a, const float* b, int64_t n, float* y, F f) {
  using namespace simd;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, f(load(a + i), load(b + i)));
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    store_n(y + i, f(load_n(a + i, rest), load_n(b + i, rest)), rest);
  }
}

// The same for results of a step, of which the tiny ones become +0.
template <class F>
inline void for_each_lane(const float* a, const float* b, int64_t n, float* y, F f) {
  map_lanes(a, b, n, y, [f](simd::Vec p, simd::Vec q) { return flush_tiny(f(p, q)); });
}

// x * sigmoid(t) as x / (1 + e^-t).
inline simd::Vec times_sigmoid(simd::Vec x, simd::Vec t) {
  using namespace simd;
  return div(x, add(splat(1.0f), bounded_exp(sub(zero(), t))));
}

struct Silu {
  static simd::Vec of(simd::Vec x) { return times_sigmoid(x, x); }
};

// 0.5 x (1 + erf(x / sqrt(2))).
struct Gelu {
  static simd::Vec of(simd::Vec x) {
    using namespace simd;
    const Vec e = erf16(mul(x, splat(0.70710678118654752f)));
    return mul(mul(x, splat(0.5f)), add(splat(1.0f), e));
  }
};

// 0.5 x (1 + tanh(u)) = x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanh {
  static simd::Vec of(simd::Vec x) {
    using namespace simd;
    const Vec cubic = fma(mul(mul(x, x), x), splat(0.044715f), x);
    return times_sigmoid(x, mul(cubic, splat(1.5957691216057308f)));
  }
};

struct Relu {
  static simd::Vec of(simd::Vec x) { return simd::max(x, simd::zero()); }
};

struct Relu2 {
  static simd::Vec of(simd::Vec x) {
    const simd::Vec positive = simd::max(x, simd::zero());
    return simd::mul(positive, positive);
  }
};

struct Sigmoid {
  static simd::Vec of(simd::Vec x) { return sigmoid16(x); }
};

struct Identity {
  static simd::Vec of(simd::Vec x) { return x; }
};

template <class Activation>
void gated(const float* gate, const float* up, int64_t n, float* y) {
  for_each_lane(gate, up, n, y,
                [](simd::Vec g, simd::Vec u) { return simd::mul(Activation::of(g), u); });
}

void swiglu_oai(const float* gate, const float* up, int64_t n, float* y) {
  using namespace simd;
  const Vec limit = splat(7.0f);
  for_each_lane(gate, up, n, y, [=](Vec g, Vec u) {
    const Vec below = min(g, limit);
    const Vec clamped = max(min(u, limit), splat(-7.0f));
    return mul(times_sigmoid(below, mul(below, splat(1.702f))), add(clamped, splat(1.0f)));
  });
}

template <class Activation>
void activate(const float* x, int64_t n, float* y) {
  for_each_lane(x, x, n, y, [](simd::Vec v, simd::Vec) { return Activation::of(v); });
}

void add_rows(const float* a, const float* b, int64_t n, float* y) {
  for_each_lane(a, b, n, y, [](simd::Vec p, simd::Vec q) { return simd::add(p, q); });
}

void scale_row(const float* x, float factor, int64_t n, float* y) {
  const simd::Vec f = simd::splat(factor);
  for_each_lane(x, x, n, y, [=](simd::Vec p, simd::Vec) { return simd::mul(p, f); });
}

// fma(alpha_p x, x, beta x) where x > 0, else fma(alpha_n, (e^min(x, eps) - 1) - x, beta x).
void xielu_row(const float* x, const oxibonsai::cpu::XieluArgs& args, int64_t n, float* y) {
  using namespace simd;
  const Vec alpha_p = splat(args.alpha_p);
  const Vec alpha_n = splat(args.alpha_n);
  const Vec beta = splat(args.beta);
  const Vec eps = splat(args.eps);
  for_each_lane(x, x, n, y, [=](Vec v, Vec) {
    const Vec straight = mul(beta, v);
    const Vec curved = sub(sub(exp16(min(v, eps)), splat(1.0f)), v);
    const Vec positive = fma(mul(alpha_p, v), v, straight);
    return select(less(zero(), v), positive, fma(alpha_n, curved, straight));
  });
}

void weighted_sum(const float* const* x, const float* weights, int count, int64_t n, float* y) {
  using namespace simd;
  for (int64_t i = 0; i < n; i += kLanes) {
    const int lanes = n - i < kLanes ? static_cast<int>(n - i) : kLanes;
    Vec sum = zero();
    for (int j = 0; j < count; ++j) {
      const Vec a = lanes == kLanes ? load(x[j] + i) : load_n(x[j] + i, lanes);
      sum = weights != nullptr ? fma(a, splat(weights[j]), sum) : add(sum, a);
    }
    store_n(y + i, flush_tiny(sum), lanes);
  }
}

void clamp_row(const float* x, float limit, int64_t n, float* y) {
  using namespace simd;
  const Vec high = splat(limit);
  const Vec low = splat(-limit);
  for_each_lane(x, x, n, y, [=](Vec p, Vec) { return min(max(p, low), high); });
}

void softcap_row(const float* x, float cap, int64_t n, float* y) {
  using namespace simd;
  const Vec c = splat(cap);
  for_each_lane(x, x, n, y, [=](Vec p, Vec) { return mul(c, tanh16(div(p, c))); });
}

void exp_row(const float* x, int64_t n, float* y) {
  map_lanes(x, x, n, y, [](simd::Vec p, simd::Vec) { return exp16(p); });
}

void tanh_row(const float* x, int64_t n, float* y) {
  map_lanes(x, x, n, y, [](simd::Vec p, simd::Vec) { return tanh16(p); });
}

void erf_row(const float* x, int64_t n, float* y) {
  map_lanes(x, x, n, y, [](simd::Vec p, simd::Vec) { return erf16(p); });
}

void softplus_row(const float* x, int64_t n, float* y) {
  map_lanes(x, x, n, y, [](simd::Vec p, simd::Vec) { return softplus16(p); });
}

void to_half_row(const float* x, int64_t n, uint16_t* y) {
  using namespace simd;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_half(y + i, load(x + i));
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    store_half_n(y + i, load_n(x + i, rest), rest);
  }
}

int64_t argmax(const float* x, int64_t n) {
  using namespace simd;
  constexpr float kLowest = -__builtin_inff();
  Vec best = splat(kLowest);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) best = max(load(x + i), best);
  float top = fold_max(best);
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  for (i = 0; i < n; ++i)
    if (x[i] == top) return i;
  return 0;  // only NaN
}

}  // namespace
