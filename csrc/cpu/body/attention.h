// Attention over one part (at most 512 positions) of a paged context (docs/arithmetic.md, rule 5).
// Each page, a tile of 64 positions, has a softmax and a sum of its own, which are then merged into
// those of the part.
//
// Layout: in a page, keys lie transposed, so that 16 keys fill a vector and a score is a chain of
// fmas over key_dim with no reduction across lanes; of values, a vector holds 16 dims of one.
// Types differ only in how a vector is loaded (cpu/body/kv_types.h). The query vectors of a call
// share a key-value head: heads of one group, and in a prompt neighbouring positions; each loaded
// key or value vector serves simd::kQueries of them. Positions that only some see, on the diagonal,
// are added for each query alone, in the order of the positions. Budget for a tile of 64 keys, Q
// queries: 4 * key_dim loads and 4 * Q * key_dim fmas for the scores, as many of value_dim for the
// values, about 100 Q vector operations for the softmax, and Q * value_dim / 2 to merge. Each step
// of the softmax is done for all queries before the next one, so that they don't wait for each
// other: one query after the other took 7 % longer in all, 64 dims on Zen 5. Include after
// body/kv_types.h, body/key_values.h and body/math.h.

#include <cstdint>

#include "cpu/body/flush.h"
#include "cpu/kernel_table.h"

namespace {

using oxibonsai::cpu::AttendArgs;

constexpr float kNoScore = -__builtin_inff();

// Positions of one page: begin <= position < end.
struct Range {
  int begin, end;
  bool empty() const { return begin >= end; }
};

// Pages of one head lie megabytes apart, so the hardware doesn't know which comes next.
inline void fetch(const uint8_t* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i, 0, 2);
}

// acc[q] = fma(q[d], key[d], acc[q]) for V vectors of positions, whose dim d is the kWhich-th of
// `row`.
template <class Kv, int kWhich, int Q, int V>
inline void add_dim(const float* const* queries, int d, const uint8_t* row, const simd::Vec* scales,
                    simd::Vec (*acc)[V]) {
  using namespace simd;
  for (int i = 0; i < V; ++i) {
    const Vec k = Kv::template load<kWhich>(row + i * kLanes * Kv::kBytes, scales[i]);
    for (int q = 0; q < Q; ++q) acc[q][i] = fma(splat(queries[q][d]), k, acc[q][i]);
  }
}

// scores[q][position] = chain over d of fma(q[d], key[d][position], .), from +0. Meanwhile `next`
// is fetched, which has about the size of the keys.
template <class Kv, int Q>
inline void tile_scores(const AttendArgs& a, int query, const uint8_t* keys, const uint8_t* next,
                        float (*scores)[kPagePositions]) {
  using namespace simd;
  constexpr int kRowBytes = kPagePositions * Kv::kBytes;
  // Key vectors at once.
  constexpr int V = kChains >= 4 * Q ? 4 : kChains >= 2 * Q ? 2 : 1;
  const int group = Kv::kScaled ? kKvGroup : a.kv.key_dim;
  const float* queries[Q];  // a prefetch would have them loaded from `a` each time
  for (int q = 0; q < Q; ++q) queries[q] = a.q[query + q];
  for (int v = 0; v < kPagePositions; v += V * kLanes) {
    Vec acc[Q][V];
    for (int q = 0; q < Q; ++q)
      for (int i = 0; i < V; ++i) acc[q][i] = zero();
    const uint8_t* row = keys + v * Kv::kBytes;
    for (int begin = 0; begin < a.kv.key_dim; begin += group) {
      const int end = begin + group < a.kv.key_dim ? begin + group : a.kv.key_dim;
      Vec scale[V];
      for (int i = 0; i < V; ++i) {
        scale[i] = zero();
        if constexpr (Kv::kScaled)
          scale[i] =
              load_half(group_scales(keys + a.kv.key_scales, begin / kKvGroup) + v + i * kLanes);
      }
      for (int d = begin; d < end; d += Kv::kPacked, row += kRowBytes) {
        if (v == 0 && a.fetch) fetch(next + (row - keys), kRowBytes);
        add_dim<Kv, 0, Q, V>(queries, d, row, scale, acc);
        if constexpr (Kv::kPacked == 2)
          if (d + 1 < end) add_dim<Kv, 1, Q, V>(queries, d + 1, row, scale, acc);
      }
    }
    for (int q = 0; q < Q; ++q)
      for (int i = 0; i < V; ++i) store(scores[q] + v + i * kLanes, acc[q][i]);
  }
}

