// The most int8 multiply-adds that a tier's dot product can do: the inner loop of a linear layer
// over operands that never leave the first-level cache. Include after a tier's dot.h.

#include <cstdint>

namespace {

// Does `rounds` rounds; returns the multiply-adds done.
int64_t int8_peak(int64_t rounds) {
  using namespace dot;
  // Two dot products may begin each cycle and end five later; the sums are registers.
  constexpr int kChains = 12;
  constexpr int kQuads = 8;
  int8_t x[kChains][4 * kQuads];
  for (int i = 0; i < kChains * 4 * kQuads; ++i) x[i / 32][i % 32] = static_cast<int8_t>(i);
  Codes w[kQuads];
#pragma GCC unroll 8
  for (int q = 0; q < kQuads; ++q) w[q] = byte_splat(1);
  Sums sum[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sum[c] = sum_splat(c);  // or one would do for all
  for (int64_t i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+m"(x));  // x may have changed: no product can be kept
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; q += kQuadsAtOnce)
#pragma GCC unroll 12
      for (int c = 0; c < kChains; ++c)
        sum[c] =
            dot_quads<3, kQuadsAtOnce, false>(w + q, x[kQuadsAtOnce == 1 ? 0 : c] + 4 * q, sum[c]);
  }
  Sums all = sum[0];
#pragma GCC unroll 12
  for (int c = 1; c < kChains; ++c) all = sum_add(all, sum[c]);
  volatile Sums kept = all;  // or the loop would go
  (void)kept;
  return rounds * kChains * kQuads * 4 * kRows;
}

}  // namespace
