#pragma once

// sdot: four signed by four signed bytes a lane, summed into int32.

#include "cpu/neon/lanes.h"

namespace {
namespace dot {

constexpr int kQuadsAtOnce = 1;  // that share an instruction that widens
constexpr int kTilesAtOnce = 1, kTokensAtOnce = 1;
constexpr int kBitsOfTilesAtOnce = 0;
constexpr int kTilesOfOneToken = 1;

// start + sum over kQuads quads of codes times activations. kSplit breaks the chain of dependent
// instructions in two where one token alone can't hide its latency.
template <int kMaxCode, int kQuads, bool kSplit>
inline Sums dot_quads(const Codes* w, const int8_t* x, Sums start) {
  if constexpr (kSplit) {
    Sums other = vdupq_n_s32(0);
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; q += 2) {
      start = vdotq_s32(start, signed_codes<kMaxCode>(w[q]), quad_splat(x + 4 * q));
      other = vdotq_s32(other, signed_codes<kMaxCode>(w[q + 1]), quad_splat(x + 4 * q + 4));
    }
    return sum_add(start, other);
  } else {
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q)
      start = vdotq_s32(start, signed_codes<kMaxCode>(w[q]), quad_splat(x + 4 * q));
    return start;
  }
}

}  // namespace dot
}  // namespace

#include "cpu/body/dot_chains.h"
