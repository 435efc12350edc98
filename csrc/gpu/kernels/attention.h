// Softmax attention over pages (docs/arithmetic.md, rule 5).
//
// attend: a block of 128 threads takes one part of the context, 512 positions, for up to kQueries
// queries that share a key-value head: the heads of a set, of neighbouring rows of one sequence. Of
// a page, a thread computes the scores of one position for half of the queries (each key's dim is
// read once for them, neighbouring threads read neighbouring positions); a warp the weights of a
// query; a thread the sums of one or more dims of the values for all queries. merge: a block merges
// the parts of a query in order. Budget for a page and Q queries: head_dim * Q / 2 fmas a thread
// for the scores, 64 * Q for each dim's values, some 40 for the weights.

#define ATTEND_THREADS 128
// Dims of a head, at most: 16 queries of 256 or 4 of 640 are kept in shared memory.
#define ATTEND_DIMS(kQueries) ((kQueries) == 16 ? 256 : 640)
#define MERGE_DIMS 640
#define PART_POSITIONS 512

// What a query sees of a part: positions first .. last - 1.
struct Seen {
  uint32_t first, last;
};

// The first position that a row sees: one of its window.
INLINE uint32_t first_seen(ARGS(AttendArgs) args, GLOBAL const int32_t* views, uint64_t row) {
  const uint32_t own_end = uint32_t(views[3 * row]), begin = uint32_t(views[3 * row + 2]);
  if (args.chunk > 0) return (own_end - 1) / args.chunk * args.chunk;
  return larger(begin, args.window > 0 && own_end > args.window ? own_end - args.window : 0);
}

INLINE Seen seen_of(ARGS(AttendArgs) args, GLOBAL const int32_t* views, uint64_t row,
                    uint32_t part) {
  const uint32_t begin = first_seen(args, views, row), end = uint32_t(views[3 * row + 1]);
  const uint32_t base = part * PART_POSITIONS;
  Seen s;
  s.first = begin > base ? begin - base : 0;
  s.last = end > base ? smaller(end - base, uint32_t(PART_POSITIONS)) : 0;
  return s;
}

// The butterflies of the rotation over queries in shared memory.
INLINE void rotate_shared(GROUP float* values, uint32_t stride, uint32_t count,
                          uint32_t thread_id) {
  for (uint32_t pair = thread_id; pair < count / 2; pair += ATTEND_THREADS) {
    const uint32_t i = pair / stride * 2 * stride + pair % stride;
    const float a = values[i], b = values[i + stride];
    values[i] = a + b;
    values[i + stride] = a - b;
  }
}

// A score, with its soft-cap and its biases; the key is `distance` after the query.
INLINE float final_score(ARGS(AttendArgs) args, float score, float slope,
                         GLOBAL const float* by_position, uint32_t head, int32_t distance) {
  if (args.softcap > 0.0f) score = args.softcap * tanh_of(quotient(score, args.softcap));
  if (args.has_slopes != 0) {
    const int32_t away = distance < 0 ? distance : -distance;
    score = fused(slope, float(away), score);
  }
  if (args.has_position_bias != 0) {
    const int32_t reach = int32_t(args.reach);
    const int32_t within = distance < -reach ? -reach : distance > reach ? reach : distance;
    score = score + by_position[int32_t(head) * (2 * reach + 1) + within + reach];
  }
  return score;
}

// Scores of a warp's query to weights; the tile's largest score and sum to lane 0. `distance` is
// that of the tile's first key after the query.
struct TileSoftmax {
  float max, sum;
};

INLINE TileSoftmax weigh(ARGS(AttendArgs) args, GROUP float* scores, float slope,
                         GLOBAL const float* by_position, uint32_t head, int32_t distance,
                         uint32_t first, uint32_t last, uint32_t lane) {
  const int32_t at = distance + int32_t(lane);
  float a = final_score(args, scores[lane], slope, by_position, head, at);
  float b = final_score(args, scores[lane + 32], slope, by_position, head, at + 32);
  if (lane < first || lane >= last) a = -infinity();
  if (lane + 32 < first || lane + 32 >= last) b = -infinity();
  // As 16 lanes over the keys i, i + 16 ... do it.
  float best = larger(a, shuffle_down(a, 16));
  best = larger(best, b);
  best = larger(best, shuffle_down(b, 16));
  for (uint32_t n = 8; n > 0; n /= 2) best = larger(best, shuffle_down(best, n));
  best = shuffle_from(best, 0);
  a = weight_of(a - best);
  b = weight_of(b - best);
  scores[lane] = a;
  scores[lane + 32] = b;
  float sum = a + shuffle_down(a, 16);
  sum = sum + b;
  sum = sum + shuffle_down(b, 16);
  for (uint32_t n = 8; n > 0; n /= 2) sum = sum + shuffle_down(sum, n);
  TileSoftmax t;
  t.max = best;
  t.sum = sum;
  return t;
}