// score = fma(slope, -|key - query|, score), where the first key is `first` after the query.
inline void add_slope(float slope, int first, float* scores) {
  using namespace simd;
  float distance[kPagePositions];
  for (int i = 0; i < kPagePositions; ++i)
    distance[i] = static_cast<float>(first + i < 0 ? first + i : -(first + i));
  for (int v = 0; v < kPagePositions; v += kLanes)
    store(scores + v, fma(splat(slope), load(distance + v), load(scores + v)));
}

// score = score + bias[key - query], the difference within -reach and reach.
inline void add_position_bias(const float* bias, int reach, int first, float* scores) {
  using namespace simd;
  float added[kPagePositions];
  for (int i = 0; i < kPagePositions; ++i) {
    const int distance = first + i;
    added[i] = bias[distance < -reach ? -reach : distance > reach ? reach : distance];
  }
  for (int v = 0; v < kPagePositions; v += kLanes)
    store(scores + v, add(load(scores + v), load(added + v)));
}

// Whether its pattern hides a position of the part from a query.
inline bool is_hidden(const AttendArgs& a, int query, int position) {
  return !a.pattern->sees(a.base + a.at[query], a.base + position, a.window, a.head[query]);
}

// Whether patterns hide all of a page from queries query .. query + Q - 1, which have scores
// already: its weights are zeros, and change nothing.
template <int Q>
inline bool is_hidden_page(const AttendArgs& a, int query, int begin, const Range* seen) {
  if (a.pattern == nullptr) return false;
  for (int q = 0; q < Q; ++q) {
    if (a.max[query + q] == kNoScore) return false;
    for (int i = seen[q].begin; i < seen[q].end; ++i)
      if (!is_hidden(a, query + q, begin + i)) return false;
  }
  return true;
}

// What joins a query's scores before the softmax; those of positions that it does not see become
// kNoScore.
inline void complete_scores(const AttendArgs& a, int query, int begin, Range seen, float* scores) {
  using namespace simd;
  if (a.softcap > 0.0f) {
    const Vec cap = splat(a.softcap);
    for (int v = 0; v < kPagePositions; v += kLanes)
      store(scores + v, mul(cap, tanh16(div(load(scores + v), cap))));
  }
  if (a.biased) add_slope(a.slope[query], begin - a.at[query], scores);
  if (a.position_bias[query] != nullptr)
    add_position_bias(a.position_bias[query], a.reach, begin - a.at[query], scores);
  if (a.pattern != nullptr)
    for (int i = seen.begin; i < seen.end; ++i)
      if (is_hidden(a, query, begin + i)) scores[i] = oxibonsai::graph::kHiddenScore;
  for (int i = 0; i < seen.begin; ++i) scores[i] = kNoScore;
  for (int i = seen.end; i < kPagePositions; ++i) scores[i] = kNoScore;
}

