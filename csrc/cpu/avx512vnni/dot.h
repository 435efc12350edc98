#pragma once

// vpdpbusd: four unsigned by four signed bytes a lane, summed into int32 without saturation. A
// broadcast of the activation bytes is part of the instruction's memory operand.

#include "cpu/avx512/lanes.h"

namespace {
namespace dot {

constexpr int kQuadsAtOnce = 1;  // that share an instruction that widens
// Two tiles share the broadcast of four bytes: one a dot product is more than processors load that
// do two dot products a cycle. 16 quads + 8 sums of the 32 registers; inner and row sums are
// memory.
constexpr int kTilesAtOnce = 2, kTokensAtOnce = 4;
// Codes of more bits gain nothing, and lose where eight tokens wait for memory: Q4_0, 30 to 39 GB/s
// instead of 39.
constexpr int kBitsOfTilesAtOnce = 2;
constexpr int kTilesOfOneToken = 1;
constexpr bool kUnsignedBytes = true;

// start + sum over kQuads quads of codes times activations. kSplit breaks the chain of dependent
// instructions in two where one token alone can't hide its latency.
template <int kMaxCode, int kQuads, bool kSplit>
inline Sums dot_quads(const Codes* w, const int8_t* x, Sums start) {
  if constexpr (kSplit) {
    Sums other = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; q += 2) {
      start = _mm512_dpbusd_epi32(start, w[q], quad_splat(x + 4 * q));
      other = _mm512_dpbusd_epi32(other, w[q + 1], quad_splat(x + 4 * q + 4));
    }
    return sum_add(start, other);
  } else {
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q)
      start = _mm512_dpbusd_epi32(start, w[q], quad_splat(x + 4 * q));
    return start;
  }
}

}  // namespace dot
}  // namespace

#include "cpu/body/dot_chains.h"
