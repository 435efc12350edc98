#pragma once

// The dot product of four bytes a lane without the dotprod extension: 16-bit products, summed in
// pairs into 32 bits, then once more across the pairs of a row.

#include "cpu/neon/lanes.h"

namespace {
namespace dot {

constexpr int kQuadsAtOnce = 1;  // that share a widening
constexpr int kTilesAtOnce = 1, kTokensAtOnce = 1;
constexpr int kBitsOfTilesAtOnce = 0;
constexpr int kTilesOfOneToken = 1;

template <int kMaxCode, int kQuads, bool kSplit>
inline Sums dot_quads(const Codes* w, const int8_t* x, Sums start) {
  int32x4_t low = vdupq_n_s32(0);   // rows 0 and 1, two sums each
  int32x4_t high = vdupq_n_s32(0);  // rows 2 and 3
#pragma GCC unroll 8
  for (int q = 0; q < kQuads; ++q) {
    const int8x16_t code = signed_codes<kMaxCode>(w[q]);
    const int8x16_t four = quad_splat(x + 4 * q);
    low = vpadalq_s16(low, vmull_s8(vget_low_s8(code), vget_low_s8(four)));
    high = vpadalq_s16(high, vmull_s8(vget_high_s8(code), vget_high_s8(four)));
  }
  return vaddq_s32(start, vpaddq_s32(low, high));
}

}  // namespace dot
}  // namespace

#include "cpu/body/dot_chains.h"
