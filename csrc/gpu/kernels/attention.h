// Softmax attention over pages (docs/arithmetic.md, rule 5).
//
// attend: a block of 128 threads takes one tile of the context, 64 positions, or a part, 512
// positions, for up to 4 * kOfWarp queries that share a key-value head: the heads of a set, of
// neighbouring rows of one sequence. Few rows take tiles, so that a short context occupies many
// blocks too; rows of a prompt take parts, whose tiles are merged in registers. The block loads
// keys and then values as they are, 16 bytes a thread, while it computes on what came before; a
// warp has kOfWarp of the queries, a lane two positions of their scores, then some dims of their
// values. merge (gpu/kernels/merge_attention.h) puts them together. Budget of a warp for a tile,
// heads of 128 dims and Q queries of the warp: 256 * Q fmas for the scores and as many for the
// values, 256 conversions for each, some 90 * Q for the weights.

#define ATTEND_THREADS 128
#define ATTEND_WARPS 4
// Dims of a head, at most, by queries of a warp: what shared memory holds.
#define ATTEND_DIMS(kOfWarp) ((kOfWarp) == 4 ? 128 : (kOfWarp) == 2 ? 256 : 640)
#define PART_POSITIONS 512
#define PART_TILES (PART_POSITIONS / PAGE_POSITIONS)

// What a query sees of `count` positions from `base` on: positions base + first .. base + last - 1.
struct Seen {
  uint32_t first, last;
};

// The first position that a row sees: one of its window.
INLINE uint32_t first_seen(ARGS(AttendArgs) args, GLOBAL const int32_t* views, uint64_t row) {
  const uint32_t own_end = uint32_t(views[3 * row]), begin = uint32_t(views[3 * row + 2]);
  if (args.chunk > 0) return (own_end - 1) / args.chunk * args.chunk;
  if (args.global_tokens > 0 || args.block_size > 0) return begin;
  return larger(begin, args.window > 0 && own_end > args.window ? own_end - args.window : 0);
}

INLINE Seen seen_of(ARGS(AttendArgs) args, GLOBAL const int32_t* views, uint64_t row, uint32_t base,
                    uint32_t count) {
  const uint32_t begin = first_seen(args, views, row), end = uint32_t(views[3 * row + 1]);
  Seen s;
  s.first = begin > base ? begin - base : 0;
  s.last = end > base ? smaller(end - base, count) : 0;
  return s;
}

// The butterflies of the rotation over queries in shared memory.
template <uint32_t kThreads>
INLINE void rotate_shared(GROUP float* values, uint32_t stride, uint32_t count,
                          uint32_t thread_id) {
  for (uint32_t pair = thread_id; pair < count / 2; pair += kThreads) {
    const uint32_t i = pair / stride * 2 * stride + pair % stride;
    const float a = values[i], b = values[i + stride];
    values[i] = a + b;
    values[i + stride] = a - b;
  }
}

// graph::KeyPattern::sees().
INLINE bool sees(ARGS(AttendArgs) args, uint32_t head, int32_t query, int32_t key) {
  if (key < int32_t(args.global_tokens) || key > query) return true;
  if (args.block_size == 0)
    return query - key < int32_t(args.window) && (query - key) % int32_t(args.dilation) == 0;
  const int32_t size = int32_t(args.block_size), block = key / size;
  const uint64_t step = uint64_t(args.first_head + head) * args.head_step;
  return query / size - block < int32_t(args.window) / size ||
         (uint64_t(block) + 1 + step) % args.block_stride == 0;
}