// The scores of each query become weights, relative to its largest of the tile. One step for all
// queries after the other: within a step they don't wait for each other's results.
template <int Q>
inline void tile_weights(float (*scores)[kPagePositions], float* tile_max, float* tile_sum) {
  using namespace simd;
  for (int q = 0; q < Q; ++q) {
    Vec best = load(scores[q]);
    for (int v = kLanes; v < kPagePositions; v += kLanes) best = max(best, load(scores[q] + v));
    tile_max[q] = fold_max(best);
  }
  float sums[Q][kLanes];
  for (int q = 0; q < Q; ++q) {
    Vec sum = zero();
    for (int v = 0; v < kPagePositions; v += kLanes) {
      const Vec p = weight16(sub(load(scores[q] + v), splat(tile_max[q])));
      store(scores[q] + v, p);
      sum = add(sum, p);
    }
    store(sums[q], sum);
  }
  for (int q = 0; q < Q; ++q) tile_sum[q] = fold_sum(load(sums[q]));
}

// What the sums so far and those to be merged into them are multiplied by, for up to 16 queries.
struct MergeFactors {
  float old[simd::kLanes], added[simd::kLanes];
};

// One number for each of Q queries. One alone stays in registers, where memory would cost the time
// of a store and a load for each tile.
template <int Q>
inline simd::Vec load_numbers(const float* p) {
  if constexpr (Q == 1) return simd::splat(*p);
  return simd::load_n(p, Q);
}
template <int Q>
inline void store_numbers(float* p, simd::Vec a) {
  if constexpr (Q == 1)
    *p = simd::first(a);
  else
    simd::store_n(p, a, Q);
}

// Merges the maxima and sums of weights of Q tiles or parts, each of another query.
template <int Q>
inline void merge_softmax(float* maxima, float* sums, const float* added_max,
                          const float* added_sum, MergeFactors* factors) {
  using namespace simd;
  const Vec a = load_numbers<Q>(maxima);
  const Vec b = load_numbers<Q>(added_max);
  const Vec high = max(a, b);
  const Vec old = weight16(sub(a, high));
  const Vec added = weight16(sub(b, high));
  store(factors->old, old);
  store(factors->added, added);
  const Vec more = mul(load_numbers<Q>(added_sum), added);
  store_numbers<Q>(sums, fma(load_numbers<Q>(sums), old, more));
  store_numbers<Q>(maxima, high);
}

inline simd::Vec merge_sums(simd::Vec sum, float old, simd::Vec more, float added) {
  using namespace simd;
  return flush_tiny(fma(sum, splat(old), mul(more, splat(added))));
}

// A column: kVectors vectors of dims of all values of a page, from the kWhich-th that stands at
// `codes` on, with the scales of their positions.
template <class Kv, int kWhich, int kVectors>
struct Column {
  const uint8_t* codes;
  int64_t row_bytes;
  float scales[kPagePositions];
};

template <class Kv, int kWhich, int kVectors>
inline void open_column(const AttendArgs& a, const uint8_t* values, int d,
                        Column<Kv, kWhich, kVectors>* column) {
  using namespace simd;
  column->codes = values + d / (kLanes * Kv::kPacked) * (kLanes * Kv::kBytes);
  column->row_bytes = a.kv.value_row;
  if constexpr (Kv::kScaled) {
    const uint16_t* scales = group_scales(values + a.kv.value_scales, d / kKvGroup);
    for (int i = 0; i < kPagePositions; i += kLanes)
      store(column->scales + i, load_half(scales + i));
  }
}

// acc[q] = fma(weight, value, acc[q]) for each position in order.
template <int Q, class Kv, int kWhich, int kVectors>
inline void add_values(const Column<Kv, kWhich, kVectors>& column, Range positions,
                       const float (*weights)[kPagePositions], simd::Vec (*acc)[kVectors]) {
  using namespace simd;
  constexpr int kStep = Kv::kPacked == 1 ? kLanes * Kv::kBytes : 0;
  const uint8_t* value = column.codes + positions.begin * column.row_bytes;
  for (int i = positions.begin; i < positions.end; ++i, value += column.row_bytes) {
    const Vec scale = Kv::kScaled ? splat(column.scales[i]) : zero();
    Vec v[kVectors];
    v[0] = Kv::template load<kWhich>(value, scale);
    if constexpr (kVectors == 2) v[1] = Kv::template load<1>(value + kStep, scale);
    for (int q = 0; q < Q; ++q)
      for (int n = 0; n < kVectors; ++n) acc[q][n] = fma(splat(weights[q][i]), v[n], acc[q][n]);
  }
}