// Factors of what is merged: the sums so far and those that are added.
struct MergeFactors {
  float old_part, added;
};

INLINE MergeFactors merge_factors(float max, float added_max) {
  const float high = larger(max, added_max);
  MergeFactors f;
  f.old_part = weight_of(max - high);
  f.added = weight_of(added_max - high);
  return f;
}

INLINE float merge_sums(float sum, float more, float old_part, float added) {
  return flush_tiny(fused(sum, old_part, more * added));
}

// What rows of a tile see of a part: what any of them sees, `shared` what all of them do.
struct TileSeen {
  Seen any, shared;
};

INLINE TileSeen seen_of_tile(ARGS(AttendArgs) args, GLOBAL const int32_t* views, uint64_t first_row,
                             uint32_t rows, uint32_t part) {
  TileSeen t;
  t.any.first = t.shared.last = PART_POSITIONS;
  t.any.last = t.shared.first = 0;
  for (uint32_t i = 0; i < rows; ++i) {
    const Seen s = seen_of(args, views, first_row + i, part);
    if (s.first >= s.last) {
      t.shared.last = 0;
      continue;
    }
    t.any.first = smaller(t.any.first, s.first);
    t.any.last = larger(t.any.last, s.last);
    t.shared.first = larger(t.shared.first, s.first);
    t.shared.last = smaller(t.shared.last, s.last);
  }
  return t;
}