// A score, with its soft-cap and its biases; the key, at position `key`, is `distance` after the
// query.
INLINE float final_score(ARGS(AttendArgs) args, float score, float slope,
                         GLOBAL const float* by_position, uint32_t head, int32_t distance,
                         int32_t key) {
  if (args.has_pattern != 0 && !sees(args, head, key - distance, key))
    return -1e30f;  // graph::kHiddenScore
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

// Scores of a warp's query, each kStride after the one before, to weights; the tile's largest
// score, and to lane 0 its sum. `distance` is that of the tile's first key, at position
// `first_key`, after the query.
struct TileSoftmax {
  float max, sum;
};

template <uint32_t kStride>
INLINE TileSoftmax weigh(ARGS(AttendArgs) args, GROUP float* scores, float slope,
                         GLOBAL const float* by_position, uint32_t head, int32_t distance,
                         int32_t first_key, uint32_t first, uint32_t last, uint32_t lane) {
  const int32_t at = distance + int32_t(lane), key = first_key + int32_t(lane);
  float a = final_score(args, scores[lane * kStride], slope, by_position, head, at, key);
  float b =
      final_score(args, scores[(lane + 32) * kStride], slope, by_position, head, at + 32, key + 32);
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
  scores[lane * kStride] = a;
  scores[(lane + 32) * kStride] = b;
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

// Keys or values between memory and shared memory: a thread's share of the kDims dims from
// `first_dim` on of a page's 64 positions, and of the scales of their groups. In place of dims that
// a head lacks, and of positions that no row sees, there are others, which nobody uses.
template <class Kv>
struct Share {
  Words4 codes[Kv::kBytes / 16 / ATTEND_THREADS];
  Words4 scales;
};

INLINE Words4 load_words(GLOBAL const uint8_t* bytes, uint64_t at) {
  GLOBAL const Words4* from = (GLOBAL const Words4*)(bytes + at);
  Words4 w;
  w.x = from->x;
  w.y = from->y;
  w.z = from->z;
  w.w = from->w;
  return w;
}

INLINE Floats4 read_floats(GROUP const Floats4* from) {
  Floats4 f;
  f.x = from->x;
  f.y = from->y;
  f.z = from->z;
  f.w = from->w;
  return f;
}

INLINE void put_words(GROUP Words4* to, Words4 w) {
  to->x = w.x;
  to->y = w.y;
  to->z = w.z;
  to->w = w.w;
}

template <class Kv>
INLINE Words4 load_scales(GLOBAL const uint8_t* scales, uint64_t bytes, uint32_t first_dim,
                          uint32_t thread_id) {
  const uint64_t at = first_dim / KV_GROUP * PAGE_POSITIONS * 2 + thread_id % 32 * 16;
  return load_words(scales, at < bytes ? at : 0);
}

template <class Kv>
INLINE Share<Kv> load_keys(GLOBAL const uint8_t* keys, ARGS(PageArgs) page, uint32_t first_dim,
                           uint32_t thread_id) {
  const uint32_t count = Kv::kBytes / 16 / ATTEND_THREADS;
  const uint32_t begin = first_dim / Kv::kDims * Kv::kBytes;
  Share<Kv> s;
  UNROLL for (uint32_t i = 0; i < count; ++i) {
    const uint32_t at = begin + (i * ATTEND_THREADS + thread_id) * 16;
    s.codes[i] = load_words(keys, at < page.key_scales ? at : 0);
  }
  if (Kv::kScales != 0)
    s.scales = load_scales<Kv>(keys + page.key_scales, page.key_bytes - page.key_scales, first_dim,
                               thread_id);
  return s;
}

template <class Kv>
INLINE Share<Kv> load_values(GLOBAL const uint8_t* values, ARGS(PageArgs) page, uint32_t first_dim,
                             uint32_t last, uint32_t thread_id) {
  const uint32_t count = Kv::kBytes / 16 / ATTEND_THREADS, row = Kv::kBytes / PAGE_POSITIONS;
  const uint32_t begin = first_dim / Kv::kDims * row;
  Share<Kv> s;
  UNROLL for (uint32_t i = 0; i < count; ++i) {
    const uint32_t at = (i * ATTEND_THREADS + thread_id) * 16, in_row = begin + at % row;
    const uint32_t position = smaller(at / row, last - 1);
    s.codes[i] =
        load_words(values, position * page.value_row + (in_row < page.value_row ? in_row : 0));
  }
  if (Kv::kScales != 0)
    s.scales =
        load_scales<Kv>(values + page.value_scales,
                        page.head_bytes - page.key_bytes - page.value_scales, first_dim, thread_id);
  return s;
}

template <class Kv>
INLINE void put_share(const PRIVATE Share<Kv>* s, GROUP uint32_t* tile, GROUP uint32_t* scales,
                      uint32_t thread_id) {
  const uint32_t count = Kv::kBytes / 16 / ATTEND_THREADS;
  UNROLL for (uint32_t i = 0; i < count; ++i)
      put_words((GROUP Words4*)tile + i * ATTEND_THREADS + thread_id, s->codes[i]);
  if (Kv::kScales != 0 && thread_id < 32) put_words((GROUP Words4*)scales + thread_id, s->scales);
}

INLINE KeyPair add_products(KeyPair scores, float factor, KeyPair key) {
  scores.first = fused(factor, key.first, scores.first);
  scores.second = fused(factor, key.second, scores.second);
  return scores;
}

// A lane's sums of dims of the values, for each query of its warp.
template <class Kv, uint32_t kOfWarp>
struct Sums {
  float of[kOfWarp][Kv::kLaneDims];
};

template <class Kv, uint32_t kOfWarp>
INLINE void clear_sums(PRIVATE Sums<Kv, kOfWarp>* s) {
  UNROLL for (uint32_t i = 0; i < kOfWarp; ++i) UNROLL for (uint32_t k = 0; k < Kv::kLaneDims; ++k)
      s->of[i][k] = 0.0f;
}

// Positions first .. last - 1 of a tile, for query i.
template <class Kv, uint32_t kOfWarp>
INLINE void add_own(PRIVATE Sums<Kv, kOfWarp>* s, uint32_t i, GROUP const uint32_t* tile,
                    GROUP const uint16_t* scales, GROUP const float* weights, uint32_t first,
                    uint32_t last, uint32_t lane) {
  NO_UNROLL for (uint32_t at = first; at < last; ++at) {
    const ValueDims v = Kv::values(tile, scales, at, lane);
    UNROLL for (uint32_t k = 0; k < Kv::kLaneDims; ++k) s->of[i][k] =
        fused(weights[at * kOfWarp + i], v.dims[k], s->of[i][k]);
  }
}

// The values of a tile, in order, for each query those which it sees; `all` is what all of them
// see.
template <class Kv, uint32_t kOfWarp>
INLINE void add_values(PRIVATE Sums<Kv, kOfWarp>* s, GROUP const uint32_t* tile,
                       GROUP const uint16_t* scales, GROUP const float* weights,
                       const PRIVATE Seen* seen, Seen all, uint32_t lane) {
  if (kOfWarp > 1)
    UNROLL for (uint32_t i = 0; i < kOfWarp; ++i) add_own<Kv, kOfWarp>(
        s, i, tile, scales, weights, seen[i].first, smaller(all.first, seen[i].last), lane);
  for (uint32_t at = all.first; at < all.last; ++at) {
    const ValueDims v = Kv::values(tile, scales, at, lane);
    UNROLL for (uint32_t i = 0; i < kOfWarp; ++i)
        UNROLL for (uint32_t k = 0; k < Kv::kLaneDims; ++k)
            s->of[i][k] = fused(weights[at * kOfWarp + i], v.dims[k], s->of[i][k]);
  }
  if (kOfWarp > 1)
    UNROLL for (uint32_t i = 0; i < kOfWarp; ++i) add_own<Kv, kOfWarp>(
        s, i, tile, scales, weights, larger(all.last, seen[i].first), seen[i].last, lane);
}

// Where a query's piece of the run goes in `parts`.
template <bool kOfTiles>
INLINE GLOBAL float* place_of(ARGS(AttendArgs) args, GLOBAL float* parts, uint32_t first_row,
                              uint32_t first_head, uint32_t heads, uint32_t query, uint32_t piece) {
  const uint64_t row = first_row + query / heads, head = first_head + query % heads;
  const uint64_t pieces = args.parts * (kOfTiles ? PART_TILES : 1);
  return parts + ((row * args.heads + head) * pieces + piece) * (args.page.value_dim + 2);
}

// A lane's sums of the dims from first_dim on.
template <class Kv, uint32_t kOfWarp>
INLINE void put_sums(GLOBAL float* place, const PRIVATE Sums<Kv, kOfWarp>* s, uint32_t i,
                     uint32_t first_dim, uint32_t value_dim, uint32_t lane) {
  UNROLL for (uint32_t k = 0; k < Kv::kLaneDims; ++k) {
    const uint32_t d = first_dim + Kv::dim_of(lane, k);
    if (d < value_dim) place[2 + d] = s->of[i][k];
  }
}

// `tiles`: of each block, the first row, the number of rows and where their page table begins;
// `views`: of each row, one past its position, one past the last that it sees, and the first that
// it may see; 0 and 0 where it sees nothing. `parts` gets for each row, head and piece of the run
// that the row sees, a tile or a part: the largest score, the sum of weights, the sums of values.
// kPrepared: `query` holds the queries, each a pitch after the one before.
template <class Kv, uint32_t kOfWarp, bool kOfTiles, bool kPrepared>
INLINE void attend(ARGS(AttendArgs) args, GLOBAL const float* q, GLOBAL const uint8_t* pages,
                   GLOBAL const int32_t* tiles, GLOBAL const int32_t* views,
                   GLOBAL const int32_t* tables, GLOBAL const float* slopes,
                   GLOBAL const float* by_position, GLOBAL float* parts, GROUP uint32_t* held,
                   GROUP uint32_t* held_scales, GROUP float* query, GROUP float* all_weights,
                   uint32_t thread_id, uint32_t tile, uint32_t set, uint32_t piece) {
  const uint32_t lane = thread_id & 31u, warp = thread_id >> 5;
  const uint32_t dim = args.page.key_dim, value_dim = args.page.value_dim;
  const uint32_t pitch = (dim + 3) / 4 * 4;  // floats of a query in shared memory
  const uint32_t first_row = uint32_t(tiles[3 * tile]), rows = uint32_t(tiles[3 * tile + 1]);
  GLOBAL const int32_t* table = tables + tiles[3 * tile + 2];
  const uint32_t kv_head = set / args.sets, group = args.heads / args.page.kv_heads;
  const uint32_t in_group = set % args.sets * args.in_set;
  const uint32_t heads = smaller(args.in_set, group - in_group);
  const uint32_t first_head = kv_head * group + in_group;
  const uint32_t queries = rows * heads;  // query i: row i / heads, head i % heads
  const uint32_t positions = kOfTiles ? PAGE_POSITIONS : PART_POSITIONS;
  const uint32_t base = args.first_part * PART_POSITIONS + piece * positions;
  // What any of the rows sees of the piece.
  Seen any;
  any.first = positions;
  any.last = 0;
  for (uint32_t i = 0; i < rows; ++i) {
    const Seen s = seen_of(args, views, first_row + i, base, positions);
    if (s.first >= s.last) continue;
    any.first = smaller(any.first, s.first);
    any.last = larger(any.last, s.last);
  }
  if (any.last == 0) return;  // for all threads alike
  const uint32_t pages_before = base / PAGE_POSITIONS;
  const uint64_t in_page = args.page.layer_offset + kv_head * args.page.head_bytes;
  uint32_t page = any.first / PAGE_POSITIONS;
  GLOBAL const uint8_t* keys =
      pages + uint64_t(table[pages_before + page]) * args.page.page_bytes + in_page;
  Share<Kv> next = load_keys<Kv>(keys, args.page, 0, thread_id);

  for (uint32_t i = thread_id; i < queries * pitch; i += ATTEND_THREADS) {
    const uint32_t d = i % pitch;
    const uint64_t row = first_row + i / pitch / heads, head = first_head + i / pitch % heads;
    const float x = d >= dim ? 0.0f : kPrepared ? query[i] : q[(row * args.heads + head) * dim + d];
    query[i] = flush_tiny(x * args.scale);
  }
  for (uint32_t stride = 1; stride < args.page.rotate_key; stride *= 2) {
    BARRIER();
    rotate_shared<ATTEND_THREADS>(query, stride, queries * pitch, thread_id);
  }
  if (args.page.rotate_key > 0) {
    BARRIER();
    const float size = root(quotient(1.0f, float(args.page.rotate_key)));
    for (uint32_t i = thread_id; i < queries * pitch; i += ATTEND_THREADS)
      query[i] = flush_tiny(query[i] * size);
  }

  const uint32_t own = warp * kOfWarp;  // the warp's first query
  GROUP const float* own_query = query + own * pitch;
  GROUP float* weights = all_weights + own * PAGE_POSITIONS;
  GROUP const uint16_t* scales = (GROUP const uint16_t*)held_scales;
  Seen seen[kOfWarp];  // of the piece
  TileSoftmax state[kOfWarp];
  UNROLL for (uint32_t i = 0; i < kOfWarp; ++i) {
    seen[i].first = seen[i].last = 0;
    if (own + i < queries)
      seen[i] = seen_of(args, views, first_row + (own + i) / heads, base, positions);
    state[i].max = -infinity();
    state[i].sum = 0.0f;
  }
  // Values of a part are merged tile by tile, all dims of them; those of a tile are done at once.
  const uint32_t chunks = kOfTiles ? 1 : ATTEND_DIMS(kOfWarp) / Kv::kDims;
  Sums<Kv, kOfWarp> sums[chunks];
  UNROLL for (uint32_t c = 0; c < chunks; ++c) clear_sums<Kv, kOfWarp>(&sums[c]);

  while (true) {
    KeyPair scores[kOfWarp];
    UNROLL for (uint32_t i = 0; i < kOfWarp; ++i) scores[i].first = scores[i].second = 0.0f;
    // What the tile has of each query's positions.
    const uint32_t begin = page * PAGE_POSITIONS;
    const uint32_t last = smaller(any.last - begin, uint32_t(PAGE_POSITIONS));
    for (uint32_t first_dim = 0; first_dim < dim; first_dim += Kv::kDims) {
      BARRIER();  // all have read what was there
      put_share<Kv>(&next, held, held_scales, thread_id);
      if (first_dim + Kv::kDims < dim)
        next = load_keys<Kv>(keys, args.page, first_dim + Kv::kDims, thread_id);
      else if (!args.page.value_in_key)
        next = load_values<Kv>(keys + args.page.key_bytes, args.page, 0, last, thread_id);
      BARRIER();
      if (own >= queries) continue;  // for the whole warp
      const uint32_t here = smaller(dim - first_dim, uint32_t(Kv::kDims));
      uint32_t d = 0;
      for (; d + 4 <= here; d += 4) {
        Floats4 x[kOfWarp];
        UNROLL for (uint32_t i = 0; i < kOfWarp; ++i) x[i] =
            read_floats((GROUP const Floats4*)(own_query + i * pitch + first_dim + d));
        UNROLL for (uint32_t j = 0; j < 4; ++j) {
          const KeyPair key = Kv::keys(held, scales, d + j, lane);
          UNROLL for (uint32_t i = 0; i < kOfWarp; ++i) scores[i] = add_products(scores[i],
                                                                                 j == 0   ? x[i].x
                                                                                 : j == 1 ? x[i].y
                                                                                 : j == 2 ? x[i].z
                                                                                          : x[i].w,
                                                                                 key);
        }
      }
      NO_UNROLL for (; d < here; ++d) {
        const KeyPair key = Kv::keys(held, scales, d, lane);
        UNROLL for (uint32_t i = 0; i < kOfWarp; ++i) scores[i] =
            add_products(scores[i], own_query[i * pitch + first_dim + d], key);
      }
    }
    UNROLL for (uint32_t i = 0; i < kOfWarp; ++i) {
      weights[2 * lane * kOfWarp + i] = scores[i].first;
      weights[(2 * lane + 1) * kOfWarp + i] = scores[i].second;
    }
    BARRIER();
    Seen here[kOfWarp], all;  // of the tile; what all queries that see it see
    MergeFactors factors[kOfWarp];
    all.first = 0;
    all.last = PAGE_POSITIONS;
    bool none = true;
    UNROLL for (uint32_t i = 0; i < kOfWarp; ++i) {
      here[i].first = seen[i].first > begin ? seen[i].first - begin : 0;
      here[i].last =
          seen[i].last > begin ? smaller(seen[i].last - begin, uint32_t(PAGE_POSITIONS)) : 0;
      if (here[i].first >= here[i].last) {  // for the whole warp
        here[i].first = here[i].last = 0;
        continue;
      }
      none = false;
      all.first = larger(all.first, here[i].first);
      all.last = smaller(all.last, here[i].last);
      const uint32_t head = first_head + (own + i) % heads;
      const int32_t distance =
          int32_t(base + begin) - views[3 * (first_row + (own + i) / heads)] + 1;
      const TileSoftmax t =
          weigh<kOfWarp>(args, weights + i, args.has_slopes != 0 ? slopes[head] : 0.0f, by_position,
                         head, distance, int32_t(base + begin), here[i].first, here[i].last, lane);
      factors[i] = merge_factors(state[i].max, t.max);
      state[i].sum =
          kOfTiles ? t.sum : fused(state[i].sum, factors[i].old_part, t.sum * factors[i].added);
      state[i].max = larger(state[i].max, t.max);
    }
    if (none || all.first >= all.last) all.first = all.last = PAGE_POSITIONS;

    if (kOfTiles && args.page.value_in_key) {
      BARRIER();
      // A thread a dim, for all queries of the block, from the page itself.
      for (uint32_t d = thread_id; d < value_dim; d += ATTEND_THREADS) {
        for (uint32_t i = 0; i < queries; ++i) {
          const Seen own_seen = seen_of(args, views, first_row + i / heads, base, positions);
          if (own_seen.first >= own_seen.last) continue;
          float sum = 0.0f;
          NO_UNROLL for (uint32_t at = own_seen.first; at < own_seen.last; ++at) sum =
              fused(all_weights[i * PAGE_POSITIONS + at], Kv::key(keys, args.page, d, at), sum);
          place_of<kOfTiles>(args, parts, first_row, first_head, heads, i, piece)[2 + d] = sum;
        }
      }
      break;
    }
    const bool more = page * PAGE_POSITIONS + PAGE_POSITIONS < any.last;
    GLOBAL const uint8_t* values = keys + args.page.key_bytes;
    if (more)
      keys = pages + uint64_t(table[pages_before + page + 1]) * args.page.page_bytes + in_page;
    for (uint32_t first_dim = 0; first_dim < value_dim; first_dim += chunks * Kv::kDims) {
      UNROLL for (uint32_t c = 0; c < chunks; ++c) {
        const uint32_t from = first_dim + c * Kv::kDims;
        if (from >= value_dim) break;
        if (from > 0) BARRIER();  // all have read what was there
        put_share<Kv>(&next, held, held_scales, thread_id);
        if (from + Kv::kDims < value_dim)
          next = load_values<Kv>(values, args.page, from + Kv::kDims, last, thread_id);
        else if (more)
          next = load_keys<Kv>(keys, args.page, 0, thread_id);
        BARRIER();
        Sums<Kv, kOfWarp> added;
        clear_sums<Kv, kOfWarp>(&added);
        add_values<Kv, kOfWarp>(&added, held, scales, weights, here, all, lane);
        UNROLL for (uint32_t i = 0; i < kOfWarp; ++i) {
          if (here[i].last == 0) continue;
          if (kOfTiles)
            put_sums<Kv, kOfWarp>(
                place_of<kOfTiles>(args, parts, first_row, first_head, heads, own + i, piece),
                &added, i, from, value_dim, lane);
          else
            UNROLL for (uint32_t k = 0; k < Kv::kLaneDims; ++k) sums[c].of[i][k] =
                merge_sums(sums[c].of[i][k], added.of[i][k], factors[i].old_part, factors[i].added);
        }
      }
    }
    if (!more) break;
    ++page;
  }
  UNROLL for (uint32_t i = 0; i < kOfWarp; ++i) {
    if (seen[i].first >= seen[i].last) continue;
    GLOBAL float* place =
        place_of<kOfTiles>(args, parts, first_row, first_head, heads, own + i, piece);
    if (!kOfTiles)
      UNROLL for (uint32_t c = 0; c < chunks; ++c)
          put_sums<Kv, kOfWarp>(place, &sums[c], i, c * Kv::kDims, value_dim, lane);
    if (lane == 0) {
      place[0] = state[i].max;
      place[1] = state[i].sum;
    }
  }
}

#define ATTEND_KERNEL(name, type, kOfWarp, kOfTiles)                                         \
  KERNEL(attend_##name##_##type, AttendArgs, READ(1, float, q), READ(2, uint8_t, pages),     \
         READ(3, int32_t, tiles), READ(4, int32_t, views), READ(5, int32_t, tables),         \
         READ(6, float, slopes), READ(7, float, by_position), WRITE(8, float, parts)) {      \
    SHARED(uint32_t, held, Kv##type::kBytes / 4);                                            \
    SHARED(uint32_t, held_scales, 128);                                                      \
    SHARED(float, query, ATTEND_WARPS* kOfWarp* ATTEND_DIMS(kOfWarp));                       \
    SHARED(float, weights, ATTEND_WARPS* kOfWarp* PAGE_POSITIONS);                           \
    attend<Kv##type, kOfWarp, kOfTiles, false>(args, q, pages, tiles, views, tables, slopes, \
                                               by_position, parts, held, held_scales, query, \
                                               weights, THREAD, BLOCK_X, BLOCK_Y, BLOCK_Z);  \
  }
#define ATTEND_KERNELS(type)          \
  ATTEND_KERNEL(tile, type, 1, true)  \
  ATTEND_KERNEL(part, type, 4, false) \
  ATTEND_KERNEL(wide_part, type, 2, false)
FOR_EACH_KV_TYPE(ATTEND_KERNELS)