// What each query sees of a page, and what all of them see, which is not empty.
template <int Q>
struct Seen {
  Range each[Q];
  Range shared;
};

// The tile's sums, fma(weight, value, sum) for each position that q sees, in order, from +0, are
// merged into out[q], for the dims of a column from d on.
template <int Q, class Kv, int kWhich, int kVectors>
inline void sum_column(const AttendArgs& a, int query, int d,
                       const Column<Kv, kWhich, kVectors>& column, const Seen<Q>& seen,
                       const float (*weights)[kPagePositions], const MergeFactors& factors) {
  using namespace simd;
  float* out = a.out + query * a.kv.value_stride + d;
  Vec acc[Q][kVectors];
  for (int q = 0; q < Q; ++q) {
    for (int n = 0; n < kVectors; ++n) acc[q][n] = zero();
    add_values<1>(column, {seen.each[q].begin, seen.shared.begin}, weights + q, acc + q);
  }
  add_values<Q>(column, seen.shared, weights, acc);
  for (int q = 0; q < Q; ++q) {
    add_values<1>(column, {seen.shared.end, seen.each[q].end}, weights + q, acc + q);
    for (int n = 0; n < kVectors; ++n) {
      float* at = out + q * a.kv.value_stride + n * kLanes;
      store(at, merge_sums(load(at), factors.old[q], acc[q][n], factors.added[q]));
    }
  }
}

template <class Kv, int Q, int kWhich, int kVectors>
inline void column_values(const AttendArgs& a, int query, const uint8_t* values, int d,
                          const Seen<Q>& seen, const float (*weights)[kPagePositions],
                          const MergeFactors& factors) {
  Column<Kv, kWhich, kVectors> column;
  open_column(a, values, d, &column);
  sum_column<Q>(a, query, d, column, seen, weights, factors);
}

// The same of values that lie in the keys.
template <class Kv, int Q>
inline void tile_values_of_keys(const AttendArgs& a, int query, const uint8_t* keys,
                                const Seen<Q>& seen, const float (*weights)[kPagePositions],
                                const MergeFactors& factors) {
  float values[kPagePositions][simd::kLanes];
  Column<KvF32, 0, 1> column;
  column.codes = reinterpret_cast<const uint8_t*>(values);
  column.row_bytes = sizeof values[0];
  for (int d = 0; d < a.kv.value_stride; d += simd::kLanes) {
    values_of_keys<Kv>(a.kv, keys, d, values[0], simd::kLanes);
    sum_column<Q>(a, query, d, column, seen, weights, factors);
  }
}

template <class Kv, int Q>
inline void tile_values(const AttendArgs& a, int query, const uint8_t* values, const Seen<Q>& seen,
                        const float (*weights)[kPagePositions], const MergeFactors& factors) {
  using namespace simd;
  int d = 0;
  // Two at once where the registers hold their chains.
  if constexpr (kChains >= 2 * Q)
    for (; d + 2 * kLanes <= a.kv.value_stride; d += 2 * kLanes)
      column_values<Kv, Q, 0, 2>(a, query, values, d, seen, weights, factors);
  for (; d < a.kv.value_stride; d += kLanes) {
    if (Kv::kPacked == 2 && d % kKvGroup != 0)
      column_values<Kv, Q, 1, 1>(a, query, values, d, seen, weights, factors);
    else
      column_values<Kv, Q, 0, 1>(a, query, values, d, seen, weights, factors);
  }
}

inline int larger(int a, int b) { return a > b ? a : b; }
inline int smaller(int a, int b) { return a < b ? a : b; }