// `tiles`: of each block, the first row, the number of rows and where their page table begins;
// `views`: of each row, one past its position, one past the last that it sees, and the first that
// it may see; 0 and 0 where it sees nothing. `parts` gets for each row, head and part of the run:
// the largest score, the sum of weights, the sums of values.
template <class Kv, uint32_t kQueries>
INLINE void attend(ARGS(AttendArgs) args, GLOBAL const float* q, GLOBAL const uint8_t* pages,
                   GLOBAL const int32_t* tiles, GLOBAL const int32_t* views,
                   GLOBAL const int32_t* tables, GLOBAL const float* slopes,
                   GLOBAL const float* by_position, GLOBAL float* parts, GROUP float* query,
                   GROUP float* scores, GROUP float* state, GROUP uint32_t* bounds,
                   uint32_t thread_id, uint32_t tile, uint32_t set, uint32_t part) {
  const uint32_t lane = thread_id & 31u, warp = thread_id >> 5;
  const uint32_t dim = args.page.key_dim, value_dim = args.page.value_dim;
  const uint32_t per_thread = ATTEND_DIMS(kQueries) / ATTEND_THREADS;  // dims of values
  const uint32_t first_row = uint32_t(tiles[3 * tile]), rows = uint32_t(tiles[3 * tile + 1]);
  GLOBAL const int32_t* table = tables + tiles[3 * tile + 2];
  const uint32_t kv_head = set / args.sets, group = args.heads / args.page.kv_heads;
  const uint32_t in_group = set % args.sets * args.in_set;
  const uint32_t heads = smaller(args.in_set, group - in_group);
  const uint32_t first_head = kv_head * group + in_group;
  const uint32_t queries = rows * heads;  // query i: row i / heads, head i % heads
  const TileSeen tile_seen = seen_of_tile(args, views, first_row, rows, part);
  if (tile_seen.any.last == 0) return;  // for all threads alike
  for (uint32_t i = thread_id; i < queries * dim; i += ATTEND_THREADS) {
    const uint64_t row = first_row + i / dim / heads;
    const uint64_t head = first_head + i / dim % heads;
    query[i] = flush_tiny(q[(row * args.heads + head) * dim + i % dim] * args.scale);
  }
  for (uint32_t stride = 1; stride < args.page.rotate_key; stride *= 2) {
    BARRIER();
    rotate_shared(query, stride, queries * dim, thread_id);
  }
  BARRIER();
  if (args.page.rotate_key > 0) {
    const float size = root(quotient(1.0f, float(args.page.rotate_key)));
    for (uint32_t i = thread_id; i < queries * dim; i += ATTEND_THREADS)
      query[i] = flush_tiny(query[i] * size);
  }
  // Per query: the largest score, the sum of weights, two merge factors.
  if (thread_id < kQueries) {
    state[4 * thread_id] = -infinity();
    state[4 * thread_id + 1] = 0.0f;
    const uint32_t i = smaller(thread_id, queries - 1);
    const Seen seen = seen_of(args, views, first_row + i / heads, part);
    bounds[2 * thread_id] = seen.first;
    bounds[2 * thread_id + 1] = seen.last;
  }
  float sums[kQueries][per_thread];
  UNROLL for (uint32_t i = 0; i < kQueries; ++i) UNROLL for (uint32_t j = 0; j < per_thread; ++j)
      sums[i][j] = 0.0f;
  BARRIER();
  const uint32_t last = tile_seen.any.last;
  for (uint32_t page = tile_seen.any.first / PAGE_POSITIONS; page * PAGE_POSITIONS < last; ++page) {
    GLOBAL const uint8_t* keys =
        pages +
        uint64_t(table[part * (PART_POSITIONS / PAGE_POSITIONS) + page]) * args.page.page_bytes +
        args.page.layer_offset + kv_head * args.page.head_bytes;
    {
      const uint32_t position = thread_id % PAGE_POSITIONS;
      const uint32_t first = thread_id / PAGE_POSITIONS * (kQueries / 2);
      float s[kQueries / 2];
      UNROLL for (uint32_t i = 0; i < kQueries / 2; ++i) s[i] = 0.0f;
      for (uint32_t d = 0; d < dim; ++d) {
        const float key = Kv::key(keys, args.page, d, position);
        UNROLL for (uint32_t i = 0; i < kQueries / 2; ++i) s[i] =
            fused(query[(first + i) * dim + d], key, s[i]);
      }
      UNROLL for (uint32_t i = 0; i < kQueries / 2; ++i)
          scores[(first + i) * PAGE_POSITIONS + position] = s[i];
    }
    BARRIER();
    for (uint32_t i = warp; i < queries; i += ATTEND_THREADS / 32) {
      const uint32_t base = page * PAGE_POSITIONS;
      const uint32_t first = bounds[2 * i] > base ? bounds[2 * i] - base : 0;
      const uint32_t past = bounds[2 * i + 1] > base ? bounds[2 * i + 1] - base : 0;
      if (first >= smaller(past, uint32_t(PAGE_POSITIONS))) continue;  // for the whole warp
      const uint32_t at = part * PART_POSITIONS + base;
      const int32_t distance = int32_t(at) - views[3 * (first_row + i / heads)] + 1;
      const uint32_t head = first_head + i % heads;
      const float slope = args.has_slopes != 0 ? slopes[head] : 0.0f;
      const TileSoftmax t = weigh(args, scores + i * PAGE_POSITIONS, slope, by_position, head,
                                  distance, first, past, lane);
      if (lane == 0) {
        const float old_max = state[4 * i];
        const MergeFactors f = merge_factors(old_max, t.max);
        state[4 * i] = larger(old_max, t.max);
        state[4 * i + 1] = fused(state[4 * i + 1], f.old_part, t.sum * f.added);
        state[4 * i + 2] = f.old_part;
        state[4 * i + 3] = f.added;
      }
    }
    BARRIER();
    UNROLL for (uint32_t j = 0; j < per_thread; ++j) {
      const uint32_t d = thread_id + j * ATTEND_THREADS;
      if (d >= value_dim) continue;
      float added[kQueries];
      UNROLL for (uint32_t i = 0; i < kQueries; ++i) added[i] = 0.0f;
      const uint32_t base = page * PAGE_POSITIONS;
      for (uint32_t at = larger(base, tile_seen.any.first);
           at < smaller(base + PAGE_POSITIONS, last); ++at) {
        const float value = value_of<Kv>(keys, args.page, d, at - base);
        const bool by_all = at >= tile_seen.shared.first && at < tile_seen.shared.last;
        UNROLL for (uint32_t i = 0; i < kQueries;
                    ++i) if (i < queries &&
                             (by_all || (at >= bounds[2 * i] && at < bounds[2 * i + 1]))) added[i] =
            fused(scores[i * PAGE_POSITIONS + at - base], value, added[i]);
      }
      UNROLL for (uint32_t i = 0; i < kQueries;
                  ++i) if (i < queries && bounds[2 * i] < base + PAGE_POSITIONS &&
                           bounds[2 * i + 1] > base && bounds[2 * i] < bounds[2 * i + 1])
          sums[i][j] = merge_sums(sums[i][j], added[i], state[4 * i + 2], state[4 * i + 3]);
    }
    BARRIER();
  }
  UNROLL for (uint32_t i = 0; i < kQueries; ++i) {
    if (i >= queries) continue;
    const uint64_t row = first_row + i / heads, head = first_head + i % heads;
    const uint64_t slot = (row * args.heads + head) * args.parts + part - args.first_part;
    GLOBAL float* out = parts + slot * (value_dim + 2);
    UNROLL for (uint32_t j = 0; j < per_thread; ++j) if (thread_id + j * ATTEND_THREADS < value_dim)
        out[2 + thread_id + j * ATTEND_THREADS] = sums[i][j];
    if (thread_id < 2) out[thread_id] = state[4 * i + thread_id];
  }
}

