// Attention over one part (at most 512 positions) of a paged context (docs/arithmetic.md, rule 5).
//
// Layout: in a page, keys lie transposed, [head_dim, 64], so that 16 keys fill a vector and a score
// is a chain of fmas over head_dim with no fold across lanes; values lie [64, value_stride], so
// that a vector holds 16 dims of one value. The query vectors of a call share a key-value head:
// heads of one group, and in a prompt neighbouring positions; each loaded key or value vector
// serves simd::kQueries of them. Slots that only some see, on the diagonal, are added for each
// query alone, in the order of the slots. Budget for a tile of 64 keys, Q queries: 4 * head_dim
// loads and 4 * Q * head_dim fmas for the scores, the same again for the values, about 25 * Q
// vector operations for the softmax. Include after a tier's simd.h and body/math.h.

#include <cstdint>

#include "cpu/kernel_table.h"

namespace {

using oxibonsai::cpu::AttendArgs;
using oxibonsai::cpu::kPageSlots;
using oxibonsai::cpu::KvType;

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

// Slots of one page: begin <= slot < end.
struct Range {
  int begin, end;
  bool empty() const { return begin >= end; }
};

// Pages of one head lie megabytes apart, so the hardware doesn't know which comes next.
template <int kBytes>
inline void fetch_row(const uint8_t* p) {
  for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

// scores[q][slot] = chain over d of fma(q[d], key[d][slot], .), from +0.
template <class Kv, int Q>
inline void tile_scores(const AttendArgs& a, int query, const uint8_t* keys, const uint8_t* next,
                        float (*scores)[kPageSlots]) {
  using namespace simd;
  constexpr int kRowBytes = kPageSlots * Kv::kBytes;
  // Key vectors at once.
  constexpr int V = kChains >= 4 * Q ? 4 : kChains >= 2 * Q ? 2 : 1;
  for (int v = 0; v < kPageSlots; v += V * kLanes) {
    Vec acc[Q][V];
    for (int q = 0; q < Q; ++q)
      for (int i = 0; i < V; ++i) acc[q][i] = zero();
    const uint8_t* column = keys + v * Kv::kBytes;
    for (int d = 0; d < a.head_dim; ++d, column += kRowBytes) {
      if (v == 0) fetch_row<kRowBytes>(next + d * kRowBytes);
      for (int i = 0; i < V; ++i) {
        const Vec k = Kv::load(column + i * kLanes * Kv::kBytes);
        for (int q = 0; q < Q; ++q) acc[q][i] = fma(splat(a.q[query + q][d]), k, acc[q][i]);
      }
    }
    for (int q = 0; q < Q; ++q)
      for (int i = 0; i < V; ++i) store(scores[q] + v + i * kLanes, acc[q][i]);
  }
}

// Softmax state of one query over the tile: scores become weights, returns the factor for what was
// summed before. Slots that it does not see get the weight zero.
inline float tile_weights(const AttendArgs& a, int q, Range seen, float* scores) {
  using namespace simd;
  if (a.softcap > 0.0f) {
    const Vec cap = splat(a.softcap);
    for (int v = 0; v < kPageSlots; v += kLanes)
      store(scores + v, mul(cap, tanh16(div(load(scores + v), cap))));
  }
  for (int i = 0; i < seen.begin; ++i) scores[i] = kNoScore;
  for (int i = seen.end; i < kPageSlots; ++i) scores[i] = kNoScore;
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

template <class Kv, int Q>
inline void add_values(const uint8_t* values, int64_t slot_bytes, Range slots,
                       const float (*weights)[kPageSlots], simd::Vec* acc) {
  using namespace simd;
  const uint8_t* value = values + slots.begin * slot_bytes;
  for (int i = slots.begin; i < slots.end; ++i, value += slot_bytes) {
    const Vec v = Kv::load(value);
    for (int q = 0; q < Q; ++q) acc[q] = fma(splat(weights[q][i]), v, acc[q]);
  }
}

// out[q] = out[q] * factor[q], then for each slot that q sees, in order, fma(weight, value,
// out[q]). `shared`, which is not empty, is seen by all.
template <class Kv, int Q>
inline void tile_values(const AttendArgs& a, int query, const uint8_t* values, const Range* seen,
                        Range shared, const float (*weights)[kPageSlots], const float* factors) {
  using namespace simd;
  const int64_t slot_bytes = static_cast<int64_t>(a.value_stride) * Kv::kBytes;
  for (int d = 0; d < a.value_stride; d += kLanes) {
    float* out = a.out + query * a.value_stride + d;
    const uint8_t* column = values + d * Kv::kBytes;
    Vec acc[Q];
    for (int q = 0; q < Q; ++q) {
      acc[q] = mul(load(out + q * a.value_stride), splat(factors[q]));
      add_values<Kv, 1>(column, slot_bytes, {seen[q].begin, shared.begin}, weights + q, acc + q);
    }
    add_values<Kv, Q>(column, slot_bytes, shared, weights, acc);
    for (int q = 0; q < Q; ++q) {
      add_values<Kv, 1>(column, slot_bytes, {shared.end, seen[q].end}, weights + q, acc + q);
      store(out + q * a.value_stride, acc[q]);
    }
  }
}

inline int larger(int a, int b) { return a > b ? a : b; }
inline int smaller(int a, int b) { return a < b ? a : b; }

// Page `page` of the part for the queries query .. query + Q - 1.
template <class Kv, int Q>
inline void attend_page(const AttendArgs& a, int query, int page) {
  constexpr int kRowBytes = kPageSlots * Kv::kBytes;
  const int begin = page * kPageSlots;
  Range seen[Q];
  Range shared{0, kPageSlots};
  for (int q = 0; q < Q; ++q) {
    seen[q] = {larger(a.first[query + q] - begin, 0),
               smaller(a.last[query + q] - begin, kPageSlots)};
    shared = {larger(shared.begin, seen[q].begin), smaller(shared.end, seen[q].end)};
  }
  float scores[Q][kPageSlots];
  float factors[Q];
  if (Q > 1 && shared.empty()) {
    for (int q = 0; q < Q; ++q) attend_page<Kv, 1>(a, query + q, page);
    return;
  }
  if (shared.empty()) return;
  // Meanwhile the values are fetched, and while those are added the next page's keys.
  tile_scores<Kv, Q>(a, query, a.keys[page], a.values[page], scores);
  for (int q = 0; q < Q; ++q) factors[q] = tile_weights(a, query + q, seen[q], scores[q]);
  if (begin + kPageSlots < a.last[query])
    for (int i = 0; i < a.head_dim; ++i) fetch_row<kRowBytes>(a.keys[page + 1] + i * kRowBytes);
  tile_values<Kv, Q>(a, query, a.values[page], seen, shared, scores, factors);
}

template <class Kv, int Q>
inline void attend_queries(const AttendArgs& a, int query) {
  using namespace simd;
  int first = a.first[query];
  int last = a.last[query];
  for (int q = query; q < query + Q; ++q) {
    first = smaller(first, a.first[q]);
    last = larger(last, a.last[q]);
    a.top[q] = kNoScore;
    a.mass[q] = 0.0f;
    for (int d = 0; d < a.value_stride; d += kLanes) store(a.out + q * a.value_stride + d, zero());
  }
  for (int page = first / kPageSlots; page * kPageSlots < last; ++page)
    attend_page<Kv, Q>(a, query, page);
}

template <class Kv>
inline void attend_typed(const AttendArgs& a) {
  constexpr int kMany = simd::kQueries;
  int query = 0;
  for (; query + kMany <= a.queries; query += kMany) attend_queries<Kv, kMany>(a, query);
  if constexpr (kMany > 4)
    for (; query + 4 <= a.queries; query += 4) attend_queries<Kv, 4>(a, query);
  switch (a.queries - query) {
    case 3:
      return attend_queries<Kv, 3>(a, query);
    case 2:
      return attend_queries<Kv, 2>(a, query);
    case 1:
      return attend_queries<Kv, 1>(a, query);
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
