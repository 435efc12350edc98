// The most float multiply-adds that a tier can do: chains of fmas whose operands never leave the
// registers. Include after a tier's simd.h.

#include <cstdint>

namespace {

// Does `rounds` rounds; returns the multiply-adds done.
int64_t fma_peak(int64_t rounds) {
  using namespace simd;
  constexpr int kSums = kChains < 12 ? kChains : 12;  // hides the latency of the fma
  constexpr int kUnroll = 8;
  float start = 0.5f;
  __asm__ volatile("" : "+m"(start));  // no value is known, so no product can be kept
  const Vec x = splat(start);
  const Vec w = splat(start + start);
  Vec sum[kSums];
  for (int c = 0; c < kSums; ++c) sum[c] = splat(start * static_cast<float>(c));
  for (int64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 8
    for (int u = 0; u < kUnroll; ++u)
#pragma GCC unroll 12
      for (int c = 0; c < kSums; ++c) sum[c] = fma(x, w, sum[c]);
  Vec all = sum[0];
  for (int c = 1; c < kSums; ++c) all = add(all, sum[c]);
  volatile float kept = fold_sum(all);  // or the loop would go
  (void)kept;
  return rounds * kUnroll * kSums * kLanes;
}

}  // namespace