// Page `page` of the part for the queries query .. query + Q - 1.
template <class Kv, int Q>
inline void attend_page(const AttendArgs& a, int query, int page) {
  const int begin = page * kPagePositions;
  Seen<Q> seen;
  Range& shared = seen.shared = {0, kPagePositions};
  for (int q = 0; q < Q; ++q) {
    seen.each[q] = {larger(a.first[query + q] - begin, 0),
                    smaller(a.last[query + q] - begin, kPagePositions)};
    shared = {larger(shared.begin, seen.each[q].begin), smaller(shared.end, seen.each[q].end)};
  }
  float scores[Q][kPagePositions];
  if (Q > 1 && shared.empty()) {
    for (int q = 0; q < Q; ++q) attend_page<Kv, 1>(a, query + q, page);
    return;
  }
  if (shared.empty() || is_hidden_page<Q>(a, query, begin, seen.each)) return;
  // Meanwhile the values are fetched, and while those are added the next page's keys.
  tile_scores<Kv, Q>(a, query, a.keys[page], a.values[page], scores);
  float tile_max[Q], tile_sum[Q];
  for (int q = 0; q < Q; ++q) complete_scores(a, query + q, begin, seen.each[q], scores[q]);
  tile_weights<Q>(scores, tile_max, tile_sum);
  MergeFactors factors;
  merge_softmax<Q>(a.max + query, a.sum + query, tile_max, tile_sum, &factors);
  if (a.fetch && begin + kPagePositions < a.last[query]) fetch(a.keys[page + 1], a.kv.key_bytes);
  if (a.kv.value_in_key)
    tile_values_of_keys<Kv, Q>(a, query, a.keys[page], seen, scores, factors);
  else
    tile_values<Kv, Q>(a, query, a.values[page], seen, scores, factors);
}

template <class Kv, int Q>
inline void attend_queries(const AttendArgs& a, int query) {
  using namespace simd;
  int first = a.first[query];
  int last = a.last[query];
  for (int q = query; q < query + Q; ++q) {
    first = smaller(first, a.first[q]);
    last = larger(last, a.last[q]);
    a.max[q] = kNoScore;
    a.sum[q] = 0.0f;
    float* out = a.out + q * a.kv.value_stride;
    for (int d = 0; d < a.kv.value_stride; d += kLanes) store(out + d, zero());
  }
  for (int page = first / kPagePositions; page * kPagePositions < last; ++page)
    attend_page<Kv, Q>(a, query, page);
}

// The queries from `query` on, which are Q at most.
template <class Kv, int Q>
inline void attend_rest(const AttendArgs& a, int query) {
  if (a.queries - query == Q) return attend_queries<Kv, Q>(a, query);
  if constexpr (Q > 1) attend_rest<Kv, Q - 1>(a, query);
}

template <class Kv>
inline void attend_typed(const AttendArgs& a) {
  constexpr int kMany = simd::kQueries;
  int query = 0;
  for (; query + kMany <= a.queries; query += kMany) attend_queries<Kv, kMany>(a, query);
  attend_rest<Kv, kMany - 1>(a, query);
}

void attend(const AttendArgs& a) {
  switch (a.kv.type) {
    case KvType::kF32:
      return attend_typed<KvF32>(a);
    case KvType::kF16:
      return attend_typed<KvF16>(a);
    case KvType::kQ8_0:
      return attend_typed<KvQ8>(a);
    case KvType::kQ4_0:
      return attend_typed<KvQ4>(a);
    case KvType::kFp8:
      return attend_typed<KvFp8>(a);
  }
}

void merge_parts(float* max, float* sum, float* out, float part_max, float part_sum,
                 const float* part_out, int n) {
  using namespace simd;
  MergeFactors factors;
  merge_softmax<1>(max, sum, &part_max, &part_sum, &factors);
  for (int d = 0; d < n; d += kLanes)
    store(out + d, merge_sums(load(out + d), factors.old[0], load(part_out + d), factors.added[0]));
}

}  // namespace
