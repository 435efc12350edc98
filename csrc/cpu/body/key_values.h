// Values that are the first dims of their keys (KvLayout::value_in_key), which lie transposed: for
// a column of attention they are turned back, 16 dims by 16 positions at a time.
//
// A turn is four rounds that interleave vectors i and i + 8, as store_pairs does: 64 loads,
// shuffles and stores for 256 values, in a kilobyte of the first-level cache. With 8 queries that
// share a tile this adds about half to the time of the products; a second copy of the values, by
// position, would add nothing here and 89 % to a cache of 576 dims. Include after body/kv_types.h.

#include <cstdint>

#include "cpu/kernel_table.h"

namespace {

// Dim d of 16 positions from `position` on, of a page's keys.
template <class Kv>
inline simd::Vec key_dim(const oxibonsai::cpu::KvLayout& kv, const uint8_t* keys, int d,
                         int position) {
  using namespace simd;
  Vec scale = zero();
  if constexpr (Kv::kScaled)
    scale = load_half(group_scales(keys + kv.key_scales, d / kKvGroup) + position);
  const uint8_t* row = keys + (d / Kv::kPacked * kPagePositions + position) * Kv::kBytes;
  if (Kv::kPacked == 2 && d % 2 != 0) return Kv::template load<1>(row, scale);
  return Kv::template load<0>(row, scale);
}

// One round; four of them transpose [16, 16] floats.
inline void interleave(const float (*from)[simd::kLanes], float (*to)[simd::kLanes]) {
  using namespace simd;
  for (int i = 0; i < kLanes / 2; ++i)
    store_pairs(to[2 * i], load(from[i]), load(from[i + kLanes / 2]));
}

// values[position] = dims d .. d + 15 of the value, for all positions of a page, `stride` floats
// apart; +0 for dims that keys do not have.
template <class Kv>
inline void values_of_keys(const oxibonsai::cpu::KvLayout& kv, const uint8_t* keys, int d,
                           float* values, int stride) {
  using namespace simd;
  for (int p = 0; p < kPagePositions; p += kLanes) {
    float block[kLanes][kLanes], turned[kLanes][kLanes];
    for (int i = 0; i < kLanes; ++i)
      store(block[i], d + i < kv.key_dim ? key_dim<Kv>(kv, keys, d + i, p) : zero());
    for (int round = 0; round < 4; round += 2) {
      interleave(block, turned);
      interleave(turned, block);
    }
    for (int i = 0; i < kLanes; ++i) store(values + (p + i) * stride, load(block[i]));
  }
}

}  // namespace
