// Attention over one part (at most 512 positions) of a paged context (docs/arithmetic.md, rule 5).
//
// Layout: in a page, keys lie transposed, [head_dim, 64], so that 16 keys fill a vector and a score
// is a chain of fmas over head_dim with no fold across lanes; values lie [64, value_stride], so
// that a vector holds 16 dims of one value. The up to four query vectors of a call share one
// position and one key-value head: each loaded key or value vector serves all of them. Budget for a
// tile of 64 keys, Q queries: 4 * head_dim loads and 4 * Q * head_dim fmas for the scores, the same
// again for the values, about 25 * Q vector operations for the softmax. Include after a tier's
// simd.h and body/math.h.

#include <cstdint>

#include "cpu/kernel_table.h"

namespace {

using oxibonsai::cpu::AttendArgs;
using oxibonsai::cpu::kMaxQueries;
using oxibonsai::cpu::kPageSlots;
using oxibonsai::cpu::KvType;

constexpr int kTileVecs = kPageSlots / simd::kLanes;
constexpr float kNoScore = -__builtin_inff();

struct KvF32 {
  static constexpr int kBytes = 4;
  static simd::Vec load(const uint8_t* p) { return simd::load(reinterpret_cast<const float*>(p)); }
};

struct KvF16 {
  static constexpr int kBytes = 2;
  static simd::Vec load(const uint8_t* p) {
    return simd::load_half(reinterpret_cast<const uint16_t*>(p));
  }
};

// scores[q][slot] = chain over d of fma(q[d], key[d][slot], .), from +0.
template <class Kv, int Q>
inline void tile_scores(const AttendArgs& a, const uint8_t* keys, float (*scores)[kPageSlots]) {
  using namespace simd;
  for (int v = 0; v < kTileVecs; v += 2) {
    Vec acc[Q][2];
    for (int q = 0; q < Q; ++q) acc[q][0] = acc[q][1] = zero();
    const uint8_t* column = keys + v * kLanes * Kv::kBytes;
    for (int d = 0; d < a.head_dim; ++d, column += kPageSlots * Kv::kBytes) {
      const Vec k0 = Kv::load(column);
      const Vec k1 = Kv::load(column + kLanes * Kv::kBytes);
      for (int q = 0; q < Q; ++q) {
        const Vec x = splat(a.q[q * a.head_dim + d]);
        acc[q][0] = fma(x, k0, acc[q][0]);
        acc[q][1] = fma(x, k1, acc[q][1]);
      }
    }
    for (int q = 0; q < Q; ++q) {
      store(scores[q] + v * kLanes, acc[q][0]);
      store(scores[q] + (v + 1) * kLanes, acc[q][1]);
    }
  }
}

// Softmax state of one query over the tile: scores become weights, returns the factor for what was
// summed before. Slots outside first..last get the weight zero.
inline float tile_weights(const AttendArgs& a, int q, int first_slot, int last_slot,
                          float* scores) {
  using namespace simd;
  if (a.softcap > 0.0f) {
    const Vec cap = splat(a.softcap);
    for (int v = 0; v < kPageSlots; v += kLanes)
      store(scores + v, mul(cap, tanh16(div(load(scores + v), cap))));
  }
  for (int i = 0; i < first_slot; ++i) scores[i] = kNoScore;
  for (int i = last_slot; i < kPageSlots; ++i) scores[i] = kNoScore;
  Vec best = load(scores);
  for (int v = kLanes; v < kPageSlots; v += kLanes) best = max(best, load(scores + v));
  const float tile_top = fold_max(best);
  const float top = a.top[q] > tile_top ? a.top[q] : tile_top;
  Vec sum = zero();
  for (int v = 0; v < kPageSlots; v += kLanes) {
    const Vec p = exp16(sub(load(scores + v), splat(top)));
    store(scores + v, p);
    sum = add(sum, p);
  }
  const float factor = simd::first(exp16(sub(splat(a.top[q]), splat(top))));
  a.mass[q] = simd::first(fma(splat(a.mass[q]), splat(factor), splat(fold_sum(sum))));
  a.top[q] = top;
  return factor;
}

// out[q] = out[q] * factor[q], then for each slot in order fma(weight, value, out[q]).
template <class Kv, int Q>
inline void tile_values(const AttendArgs& a, const uint8_t* values, int first_slot, int last_slot,
                        const float (*weights)[kPageSlots], const float* factors) {
  using namespace simd;
  const int64_t slot_bytes = static_cast<int64_t>(a.value_stride) * Kv::kBytes;
  for (int d = 0; d < a.value_stride; d += kLanes) {
    Vec acc[Q];
    for (int q = 0; q < Q; ++q)
      acc[q] = mul(load(a.out + q * a.value_stride + d), splat(factors[q]));
    const uint8_t* value = values + first_slot * slot_bytes + d * Kv::kBytes;
    for (int i = first_slot; i < last_slot; ++i, value += slot_bytes) {
      const Vec v = Kv::load(value);
      for (int q = 0; q < Q; ++q) acc[q] = fma(splat(weights[q][i]), v, acc[q]);
    }
    for (int q = 0; q < Q; ++q) store(a.out + q * a.value_stride + d, acc[q]);
  }
}

template <class Kv, int Q>
inline void attend_queries(const AttendArgs& a) {
  using namespace simd;
  for (int q = 0; q < Q; ++q) {
    a.top[q] = kNoScore;
    a.mass[q] = 0.0f;
    for (int d = 0; d < a.value_stride; d += kLanes) store(a.out + q * a.value_stride + d, zero());
  }
  for (int page = a.first / kPageSlots; page * kPageSlots < a.last; ++page) {
    const int begin = page * kPageSlots;
    const int first_slot = a.first > begin ? a.first - begin : 0;
    const int last_slot = a.last - begin < kPageSlots ? a.last - begin : kPageSlots;
    float scores[Q][kPageSlots];
    float factors[Q];
    tile_scores<Kv, Q>(a, a.keys[page], scores);
    for (int q = 0; q < Q; ++q) factors[q] = tile_weights(a, q, first_slot, last_slot, scores[q]);
    tile_values<Kv, Q>(a, a.values[page], first_slot, last_slot, scores, factors);
  }
}

template <class Kv>
inline void attend_typed(const AttendArgs& a) {
  switch (a.queries) {
    case 1:
      return attend_queries<Kv, 1>(a);
    case 2:
      return attend_queries<Kv, 2>(a);
    case 3:
      return attend_queries<Kv, 3>(a);
    default:
      return attend_queries<Kv, kMaxQueries>(a);
  }
}

void attend(const AttendArgs& a) {
  if (a.type == KvType::kF32) return attend_typed<KvF32>(a);
  attend_typed<KvF16>(a);
}

void fold_parts(float* top, float* mass, float* out, float part_top, float part_mass,
                const float* part_out, int n) {
  using namespace simd;
  const float high = *top > part_top ? *top : part_top;
  const Vec old_factor = exp16(sub(splat(*top), splat(high)));
  const Vec new_factor = exp16(sub(splat(part_top), splat(high)));
  *mass = simd::first(fma(splat(*mass), old_factor, mul(splat(part_mass), new_factor)));
  *top = high;
  for (int d = 0; d < n; d += kLanes) {
    const Vec scaled = mul(load(part_out + d), new_factor);
    store(out + d, fma(load(out + d), old_factor, scaled));
  }
}

}  // namespace
