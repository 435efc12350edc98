// Convolution and scans over recurrent state (docs/arithmetic.md, rule 12). Include after a tier's
// simd.h and body/math.h.
//
// A head's state lies in blocks of 16 columns, [key_dim, 16] each, so that a block of 128 rows (8
// KB) stays in the first-level cache while the tokens of a step pass over it, and needs no
// reduction across lanes. Of a delta rule a token takes, for 16 numbers of the state, 5 loads, 6
// vector operations and 1 store in two passes: the first sums what the state holds for k, the
// second decays, writes, flushes and reads for q. Decaying in the second pass alone saves the first
// one's store. Sums over rows have 4 chains, which hide the latency of an fma.

#include <cstdint>

#include "cpu/body/flush.h"
#include "cpu/kernel_table.h"

namespace {

using oxibonsai::cpu::ChannelScanArgs;
using oxibonsai::cpu::ConvArgs;
using oxibonsai::cpu::kScanColumns;
using oxibonsai::cpu::ScanArgs;
using oxibonsai::cpu::Wkv7Args;

static_assert(kScanColumns == simd::kLanes);

constexpr int kScanChains = 4;

// f(chain, row) for rows 0 .. n - 1, chain = row mod 4; returns (c0 + c2) + (c1 + c3).
template <class F>
inline simd::Vec sum_rows(int n, F f) {
  using namespace simd;
  Vec c[kScanChains];
  for (Vec& chain : c) chain = zero();
  int i = 0;
  for (; i + kScanChains <= n; i += kScanChains)
    for (int j = 0; j < kScanChains; ++j) c[j] = f(c[j], i + j);
  for (int j = 0; i < n; ++i, ++j) c[j] = f(c[j], i);
  return add(add(c[0], c[2]), add(c[1], c[3]));
}

template <bool kDelta>
void scan(const ScanArgs& a) {
  using namespace simd;
  for (int t = 0; t < a.tokens; ++t) {
    const float* k = a.k + t * a.key_stride;
    const float* q = a.q + t * a.key_stride;
    const Vec v = load_n(a.v + t * a.v_stride, a.columns);
    const Vec decay = splat(a.decay[t]);
    Vec written = v;
    if constexpr (kDelta) {
      const Vec held = sum_rows(a.key_dim, [&](Vec sum, int i) {
        return fma(load(a.state + i * kScanColumns), splat(k[i]), sum);
      });
      written = sub(v, mul(decay, held));
    }
    written = flush_tiny(mul(splat(a.write[t]), written));
    Vec y = sum_rows(a.key_dim, [&](Vec sum, int i) {
      float* row = a.state + i * kScanColumns;
      const Vec s = flush_tiny(fma(splat(k[i]), written, mul(decay, load(row))));
      store(row, s);
      return fma(s, splat(q[i]), sum);
    });
    if constexpr (!kDelta) y = fma(splat(a.skip), v, y);
    store_n(a.y + t * a.y_stride, flush_tiny(y), a.columns);
  }
}

void channel_scan(const ChannelScanArgs& a) {
  using namespace simd;
  const Vec bias = load_n(a.dt_bias, a.channels);
  const Vec skip = load_n(a.skip, a.channels);
  for (int t = 0; t < a.tokens; ++t) {
    const int64_t at = t * a.stride;
    const float* b = a.b + t * a.state_stride;
    const float* c = a.c + t * a.state_stride;
    const Vec x = load_n(a.x + at, a.channels);
    const Vec dt = softplus16(add(load_n(a.time_step + at, a.channels), bias));
    const Vec written = flush_tiny(mul(dt, x));
    const Vec y = sum_rows(a.state_dim, [&](Vec sum, int i) {
      float* row = a.state + i * kScanColumns;
      const Vec decay = flush_tiny(exp16(mul(load(a.decay + i * kScanColumns), dt)));
      const Vec s = flush_tiny(fma(splat(b[i]), written, mul(decay, load(row))));
      store(row, s);
      return fma(s, splat(c[i]), sum);
    });
    store_n(a.y + at, flush_tiny(fma(skip, x, y)), a.channels);
  }
}

void wkv7_scan(const Wkv7Args& a) {
  using namespace simd;
  for (int t = 0; t < a.tokens; ++t) {
    const float* decay = a.decay + t * a.dim;
    const float* erase = a.erase + t * a.dim;
    const float* r = a.r + t * a.stride;
    const float* k = a.k + t * a.stride;
    const float* kk = a.kk + t * a.stride;
    const Vec v = load_n(a.v + t * a.stride, a.columns);
    const Vec held = flush_tiny(sum_rows(a.dim, [&](Vec sum, int i) {
      return fma(load(a.state + i * kScanColumns), splat(kk[i]), sum);
    }));
    const Vec y = sum_rows(a.dim, [&](Vec sum, int i) {
      float* row = a.state + i * kScanColumns;
      const Vec erased = fma(splat(erase[i]), held, mul(splat(decay[i]), load(row)));
      const Vec s = flush_tiny(fma(splat(k[i]), v, erased));
      store(row, s);
      return fma(s, splat(r[i]), sum);
    });
    store_n(a.y + t * a.stride, flush_tiny(y), a.columns);
  }
}

void conv1d(const ConvArgs& a) {
  using namespace simd;
  for (int64_t i = 0; i < a.n; i += kLanes) {
    const int n = static_cast<int>(a.n - i < kLanes ? a.n - i : kLanes);
    Vec sum = mul(load_n(a.rows[0] + i, n), load_n(a.weight + i, n));
    for (int j = 1; j < a.taps; ++j)
      sum = fma(load_n(a.rows[j] + i, n), load_n(a.weight + j * a.stride + i, n), sum);
    if (a.bias != nullptr) sum = add(sum, load_n(a.bias + i, n));
    if (a.silu) sum = div(sum, add(splat(1.0f), bounded_exp(sub(zero(), sum))));
    store_n(a.y + i, flush_tiny(sum), n);
  }
}

}  // namespace