#define ATTEND_KERNEL(type, kQueries)                                                            \
  KERNEL(attend_##type##_##kQueries, AttendArgs, READ(1, float, q), READ(2, uint8_t, pages),     \
         READ(3, int32_t, tiles), READ(4, int32_t, views), READ(5, int32_t, tables),             \
         READ(6, float, slopes), READ(7, float, by_position), WRITE(8, float, parts)) {          \
    SHARED(float, query, kQueries* ATTEND_DIMS(kQueries));                                       \
    SHARED(float, scores, kQueries* PAGE_POSITIONS);                                             \
    SHARED(float, state, kQueries * 4);                                                          \
    SHARED(uint32_t, bounds, kQueries * 2);                                                      \
    attend<Kv##type, kQueries>(args, q, pages, tiles, views, tables, slopes, by_position, parts, \
                               query, scores, state, bounds, THREAD, BLOCK_X, BLOCK_Y,           \
                               args.first_part + BLOCK_Z);                                       \
  }
#define ATTEND_KERNELS(type) ATTEND_KERNEL(type, 4) ATTEND_KERNEL(type, 16)
FOR_EACH_KV_TYPE(ATTEND_KERNELS)

// A head of a row: the parts of the run, in their order, are merged into what `running` has of the
// runs before: a sum of weights of 0 where the row has seen nothing yet. In the last run a sink is
// one more part, whose values are zero, and y gets the result, zeros where the row sees nothing, or
// the arrays of a rounded one, where heads are whole groups. `rows`: of the batch.
KERNEL(merge_parts, AttendArgs, READ(1, int32_t, rows), READ(2, int32_t, views),
       READ(3, float, parts), READ(4, float, sinks), WRITE(5, float, running), WRITE(6, float, y),
       WRITE(7, int8_t, q), WRITE(8, float, scales), WRITE(9, int32_t, sums)) {
  SHARED(float, values, MERGE_DIMS);
  const uint32_t value_dim = args.page.value_dim, rotate = args.page.rotate_value;
  const uint64_t row = uint64_t(rows[BLOCK_X]);
  const uint32_t end = uint32_t(views[3 * row + 1]);
  const uint64_t result = row * args.heads + BLOCK_Y;
  GLOBAL const float* kept = parts + result * args.parts * (value_dim + 2);
  GLOBAL float* before = running + result * (value_dim + 2);
  const uint32_t first = larger(first_seen(args, views, row) / PART_POSITIONS, args.first_part);
  const uint32_t past =
      smaller(args.first_part + args.parts, (end + PART_POSITIONS - 1) / PART_POSITIONS);
  const float sum_before = args.first_run ? 0.0f : before[1];
  const bool begun = sum_before != 0.0f;  // the largest weight of a part is 1
  const float max_before = begun ? before[0] : 0.0f;
  BARRIER();  // all have read what the end of the loop replaces
  for (uint32_t d = THREAD; d < value_dim; d += ATTEND_THREADS) {
    float max = max_before, sum = sum_before, value = begun ? before[2 + d] : 0.0f;
    for (uint32_t part = first; part < past; ++part) {
      GLOBAL const float* one = kept + (part - args.first_part) * (value_dim + 2);
      if (!begun && part == first) {
        max = one[0];
        sum = one[1];
        value = one[2 + d];
        continue;
      }
      const MergeFactors f = merge_factors(max, one[0]);
      max = larger(max, one[0]);
      sum = fused(sum, f.old_part, one[1] * f.added);
      value = merge_sums(value, one[2 + d], f.old_part, f.added);
    }
    if (!args.last_run) {
      before[2 + d] = value;
      if (d == 0) {
        before[0] = max;
        before[1] = sum;
      }
      continue;
    }
    if (args.has_sinks) {
      const MergeFactors f = merge_factors(max, sinks[BLOCK_Y]);
      sum = fused(sum, f.old_part, f.added);
      value = merge_sums(value, 0.0f, f.old_part, f.added);
    }
    values[d] = sum == 0.0f ? 0.0f : flush_tiny(value * quotient(1.0f, sum));
  }
  if (!args.last_run) return;  // for all threads alike
  for (uint32_t stride = 1; stride < rotate; stride *= 2) {
    BARRIER();
    rotate_shared(values, stride, value_dim, THREAD);
  }
  BARRIER();
  const float size = rotate > 0 ? root(quotient(1.0f, float(rotate))) : 1.0f;
  for (uint32_t d = THREAD; d < value_dim; d += ATTEND_THREADS)
    put_value(rotate > 0 ? flush_tiny(values[d] * size) : values[d], LANE, result * value_dim + d,
              args.round, y, q, scales, sums);
}
